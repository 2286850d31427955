//! Creates a sequence: its definition and its counter, in one transaction.

use std::sync::Arc;

use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::CounterKey,
};
use odometer_database::session::{DatabaseConnection, DatabaseTransaction};
use odometer_process::faults::{self, Fault};
use sea_orm::DbErr;

use crate::{
    heartbeat::HeartbeatGuard,
    rows::{
        catalog::{LIVE, has_periods},
        creation_baseline::CreationBaseline,
        new_counter::NewCounter,
        sequence::SequenceRow,
    },
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::catalogue";

/// Inserts a definition and its counter in one transaction.
///
/// If two processes insert at once, they meet at the primary key. One of them gets `Duplicate` and
/// reads.
///
/// `above` is the high-water mark of this name that this process has seen, from before a recovery.
/// If the sequence would begin below this mark, it is not created.
pub(crate) async fn create(
    database: DatabaseConnection,
    name: SequenceName,
    definition: Arc<Definition>,
    stripe: Stripe,
    guard: HeartbeatGuard,
    above: i64,
) -> Result<Creation, DbErr> {
    let transaction = database.begin().await?;
    let Some(baseline) = CreationBaseline::hold(&transaction, &guard).await? else {
        transaction.rollback().await?;
        return Ok(Creation::Contradicted);
    };
    if baseline.first(&stripe.view(&definition)) < above && !faults::is(Fault::NoWentBackChecks) {
        transaction.rollback().await?;
        return Ok(Creation::TooLow);
    }
    // Nothing of the new sequence is older than the last recovery.
    let version = baseline.version();
    insert(&transaction, &name, &definition, version, stripe, baseline).await?;
    transaction.commit().await?;
    Ok(Creation::Created)
}

/// The outcome of a creation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Creation {
    Created,
    /// The store went back.
    Contradicted,
    /// The sequence would begin below what was seen of its name.
    TooLow,
}

pub(crate) async fn insert(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
    definition: &Definition,
    version: i64,
    stripe: Stripe,
    baseline: CreationBaseline,
) -> Result<(), DbErr> {
    // If a sequence has periods, this counter issues nothing. Changes of the sequence are counted
    // on it.
    let counted = stripe.view(definition);
    let next_value = baseline.first(&counted);
    warn_if_exhausted(name, definition, &counted, next_value);
    let row = SequenceRow {
        name,
        kind: definition.kind,
        definition: definition.to_stored(),
        state: LIVE,
        version,
        removed_through: None,
    };
    row.insert(transaction).await?;
    let new_counter = NewCounter::at(next_value, definition, stripe, baseline);
    new_counter
        .insert(transaction, &CounterKey::whole(name.clone()))
        .await
}

/// Warns that a sequence has no number from the start.
pub(crate) fn warn_if_exhausted(
    name: &SequenceName,
    definition: &Definition,
    counted: &Definition,
    next_value: i64,
) {
    if definition.exhausted(next_value) && !has_periods(definition) && !counted.is_empty() {
        tracing::warn!(
            target: TARGET,
            sequence = name.as_str(),
            "a sequence is created exhausted: what `odometer recover` skipped is more than all of it"
        );
    }
}
