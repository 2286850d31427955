//! The commands that work on the stores and then end: `migrate`, `check` and `recover`.

use odometer_core::duration::exact;
use odometer_store::{Arming, LastRecovery, Loss, Recovered, StartError};

use crate::application::stores_settings;
use crate::command_failure::CommandFailure;
use crate::config::Config;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::application";

/// Brings the schemas of the configured databases up to date. Then lets replicas arm the databases,
/// or lets them not, if `arming` says so.
///
/// # Errors
/// A database cannot be reached or changed.
pub async fn migrate(config: &Config, arming: Option<Arming>) -> Result<(), CommandFailure> {
    let mut tell = |line: String| tracing::info!(target: TARGET, "{line}");
    odometer_store::migrate(&stores_settings(config), arming, &mut tell).await?;
    Ok(())
}

/// Checks the configuration and the databases, and changes nothing.
///
/// The configuration is good if it was loaded, so only warnings about it are left. `tell` gets the
/// lines of the findings.
///
/// # Errors
/// Something would keep `serve` from starting, or from issuing numbers.
pub async fn check(
    config: &Config,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    tell(format!(
        "configuration: good; `odometer serve` would listen on {}",
        config.listen
    ));
    config.never_used().into_iter().for_each(&mut *tell);
    config.short_token().into_iter().for_each(&mut *tell);
    odometer_store::check(&stores_settings(config), tell).await?;
    Ok(())
}

/// Moves every sequence of one store, or of all stores, above what may have been lost.
///
/// Operators use this after a database went back to an earlier state. A dry run changes nothing.
/// `tell` gets the lines of what was done, or would be done.
///
/// # Errors
/// There is no such store, or a database was not changed. The other databases are changed all the
/// same.
pub async fn recover(
    config: &Config,
    store: Option<&str>,
    loss: &Loss,
    is_dry_run: bool,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    let settings = stores_settings(config);
    let outcomes = Box::pin(odometer_store::recover(
        &settings,
        store,
        loss.clone(),
        is_dry_run,
    ))
    .await?;
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
