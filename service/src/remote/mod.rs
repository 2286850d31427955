//! Calls a running replica over HTTP, for the commands `next`, `list`, `show`, `define`, `status`
//! and `top`.
//!
//! This folder owns what a person at a shell sees of the API. It knows the replica by HTTP alone:
//! it never knows the store, the issuers or the configuration. Its figures and words are those of
//! the page (`http/page`), so that both say the same.
//!
//! Read first:
//!
//! - `options.rs`: which replica is called, with which token.
//! - `replica_client.rs`: makes a call, and tells a refusal from silence.
//! - `facts.rs`: says what is known of a sequence in words.
//! - `definition_fields.rs`: reads `FIELD=VALUE`.
//! - `top.rs`: shows the sequences again and again.

mod define;
mod definition_diff;
mod definition_fields;
mod facts;
mod figures;
mod list;
mod next;
mod options;
mod replica_client;
mod replies;
mod screen;
mod show;
mod status;
mod table;
mod top;

use std::process::ExitCode;

use clap::Subcommand;

use crate::commands::failure::CommandFailure;
use crate::config::Environment;
use define::DefineOptions;
use list::ListOptions;
use next::NextOptions;
use replica_client::ReplicaClient;
use show::ShowOptions;
use status::StatusOptions;
use top::TopOptions;

/// A command that calls a running replica.
#[derive(Debug, Subcommand)]
pub(crate) enum RemoteCommand {
    /// Take the next number of a sequence from a running replica, or several numbers. Each one is
    /// printed on a line of its own.
    #[command(
        after_help = "Examples:\n  odometer next orders\n  odometer next invoices --count 3 --json"
    )]
    Next(NextOptions),
    /// List the sequences that a running replica finds in its databases.
    #[command(after_help = "Examples:\n  odometer list\n  odometer list shop. --json")]
    List(ListOptions),
    /// Show one sequence: its state on a running replica, and its definition.
    #[command(
        after_help = "Examples:\n  odometer show orders\n  odometer show invoices --period 2026 --all"
    )]
    Show(ShowOptions),
    /// Create a sequence, or change its definition, through a running replica. Fields that you
    /// leave out keep their values.
    #[command(
        after_help = "Examples:\n  odometer define invoices start=1001 block.hold=1h\n  \
                      odometer define invoices max=9999 --dry-run"
    )]
    Define(DefineOptions),
    /// Say whether a running replica is ready, how long its memory lasts, and what needs your
    /// attention. The exit code is 1 if it is not ready.
    #[command(
        after_help = "Examples:\n  odometer status\n  odometer status --url http://127.0.0.1:8081"
    )]
    Status(StatusOptions),
    /// Show the sequences in the memory of a running replica, and refresh the picture until you
    /// press Ctrl-C. If standard output is no terminal, the picture is printed once.
    #[command(after_help = "Examples:\n  odometer top\n  odometer top --by rate --every 5s")]
    Top(TopOptions),
}

/// Runs a command, and returns the exit code of the process.
///
/// # Errors
/// The replica refuses the call, or cannot be called, or standard output cannot be written.
pub(crate) fn run(
    command: &RemoteCommand,
    environment: &Environment,
) -> Result<ExitCode, CommandFailure> {
    let replica = match command {
        RemoteCommand::Next(NextOptions { replica, .. })
        | RemoteCommand::List(ListOptions { replica, .. })
        | RemoteCommand::Show(ShowOptions { replica, .. })
        | RemoteCommand::Define(DefineOptions { replica, .. })
        | RemoteCommand::Status(StatusOptions { replica, .. })
        | RemoteCommand::Top(TopOptions { replica, .. }) => replica,
    };
    let client = ReplicaClient::new(&replica.settle(environment)?)?;
    match command {
        RemoteCommand::Next(options) => next::next(&client, options)?,
        RemoteCommand::List(options) => list::list(&client, options)?,
        RemoteCommand::Show(options) => show::show(&client, options)?,
        RemoteCommand::Define(options) => define::define(&client, options)?,
        RemoteCommand::Status(options) => return status::status(&client, options),
        RemoteCommand::Top(options) => top::top(client, options)?,
    }
    Ok(ExitCode::SUCCESS)
}
