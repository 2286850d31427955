//! A sequence's counters, as changes touch them: one of them, or all.

use entity::counter;
use odometer_core::{name::SequenceName, period::CounterKey};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::sabotage::{self, Fault};
use crate::store::{
    answer::Snapshot,
    catalogue::{LIVE, NO_PERIOD, REMOVED, one_more},
    connection::session::DatabaseTransaction,
    reservation::period::Newborn,
};

/// Raises version and revision, so that what is remembered of the counters conflicts: of all that
/// issue, or, where a period is named, of its own and of the one without a period.
///
/// A tombstone was raised when it became one. So a write on what is remembered of the period as it
/// was before finds no row any more, and whoever reads again is told that it is removed.
pub(super) async fn raise(
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
        .filter(those.add(counter::Column::State.eq(LIVE)))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Writes what became of one counter. Its row is locked since it was raised, or born by this
/// transaction: nobody has reserved meanwhile.
pub(super) async fn write(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    after: &Snapshot,
) -> Result<(), DbErr> {
    if after.is_removed && sabotage::is(Fault::Rebirth) {
        let row = (
            key.sequence.as_str().to_owned(),
            key.period.as_str().to_owned(),
        );
        counter::Entity::delete_by_id(row).exec(transaction).await?;
        return Ok(());
    }
    let state = if after.is_removed { REMOVED } else { LIVE };
    counter::Entity::update_many()
        .col_expr(counter::Column::NextValue, Expr::val(after.next_value))
        .col_expr(counter::Column::Floor, Expr::val(after.floor))
        .col_expr(counter::Column::State, Expr::val(state))
        .filter(counter::Column::Sequence.eq(key.sequence.as_str()))
        .filter(counter::Column::Period.eq(key.period.as_str()))
        .exec(transaction)
        .await?;
    Ok(())
}

/// Raises the floor of each counter that issues to its high-water mark.
pub(super) async fn close(
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

/// The highest high-water mark of the periods that issue; `None` where there is none.
pub(super) async fn highest(
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

/// Whether a counter was made for any period, those of removed keys included.
pub(super) async fn has_periods(
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

/// Makes the counter of a period that was never used, also where the sequence is retired.
pub(super) async fn insert(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    newborn: Newborn,
) -> Result<(), DbErr> {
    counter::Entity::insert(newborn.row(key))
        .exec_without_returning(transaction)
        .await?;
    Ok(())
}
