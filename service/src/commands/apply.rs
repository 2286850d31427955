//! Carries out `odometer apply`: gives sequences the definitions of a file, as `PUT` does, and
//! prints what was changed.
//!
//! All definitions are checked before the first sequence is changed. So one refused definition
//! leaves all sequences as they are. Each sequence is changed only if it is still as it was when it
//! was checked.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use odometer_core::definition::{Definition, DefinitionError};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
    metrics::Metrics,
};
use odometer_sequence::{
    audit::{self, Author},
    error::SequenceError,
};
use odometer_store::{
    Act, Altered, ChangeRequest, Condition, OpenFor, StartError, StoreError, Stores,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::failure::CommandFailure;
use super::progress::Progress;
use crate::application::stores_settings;
use crate::config::Config;
use crate::config::definitions::{self, WantedDefinition};

/// How long the command waits at its end for its connections to close.
const CLOSING: Duration = Duration::from_secs(5);

/// The most lines of the log about the progress on a file.
const PARTS: usize = 20;

/// The fewest definitions between two lines of the log. Fewer definitions take almost no time.
const MIN_STEP: usize = 100;

/// The examples that `odometer apply --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer apply sequences.toml --dry-run
  odometer apply sequences.toml --quiet";

/// The options of `apply`.
#[derive(Clone, Debug, clap::Args)]
pub struct ApplyOptions {
    /// TOML file of definitions.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Say what would be changed, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Say only what is refused, and the sum. Leave out the progress and each result.
    #[arg(long)]
    pub quiet: bool,
}

/// Says how far the checks of a long file are. On a terminal the line of progress is updated.
/// Otherwise the log says it: after each twentieth of the file, but at most once in [`MIN_STEP`]
/// definitions.
fn note_checked(progress: &Progress, (n_done, n_all): (usize, usize)) {
    if progress.is_seen() {
        progress.count("Checking", (n_done, n_all), "definitions");
        return;
    }
    let step = (n_all / PARTS).max(MIN_STEP);
    if n_done.is_multiple_of(step) {
        tracing::info!("Checked {n_done} of {n_all} definitions");
    }
}

/// Gives sequences the definitions of a file, or only says what that would change. `tell` gets each
/// line of the output.
///
/// # Errors
/// The file or the database cannot be used, or a definition is refused.
pub async fn apply(
    config: &Config,
    how: &ApplyOptions,
    progress: &Progress,
    tell: &mut impl FnMut(String),
) -> Result<(), CommandFailure> {
    let wanted = definitions::read(&how.file)?;
    let open_for = if how.dry_run {
        OpenFor::DryRun
    } else {
        OpenFor::Command
    };
    let metrics = Arc::new(Metrics::new());
    let opening = Stores::open(stores_settings(config), open_for, metrics);
    let stores = opening.await.map_err(not_opened)?;
    let outcome = Box::pin(apply_to((&stores, config), &wanted, how, progress, tell)).await;
    stores.close(CLOSING).await;
    outcome
}

/// Adds a hint if another process holds the SQLite file: that process takes definitions over HTTP.
fn not_opened(error: StartError) -> CommandFailure {
    match error {
        StartError::Held(sentence) => StartError::Held(format!(
            "{sentence}; what serves from it takes definitions by `PUT /v1/sequences/NAME`"
        ))
        .into(),
        StartError::Configuration(_) | StartError::Other(_) => error.into(),
    }
}

async fn apply_to(
    (stores, config): (&Stores, &Config),
    wanted: &[WantedDefinition],
    how: &ApplyOptions,
    progress: &Progress,
    tell: &mut impl FnMut(String),
) -> Result<(), CommandFailure> {
    let planned = plan((stores, config), wanted, how, progress).await?;
    progress.erase();
    let n_all = planned.len();
    let accepted: Vec<&Altered> = planned.iter().flatten().collect();
    let n_refused = n_all - accepted.len();
    let n_created = accepted.iter().filter(|one| one.before.is_none()).count();
    let n_unchanged = accepted.iter().filter(|one| !is_changed(one)).count();
    let n_changed = accepted.len() - n_created - n_unchanged;
    for (wanted, outcome) in wanted.iter().zip(&planned) {
        match outcome {
            Ok(altered) if how.dry_run && !how.quiet => lines(wanted, altered, true, tell),
            Ok(_) => {}
            Err(error) => tell(refusal(wanted, error)),
        }
    }
    if n_refused > 0 && !faults::is(Fault::ApplyUnchecked) {
        return Err(CommandFailure::other(format!(
            "{n_refused} of {n_all} definitions cannot be made so; nothing was changed"
        )));
    }
    if how.dry_run {
        tell(format!(
            "dry run, nothing was changed; of {n_all} definitions {n_created} would be created, \
             {n_changed} changed, {n_unchanged} left unchanged"
        ));
        return Ok(());
    }
    carry_out((stores, config), wanted, &planned, (how, progress), tell).await?;
    tell(format!(
        "{n_all} definitions: {n_created} created, {n_changed} changed, {n_unchanged} unchanged"
    ));
    Ok(())
}

/// Returns the outcome that each definition would have if the definitions before it were applied.
async fn plan(
    (stores, config): (&Stores, &Config),
    wanted: &[WantedDefinition],
    how: &ApplyOptions,
    progress: &Progress,
) -> Result<Vec<Result<Altered, StoreError>>, CommandFailure> {
    let n_all = wanted.len();
    let mut planned = Vec::with_capacity(n_all);
    // The limit of sequences holds for each store.
    let mut n_created: HashMap<String, u64> = HashMap::new();
    for wanted in wanted {
        let mut change = define(config, wanted, true, Condition::None);
        let template = config.templates.behind(&wanted.name);
        let store = wanted.change.store.as_ref().unwrap_or(&template.store);
        change.n_created = n_created.get(store).copied().unwrap_or(0);
        let outcome = alter(stores, change).await?;
        if let Ok(planned) = &outcome
            && planned.before.is_none()
        {
            let store = planned.after.definition.store.clone();
            *n_created.entry(store).or_default() += 1;
        }
        planned.push(outcome);
        if !how.quiet {
            note_checked(progress, (planned.len(), n_all));
        }
    }
    Ok(planned)
}

/// Makes the changes that are needed, one after the other, and ends at the first failure.
async fn carry_out(
    (stores, config): (&Stores, &Config),
    wanted: &[WantedDefinition],
    planned: &[Result<Altered, StoreError>],
    (how, progress): (&ApplyOptions, &Progress),
    tell: &mut impl FnMut(String),
) -> Result<(), CommandFailure> {
    let author = Author {
        who: "command line".into(),
        how: None,
        role: None,
        peer: "odometer apply".to_owned(),
        forwarded_for: None,
        request_id: Uuid::new_v4().to_string(),
    };
    let n_all = wanted.len();
    for (n_done, (wanted, planned)) in wanted.iter().zip(planned).enumerate() {
        if !how.quiet {
            progress.count("Applying", (n_done, n_all), "definitions");
        }
        let condition = match planned {
            Ok(planned) if !is_changed(planned) => {
                if !how.quiet {
                    lines(wanted, planned, false, tell);
                }
                continue;
            }
            Ok(planned) => match &planned.before {
                Some(before) => Condition::Version(before.version),
                None => Condition::MustNotExist,
            },
            // A file with a refused definition is not carried out, unless a test took that check
            // out.
            Err(_) => Condition::None,
        };
        let change = define(config, wanted, false, condition);
        let act = change.act.clone();
        let stopped = || {
            format!(
                "{} stopped it; the definitions before it in the file are made so, those after it \
                 are not: do it again",
                wanted.name
            )
        };
        let outcome = alter(stores, change).await;
        match outcome.inspect_err(|_| tell(stopped()))? {
            Ok(altered) => {
                audit::note(&author, &wanted.name, &act, &altered);
                if !how.quiet {
                    lines(wanted, &altered, false, tell);
                }
            }
            Err(error) => {
                if matches!(error, StoreError::MayHaveChanged) {
                    audit::note_uncertain(&author, &wanted.name, &act);
                }
                tell(refusal(wanted, &error));
                return Err(CommandFailure::other(stopped()));
            }
        }
    }
    Ok(())
}

/// Makes a change, or only checks it.
///
/// # Errors
/// The outer error says that a database failed and nothing was changed. The next change would fail,
/// too. The inner error says why this change was not made, or that it may have been made.
async fn alter(
    stores: &Stores,
    change: ChangeRequest,
) -> Result<Result<Altered, StoreError>, CommandFailure> {
    let name = change.name.clone();
    // Only failures of this change are told.
    let _earlier = stores.take_last_failure();
    let outcome = stores.alter(change).await;
    let has_failed = matches!(
        outcome,
        Err(StoreError::NotChanged
            | StoreError::Unavailable
            | StoreError::Deadline
            | StoreError::Incomplete { .. })
    );
    match stores.take_last_failure().filter(|_| has_failed) {
        Some(cause) => Err(CommandFailure::other(format!(
            "the database failed at `{name}`: {cause}"
        ))),
        None => Ok(outcome),
    }
}

fn define(
    config: &Config,
    wanted: &WantedDefinition,
    dry_run: bool,
    condition: Condition,
) -> ChangeRequest {
    ChangeRequest {
        name: wanted.name.clone(),
        act: Act::Define {
            change: Box::new(wanted.change.clone()),
            template: config.templates.behind(&wanted.name),
            dry_run,
        },
        condition,
        last_seen: None,
        n_created: 0,
    }
}

fn is_changed(altered: &Altered) -> bool {
    let before = altered.before.as_ref();
    before.is_none_or(|before| before.definition != altered.after.definition)
}

fn refusal(wanted: &WantedDefinition, error: &StoreError) -> String {
    let name = &wanted.name;
    let sentence = if let StoreError::Broken(text) = error {
        text.clone()
    } else if matches!(error, StoreError::Retired) {
        format!("the sequence is retired; `POST /v1/sequences/{name}/restore` comes first")
    } else if matches!(
        error,
        StoreError::Definition(DefinitionError::FormatsUnknown)
    ) {
        // A confirmation in a file would also hold after the next recovery.
        format!(
            "`format` may print ids again: the database was recovered after the sequence was last \
             changed, and has forgotten any formats that were set since the restored state. No \
             file can confirm that no id comes twice: look at the sequence's formats, then `PUT \
             /v1/sequences/{name}` with \"confirm\": true"
        )
    } else {
        SequenceError::from_store(name, error.clone()).to_string()
    };
    format!("! {name}: {sentence}")
}

/// Prints the outcome for one sequence whose definition is accepted.
fn lines(
    wanted: &WantedDefinition,
    altered: &Altered,
    is_dry_run: bool,
    tell: &mut impl FnMut(String),
) {
    let name = &wanted.name;
    if !is_changed(altered) {
        tell(format!("  {name}: unchanged"));
        return;
    }
    let would_be = if is_dry_run { "would be " } else { "" };
    let before = altered.before.as_ref();
    let (sign, done) = match before {
        None => ('+', "created"),
        Some(_) => ('~', "changed"),
    };
    tell(format!("{sign} {name}: {would_be}{done}"));
    let default = Definition::default();
    let earlier = fields_of(before.map_or(&default, |before| &before.definition));
    for (field, value) in fields_of(&altered.after.definition) {
        match earlier.get(&field) {
            Some(unchanged) if *unchanged == value => {}
            Some(earlier) if before.is_some() => {
                tell(format!("    ~ {field}: {earlier} → {value}"));
            }
            Some(_) | None => tell(format!("    {sign} {field}: {value}")),
        }
    }
    let after = &altered.after;
    let rate = after.definition.declared_rate.unwrap_or(after.rate);
    let warnings = after.definition.warnings(after.next_value, rate, now_ms());
    for warning in warnings {
        tell(format!("    warning: {warning}"));
    }
}

/// Returns the fields of a definition. A field of `block` is named by its path, such as
/// `block.min`.
fn fields_of(definition: &Definition) -> Map<String, Value> {
    let mut flat = Map::new();
    if let Ok(Value::Object(fields)) = serde_json::to_value(definition) {
        for (field, value) in fields {
            match (field.as_str(), value) {
                ("block", Value::Object(inner)) => {
                    let inner = inner.into_iter();
                    flat.extend(inner.map(|(name, value)| (format!("{field}.{name}"), value)));
                }
                (_, value) => {
                    flat.insert(field, value);
                }
            }
        }
    }
    // A definition without a layout leaves the field out.
    flat.entry("layout").or_insert(Value::Null);
    flat
}
