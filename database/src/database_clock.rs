//! Reads the clock of a database, which all replicas share, in statements.
//!
//! Statements ask only for what does not depend on a session's time zone. A URL may set a time
//! zone, and when clocks are put back, an hour of local time comes twice.

use sea_orm::{DbBackend, sea_query::Expr};

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
