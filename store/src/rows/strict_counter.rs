//! Adds to counters to which several replicas add at the same time.

use entity::counter;
use odometer_database::{database_clock, session::DatabaseConnection};
use sea_orm::{
    ConnectionTrait, DbBackend, DbErr, ExprTrait, QueryTrait, UpdateMany,
    sea_query::{Expr, Func, Query},
};

use crate::rows::counter::SeenCounter;

/// Returns the condition that no replica may issue from the last window any more. The time is that
/// of the database's clock.
pub(crate) fn leases_are_over(backend: DbBackend) -> Expr {
    Expr::col(counter::Column::WindowLeasedUntil).lt(database_clock::now(backend))
}

/// Runs an update that raises `next_value` of one counter by `length`. `update` gets the expression
/// for the raised value. Returns the counter after the update, or `None` if the update found no
/// row.
pub(crate) async fn add_and_read(
    database: DatabaseConnection,
    length: i64,
    least_version: i64,
    update: impl FnOnce(Expr) -> UpdateMany<counter::Entity> + Send,
) -> Result<Option<SeenCounter>, DbErr> {
    let raised = Expr::col(counter::Column::NextValue).add(length);
    if database.get_database_backend() == DbBackend::MySql {
        // The reply to the update carries the argument of `LAST_INSERT_ID(expr)`. So no second
        // statement is needed, which might meet another connection.
        let remembered = Func::cust("LAST_INSERT_ID").arg(raised).into();
        let done = database.execute(&update(remembered).into_query()).await?;
        if done.rows_affected() != 1 {
            return Ok(None);
        }
        let next_value = i64::try_from(done.last_insert_id())
            .map_err(|_| DbErr::Custom("a counter above 2^63 - 1".to_owned()))?;
        return Ok(Some(SeenCounter {
            next_value,
            // A lower bound: other replicas may have written as well.
            version: least_version,
        }));
    }
    let mut update = update(raised).into_query();
    update.returning(
        Query::returning().columns([counter::Column::NextValue, counter::Column::Version]),
    );
    // Reads all rows, not only the first one. The end of the reply says whether the commit
    // succeeded.
    let rows = database.query_all(&update).await?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    Ok(Some(SeenCounter {
        next_value: row.try_get("", "next_value")?,
        version: row.try_get("", "version")?,
    }))
}
