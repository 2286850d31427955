//! Bounds that the server itself keeps: a statement that nobody waits for any more, or a
//! transaction whose process is gone, does not hold its locks for long.

use std::time::Duration;

use sea_orm::sqlx::{
    AssertSqlSafe, Error as SqlxError, Executor, Row,
    mysql::MySqlPoolOptions,
    postgres::{PgConnectOptions, PgConnection, PgPoolOptions},
    raw_sql,
};

use crate::sabotage::{self, Fault};
use crate::store::{connection::route::Route, connection::tls};

/// The server's bound lies above the time that a statement is waited for, so that it is we who
/// give up first and know why.
const ABOVE: Duration = Duration::from_secs(1);
/// A setting that only a server passes on to its sessions: a pooler refuses it or drops it.
const MARK: &str = "odometer.straight";
/// How long MySQL keeps a connection that says nothing; the pool closes its own after ten minutes.
const QUIET_SECONDS: u32 = 900;

/// Settings of PostgreSQL, each with its value in milliseconds.
fn settings(longest: Duration) -> [(&'static str, u128); 3] {
    let bound = (longest + ABOVE).as_millis();
    [
        ("statement_timeout", bound),
        ("lock_timeout", bound),
        ("idle_in_transaction_session_timeout", bound),
    ]
}

/// Adds to `options` what PostgreSQL is told at the start of a session; nothing where a pooler
/// would refuse it.
pub(in crate::store) fn postgres(
    options: PgConnectOptions,
    longest: Option<Duration>,
    is_pooled: bool,
) -> PgConnectOptions {
    let options = tls::postgres(options).application_name("odometer");
    if is_pooled {
        return options.extra_float_digits(None);
    }
    // What the URL says itself is stronger.
    let said = options.get_options().unwrap_or_default().to_owned();
    let longest = longest.filter(|_| !sabotage::is(Fault::NoServerBounds));
    let ours = longest.into_iter().flat_map(settings);
    let ours = ours.filter(|(name, _)| !said.contains(name));
    options.options(ours).options([(MARK, "yes")])
}

/// The same settings for one transaction, as statements to be sent before its first one.
pub(in crate::store) fn postgres_within(longest: Option<Duration>) -> String {
    let settings = longest.into_iter().flat_map(settings);
    settings
        .map(|(name, value)| format!("SET LOCAL {name} = {value}; "))
        .collect()
}

/// Whether this connection leads straight to a server.
///
/// # Errors
/// The server did not say.
pub(in crate::store) async fn is_straight(
    connection: &mut PgConnection,
) -> Result<bool, SqlxError> {
    if sabotage::is(Fault::PrepareAnyway) {
        return Ok(true);
    }
    let asked = format!("SELECT current_setting('{MARK}', true) AS mark");
    let row = raw_sql(AssertSqlSafe(asked)).fetch_one(connection).await?;
    let mark: Option<String> = row.try_get("mark")?;
    Ok(mark.as_deref() == Some("yes"))
}

/// Lets no connection into a pool of prepared statements that leads to a pooler: one may have been
/// put in between since the start.
pub(in crate::store) fn watch(
    pool: PgPoolOptions,
    route: &Route,
    is_pooled: bool,
) -> PgPoolOptions {
    if is_pooled {
        return pool;
    }
    let route = route.clone();
    pool.after_connect(move |connection, _| {
        let route = route.clone();
        Box::pin(async move {
            if is_straight(connection).await? {
                return Ok(());
            }
            route.meet_pooler();
            Err(SqlxError::Protocol("a pooler is in between".to_owned()))
        })
    })
}

/// What MySQL and MariaDB are told on each connection.
pub(in crate::store) fn mysql(
    pool: MySqlPoolOptions,
    longest: Option<Duration>,
) -> MySqlPoolOptions {
    let Some(longest) = longest.filter(|_| !sabotage::is(Fault::NoServerBounds)) else {
        return pool;
    };
    let statement = mysql_settings(longest);
    pool.after_connect(move |connection, _| {
        let statement = statement.clone();
        Box::pin(async move {
            match connection.execute(AssertSqlSafe(statement)).await {
                // A proxy in between may not take it: then the server's own bounds hold.
                Err(SqlxError::Database(_)) => {
                    tracing::debug!("the database takes no bounds for a session");
                }
                told => {
                    told?;
                }
            }
            Ok(())
        })
    })
}

/// Each server reads the comments that are meant for it: `/*M!` is MariaDB's, and MariaDB passes
/// over those of MySQL 5.7.
fn mysql_settings(longest: Duration) -> String {
    let bound = longest + ABOVE;
    // Rounded up: 0 would mean at once.
    let seconds = bound.as_secs() + 1;
    format!(
        "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}, \
         wait_timeout = {QUIET_SECONDS} \
         /*M!100300 , max_statement_time = {seconds}, idle_transaction_timeout = {seconds} */ \
         /*!50708 , max_execution_time = {} */",
        bound.as_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_is_told_nothing_that_it_would_refuse() {
        let options = |url: &str, is_pooled| {
            let Ok(options) = url.parse() else {
                unreachable!("{url} is one")
            };
            let options = postgres(options, Some(Duration::from_secs(5)), is_pooled);
            options.get_options().unwrap_or_default().to_owned()
        };
        assert_eq!(options("postgres://u@localhost/d", true), "");
        let straight = options("postgres://u@localhost/d", false);
        for said in ["statement_timeout=6000", "lock_timeout=6000", MARK] {
            assert!(straight.contains(said), "{straight}");
        }
        let own = options(
            "postgres://u@localhost/d?options=-c%20statement_timeout%3D1s",
            false,
        );
        assert!(own.contains("statement_timeout=1s"), "{own}");
        assert!(!own.contains("statement_timeout=6000"), "{own}");
        assert!(own.contains("lock_timeout=6000"), "{own}");
    }

    #[test]
    fn a_bound_is_never_below_the_time_that_is_waited() {
        for ms in [1, 999, 1000, 5000] {
            let longest = Duration::from_millis(ms);
            for (_, bound) in settings(longest) {
                assert!(bound > u128::from(ms), "{bound}");
            }
            assert!(!mysql_settings(longest).contains("= 0"), "{ms}");
        }
    }
}
