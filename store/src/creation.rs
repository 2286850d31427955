//! Creates a sequence: its definition and its counter, in one transaction.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::CounterKey,
};
use odometer_database::{
    failure::StatementFailure,
    session::{DatabaseConnection, DatabaseTransaction},
};
use odometer_process::faults::{self, Fault};
use sea_orm::DbErr;

use crate::{
    database::Database,
    error::StoreError,
    heartbeat::HeartbeatGuard,
    outcome::Resolved,
    reservation::attempt_error::AttemptError,
    rows::{
        catalog::{self, LIVE, has_periods},
        counter::SeenCounter,
        creation_baseline::CreationBaseline,
        new_counter::NewCounter,
        sequence::SequenceRow,
    },
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::catalogue";

/// Sets how many sequences this process creates between two exact counts of all sequences.
const RECOUNT_EVERY: u64 = 1024;

/// A sequence that is to be created in one database.
#[derive(Clone, Debug)]
pub(crate) struct NewSequence {
    pub(crate) name: SequenceName,
    pub(crate) definition: Arc<Definition>,
    /// The high-water mark of this name that this process has seen, from before a recovery. If the
    /// sequence would begin below this mark, it is not created.
    pub(crate) above: i64,
}

/// The outcome of a creation.
#[derive(Clone, Debug)]
pub(crate) enum Creation {
    /// The counter is as it was written.
    Created(Resolved),
    /// The store went back.
    Contradicted,
    /// The sequence would begin below what was seen of its name.
    TooLow,
}

impl Database {
    /// Creates a sequence once, in one transaction.
    ///
    /// If two processes create it at once, they meet at the primary key. One of them gets
    /// `Duplicate` and reads.
    pub(crate) async fn create_once(
        &self,
        new: NewSequence,
        guard: HeartbeatGuard,
        until: Instant,
    ) -> Result<Creation, StatementFailure> {
        let stripe = self.stripe;
        let creating = self
            .connection
            .run(until, |database| create(database, new, stripe, guard));
        creating.await
    }

    /// Checks that one more sequence may be created.
    ///
    /// # Errors
    /// `TooMany` if the limit is reached, or the failure of the count.
    pub(crate) async fn admit_one_more(&self, until: Instant) -> Result<(), AttemptError> {
        let limit = self.settings.max_sequences;
        let estimate = self.n_sequences.fetch_add(1, Ordering::Relaxed);
        // The estimate knows only the sequences that this process created. So an exact count
        // replaces it from time to time, and near the limit each time.
        let is_far = estimate.saturating_add(RECOUNT_EVERY) < limit;
        if is_far && !estimate.is_multiple_of(RECOUNT_EVERY) {
            return Ok(());
        }
        let counted = self.connection.run(until, catalog::count).await;
        let exact = counted.map_err(AttemptError::Failed)?;
        self.n_sequences
            .store(exact.saturating_add(1), Ordering::Relaxed);
        if exact >= limit {
            return Err(AttemptError::Final(StoreError::TooMany { limit }));
        }
        Ok(())
    }
}

/// Inserts a definition and its counter in one transaction.
async fn create(
    database: DatabaseConnection,
    new: NewSequence,
    stripe: Stripe,
    guard: HeartbeatGuard,
) -> Result<Creation, DbErr> {
    let transaction = database.begin().await?;
    let Some(baseline) = CreationBaseline::hold(&transaction, &guard).await? else {
        transaction.rollback().await?;
        return Ok(Creation::Contradicted);
    };
    let first = baseline.first(&stripe.view(&new.definition));
    if first < new.above && !faults::is(Fault::NoWentBackChecks) {
        transaction.rollback().await?;
        return Ok(Creation::TooLow);
    }
    let known = insert(&transaction, &new, stripe, baseline).await?;
    transaction.commit().await?;
    Ok(Creation::Created(known))
}

async fn insert(
    transaction: &DatabaseTransaction,
    new: &NewSequence,
    stripe: Stripe,
    baseline: CreationBaseline,
) -> Result<Resolved, DbErr> {
    let NewSequence {
        name, definition, ..
    } = new;
    // If a sequence has periods, this counter issues nothing. Changes of the sequence are counted
    // on it.
    let counted = stripe.view(definition);
    let next_value = baseline.first(&counted);
    warn_if_exhausted(name, definition, &counted, next_value);
    // Nothing of the new sequence is older than the last recovery.
    let version = baseline.version();
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
        .await?;
    Ok(Resolved {
        definition: Arc::clone(definition),
        definition_version: version,
        seen: SeenCounter {
            next_value,
            version: new_counter.version,
        },
        revision: new_counter.version,
        floor: new_counter.floor,
        trusted: true,
    })
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
