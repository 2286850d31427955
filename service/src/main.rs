//! The command line of Odometer.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use actix_web::rt::System;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Receiver};

use odometer::application::{self, Application, Failure};
use odometer::config::{Config, Environment, Flags};
use odometer::telemetry::Exporting;
use odometer::{apply, check_name, telemetry};

/// Numbers that never repeat, over HTTP, from an ordinary database.
#[derive(Debug, Parser)]
#[command(name = "odometer", version)]
struct CommandLine {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer calls over HTTP; what happens when no command is given.
    Serve,
    /// Create the schema of each database or bring it up to date; may be run again, and by several
    /// at once.
    Migrate,
    /// Look at configuration and databases, and change nothing.
    Check {
        /// Say what a sequence of this name would be created from, and look at no database.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Make the definitions of a file so, those of `[sequences.NAME]`; may be run again.
    Apply {
        /// TOML file of definitions.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Say what would be changed, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// After a restore or a failover to an older state: let every sequence go on above what may
    /// have been issued since.
    Recover {
        /// More numbers than any sequence can have reserved since the state that was restored.
        #[arg(long, value_name = "N")]
        skip: Option<u64>,
        /// Only the sequences of this store; those of all where none is given.
        #[arg(long, value_name = "NAME")]
        store: Option<String>,
        /// Say what would be done, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

fn main() -> ExitCode {
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) => {
            // Help that cannot be printed has no other way out.
            let _ = error.print();
            let asked_for = error.exit_code() == 0;
            return if asked_for {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(Failure::CONFIGURATION)
            };
        }
    };
    let (config, _exporting) = match start_logging(&command_line.flags) {
        Ok(started) => started,
        Err(failure) => {
            eprintln!("odometer: {failure}");
            return ExitCode::from(failure.exit_code());
        }
    };
    let command = command_line.command.unwrap_or(Command::Serve);
    match System::new().block_on(run(command, config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.exit_code()),
    }
}

fn start_logging(flags: &Flags) -> Result<(Config, Exporting), Failure> {
    let config = Config::load(flags, &Environment::of_process())?;
    let endpoint = config.telemetry.otlp_endpoint.as_deref();
    let exporting = telemetry::init(&config.log, endpoint).map_err(Failure::configuration)?;
    Ok((config, exporting))
}

async fn run(command: Command, config: Config) -> Result<(), Failure> {
    let mut tell = |line| print(vec![line]);
    let outcome = match command {
        Command::Serve => serve(&config).await,
        Command::Migrate => until_signal(application::migrate(&config)).await,
        Command::Check { name: None } => until_signal(application::check(&config, &mut tell)).await,
        Command::Check { name: Some(name) } => check_name::check_name(&config, &name).map(print),
        Command::Apply { file, dry_run } => {
            until_signal(apply::apply(&config, &file, dry_run, &mut tell)).await
        }
        Command::Recover {
            skip,
            store,
            dry_run,
        } => {
            let store = store.as_deref();
            until_signal(application::recover(
                &config, store, skip, dry_run, &mut tell,
            ))
            .await
        }
    };
    if let Err(failure) = &outcome {
        tracing::error!(exit_code = failure.exit_code(), "{failure}");
    }
    outcome
}

/// What ends by itself, or at the first signal, wherever it is: as the first process of a container
/// it would else not notice one. What a statement of it has done stays, as after a kill.
async fn until_signal(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let mut signals = received()?;
    tokio::select! {
        outcome = command => outcome,
        Some(signal) = signals.recv() => Err(Failure::other(format!(
            "ended by {signal} before it was done; what it had done by then stays: look before you \
             run it again"
        ))),
    }
}

/// What a command found out or did is its output, on standard output.
fn print(lines: Vec<String>) {
    let mut output = std::io::stdout().lock();
    for line in lines {
        // Who stops reading does not stop what is being done.
        let _unread = writeln!(output, "{line}");
    }
}

async fn serve(config: &Config) -> Result<(), Failure> {
    // Taken before anything starts: a signal during the start stops it in order, too.
    let signals = received()?;
    Application::start(config).await?.run(signals).await
}

fn received() -> Result<Receiver<&'static str>, Failure> {
    signals().map_err(|error| Failure::other(format!("signals cannot be received: {error}")))
}

/// SIGTERM and SIGINT, by name.
fn signals() -> std::io::Result<Receiver<&'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if sender.send(name).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
