//! Reads the command line, and runs the command that it names.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use actix_web::rt::System;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use jiff::Timestamp;
use odometer_store::{Arming, FenceRequest, Loss};
use rustix::fs::Mode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, Receiver};

use crate::application::Application;
use crate::apply::{self, ApplyOptions};
use crate::command_failure::CommandFailure;
use crate::commands;
use crate::config::{Config, Environment, Flags};
use crate::telemetry::Exporting;
use crate::{check_name, telemetry};

/// The target of the last line of a command that failed: the program itself.
const TARGET: &str = "odometer";

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
    /// Answer calls over HTTP. This is the command if you give none.
    Serve,
    /// Create the schema of each database, or bring the schema up to date. You may run the command
    /// again, and several times at once.
    Migrate {
        /// Then let a program of an earlier version use the databases again. Failovers are left to
        /// you from then on.
        #[arg(long)]
        disarm: bool,
        /// Take --disarm back.
        #[arg(long, conflicts_with = "disarm")]
        arm: bool,
    },
    /// Look at configuration and databases, and change nothing.
    Check {
        /// Say what a sequence of this name would be created from, and look at no database.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Create or change sequences until they are as the definitions `[sequences.NAME]` of a file
    /// say. You may run the command again.
    Apply {
        /// TOML file of definitions.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Say what would be changed, and change nothing.
        #[arg(long)]
        dry_run: bool,
        /// Say only what is refused, and the sum. Leave out the progress and each result.
        #[arg(long)]
        quiet: bool,
    },
    /// Let every sequence go on above what may have been issued. Use it after a restore, or after a
    /// failover to an older state.
    Recover(RecoverOptions),
}

#[derive(Debug, Args)]
struct RecoverOptions {
    /// Only this sequence, which waits for --skip or --nothing-was-lost after a failover.
    #[arg(value_name = "NAME")]
    sequence: Option<String>,
    /// More numbers than any sequence can have reserved since the state that was restored.
    #[arg(long, value_name = "N")]
    skip: Option<u64>,
    /// Compute what may be lost since this time (RFC 3339). The time must not be later than the
    /// database itself shows.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["sequence", "skip", "nothing_was_lost"])]
    since: Option<Timestamp>,
    /// Skip nothing. Use it if the database has all that it had, on another server than before.
    #[arg(long, conflicts_with = "skip")]
    nothing_was_lost: bool,
    /// Let new sequences and periods begin at their start again. Use it if no sequence and no
    /// period was first used in what was lost.
    #[arg(long, conflicts_with_all = ["sequence", "skip", "since", "nothing_was_lost"])]
    births_from_start: bool,
    /// Recover only the sequences of this store. If you give none, those of all stores.
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask. You need this option if standard input is no terminal.
    #[arg(long)]
    yes: bool,
}

/// Returns the description of the command line, with the texts of every `--help`.
pub fn describe() -> clap::Command {
    CommandLine::command()
}

/// Runs the program: reads the command line and the environment of this process, runs the command,
/// and returns the exit code.
pub fn run_program() -> ExitCode {
    let environment = Environment::of_process();
    #[cfg(feature = "sabotage")]
    {
        let (words, clock_shift_ms) = crate::config::faults(&environment);
        odometer_process::faults::arm(&words, clock_shift_ms);
    }
    let command_line = match CommandLine::try_parse() {
        Ok(command_line) => command_line,
        Err(error) => {
            // If the help cannot be printed, there is no other place to report that.
            let _ = error.print();
            let asked_for = error.exit_code() == 0;
            return if asked_for {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(CommandFailure::CONFIGURATION)
            };
        }
    };
    let (config, _exporting) = match start_logging(&command_line.flags, &environment) {
        Ok(started) => started,
        Err(failure) => {
            eprintln!("odometer: {failure}");
            return ExitCode::from(failure.exit_code());
        }
    };
    // Only this user may use the files that are created from here on, above all the files of
    // SQLite.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let command = command_line.command.unwrap_or(Command::Serve);
    match System::new().block_on(run(command, config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.exit_code()),
    }
}

fn start_logging(
    flags: &Flags,
    environment: &Environment,
) -> Result<(Config, Exporting), CommandFailure> {
    let config = Config::load(flags, environment)?;
    let endpoint = config.telemetry.otlp_endpoint.as_deref();
    let exporting =
        telemetry::init(&config.log, endpoint).map_err(CommandFailure::configuration)?;
    Ok((config, exporting))
}

