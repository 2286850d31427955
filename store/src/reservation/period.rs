//! Counters of periods: which one a sequence counts in, and how one is born.
//!
//! A sequence with periods counts in none but those, each with a row of its own that is born when
//! it is first reserved from. Born again, a period would repeat its numbers; so none is born that
//! was removed: it left a tombstone, or lies at or before `periods_removed_through`.

use std::sync::Arc;

use entity::{counter, sequence};
use odometer_core::{
    definition::{Definition, Kind, Stripe},
    period::{CounterKey, Period, PeriodKind},
};
use odometer_database::{
    failure::{Cause, StatementFailure},
    session::{DatabaseConnection, DatabaseTransaction},
};
use odometer_process::faults::{self, Fault};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, EntityTrait, QuerySelect, sea_query::LockType};

use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::outcome::Resolved;
use crate::reservation::{attempt_error::AttemptError, attempts::Reservation};
use crate::rows::{
    catalog::{self, NO_PERIOD},
    counter::{CounterRow, SeenCounter},
    creation_baseline::CreationBaseline,
    new_counter::{NewCounter, insert, n_others},
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::reservation::period";

/// Refuses the counter of a period where the sequence has none, and that without a period where it
/// has some: nothing is ever reserved of that one.
pub(crate) fn check(
    period: &Period,
    definition: &Arc<Definition>,
    version: i64,
    counter: Option<CounterRow>,
) -> Result<(), StoreError> {
    let fits = catalog::has_periods(definition) != period.is_none();
    let is_counted = definition.kind == Kind::Block;
    if fits && is_counted {
        return Ok(());
    }
    let known = Box::new(known(definition, version, counter));
    Err(match (fits, period.is_none()) {
        (true, _) => StoreError::TimeOrdered(known),
        (false, true) => StoreError::HasPeriods(known),
        (false, false) => StoreError::NoPeriods(known),
    })
}

/// What is known of a sequence by whoever asked for a counter that it does not count in.
pub(crate) fn known(
    definition: &Arc<Definition>,
    version: i64,
    counter: Option<CounterRow>,
) -> Resolved {
    let was_read = counter.is_some();
    Resolved {
        definition: Arc::clone(definition),
        definition_version: version,
        // Of a counter that was not read it is certain that it is not below its start.
        seen: counter.map_or(
            SeenCounter {
                next_value: definition.start,
                version: 0,
            },
            |counter| counter.seen,
        ),
        revision: counter.map_or(0, |counter| counter.revision),
        floor: counter.map_or(definition.start, |counter| counter.floor),
        // The next to ask for that counter has to be told as well, not to be given of it.
        trusted: was_read && faults::is(Fault::RefusalBelieved),
    }
}

impl Reservation<'_> {
    /// The first reservation of a period makes its counter.
    pub(crate) async fn create_period(
        &mut self,
        guard: &HeartbeatGuard,
        definition: &Definition,
    ) -> Result<(), AttemptError> {
        let most_keys = self.database.settings.keyed_periods;
        let birth = PeriodCreation {
            key: self.counter.clone(),
            above: self.request.last_seen.map_or(0, |seen| seen.next_value),
            most_keys: (definition.period == PeriodKind::Keyed).then_some(most_keys),
            stripe: self.database.stripe,
            guard: guard.clone(),
        };
        let born = self
            .database
            .connection
            .run(self.until, |database| birth.run(database))
            .await;
        match born {
            Ok(PeriodCreated::Contradicted) => Err(AttemptError::Told(self.contradicted(guard))),
            Ok(PeriodCreated::TooLow) => Err(AttemptError::Told(self.went_back())),
            Ok(PeriodCreated::TooMany { limit }) => {
                Err(AttemptError::Told(StoreError::TooManyPeriods { limit }))
            }
            Ok(PeriodCreated::MissingCounter) => Err(AttemptError::Told(self.without_counter())),
            Ok(PeriodCreated::Unreadable(text)) => {
                Err(AttemptError::Told(StoreError::Broken(text)))
            }
            Ok(PeriodCreated::Created) => {
                tracing::debug!(
                    target: TARGET,
                    sequence = self.request.key.sequence.as_str(),
                    period = self.request.key.period.as_str(),
                    "a period begins"
                );
                Box::pin(self.read(guard)).await
            }
            // The sequence was changed, or another replica was faster: what there is now is read.
            Ok(PeriodCreated::Refused) | Err(StatementFailure::NotCommitted(Cause::Duplicate)) => {
                Ok(())
            }
            Err(failure) => Err(AttemptError::Failed(failure)),
        }
    }
}

/// A period's counter that is to be made.
struct PeriodCreation {
    key: CounterKey,
    /// What was seen of it before a recovery: where it would begin below, it is not born.
    above: i64,
    /// Keys that a sequence may have; `None` where its periods are the calendar's.
    most_keys: Option<u64>,
    stripe: Stripe,
    guard: HeartbeatGuard,
}

/// What became of it.
enum PeriodCreated {
    Created,
    /// The store went back.
    Contradicted,
    /// It would begin below what was seen of it.
    TooLow,
    TooMany {
        limit: u64,
    },
    /// The counter is gone that the sequence was born with, and with it those of periods, maybe.
    MissingCounter,
    /// The sequence's definition cannot be read.
    Unreadable(String),
    /// The sequence is not there, not live, or has removed the period.
    Refused,
}

impl PeriodCreation {
    /// One transaction, which holds the sequence's row: no change, no removal passes meanwhile.
    async fn run(self, database: DatabaseConnection) -> Result<PeriodCreated, DbErr> {
        let transaction = database.begin().await?;
        let outcome = self.within(&transaction).await?;
        if matches!(outcome, PeriodCreated::Created) {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(outcome)
    }

    async fn within(&self, transaction: &DatabaseTransaction) -> Result<PeriodCreated, DbErr> {
        let Some(row) = self.hold_sequence(transaction).await? else {
            return Ok(PeriodCreated::Refused);
        };
        let definition = match Definition::from_stored(&row.definition) {
            Ok(definition) => definition,
            Err(error) => return Ok(PeriodCreated::Unreadable(error.to_string())),
        };
        let Some(baseline) = CreationBaseline::hold(transaction, &self.guard).await? else {
            return Ok(PeriodCreated::Contradicted);
        };
        let counted = self.stripe.view(&definition);
        let first = baseline.first_in(&counted, &self.key.period);
        if first < self.above && !faults::is(Fault::NoWentBackChecks) {
            return Ok(PeriodCreated::TooLow);
        }
        let head = (self.key.sequence.as_str().to_owned(), NO_PERIOD.to_owned());
        if counter::Entity::find_by_id(head)
            .one(transaction)
            .await?
            .is_none()
        {
            return Ok(PeriodCreated::MissingCounter);
        }
        if let Some(limit) = self.most_keys
            && n_others(transaction, &self.key).await? >= limit
        {
            return Ok(PeriodCreated::TooMany { limit });
        }
        let new_counter = NewCounter::at(first, &definition, self.stripe, baseline);
        if insert(transaction, &self.key, new_counter).await? {
            if definition.exhausted(first) && !self.stripe.view(&definition).is_empty() {
                tracing::warn!(
                    target: TARGET,
                    sequence = self.key.sequence.as_str(),
                    period = self.key.period.as_str(),
                    "a period is born exhausted: what `odometer recover` skipped is more than all of it"
                );
            }
            Ok(PeriodCreated::Created)
        } else {
            Ok(PeriodCreated::Refused)
        }
    }

    /// Held shared, so that the counters of a sequence's periods are born side by side; where they
    /// are counted, by one alone.
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
