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

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::catalogue";

/// Inserts a definition and its counter in one transaction.
///
/// Two that insert at once meet at the primary key: one gets `Duplicate` and reads.
///
/// `above` is what the name has seen before a recovery: where it would begin below, it is not born.
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
    // Nothing of it is older than the last recovery.
    let version = baseline.version();
    insert(&transaction, &name, &definition, version, stripe, baseline).await?;
    transaction.commit().await?;
    Ok(Creation::Born)
}

/// What became of a birth.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Creation {
    Born,
    /// The store went back.
    Contradicted,
    /// It would begin below what was seen of it.
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
    // That of a sequence with periods never issues, and is the one that changes are counted on.
    let counted = stripe.view(definition);
    let next_value = baseline.first(&counted);
    if definition.exhausted(next_value) && !has_periods(definition) && !counted.is_empty() {
        tracing::warn!(
            target: TARGET,
            sequence = name.as_str(),
            "a sequence is born exhausted: what `odometer recover` skipped is more than all of it"
        );
    }
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
