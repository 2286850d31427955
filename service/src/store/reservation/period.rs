//! Counters of periods: which one a sequence counts in, and how one is born.
//!
//! A sequence with periods counts in none but those, each with a row of its own that is born when
//! it is first reserved from. Born again, a period would repeat its numbers; so none is born that
//! was removed: it left a tombstone, or lies at or before `periods_removed_through`.

use std::sync::Arc;

use entity::{counter, sequence};
use odometer_core::{
    definition::{Definition, Kind, PeriodKind, Stripe},
    period::{CounterKey, Period},
};
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, PaginatorTrait, QueryFilter,
    QuerySelect,
    sea_query::{Expr, LockType, OnConflict, Query},
};

use crate::sabotage::{self, Fault};
use crate::store::{
    catalogue::{self, Counter, LIVE, NO_PERIOD},
    change::beat::Witness,
    connection::session::{DatabaseConnection, DatabaseTransaction},
    database::Seen,
    error::{Cause, Failure, StoreError},
    reservation::{Known, Reservation, Stop, look::Ground},
};

/// Refuses the counter of a period where the sequence has none, and that without a period where it
/// has some: nothing is ever reserved of that one.
pub(in crate::store) fn check(
    period: &Period,
    definition: &Arc<Definition>,
    version: i64,
    counter: Option<Counter>,
) -> Result<(), StoreError> {
    let fits = catalogue::has_periods(definition) != period.is_none();
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
pub(in crate::store) fn known(
    definition: &Arc<Definition>,
    version: i64,
    counter: Option<Counter>,
) -> Known {
    let was_read = counter.is_some();
    Known {
        definition: Arc::clone(definition),
        definition_version: version,
        // Of a counter that was not read it is certain that it is not below its start.
        seen: counter.map_or(
            Seen {
                next_value: definition.start,
                version: 0,
            },
            |counter| counter.seen,
        ),
        revision: counter.map_or(0, |counter| counter.revision),
        floor: counter.map_or(definition.start, |counter| counter.floor),
        // The next to ask for that counter has to be told as well, not to be given of it.
        trusted: was_read && sabotage::is(Fault::RefusalBelieved),
    }
}

impl Reservation<'_> {
    /// The first reservation of a period makes its counter.
    pub(in crate::store) async fn create_period(
        &mut self,
        witness: &Witness,
        definition: &Definition,
    ) -> Result<(), Stop> {
        let most_keys = self.database.settings.keyed_periods;
        let birth = PeriodBirth {
            key: self.counter.clone(),
            above: self.request.last_seen.map_or(0, |seen| seen.next_value),
            most_keys: (definition.period == PeriodKind::Keyed).then_some(most_keys),
            stripe: self.database.stripe,
            witness: witness.clone(),
        };
        let born = self
            .database
            .connection
            .run(self.until, |database| birth.run(database))
            .await;
        match born {
            Ok(PeriodBorn::Contradicted) => Err(Stop::Told(self.contradicted(witness))),
            Ok(PeriodBorn::TooLow) => Err(Stop::Told(self.went_back())),
            Ok(PeriodBorn::TooMany { limit }) => {
                Err(Stop::Told(StoreError::TooManyPeriods { limit }))
            }
            Ok(PeriodBorn::Headless) => Err(Stop::Told(self.without_counter())),
            Ok(PeriodBorn::Unreadable(text)) => Err(Stop::Told(StoreError::Broken(text))),
            Ok(PeriodBorn::Born) => {
                tracing::debug!(
                    sequence = self.request.key.sequence.as_str(),
                    period = self.request.key.period.as_str(),
                    "a period begins"
                );
                Box::pin(self.read(witness)).await
            }
            // The sequence was changed, or another replica was faster: what there is now is read.
            Ok(PeriodBorn::Refused) | Err(Failure::NotCommitted(Cause::Duplicate)) => Ok(()),
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }
}

/// A period's counter that is to be made.
struct PeriodBirth {
    key: CounterKey,
    /// What was seen of it before a recovery: where it would begin below, it is not born.
    above: i64,
    /// Keys that a sequence may have; `None` where its periods are the calendar's.
    most_keys: Option<u64>,
    stripe: Stripe,
    witness: Witness,
}

/// What became of it.
enum PeriodBorn {
    Born,
    /// The store went back.
    Contradicted,
    /// It would begin below what was seen of it.
    TooLow,
    TooMany {
        limit: u64,
    },
    /// The counter is gone that the sequence was born with, and with it those of periods, maybe.
    Headless,
    /// The sequence's definition cannot be read.
    Unreadable(String),
    /// The sequence is not there, not live, or has removed the period.
    Refused,
}

impl PeriodBirth {
    /// One transaction, which holds the sequence's row: no change, no removal passes meanwhile.
    async fn run(self, database: DatabaseConnection) -> Result<PeriodBorn, DbErr> {
        let transaction = database.begin().await?;
        let outcome = self.within(&transaction).await?;
        if matches!(outcome, PeriodBorn::Born) {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(outcome)
    }

    async fn within(&self, transaction: &DatabaseTransaction) -> Result<PeriodBorn, DbErr> {
        let Some(row) = self.hold_sequence(transaction).await? else {
            return Ok(PeriodBorn::Refused);
        };
        let definition = match Definition::from_stored(&row.definition) {
            Ok(definition) => definition,
            Err(error) => return Ok(PeriodBorn::Unreadable(error.to_string())),
        };
        let Some(ground) = Ground::hold(transaction, &self.witness).await? else {
            return Ok(PeriodBorn::Contradicted);
        };
        let counted = self.stripe.view(&definition);
        let first = ground.first_in(&counted, &self.key.period);
        if first < self.above && !sabotage::is(Fault::NoWentBackChecks) {
            return Ok(PeriodBorn::TooLow);
        }
        let head = (self.key.sequence.as_str().to_owned(), NO_PERIOD.to_owned());
        if counter::Entity::find_by_id(head)
            .one(transaction)
            .await?
            .is_none()
        {
            return Ok(PeriodBorn::Headless);
        }
        if let Some(limit) = self.most_keys
            && n_others(transaction, &self.key).await? >= limit
        {
            return Ok(PeriodBorn::TooMany { limit });
        }
        let newborn = Newborn::at(first, &definition, self.stripe, ground);
        if insert(transaction, &self.key, newborn).await? {
            if definition.exhausted(first) && !self.stripe.view(&definition).is_empty() {
                tracing::warn!(
                    sequence = self.key.sequence.as_str(),
                    period = self.key.period.as_str(),
                    "a period is born exhausted: what `odometer recover` skipped is more than all of it"
                );
            }
            Ok(PeriodBorn::Born)
        } else {
            Ok(PeriodBorn::Refused)
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

/// How a counter begins.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Newborn {
    pub(in crate::store) next_value: i64,
    pub(in crate::store) floor: i64,
    pub(in crate::store) version: i64,
    stripe_count: i32,
}

impl Newborn {
    pub(in crate::store) fn at(
        first: i64,
        definition: &Definition,
        stripe: Stripe,
        ground: Ground,
    ) -> Self {
        Self {
            next_value: first,
            floor: definition.start,
            version: ground.version(),
            stripe_count: i32::from(stripe.n()),
        }
    }

    /// Makes its row, whatever its sequence is: live or retired.
    ///
    /// # Errors
    /// There is such a counter, or what the database says.
    pub(in crate::store) async fn insert(
        self,
        transaction: &DatabaseTransaction,
        key: &CounterKey,
    ) -> Result<(), DbErr> {
        let mut insert = counter::Entity::insert(self.row(key));
        if sabotage::is(Fault::BirthOverwrites) {
            let mut again =
                OnConflict::columns([counter::Column::Sequence, counter::Column::Period]);
            let next_value = [counter::Column::NextValue, counter::Column::Version];
            insert = insert.on_conflict(again.update_columns(next_value).to_owned());
        }
        insert.exec_without_returning(transaction).await?;
        Ok(())
    }

    fn row(self, key: &CounterKey) -> counter::ActiveModel {
        counter::ActiveModel {
            sequence: Set(key.sequence.as_str().to_owned()),
            period: Set(key.period.as_str().to_owned()),
            next_value: Set(self.next_value),
            floor: Set(self.floor),
            state: Set(LIVE.to_owned()),
            rate: Set(0.0),
            stripe_count: Set(self.stripe_count),
            // None that stood in Redis before a recovery.
            window: Set(self.version),
            window_open: Set(false),
            window_leased_until: Set(0),
            // None that was remembered of an earlier one of that name.
            revision: Set(self.version),
            version: Set(self.version),
        }
    }
}

/// Other periods of the sequence that have a row. Tombstones stay for good, so they count: removing
/// keys makes no room for others, or the table could grow without bound.
pub(in crate::store) async fn n_others(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
) -> Result<u64, DbErr> {
    counter::Entity::find()
        .filter(counter::Column::Sequence.eq(key.sequence.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        // Another replica may just have made it.
        .filter(counter::Column::Period.ne(key.period.as_str()))
        .count(transaction)
        .await
}

/// Makes the counter of a period where the sequence is live and has not removed it.
///
/// Two that insert at once meet at the primary key: one gets `Duplicate` and reads.
pub(in crate::store) async fn insert(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    newborn: Newborn,
) -> Result<bool, DbErr> {
    let period = key.period.as_str();
    let row = Query::select()
        .column(sequence::Column::Name)
        .expr(Expr::val(period))
        .expr(Expr::val(newborn.next_value))
        .expr(Expr::val(newborn.floor))
        .expr(Expr::val(LIVE))
        .expr(Expr::val(0.0_f64))
        .expr(Expr::val(newborn.stripe_count))
        .expr(Expr::val(newborn.version))
        .expr(Expr::val(false))
        .expr(Expr::val(0_i64))
        .expr(Expr::val(newborn.version))
        .expr(Expr::val(newborn.version))
        .from(sequence::Entity)
        .and_where(sequence::Column::Name.eq(key.sequence.as_str()))
        .and_where(sequence::Column::State.eq(LIVE))
        .and_where(sequence::Column::PeriodsRemovedThrough.lt(period))
        .to_owned();
    let mut insert = Query::insert();
    insert.into_table(counter::Entity).columns([
        counter::Column::Sequence,
        counter::Column::Period,
        counter::Column::NextValue,
        counter::Column::Floor,
        counter::Column::State,
        counter::Column::Rate,
        counter::Column::StripeCount,
        counter::Column::Window,
        counter::Column::WindowOpen,
        counter::Column::WindowLeasedUntil,
        counter::Column::Revision,
        counter::Column::Version,
    ]);
    insert
        .select_from(row)
        .map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(transaction.execute(&insert).await?.rows_affected() == 1)
}
