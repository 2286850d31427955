//! The commands that work on the stores and then end: `migrate`, `check` and `recover`.

use odometer_core::duration::exact;
use odometer_store::{Loss, Recovered, StartError};

use crate::application::stores_settings;
use crate::command_failure::CommandFailure;
use crate::config::Config;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::application";

/// Brings the schemas of the configured databases up to date.
///
/// # Errors
/// A database cannot be reached or changed.
pub async fn migrate(config: &Config) -> Result<(), CommandFailure> {
    let mut tell = |line: String| tracing::info!(target: TARGET, "{line}");
    odometer_store::migrate(&stores_settings(config), &mut tell).await?;
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
/// `loss` is missing, there is no such store, or a database was not changed. The other
/// databases are changed all the same.
pub async fn recover(
    config: &Config,
    store: Option<&str>,
    loss: Option<Loss>,
    is_dry_run: bool,
    tell: &mut (dyn FnMut(String) + Send),
) -> Result<(), CommandFailure> {
    let Some(loss) = loss else {
        return Err(CommandFailure::configuration(
            "--skip: give N, more numbers than any sequence can have reserved since the state \
             that was restored, what replicas hold ahead included; too many only cost a gap, too \
             few repeat numbers; if the database is whole, only on another server, give \
             --nothing-was-lost",
        ));
    };
    let settings = stores_settings(config);
    let outcomes = Box::pin(odometer_store::recover(&settings, store, loss, is_dry_run)).await?;
    let n_databases = outcomes.len();
    let mut failed = Vec::new();
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
        closing_lines(config, is_dry_run).into_iter().for_each(tell);
    }
    not_all_recovered(failed, n_databases)
}

fn closing_lines(config: &Config, is_dry_run: bool) -> [String; 2] {
    let older = "a replica of an earlier version goes on to issue what it reserved before";
    if is_dry_run {
        [
            format!("{older}: stop it before the recovery"),
            "dry run: nothing was changed".to_owned(),
        ]
    } else {
        [
            format!(
                "replicas that run go on by themselves within {} (definition_refresh)",
                exact(config.definition_refresh)
            ),
            format!("{older}: if one is running, stop it and recover again"),
        ]
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

fn recovered_lines(recovered: &Recovered, loss: Loss) -> Vec<String> {
    let Loss::Steps(skip) = loss else {
        return vec![
            "the database counts as whole: nothing is skipped".to_owned(),
            "a replica that has seen a loss goes on refusing until `odometer recover --skip N`"
                .to_owned(),
        ];
    };
    let mut lines = vec![format!(
        "{} sequences go on {skip} steps further",
        recovered.n_sequences
    )];
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
        let named = recovered.at_their_end.iter();
        lines.extend(named.map(|name| format!("  {name}")));
        let n_named = u64::try_from(recovered.at_their_end.len()).unwrap_or(u64::MAX);
        if n_named < recovered.n_at_their_end {
            let n_others = recovered.n_at_their_end - n_named;
            lines.push(format!("  and {n_others} more"));
        }
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
