//! Sets aside the rows of processes that seem to have ended long ago.

use std::time::Duration;

use entity::replica;
use odometer_database::{database_clock, session::DatabaseConnection};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait},
};

/// Sets how long after its last heartbeat a row is [set aside](clear_old). A replica that is cut
/// off from its database serves for a far shorter time.
const ROW_TTL: Duration = Duration::from_secs(30 * 86_400);
/// Sets how long a row stays set aside before it is deleted.
const ASIDE_TTL: Duration = Duration::from_secs(365 * 86_400);
/// Bounds how many old rows one step sets aside, and how many it deletes.
const CLEARED_AT_ONCE: u64 = 1000;

/// Returns whether a heartbeat that was read is at least `least`, or was set aside from there.
pub(crate) fn is_kept(beat: Option<i64>, least: i64) -> bool {
    beat.is_some_and(|it| it >= least || set_aside_value(it) >= least)
}

/// Converts the value of a row to the value that the row has when it is set aside, which is below
/// zero. Converts the second value back to the first as well.
pub(crate) const fn set_aside_value(heartbeat: i64) -> i64 {
    !heartbeat
}

/// Returns the condition that a row was set aside at the value `least` or at a higher one.
pub(crate) fn is_aside_from(least: i64) -> Expr {
    replica::Column::Beat.lte(set_aside_value(least))
}

/// Sets aside the rows of processes that seem to have ended long ago, and deletes rows that were
/// set aside long ago. Each step handles a bounded number of rows.
///
/// A row is not deleted at once, because its process may only be stopped, or the database's clock
/// may have been set ahead. A living replica would take the deleted row for a store that went back.
/// A row that is set aside still shows up to which value the store has kept what was committed. The
/// next heartbeat takes the row back. The time of setting aside is below zero too, so a search for
/// living processes passes over the row.
pub(crate) async fn clear_old(database: DatabaseConnection) -> Result<(), DbErr> {
    let now = || database_clock::now(database.get_database_backend());
    let ms = |kept: Duration| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    let is_old = replica::Column::Beat
        .gte(0)
        .and(Expr::col(replica::Column::BeatAt).lt(now().sub(ms(ROW_TTL))));
    let old = holders_matching(&database, &is_old).await?;
    if !old.is_empty() {
        let heartbeat = Expr::val(set_aside_value(0)).sub(Expr::col(replica::Column::Beat));
        replica::Entity::update_many()
            .col_expr(replica::Column::Beat, heartbeat)
            .col_expr(replica::Column::BeatAt, Expr::val(0_i64).sub(now()))
            .filter(replica::Column::Holder.is_in(old))
            .filter(is_old)
            .exec(&database)
            .await?;
    }
    let set_aside_at = Expr::val(0_i64).sub(Expr::col(replica::Column::BeatAt));
    let is_over = replica::Column::Beat
        .lt(0)
        .and(set_aside_at.lt(now().sub(ms(ASIDE_TTL))));
    let over = holders_matching(&database, &is_over).await?;
    if !over.is_empty() {
        replica::Entity::delete_many()
            .filter(replica::Column::Holder.is_in(over))
            .filter(is_over)
            .exec(&database)
            .await?;
    }
    Ok(())
}

async fn holders_matching(
    database: &DatabaseConnection,
    those: &Expr,
) -> Result<Vec<String>, DbErr> {
    replica::Entity::find()
        .select_only()
        .column(replica::Column::Holder)
        .filter(those.clone())
        .limit(CLEARED_AT_ONCE)
        .into_tuple()
        .all(database)
        .await
}
