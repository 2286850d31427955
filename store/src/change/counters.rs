//! Reads and writes a sequence's counters for a change: one of them, or all.

use entity::counter;
use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait},
};

use crate::{
    change::request::Act,
    outcome::Snapshot,
    rows::{
        catalog::{LIVE, NO_PERIOD, REMOVED},
        counter::{self as counter_row, outdate, update},
        payment::{Payment, keep_debt, limit_of},
    },
};

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
    // This read takes a lock. On MariaDB, a read without a lock would fix the state that is shown
    // from then on, before anything is locked.
    let find = transaction.holding(counter_row::find(key));
    let row = find.one(transaction).await?;
    Ok(row.is_some_and(|row| row.state == REMOVED))
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
    outdate()
        .filter(those.add(counter::Column::State.eq(LIVE)))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Writes what became of one counter that goes on from `next_value`. Its row is locked since it was
/// raised, or this transaction created it. So no process has reserved meanwhile.
pub(crate) async fn set(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    next_value: i64,
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
    let state = if after.is_removed { REMOVED } else { LIVE };
    update(key)
        .col_expr(counter::Column::NextValue, Expr::val(next_value))
        .col_expr(counter::Column::Floor, Expr::val(after.floor))
        .col_expr(counter::Column::State, Expr::val(state))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Makes a counter pay for what it skips, if its speed limit allows so many numbers now.
///
/// Only COMMIT may follow. A fence counts on it that the time of a payment is not much earlier than
/// its commit.
pub(crate) async fn pay(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    payment: Payment,
) -> Result<(), DbErr> {
    let backend = transaction.get_database_backend();
    payment
        .demand(update(key), backend)
        .exec(transaction)
        .await?;
    Ok(())
}

/// Makes all counters of a sequence keep what they have used of their speed limit, if its next
/// definition gives them another one. Their rows are locked.
pub(crate) async fn keep_debts(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
    (before, after): (&Definition, &Definition),
) -> Result<(), DbErr> {
    let limits = limit_of(before).zip(limit_of(after));
    let Some(limits) = limits.filter(|(before, after)| before != after) else {
        return Ok(());
    };
    let of_the_sequence = counter::Entity::update_many()
        .filter(counter::Column::Sequence.eq(name.as_str()))
        .filter(counter::Column::State.eq(LIVE));
    keep_debt(of_the_sequence, limits, transaction.get_database_backend())
        .exec(transaction)
        .await?;
    Ok(())
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
    let highest: Option<Option<i64>> = counter::Entity::find()
        .select_only()
        .column_as(counter::Column::NextValue.max(), "highest")
        .filter(counter::Column::Sequence.eq(name.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        .filter(counter::Column::State.eq(LIVE))
        .into_tuple()
        .one(transaction)
        .await?;
    Ok(highest.flatten())
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