async fn run(command: Command, config: Config) -> Result<(), CommandFailure> {
    let mut tell = |line| print(vec![line]);
    let outcome = match command {
        Command::Serve => serve(&config).await,
        Command::Migrate { disarm, arm } => {
            let arming = match (disarm, arm) {
                (true, _) => Some(Arming::Off),
                (false, true) => Some(Arming::Allowed),
                (false, false) => None,
            };
            until_signal(commands::migrate(&config, arming)).await
        }
        Command::Check { name: None } => until_signal(commands::check(&config, &mut tell)).await,
        Command::Check { name: Some(name) } => check_name::check_name(&config, &name).map(print),
        Command::Apply {
            file,
            dry_run,
            quiet,
        } => {
            let how = ApplyOptions { dry_run, quiet };
            until_signal(apply::apply(&config, &file, how, &mut tell)).await
        }
        Command::Recover(options) => {
            let store = options.store.as_deref();
            let recovering = async {
                let loss = options.loss()?;
                if !options.dry_run && !options.yes {
                    ask_to_recover(&config, store, &loss, &mut tell).await?;
                }
                commands::recover(&config, store, &loss, options.dry_run, &mut tell).await
            };
            until_signal(recovering).await
        }
    };
    if let Err(failure) = &outcome {
        tracing::error!(target: TARGET, exit_code = failure.exit_code(), "{failure}");
    }
    outcome
}

impl RecoverOptions {
    /// Returns what an operator says was lost.
    fn loss(&self) -> Result<Loss, CommandFailure> {
        match (self.sequence.clone(), self.skip) {
            (_, Some(0)) => Err(CommandFailure::configuration(
                "--skip: give N, above 0, or --nothing-was-lost",
            )),
            _ if self.births_from_start => Ok(Loss::NoCounter),
            (Some(name), None) if !self.nothing_was_lost => {
                Err(CommandFailure::configuration(format!(
                    "NAME: what `{name}` has lost cannot be computed; give --skip N or \
                     --nothing-was-lost"
                )))
            }
            (Some(name), skip) => Ok(Loss::OfSequence {
                name,
                n_steps: skip.unwrap_or(0),
            }),
            (None, _) if self.nothing_was_lost => Ok(Loss::Steps(0)),
            (None, Some(skip)) => Ok(Loss::Steps(skip)),
            (None, None) => Ok(Loss::Computed(match self.since {
                Some(since) => FenceRequest::since(since.as_microsecond()),
                None => FenceRequest::default(),
            })),
        }
    }
}

/// Shows what a recovery would do, and asks whether to do it.
async fn ask_to_recover(
    config: &Config,
    store: Option<&str>,
    loss: &Loss,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandFailure::configuration(
            "--yes: a recovery cannot be undone, and standard input is no terminal on which you \
             could be asked; look with --dry-run, then give --yes",
        ));
    }
    commands::recover(config, store, loss, true, tell).await?;
    tell("A recovery cannot be undone. Do it? Type yes:".to_owned());
    let (sender, typed) = tokio::sync::oneshot::channel();
    // The thread is separate, so that a signal need not wait for the input.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _read = std::io::stdin().read_line(&mut line);
        let _gone = sender.send(line);
    });
    let typed = typed.await.unwrap_or_default();
    if typed.trim().eq_ignore_ascii_case("yes") {
        Ok(())
    } else {
        Err(CommandFailure::other("not confirmed: nothing was changed"))
    }
}

/// Runs a command until it ends or until the first signal.
///
/// As the first process of a container, the program would otherwise ignore signals. Changes that
/// the command's statements made by then stay, as after a kill.
async fn until_signal(
    command: impl Future<Output = Result<(), CommandFailure>>,
) -> Result<(), CommandFailure> {
    let mut signals = signals()?;
    tokio::select! {
        outcome = command => outcome,
        Some(signal) = signals.recv() => Err(CommandFailure::other(format!(
            "ended by {signal} before it was done; what it had done by then stays: look before you \
             run it again"
        ))),
    }
}

/// Prints the findings and results of a command on standard output.
fn print(lines: Vec<String>) {
    let mut output = std::io::stdout().lock();
    for line in lines {
        // If the reader of the output stops reading, the command still goes on.
        let _unread = writeln!(output, "{line}");
    }
}

async fn serve(config: &Config) -> Result<(), CommandFailure> {
    // Signals are received before anything starts, so a signal during the start also stops the
    // service in order.
    let signals = signals()?;
    Application::start(config).await?.run(signals).await
}

/// Returns a channel that gets the name of each SIGTERM and SIGINT.
fn signals() -> Result<Receiver<&'static str>, CommandFailure> {
    let listen = |kind| {
        signal(kind)
            .map_err(|error| CommandFailure::other(format!("signals cannot be received: {error}")))
    };
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
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
