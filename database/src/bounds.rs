//! Sets for each session what must not depend on a server's own defaults.
//!
//! The server keeps some bounds itself. So a statement that no caller waits for any more, or a
//! transaction whose process is gone, does not hold its locks for long. Other settings decide how
//! transactions see one another, and that a commit is durable before it is confirmed.

use std::time::Duration;

use odometer_process::faults::{self, Fault};
use sea_orm::sqlx::{
    AssertSqlSafe, Error as SqlxError, Executor, Row,
    mysql::MySqlPoolOptions,
    postgres::{PgConnectOptions, PgConnection, PgPoolOptions},
    raw_sql,
};

use crate::{route::PoolerRoute, server_mark, tls};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::connection::bounds";

/// Sets how far the server's bound lies above the time for which a statement is waited for. So this
/// program gives up first, and knows why.
const SERVER_MARGIN: Duration = Duration::from_secs(1);
/// Names a setting that only a server passes on to its sessions. A pooler refuses it or drops it.
const DIRECT_SETTING: &str = "odometer.straight";
/// Names the isolation level on PostgreSQL: a transaction sees what was committed before each of
/// its statements. At a higher level, a transaction that waited for another one would go on with
/// what was there before.
const ISOLATION: &str = "read committed";
/// Sets the isolation level that is MySQL's default. At any level, a statement that locks sees what
/// was committed before it.
const MYSQL_ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
/// Makes each statement a transaction of its own, and lets no transaction begin when another one
/// ends. By other defaults of a server, a reservation would be committed later, or never.
const MYSQL_COMMITS: &str = "SET SESSION autocommit = 1, completion_type = 'NO_CHAIN'";
/// Sets how long MySQL keeps a connection that sends nothing. While this program serves, the looks
/// of the monitor keep each connection from being quiet for so long.
const QUIET_SECONDS: u32 = 900;

/// Returns for how long a server lets a statement go on of which this program waits for `longest`.
/// MySQL and MariaDB count whole seconds.
pub fn longest_on_server(longest: Duration) -> Duration {
    longest + SERVER_MARGIN + Duration::from_secs(1)
}

