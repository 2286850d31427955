//! `odometer recover`: lets every sequence go on above what a database may have lost.

use std::io::IsTerminal as _;

use jiff::Timestamp;
use odometer_core::duration::exact;
use odometer_store::{FenceRequest, LastRecovery, Loss, Recovered, StartError};

use super::failure::CommandFailure;
use super::progress::Progress;
use crate::application::stores_settings;
use crate::config::Config;

/// The examples that `odometer recover --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer recover --dry-run
  odometer recover --skip 1000000 --yes
  odometer recover orders --nothing-was-lost";

/// The options of `recover`. If none of them says what was lost, that is computed from the time
/// that the database itself shows.
#[derive(Clone, Debug, clap::Args)]
pub struct RecoverOptions {
    /// Only this sequence, which waits for `--skip` or `--nothing-was-lost` after a failover.
    #[arg(value_name = "NAME")]
    pub sequence: Option<String>,
    /// Skip N numbers of each sequence. Give more than any sequence can have reserved since the
    /// state that was restored.
    #[arg(long, value_name = "N")]
    pub skip: Option<u64>,
    /// Compute what may be lost since this time (RFC 3339). The time must not be later than the
    /// database itself shows.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["sequence", "skip", "nothing_was_lost"])]
    pub since: Option<Timestamp>,
    /// Skip nothing. Use it if the database has all that it had, on another server than before.
    #[arg(long, conflicts_with = "skip")]
    pub nothing_was_lost: bool,
    /// Let new sequences and periods begin at their start again. Use it if no sequence and no
    /// period was first used in what was lost.
    #[arg(long, conflicts_with_all = ["sequence", "skip", "since", "nothing_was_lost"])]
    pub births_from_start: bool,
    /// Recover only the sequences of this store. If you give none, those of all stores.
    #[arg(long, value_name = "NAME")]
    pub store: Option<String>,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask. You need this option if standard input is no terminal.
    #[arg(long)]
    pub yes: bool,
}

