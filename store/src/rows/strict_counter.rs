//! Counters that several replicas add to.

use entity::counter;
use odometer_database::{database_clock, session::DatabaseConnection};
use sea_orm::{
    DbBackend, DbErr, UpdateMany,
    sea_query::{Expr, Func, Query},
};

use crate::rows::counter::SeenCounter;
use sea_orm::ConnectionTrait;
use sea_orm::ExprTrait;
use sea_orm::QueryTrait;

/// That no replica steps in the last window any more, by the database's clock.
pub(crate) fn leases_are_over(backend: DbBackend) -> Expr {
    Expr::col(counter::Column::WindowLeasedUntil).lt(database_clock::now(backend))
}

/// Runs an update of one counter that sets `next_value` to the expression that it is made with:
/// that of now and `length`. The counter after it, or `None` where it found no row.
pub(crate) async fn add_and_read(
    database: DatabaseConnection,
    length: i64,
    least_version: i64,
    update: impl FnOnce(Expr) -> UpdateMany<counter::Entity> + Send,
) -> Result<Option<SeenCounter>, DbErr> {
    let raised = Expr::col(counter::Column::NextValue).add(length);
    if database.get_database_backend() == DbBackend::MySql {
        // What `LAST_INSERT_ID(expr)` was called with comes with the reply to the statement itself,
        // so no second one has to find the same connection again.
        let remembered = Func::cust("LAST_INSERT_ID").arg(raised).into();
        let done = database.execute(&update(remembered).into_query()).await?;
        if done.rows_affected() != 1 {
            return Ok(None);
        }
        let next_value = i64::try_from(done.last_insert_id())
            .map_err(|_| DbErr::Custom("a counter above 2^63 - 1".to_owned()))?;
        return Ok(Some(SeenCounter {
            next_value,
            // At least: others may have written as well.
            version: least_version,
        }));
    }
    let mut update = update(raised).into_query();
    update.returning(
        Query::returning().columns([counter::Column::NextValue, counter::Column::Version]),
    );
    // All rows are waited for, not only the first one: what follows it says whether the commit held.
    let rows = database.query_all(&update).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(SeenCounter {
        next_value: row.try_get("", "next_value")?,
        version: row.try_get("", "version")?,
    }))
}
