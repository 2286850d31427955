//! Reads the clock of a database, which all replicas share, in statements.
//!
//! Statements ask only for what does not depend on a session's time zone. A URL may set a time
//! zone, and when clocks are put back, an hour of local time comes twice.

use sea_orm::{
    ConnectionTrait, DbBackend, DbErr,
    sea_query::{Expr, Query},
};

/// Returns the expression for the present time in milliseconds since the Unix epoch.
pub fn now(backend: DbBackend) -> Expr {
    Expr::cust(match backend {
        DbBackend::Postgres => "CAST(EXTRACT(EPOCH FROM CLOCK_TIMESTAMP()) * 1000 AS BIGINT)",
        DbBackend::MySql => {
            "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000 \
             AS SIGNED)"
        }
        DbBackend::Sqlite | _ => "CAST(UNIXEPOCH('subsec') * 1000 AS INTEGER)",
    })
}

/// Returns the expression for the time at which the statement began, in microseconds since the Unix
/// epoch. However often a statement has this expression, it is the same time.
pub fn now_us(backend: DbBackend) -> Expr {
    Expr::cust(match backend {
        DbBackend::Postgres => {
            "CAST(EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP()) * 1000000 AS BIGINT)"
        }
        DbBackend::MySql => {
            "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS SIGNED)"
        }
        // SQLite counts milliseconds.
        DbBackend::Sqlite | _ => "(CAST(UNIXEPOCH('subsec') * 1000 AS INTEGER) * 1000)",
    })
}

/// Reads the present time in milliseconds since the Unix epoch.
///
/// # Errors
/// What the database said.
pub async fn read(connection: &impl ConnectionTrait) -> Result<i64, DbErr> {
    let mut query = Query::select();
    query.expr_as(now(connection.get_database_backend()), "now_ms");
    match connection.query_one(&query).await? {
        Some(row) => row.try_get("", "now_ms"),
        None => Err(DbErr::RecordNotFound("the clock".to_owned())),
    }
}
