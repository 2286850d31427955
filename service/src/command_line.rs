//! Reads the command line, and runs the command that it names.
//!
//! Commands that work with the configuration take its [`Flags`], before or behind the name of the
//! command. All other commands refuse these flags, load no configuration, and log nothing. So they
//! also work if the configuration is broken.

use std::process::ExitCode;

use actix_web::rt::System;
use clap::{CommandFactory as _, Parser, Subcommand};
use rustix::fs::Mode;

use crate::application::Application;
use crate::commands::{
    apply::{self, ApplyOptions},
    check::{self, CheckOptions},
    check_caller, check_name,
    completions::{self, CompletionsOptions},
    failure::CommandFailure,
    init::{self, InitOptions},
    manual::{self, ManualOptions},
    migrate::{self, MigrateOptions},
    output::{print_lines, print_text},
    progress::Progress,
    recover::{self, RecoverOptions},
    show_config::{self, ShowConfigOptions},
    signals::{signals, until_signal},
    token::{self, TokenOptions},
};
use crate::config::{Config, Environment, Flags};
use crate::remote::{self, RemoteCommand};
use crate::telemetry::{self, Exporting};

/// The target of the last line of a command that failed: the program itself.
const TARGET: &str = "odometer";

/// The examples of the program without a command.
const EXAMPLES: &str = "\
Examples:
  odometer
  odometer --listen 127.0.0.1:9090 --log-level debug
  odometer check";

/// The examples that `odometer serve --help` shows.
const SERVE_EXAMPLES: &str = "\
Examples:
  odometer serve
  odometer serve --listen 0.0.0.0:8080 --database-url-file /run/secrets/database_url";

/// Numbers that never repeat, over HTTP, from an ordinary database.
#[derive(Debug, Parser)]
#[command(name = "odometer", version, after_help = EXAMPLES)]
struct CommandLine {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Configured(ConfiguredCommand),
    #[command(flatten)]
    Remote(RemoteCommand),
    /// Write a configuration file with a comment on each key. Every key is commented out and has
    /// its default.
    #[command(after_help = init::EXAMPLES)]
    Init(InitOptions),
    /// Make a token for a caller. Prints the token, and the section that the file of callers needs.
    #[command(after_help = token::EXAMPLES)]
    Token(TokenOptions),
    /// Print a script by which a shell completes command lines of this program.
    #[command(after_help = completions::EXAMPLES)]
    Completions(CompletionsOptions),
    /// Write a manual page for the program, and one for each command.
    #[command(after_help = manual::EXAMPLES)]
    Man(ManualOptions),
}

/// The commands that work with the configuration.
#[derive(Debug, Subcommand)]
enum ConfiguredCommand {
    /// Answer calls over HTTP. This is the command if you give none.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve {
        #[command(flatten)]
        flags: Flags,
    },
    /// Create the schema of each database, or bring the schema up to date. You may run the command
    /// again, and several times at once.
    #[command(after_help = migrate::EXAMPLES)]
    Migrate {
        #[command(flatten)]
        options: MigrateOptions,
        #[command(flatten)]
        flags: Flags,
    },
    /// Look at configuration and databases, and change nothing. Exit code 0 means that `serve`
    /// would start and give numbers.
    #[command(after_help = check::EXAMPLES)]
    Check {
        #[command(flatten)]
        options: CheckOptions,
        #[command(flatten)]
        flags: Flags,
    },
    /// Create or change sequences until they are as the definitions `[sequences.NAME]` of a file
    /// say. You may run the command again.
    #[command(after_help = apply::EXAMPLES)]
    Apply {
        #[command(flatten)]
        options: ApplyOptions,
        #[command(flatten)]
        flags: Flags,
    },
    /// Let every sequence go on above what may have been issued. Use it after a restore, or after a
    /// failover to an older state. If you do not say what was lost, it is computed from the time
    /// that the database itself shows.
    #[command(after_help = recover::EXAMPLES)]
    Recover {
        #[command(flatten)]
        options: RecoverOptions,
        #[command(flatten)]
        flags: Flags,
    },
    /// Show the value of each key of the configuration, and where each value comes from. Secrets are
    /// left out.
    #[command(after_help = show_config::EXAMPLES)]
    Config {
        #[command(flatten)]
        options: ShowConfigOptions,
        #[command(flatten)]
        flags: Flags,
    },
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
                ExitCode::from(CommandFailure::USAGE)
            };
        }
    };
    let CommandLine { flags, command } = command_line;
    let command = command.unwrap_or(Command::Configured(ConfiguredCommand::Serve {
        flags: Flags::default(),
    }));
    if !matches!(command, Command::Configured(_))
        && let Err(refused) = no_flags(&flags)
    {
        return ended(Err(refused));
    }
    match command {
        Command::Configured(command) => run_configured(command, flags, &environment),
        Command::Remote(command) => match remote::run(&command, &environment) {
            Ok(exit_code) => exit_code,
            Err(failure) => ended(Err(failure)),
        },
        Command::Init(options) => ended(init::init(&options)),
        Command::Token(options) => ended(token::token(&options)),
        Command::Completions(options) => {
            ended(print_text(&completions::completions(options, describe())))
        }
        Command::Man(options) => {
            let written = manual::write_pages(&options, describe());
            ended(written.and_then(|line| print_lines(&[line])))
        }
    }
}

