//! Reads and writes a sequence's counters for a change: one of them, or all.

use std::sync::Arc;

use entity::counter;
use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::{CounterKey, PeriodKind},
};
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    UpdateMany,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::change::{act::Act, transaction::ChangeRequest};
use crate::error;
use crate::error::StoreError;
use crate::outcome::Snapshot;
use crate::reservation::period;
use crate::rows::{
    catalog::{self, CatalogEntry, LIVE, NO_PERIOD, REMOVED, one_more},
    counter::{CounterRow, SeenCounter, WindowRow},
    new_counter::{self, NewCounter},
};

/// The counter that the act is about, and what was used of the sequence.
pub(crate) struct ChangeTarget {
    pub(crate) counter: CounterRow,
    pub(crate) used: Used,
}

/// What was used of all counters of a sequence, if the act depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// The highest high-water mark of the counters that issue.
    pub(crate) highest: i64,
    /// Whether a number may have been issued, in any period, even in one that is removed.
    pub(crate) issued: bool,
}

/// The sequence that the act is about.
#[derive(Clone, Copy)]
pub(crate) struct WholeSequence<'a> {
    pub(crate) definition: &'a Arc<Definition>,
    /// Whether the act is known to change nothing. Then no counter was raised.
    pub(crate) changes_nothing: bool,
}

/// Returns whether the act removes a period that is a tombstone already. A tombstone never gets
/// another state.
pub(crate) async fn is_tombstone(
    transaction: &DatabaseTransaction,
    act: &Act,
    key: &CounterKey,
) -> Result<bool, DbErr> {
    if !matches!(act, Act::RemovePeriod { .. }) {
        return Ok(false);
    }
    let row = (
        key.sequence.as_str().to_owned(),
        key.period.as_str().to_owned(),
    );
    // This read takes a lock. On MariaDB, a read without a lock would fix the state that is shown
    // from then on, before anything is locked.
    let find = transaction.holding(counter::Entity::find_by_id(row));
    let row = find.one(transaction).await?;
    Ok(row.is_some_and(|row| row.state == REMOVED))
}

/// Reads the counter that the act is about, and creates it if its period was never used.
pub(crate) async fn found(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    key: &CounterKey,
    WholeSequence {
        definition,
        changes_nothing,
    }: WholeSequence<'_>,
    version: &mut ChangeVersion,
) -> Result<Result<ChangeTarget, StoreError>, DbErr> {
    let Some(entry) = catalog::read(transaction, key.sequence.as_str(), &key.period).await? else {
        return Ok(Err(StoreError::NotFound));
    };
    if let Err(error) = admit_period(change, definition, &entry) {
        return Ok(Err(error));
    }
    let counter = match entry.counter() {
        Some(counter) => counter,
        None if key.period.is_none() => {
            return Ok(Err(error::without_counter(&key.sequence)));
        }
        None => match created(transaction, change, key, definition, version).await? {
            Ok(counter) => counter,
            Err(error) => return Ok(Err(error)),
        },
    };
    if change.went_back(counter.seen.next_value, Some(counter.seen.version)) {
        return Ok(Err(StoreError::WentBack));
    }
    let mut used = Used {
        highest: counter.seen.next_value,
        issued: counter.seen.next_value > definition.start,
    };
    let is_definition = matches!(change.act, Act::Define { .. }) && !changes_nothing;
    if is_definition && catalog::has_periods(definition) {
        let of_periods = highest_of_periods(transaction, &key.sequence).await?;
        used.highest = of_periods.unwrap_or(definition.start);
        used.issued = !entry.periods_removed_through.is_empty()
            || is_any_made(transaction, &key.sequence).await?;
    }
    Ok(Ok(ChangeTarget { counter, used }))
}

/// Checks that the act's period is one of the sequence's periods, and that it is not removed.
fn admit_period(
    change: &ChangeRequest,
    definition: &Arc<Definition>,
    entry: &CatalogEntry,
) -> Result<(), StoreError> {
    let (version, counter) = (entry.definition_version, entry.counter());
    match &change.act {
        Act::Advance { period, .. } => {
            period::check(period, definition, version, counter)?;
            if entry.has_removed(period) {
                return Err(StoreError::PeriodRemoved);
            }
            Ok(())
        }
        Act::RemovePeriod { .. } if definition.period != PeriodKind::Keyed => {
            Err(StoreError::NotForKind)
        }
        Act::RemovePeriod { .. } | Act::Define { .. } | Act::Retire | Act::Restore => Ok(()),
    }
}