/// Returns the bounds of PostgreSQL, each with its value in milliseconds.
fn bounds(longest: Duration) -> [(&'static str, String); 3] {
    let bound = (longest + SERVER_MARGIN).as_millis().to_string();
    [
        ("statement_timeout", bound.clone()),
        ("lock_timeout", bound.clone()),
        ("idle_in_transaction_session_timeout", bound),
    ]
}

/// Returns the settings of PostgreSQL, without the settings in `said`: the options in the URL.
fn settings(said: &str, longest: Option<Duration>) -> Vec<(&'static str, String)> {
    let longest = longest.filter(|_| !faults::is(Fault::NoServerBounds));
    let mut settings: Vec<_> = longest.into_iter().flat_map(bounds).collect();
    if !faults::is(Fault::ServersCommits) {
        settings.push(("synchronous_commit", "on".to_owned()));
    }
    settings.retain(|(name, _)| !said.contains(name));
    settings
}

/// Adds to `options` the settings that PostgreSQL gets at the start of a session. Adds none behind
/// a pooler, which would refuse them.
pub fn postgres(
    options: PgConnectOptions,
    longest: Option<Duration>,
    is_pooled: bool,
) -> PgConnectOptions {
    let options = tls::postgres(options).application_name("odometer");
    if is_pooled {
        return options.extra_float_digits(None);
    }
    // What the URL says has precedence, except over the isolation level.
    let said = options.get_options().unwrap_or_default().to_owned();
    let mut settings = settings(&said, longest);
    if !faults::is(Fault::ServersIsolation) {
        settings.push(("default_transaction_isolation", ISOLATION.to_owned()));
    }
    settings.push((DIRECT_SETTING, "yes".to_owned()));
    options.options(settings)
}

/// Returns the same settings for one transaction, as statements to send before its first one.
pub fn postgres_within(url: &str, longest: Option<Duration>) -> String {
    let options: Option<PgConnectOptions> = url.parse().ok();
    let said = options.as_ref().and_then(PgConnectOptions::get_options);
    let mut settings = settings(said.unwrap_or_default(), longest);
    if !faults::is(Fault::ServersIsolation) {
        settings.push(("transaction_isolation", format!("'{ISOLATION}'")));
    }
    let statements = settings.into_iter();
    statements
        .map(|(name, value)| format!("SET LOCAL {name} = {value}; "))
        .collect()
}

/// Returns whether this connection leads straight to a server.
///
/// # Errors
/// The server did not answer.
pub async fn is_direct(connection: &mut PgConnection) -> Result<bool, SqlxError> {
    if faults::is(Fault::PrepareAnyway) {
        return Ok(true);
    }
    let asked = format!("SELECT current_setting('{DIRECT_SETTING}', true) AS mark");
    let row = raw_sql(AssertSqlSafe(asked)).fetch_one(connection).await?;
    let mark: Option<String> = row.try_get("mark")?;
    Ok(mark.as_deref() == Some("yes"))
}

/// Keeps a connection that leads to a pooler out of a pool with prepared statements. A pooler may
/// have been put in between since the start. A connection that leads straight to a server keeps the
/// server's [marks](server_mark).
pub fn watch(pool: PgPoolOptions, route: &PoolerRoute, is_pooled: bool) -> PgPoolOptions {
    if is_pooled {
        return pool;
    }
    let route = route.clone();
    pool.after_connect(move |connection, _| {
        let route = route.clone();
        Box::pin(async move {
            if is_direct(connection).await? {
                return server_mark::keep_on_postgres(connection).await;
            }
            route.meet_pooler();
            Err(SqlxError::Protocol("a pooler is in between".to_owned()))
        })
    })
}

/// Sends its settings to MySQL or MariaDB on each new connection, which keeps the server's
/// [marks](server_mark).
pub fn mysql(pool: MySqlPoolOptions, longest: Option<Duration>) -> MySqlPoolOptions {
    let longest = longest.filter(|_| !faults::is(Fault::NoServerBounds));
    let statement = longest.map(mysql_settings);
    pool.after_connect(move |connection, _| {
        let statement = statement.clone();
        Box::pin(async move {
            connection.execute(MYSQL_ISOLATION).await?;
            if !faults::is(Fault::ServersCommits) {
                connection.execute(MYSQL_COMMITS).await?;
            }
            if let Some(statement) = statement {
                match connection.execute(AssertSqlSafe(statement)).await {
                    // A proxy in between may refuse the statement. Then the server's own bounds
                    // hold.
                    Err(SqlxError::Database(_)) => {
                        tracing::debug!(target: TARGET, "the database takes no bounds for a session");
                    }
                    told => {
                        told?;
                    }
                }
            }
            server_mark::keep_on_mysql(connection).await
        })
    })
}

/// Returns the statement that sets the bounds of a session. Each server reads the comments that are
/// meant for it. `/*M!` is MariaDB's, and MariaDB passes over comments for MySQL 5.7.
fn mysql_settings(longest: Duration) -> String {
    let bound = longest + SERVER_MARGIN;
    // Rounded up, because 0 would mean at once.
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
        for said in [
            "statement_timeout=6000",
            "lock_timeout=6000",
            "synchronous_commit=on",
            "default_transaction_isolation=read\\ committed",
            DIRECT_SETTING,
        ] {
            assert!(straight.contains(said), "{straight}");
        }
        let own = options(
            "postgres://u@localhost/d?options=-c%20statement_timeout%3D1s",
            false,
        );
        assert!(own.contains("statement_timeout=1s"), "{own}");
        assert!(!own.contains("statement_timeout=6000"), "{own}");
        assert!(own.contains("lock_timeout=6000"), "{own}");
        let weak = options(
            "postgres://u@localhost/d?options=-c%20synchronous_commit%3Doff",
            false,
        );
        assert!(!weak.contains("synchronous_commit=on"), "{weak}");
    }

    #[test]
    fn behind_a_pooler_each_transaction_is_told_the_same() {
        let url = "postgres://u@localhost/d";
        let told = postgres_within(url, Some(Duration::from_secs(5)));
        for said in [
            "SET LOCAL statement_timeout = 6000; ",
            "SET LOCAL synchronous_commit = on; ",
            "SET LOCAL transaction_isolation = 'read committed'; ",
        ] {
            assert!(told.contains(said), "{told}");
        }
        let weak = format!("{url}?options=-c%20synchronous_commit%3Doff");
        assert!(!postgres_within(&weak, None).contains("synchronous_commit"));
    }

    #[test]
    fn a_bound_is_never_below_the_time_that_is_waited() {
        for ms in [1, 999, 1000, 5000] {
            let longest = Duration::from_millis(ms);
            for (_, bound) in bounds(longest) {
                assert!(
                    bound.parse::<u64>().is_ok_and(|bound| bound > ms),
                    "{bound}"
                );
            }
            assert!(!mysql_settings(longest).contains("= 0"), "{ms}");
        }
    }
}