impl RecoverOptions {
    /// Returns what an operator says was lost.
    ///
    /// # Errors
    /// The options do not say it.
    pub fn loss(&self) -> Result<Loss, CommandFailure> {
        match (self.sequence.clone(), self.skip) {
            (_, Some(0)) => Err(CommandFailure::usage(
                "--skip: give N, above 0, or --nothing-was-lost",
            )),
            _ if self.births_from_start => Ok(Loss::NoCounter),
            (Some(name), None) if !self.nothing_was_lost => Err(CommandFailure::usage(format!(
                "NAME: what `{name}` has lost cannot be computed; give --skip N or \
                 --nothing-was-lost"
            ))),
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

/// Recovers as the options say. Asks first, unless the options say that it is to be done.
///
/// # Errors
/// The options are wrong, the answer was not yes, or a database was not changed.
pub async fn recover(
    config: &Config,
    options: &RecoverOptions,
    progress: &Progress,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    let loss = options.loss()?;
    let store = options.store.as_deref();
    if !options.dry_run && !options.yes {
        if !std::io::stdin().is_terminal() {
            return Err(CommandFailure::usage(
                "--yes: a recovery cannot be undone, and standard input is no terminal on which \
                 you could be asked; look with --dry-run, then give --yes",
            ));
        }
        recover_stores(config, store, (&loss, true), progress, tell).await?;
        ask(tell).await?;
    }
    recover_stores(config, store, (&loss, options.dry_run), progress, tell).await
}

/// Asks whether to do what was shown.
async fn ask(tell: &mut (dyn FnMut(String) + Send)) -> Result<(), CommandFailure> {
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

/// Moves every sequence of one store, or of all stores, above what may have been lost.
///
/// Operators use this after a database went back to an earlier state. A dry run changes nothing.
/// `tell` gets the lines of what was done, or would be done.
///
/// # Errors
/// There is no such store, or a database was not changed. The other databases are changed all the
/// same.
async fn recover_stores(
    config: &Config,
    store: Option<&str>,
    (loss, is_dry_run): (&Loss, bool),
    progress: &Progress,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    let settings = stores_settings(config);
    let doing = if is_dry_run { "Looking" } else { "Recovering" };
    let on_step = |step: odometer_store::DatabaseStep<'_>| progress.database(doing, step);
    let outcomes = Box::pin(odometer_store::recover(
        &settings,
        store,
        loss.clone(),
        is_dry_run,
        &on_step,
    ))
    .await?;
    progress.erase();
    let n_databases = outcomes.len();
    let mut failed = Vec::new();
    let is_somewhere = |outcome: &Result<Recovered, StartError>| {
        !outcome.as_ref().is_ok_and(|recovered| recovered.is_nowhere)
    };
    if let Loss::OfSequence { name, .. } = loss
        && !outcomes.iter().any(|(_, outcome)| is_somewhere(outcome))
    {
        return Err(StartError::Configuration(format!(
            "NAME: there is no sequence {name}, and none was lost"
        ))
        .into());
    }
    for (database, outcome) in outcomes {
        match outcome {
            Ok(recovered) => {
                if let Some(database) = database {
                    tell(format!("{database}:"));
                }
                recovered_lines(&recovered, loss)
                    .into_iter()
                    .for_each(&mut *tell);
            }
            Err(error) => failed.push(error),
        }
    }
    if failed.len() < n_databases {
        closing_lines(config, loss, is_dry_run)
            .into_iter()
            .for_each(tell);
    }
    not_all_recovered(failed, n_databases)
}

fn closing_lines(config: &Config, loss: &Loss, is_dry_run: bool) -> Vec<String> {
    let older = "a replica of an earlier version goes on to issue what it reserved before";
    let unchanged = "dry run: nothing was changed".to_owned();
    match (loss, is_dry_run) {
        (Loss::NoCounter, true) => vec![unchanged],
        (Loss::NoCounter, false) => Vec::new(),
        (_, true) => vec![format!("{older}: stop it before the recovery"), unchanged],
        (_, false) => vec![
            format!(
                "replicas that run go on by themselves within {} (definition_refresh)",
                exact(config.definition_refresh)
            ),
            format!("{older}: if one is running, stop it and recover again"),
        ],
    }
}

fn not_all_recovered(failed: Vec<StartError>, n_databases: usize) -> Result<(), CommandFailure> {
    let n_failed = failed.len();
    let sentences: Vec<String> = failed.iter().map(ToString::to_string).collect();
    match failed.into_iter().next() {
        None => Ok(()),
        Some(error) if n_databases == 1 => Err(error.into()),
        Some(_) => Err(CommandFailure::other(format!(
            "{n_failed} of {n_databases} databases were not recovered: {}; run it again when they \
             answer, which only costs the others of the same --store a further gap",
            sentences.join("; ")
        ))),
    }
}

fn recovered_lines(recovered: &Recovered, loss: &Loss) -> Vec<String> {
    let n_sequences = recovered.n_sequences;
    let mut lines = match (loss, &recovered.fence) {
        (Loss::OfSequence { name, n_steps }, _) => {
            return vec![if recovered.is_nowhere {
                format!("there is no sequence {name}, and none was lost: nothing is changed")
            } else if n_sequences == 0 {
                format!("if {name} is created again, it begins {n_steps} steps further")
            } else {
                format!("{name} goes on {n_steps} steps further")
            }];
        }
        (Loss::NoCounter, _) => {
            return vec![
                "sequences and periods that are created from now on begin at their start"
                    .to_owned(),
            ];
        }
        (Loss::Computed(_), Some(fence)) => vec![
            format!("the database was last good {} s ago", age_s(fence)),
            format!("{n_sequences} sequences go on above what their limits allowed since"),
        ],
        (Loss::Steps(0), _) | (Loss::Computed(_), None) => {
            return nothing_was_lost_lines(recovered);
        }
        (Loss::Steps(skip), _) => vec![format!(
            "{n_sequences} sequences go on {skip} steps further"
        )],
    };
    if recovered.n_unknown > 0 {
        lines.push(format!(
            "of {} sequences nobody can compute what was lost: they give nothing until you recover \
             with --skip N or --nothing-was-lost:",
            recovered.n_unknown
        ));
        lines.extend(names(&recovered.unknown, recovered.n_unknown));
    }
    if let Some(name) = &recovered.highest_riser {
        lines.push(format!(
            "the highest rise is {}, of {name}",
            recovered.highest_rise
        ));
    }
    if recovered.n_at_their_end > 0 {
        lines.push(format!(
            "{} sequences end before that and are exhausted, unless their max is raised:",
            recovered.n_at_their_end
        ));
        lines.extend(names(&recovered.at_their_end, recovered.n_at_their_end));
    }
    lines.push(format!(
        "{} returned blocks with {} numbers are given up",
        recovered.n_blocks, recovered.n_numbers
    ));
    let wait_ms = recovered
        .leases_from_ms
        .saturating_sub(odometer_process::clock::now_ms());
    // The database may have lost leases of a time-ordered sequence, so such a sequence counts, too.
    let has_leases = recovered.n_leases > 0 || recovered.n_time_ordered > 0;
    if has_leases && wait_ms > 0 {
        lines.push(format!(
            "the leases of {} worker ids are void: all ids can be used again in {} minutes",
            recovered.n_leases,
            wait_ms.unsigned_abs().div_ceil(60_000)
        ));
    }
    lines
}

/// Returns the lines about a database that has lost nothing.
fn nothing_was_lost_lines(recovered: &Recovered) -> Vec<String> {
    let mut lines = vec![
        "the database counts as whole: nothing is skipped".to_owned(),
        "a replica that has seen a loss goes on refusing until `odometer recover --skip N`"
            .to_owned(),
    ];
    if recovered.n_unknown > 0 {
        let n_waiting = recovered.n_unknown;
        // If the word was about the last failover, all counters were gone through.
        lines.push(match recovered.n_sequences {
            0 => format!(
                "{n_waiting} sequences still wait for `odometer recover NAME`, since an earlier \
                 failover:"
            ),
            _ => format!(
                "{n_waiting} sequences that waited since the last failover go on as if they had \
                 lost nothing in it:"
            ),
        });
        lines.extend(names(&recovered.unknown, n_waiting));
    }
    lines
}

/// Returns how long before a fence the database was last good, in seconds.
fn age_s(fence: &LastRecovery) -> i64 {
    let since_ms = fence.lost_since_ms.unwrap_or(fence.at_ms);
    fence.at_ms.saturating_sub(since_ms) / 1000
}

/// Returns a line for each of the names, and one for those that are not named.
fn names(named: &[String], n_all: u64) -> Vec<String> {
    let mut lines: Vec<String> = named.iter().map(|name| format!("  {name}")).collect();
    let n_named = u64::try_from(named.len()).unwrap_or(u64::MAX);
    if n_named < n_all {
        lines.push(format!("  and {} more", n_all - n_named));
    }
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    /// Options that say nothing.
    fn none() -> RecoverOptions {
        RecoverOptions {
            sequence: None,
            skip: None,
            since: None,
            nothing_was_lost: false,
            births_from_start: false,
            store: None,
            dry_run: false,
            yes: false,
        }
    }

    #[test]
    fn options_that_say_nothing_of_a_loss_are_a_wrong_command_line() {
        let of_nothing = RecoverOptions {
            skip: Some(0),
            ..none()
        };
        let of_one = RecoverOptions {
            sequence: Some("orders".to_owned()),
            ..none()
        };
        for (options, option) in [(of_nothing, "--skip:"), (of_one, "NAME:")] {
            let refused = options.loss().unwrap_err();
            assert_eq!(refused.exit_code(), CommandFailure::USAGE, "{refused}");
            assert!(refused.to_string().starts_with(option), "{refused}");
        }
        assert_eq!(
            none().loss().unwrap(),
            Loss::Computed(FenceRequest::default())
        );
    }
}