/// Creates the counter of a period that was never used, so that it can be advanced or become a
/// tombstone.
async fn created(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    key: &CounterKey,
    definition: &Definition,
    version: &mut ChangeVersion,
) -> Result<Result<CounterRow, StoreError>, DbErr> {
    let limit = change.keyed_periods;
    if definition.period == PeriodKind::Keyed
        && new_counter::n_others(transaction, key).await? >= limit
    {
        return Ok(Err(StoreError::TooManyPeriods { limit }));
    }
    // Raising the version locks `meta`'s row, which decides where the counter begins. A rollback
    // undoes both.
    version.raised(transaction).await?;
    let Some(baseline) = super::transaction::baseline(transaction, change).await? else {
        return Ok(Err(StoreError::WentBack));
    };
    let first = baseline.first_in(definition, &key.period);
    if change.went_back(first, None) {
        return Ok(Err(StoreError::WentBack));
    }
    let new_counter = NewCounter::at(first, definition, Stripe::WHOLE, baseline);
    new_counter.insert(transaction, key).await?;
    Ok(Ok(CounterRow {
        seen: SeenCounter {
            next_value: new_counter.next_value,
            version: new_counter.version,
        },
        floor: new_counter.floor,
        revision: new_counter.version,
        rate: 0.0,
        is_removed: false,
        window: WindowRow::default(),
    }))
}

/// The version of a change. It is raised once, and only if there is a change.
#[derive(Default)]
pub(crate) struct ChangeVersion {
    version: Option<i64>,
}

impl ChangeVersion {
    pub(crate) async fn raised(&mut self, transaction: &DatabaseTransaction) -> Result<i64, DbErr> {
        if let Some(version) = self.version {
            return Ok(version);
        }
        let version = super::transaction::raise_definitions_version(transaction).await?;
        self.version = Some(version);
        Ok(version)
    }
}

/// Raises version and revision and closes windows, so that remembered counters conflict.
///
/// If a period is named, these are its counter and the counter without period. Otherwise they are
/// all counters of the sequence. Tombstones are left as they are.
///
/// A tombstone was raised when it became one. So a write that goes by the period's earlier state
/// finds no row. A process that reads again learns that the period is removed.
pub(crate) async fn raise(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
) -> Result<(), DbErr> {
    let mut those = Condition::all().add(counter::Column::Sequence.eq(key.sequence.as_str()));
    if !key.period.is_none() {
        those = those.add(counter::Column::Period.is_in([NO_PERIOD, key.period.as_str()]));
    }
    counter::Entity::update_many()
        .col_expr(counter::Column::Version, one_more(counter::Column::Version))
        .col_expr(
            counter::Column::Revision,
            one_more(counter::Column::Revision),
        )
        .col_expr(counter::Column::WindowOpen, Expr::val(false))
        .filter(those.add(counter::Column::State.eq(LIVE)))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Writes what became of one counter. Its row is locked since it was raised, or this transaction
/// created it. So no process has reserved meanwhile.
pub(crate) async fn write(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    after: &Snapshot,
) -> Result<(), DbErr> {
    if after.is_removed && faults::is(Fault::Recreation) {
        let row = (
            key.sequence.as_str().to_owned(),
            key.period.as_str().to_owned(),
        );
        counter::Entity::delete_by_id(row).exec(transaction).await?;
        return Ok(());
    }
    set(transaction, key, after.next_value, after).await
}

/// Writes what became of one counter that goes on from `next_value`.
pub(crate) async fn set(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    next_value: i64,
    after: &Snapshot,
) -> Result<(), DbErr> {
    let state = if after.is_removed { REMOVED } else { LIVE };
    update(key)
        .col_expr(counter::Column::NextValue, Expr::val(next_value))
        .col_expr(counter::Column::Floor, Expr::val(after.floor))
        .col_expr(counter::Column::State, Expr::val(state))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Returns a statement that updates one counter.
pub(crate) fn update(key: &CounterKey) -> UpdateMany<counter::Entity> {
    counter::Entity::update_many()
        .filter(counter::Column::Sequence.eq(key.sequence.as_str()))
        .filter(counter::Column::Period.eq(key.period.as_str()))
}

/// Raises the floor of each counter that issues to its high-water mark.
pub(crate) async fn close(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
) -> Result<(), DbErr> {
    let next_value = || Expr::col(counter::Column::NextValue);
    counter::Entity::update_many()
        .col_expr(counter::Column::Floor, next_value())
        .filter(counter::Column::Sequence.eq(name.as_str()))
        .filter(counter::Column::State.eq(LIVE))
        .filter(Expr::col(counter::Column::Floor).lt(next_value()))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Returns the highest high-water mark of the periods that issue, or `None` if there is none.
pub(crate) async fn highest_of_periods(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
) -> Result<Option<i64>, DbErr> {
    let query = Query::select()
        .expr_as(Expr::col(counter::Column::NextValue).max(), "highest")
        .from(counter::Entity)
        .and_where(counter::Column::Sequence.eq(name.as_str()))
        .and_where(counter::Column::Period.gt(NO_PERIOD))
        .and_where(counter::Column::State.eq(LIVE))
        .to_owned();
    match transaction.query_one(&query).await? {
        Some(row) => row.try_get("", "highest"),
        None => Ok(None),
    }
}

/// Returns whether a counter was created for any period. Removed keys count, too.
pub(crate) async fn is_any_made(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
) -> Result<bool, DbErr> {
    let one = counter::Entity::find()
        .filter(counter::Column::Sequence.eq(name.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        .limit(1)
        .one(transaction)
        .await?;
    Ok(one.is_some())
}
