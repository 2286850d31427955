//! Checks which counter a sequence counts in, and creates the counters of periods.
//!
//! A sequence with periods counts only in its periods. Each period has a row of its own, which the
//! first reservation of the period creates. A period that was created a second time would repeat
//! its numbers, so a removed period is never created again. A removed period has a tombstone, or is
//! at or before `periods_removed_through`.

use std::sync::Arc;

use entity::sequence;
use odometer_core::{
    definition::{Definition, Kind, Stripe},
    period::{CounterKey, Period, PeriodKind},
};
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::AttemptError,
    session::{DatabaseConnection, DatabaseTransaction},
};
use odometer_process::faults::{self, Fault};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, EntityTrait, QuerySelect, sea_query::LockType};

use crate::creation::Creation;
use crate::error::{self, Attempted, StoreError};
use crate::guard::HeartbeatGuard;
use crate::reservation::attempts::Reservation;
use crate::rows::{
    catalog,
    counter::find,
    creation_baseline::CreationBaseline,
    new_counter::{NewCounter, count_others, insert},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation::period";
/// Names the log target of lost counters.
const LOST: &str = "odometer::store::reservation::birth";

/// Refuses a counter that the sequence does not count in.
///
/// A sequence without periods has no counters of periods. The counter without period of a sequence
/// with periods gives no numbers.
///
/// # Errors
/// `Changed`, with the definition that does not fit.
pub(crate) fn check(period: &Period, definition: &Arc<Definition>) -> Result<(), StoreError> {
    let fits = catalog::has_periods(definition) != period.is_none();
    if fits && definition.kind == Kind::Block {
        return Ok(());
    }
    Err(StoreError::Changed(Arc::clone(definition)))
}

impl Reservation<'_> {
    /// Creates the counter of a period, which the first reservation of the period does. A sequence
    /// that has lost its counter without period never gets it back, because it would repeat numbers.
    pub(crate) async fn create_counter(
        &mut self,
        guard: &HeartbeatGuard,
        definition: &Definition,
    ) -> Attempted<()> {
        if self.request.key.period.is_none() {
            return Err(self.without_counter().into());
        }
        if !self.may_be_created() {
            return Err(self.went_back().into());
        }
        let most_keys = self.database.settings.keyed_periods;
        let creation = PeriodCreation {
            key: self.counter.clone(),
            above: self.request.last_seen.map_or(0, |seen| seen.next_value),
            floor: self.constraints.floor,
            most_keys: (definition.period == PeriodKind::Keyed).then_some(most_keys),
            stripe: self.database.stripe,
            guard: guard.clone(),
        };
        let creating = self
            .database
            .connection
            .run(self.retry.until, |database| creation.run(database));
        let creation = match creating.await {
            Err(StatementFailure::NotCommitted(Cause::Duplicate)) => Creation::Exists,
            created => created?,
        };
        if matches!(creation, Creation::MissingCounter) {
            return Err(self.without_counter().into());
        }
        let name = &self.request.key.sequence;
        let creation = self.database.check_created(name, guard, creation)?;
        if matches!(creation, Creation::Exists) {
            return Err(AttemptError::Conflict);
        }
        tracing::debug!(
            target: TARGET,
            sequence = name.as_str(),
            period = self.request.key.period.as_str(),
            "a period begins"
        );
        Box::pin(self.read(guard)).await
    }

    /// Logs that a sequence has lost its counter, and returns the error.
    fn without_counter(&self) -> StoreError {
        let name = &self.request.key.sequence;
        let error = error::without_counter(name);
        tracing::error!(target: LOST, sequence = name.as_str(), error = %error, "a counter is gone");
        error
    }

    /// Returns whether what is missing may be created: this process has never seen it, or the
    /// database was recovered since this process started.
    pub(crate) fn may_be_created(&self) -> bool {
        self.request.last_seen.is_none()
            || self.database.heartbeat.was_recovered()
            || faults::is(Fault::NoWentBackChecks)
    }
}

/// The counter of a period that is to be created.
struct PeriodCreation {
    key: CounterKey,
    /// The high-water mark that this process saw before a recovery. The counter is not created if
    /// it would begin below this number.
    above: i64,
    /// The floor that other databases of the store have of it.
    floor: Option<i64>,
    /// The limit of keys for one sequence; `None` if its periods are those of the calendar.
    most_keys: Option<u64>,
    stripe: Stripe,
    guard: HeartbeatGuard,
}

impl PeriodCreation {
    /// Creates the counter in one transaction that holds the sequence's row. So no change and no
    /// removal can happen meanwhile.
    async fn run(self, database: DatabaseConnection) -> Result<Creation, DbErr> {
        let transaction = database.begin().await?;
        let creation = self.within(&transaction).await?;
        creation.end(transaction).await
    }

    async fn within(&self, transaction: &DatabaseTransaction) -> Result<Creation, DbErr> {
        let Some(row) = self.hold_sequence(transaction).await? else {
            // The sequence does not exist, is not live, or has removed the period.
            return Ok(Creation::Exists);
        };
        let definition = match catalog::parsed(&row.definition) {
            Ok(definition) => definition,
            Err(error) => return Ok(Creation::Refused(error)),
        };
        let name = &self.key.sequence;
        let Some(baseline) = CreationBaseline::hold(transaction, &self.guard, name).await? else {
            return Ok(Creation::Contradicted);
        };
        let counted = self.stripe.view(&definition);
        let floor = self.floor.unwrap_or(counted.start);
        let first = baseline.first_in_from(&counted, &self.key.period, floor);
        if baseline.is_unknown_in(&counted, &self.key.period) {
            return Ok(Creation::Waits);
        }
        if first < self.above && !faults::is(Fault::NoWentBackChecks) {
            return Ok(Creation::TooLow);
        }
        let head = find(&CounterKey::whole(self.key.sequence.clone()));
        if head.one(transaction).await?.is_none() {
            return Ok(Creation::MissingCounter);
        }
        if let Some(limit) = self.most_keys
            && count_others(transaction, &self.key).await?.is_full(limit)
        {
            return Ok(Creation::Refused(StoreError::TooManyPeriods { limit }));
        }
        let new_counter = NewCounter::at(first, &definition, self.stripe, &baseline);
        if insert(transaction, &self.key, new_counter).await? {
            if definition.exhausted(first) && !self.stripe.view(&definition).is_empty() {
                tracing::warn!(
                    target: TARGET,
                    sequence = self.key.sequence.as_str(),
                    period = self.key.period.as_str(),
                    "a period is created exhausted: what `odometer recover` skipped is more than all of it"
                );
            }
            Ok(Creation::Created(None))
        } else {
            Ok(Creation::Exists)
        }
    }

    /// Reads the sequence's row and locks it. The lock is shared, so that several periods can be
    /// created at the same time. If the periods are counted against a limit, the lock is exclusive.
    async fn hold_sequence(
        &self,
        transaction: &DatabaseTransaction,
    ) -> Result<Option<sequence::Model>, DbErr> {
        let mut find = sequence::Entity::find_by_id(self.key.sequence.as_str().to_owned());
        // SQLite has one writer and no row locks.
        if transaction.get_database_backend() != DbBackend::Sqlite {
            find = find.lock(match self.most_keys {
                Some(_) => LockType::Update,
                None => LockType::Share,
            });
        }
        find.one(transaction).await
    }
}