/// Refuses the flags of the configuration, for a command that does not read it.
fn no_flags(flags: &Flags) -> Result<(), CommandFailure> {
    match flags.first_given() {
        None => Ok(()),
        Some(flag) => Err(CommandFailure::usage(format!(
            "{flag}: this command reads no configuration; leave {flag} out"
        ))),
    }
}

/// Says on standard error why a command failed that does not log. Returns its exit code.
fn ended(outcome: Result<(), CommandFailure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("odometer: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run_configured(
    command: ConfiguredCommand,
    before_command: Flags,
    environment: &Environment,
) -> ExitCode {
    let flags = command.flags().clone().over(before_command);
    if let Err(problem) = flags.check_form() {
        return ended(Err(CommandFailure::usage(problem)));
    }
    if let ConfiguredCommand::Config { options, .. } = command {
        let shown = show_config::show(options, &flags, environment);
        return ended(shown.and_then(|text| print_text(&text)));
    }
    let (config, _exporting) = match start_logging(&flags, environment) {
        Ok(started) => started,
        Err(failure) => return ended(Err(failure)),
    };
    // Only this user may use the files that are created from here on, above all the files of
    // SQLite.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    match System::new().block_on(run(command, config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.exit_code()),
    }
}

impl ConfiguredCommand {
    /// Returns the flags behind the name of the command.
    fn flags(&self) -> &Flags {
        match self {
            Self::Serve { flags }
            | Self::Migrate { flags, .. }
            | Self::Check { flags, .. }
            | Self::Apply { flags, .. }
            | Self::Recover { flags, .. }
            | Self::Config { flags, .. } => flags,
        }
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

async fn run(command: ConfiguredCommand, config: Config) -> Result<(), CommandFailure> {
    let progress = Progress::on_standard_error();
    // If the output cannot be written, the command still goes on, and says so at its end.
    let mut unwritten = Ok(());
    let mut tell = |line| {
        progress.erase();
        if let Err(failure) = print_lines(&[line]) {
            unwritten = Err(failure);
        }
    };
    let outcome = match command {
        ConfiguredCommand::Serve { .. } => serve(&config).await,
        ConfiguredCommand::Migrate { options, .. } => {
            until_signal(migrate::migrate(&config, options, &progress)).await
        }
        ConfiguredCommand::Check { options, .. } => match (options.caller, options.name) {
            (None, None) => until_signal(check::check(&config, &mut tell)).await,
            (Some(caller), name) => check_caller::check_caller(&config, &caller, name.as_deref())
                .and_then(|lines| print_lines(&lines)),
            (None, Some(name)) => {
                check_name::check_name(&config, &name).and_then(|lines| print_lines(&lines))
            }
        },
        ConfiguredCommand::Apply { options, .. } => {
            until_signal(apply::apply(&config, &options, &progress, &mut tell)).await
        }
        ConfiguredCommand::Recover { options, .. } => {
            until_signal(recover::recover(&config, &options, &progress, &mut tell)).await
        }
        // This command is done before the log starts.
        ConfiguredCommand::Config { .. } => Ok(()),
    };
    progress.erase();
    let outcome = outcome.and(unwritten);
    if let Err(failure) = &outcome {
        tracing::error!(target: TARGET, exit_code = failure.exit_code(), "{failure}");
    }
    outcome
}

async fn serve(config: &Config) -> Result<(), CommandFailure> {
    // Signals are received before anything starts, so a signal during the start also stops the
    // service in order.
    let signals = signals()?;
    Application::start(config).await?.run(signals).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a command and all commands below it, each with the words that call it.
    fn all(command: &clap::Command, before: &str) -> Vec<(String, clap::Command)> {
        let called = format!("{before} {}", command.get_name()).trim().to_owned();
        let below = command.get_subcommands();
        let below: Vec<_> = below.flat_map(|below| all(below, &called)).collect();
        let this = (called, command.clone());
        std::iter::once(this).chain(below).collect()
    }

    /// Returns the command lines of the examples, without the file that takes the output.
    fn examples(command: &clap::Command) -> Vec<String> {
        let text = command.get_after_help().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let (_, examples) = text.split_once("Examples:\n").unwrap_or_default();
        let lines = examples.lines().filter(|line| line.starts_with("  "));
        let lines = lines.map(|line| line.split(" > ").next().unwrap_or_default().trim());
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn every_command_has_two_examples_that_it_understands() {
        let commands = all(&describe(), "");
        assert!(commands.len() >= 10, "vacuous: {}", commands.len());
        for (called, command) in commands {
            let examples = examples(&command);
            assert!(examples.len() >= 2, "{called}: {examples:?}");
            for example in examples {
                let is_its_own = example == called || example.starts_with(&format!("{called} "));
                assert!(is_its_own, "{called}: {example}");
                let words = example.split_whitespace();
                let parsed = CommandLine::try_parse_from(words);
                assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
            }
        }
    }

    #[test]
    fn every_text_says_something_of_each_command_and_argument() {
        for (called, command) in all(&describe(), "") {
            assert!(command.get_about().is_some(), "{called}");
            for argument in command.get_arguments() {
                let (id, help) = (argument.get_id(), argument.get_help());
                assert!(help.is_some(), "{called}: {id}");
            }
        }
    }

    #[test]
    fn flags_of_the_configuration_stand_before_or_behind_a_command_that_reads_it() {
        for line in [
            "odometer --listen localhost:1 check",
            "odometer check --listen localhost:1",
            "odometer --listen localhost:2 check --listen localhost:1",
        ] {
            let parsed = CommandLine::try_parse_from(line.split(' '));
            let parsed = parsed.unwrap_or_else(|error| unreachable!("{line}: {error}"));
            let Some(Command::Configured(command)) = parsed.command else {
                unreachable!("{line}: no such command");
            };
            let flags = command.flags().clone().over(parsed.flags);
            assert_eq!(flags.listen.as_deref(), Some("localhost:1"), "{line}");
        }
        let flags = Flags {
            migrate: true,
            ..Flags::default()
        };
        let secret = Flags {
            set: vec![
                "limits.waiters=1".to_owned(),
                "admin_token:hunter2".to_owned(),
            ],
            ..Flags::default()
        };
        let problem = secret.check_form().err().unwrap_or_default();
        assert!(
            problem.starts_with("--set: write --set KEY=VALUE"),
            "{problem}"
        );
        assert!(!problem.contains("hunter2"), "{problem}");
        let refused = no_flags(&flags).map_err(|refused| refused.exit_code());
        assert_eq!(refused, Err(CommandFailure::USAGE));
        assert_eq!(no_flags(&Flags::default()), Ok(()));
        for command in [
            "init",
            "completions bash",
            "man pages",
            "token billing --role billing",
            "next orders",
            "top",
        ] {
            let line = format!("odometer {command} --config odometer.toml");
            let parsed = CommandLine::try_parse_from(line.split(' '));
            assert!(parsed.is_err(), "{line}");
        }
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        for line in [
            "odometer fly",
            "odometer --nonsense",
            "odometer serve extra",
            "odometer apply",
            "odometer migrate --arm --disarm",
            "odometer recover --skip 5 --nothing-was-lost",
            "odometer completions tcsh",
        ] {
            let parsed = CommandLine::try_parse_from(line.split(' '));
            assert!(parsed.is_err(), "{line}");
        }
    }
}
