//! Says, within a statement, which server runs it, on which timeline, and since when.
//!
//! A statement that compares these marks with what was written down earlier takes effect only on
//! the server that wrote them down. A promoted standby has another timeline, and a restored server
//! has another start.
//!
//! The functions that give the marks cost a server more than a small statement. So each connection
//! calls them once, when it is made, and the server keeps the marks with the connection. They are
//! always those of the server at its other end: a program that bound what it had read on another
//! connection could speak of another server. Behind a pooler nothing is kept with a connection, so
//! each statement calls the functions.
//!
//! A standby of PostgreSQL gives no marks. A connection to it keeps none, even after the standby is
//! promoted. A replica of MySQL or MariaDB is always another server than its primary, so it may give
//! marks at any time: they do not fit what the primary wrote.
//!
//! MySQL and MariaDB have no timeline, and no function that tells a copy. Each names itself in its
//! own way, so both ways stand in one statement: `/*M! */` is read by MariaDB alone, and
//! `/*!80000 */` by MySQL alone.
//!
//! The nodes of a Galera cluster with a quorum have the same commits, and so do the members of a
//! replication group with several primaries. They give the name of their cluster, and no start.
//!
//! SQLite is no server. A [file next to the database](crate::file_mark) says which one it is.

use std::sync::LazyLock;

use sea_orm::{
    DbBackend, DbErr, RuntimeErr,
    sea_query::{Expr, Func},
    sqlx::{
        AssertSqlSafe, Error as SqlxError, Executor, mysql::MySqlConnection,
        postgres::PgConnection, raw_sql,
    },
};

use crate::code::ServerErrorCode;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::connection::server_mark";

/// Names the settings in which PostgreSQL keeps the marks with a connection.
const SERVER_SETTING: &str = "odometer.server";
const STARTED_SETTING: &str = "odometer.started";
/// Gives the identity of the cluster, its timeline, and the database in it. The argument of
/// `pg_walfile_name` must not be a constant, or PostgreSQL would call the function too early.
const POSTGRES_SERVER: &str = "(SELECT system_identifier FROM pg_control_system())::text || '-' || \
     substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) || '-' || \
     (SELECT oid FROM pg_database WHERE datname = current_database())::text";
/// Gives the start of the server in microseconds. A text of the time would depend on the time zone
/// of the session.
const POSTGRES_STARTED: &str =
    "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint::text";

/// Says which server of MariaDB it is. The operator gives each server of a replication another
/// `server_id`. The `server_uid` is no such mark: it is made of port and network card, so two servers
/// may have the same one, and a container gets a new one.
const MARIADB_OWN: &str = "@@global.server_id";
/// Says which server of MySQL it is. It is kept in the server's directory.
const MYSQL_OWN: &str = "@@global.server_uuid";
/// Names the schemas in which MariaDB and MySQL show their status and settings to each user.
const MARIADB_SHOWN: &str = "information_schema";
const MYSQL_SHOWN: &str = "performance_schema";
/// Stands for the start of a cluster, whose nodes start one by one.
const CLUSTER_STARTED: &str = "'cluster'";
/// Stands for the start of SQLite, which is no server.
const FILE_STARTED: &str = "file";
/// Names the variables in which MySQL and MariaDB keep the marks with a connection.
const SERVER_VARIABLE: &str = "@odometer_server";
const STARTED_VARIABLE: &str = "@odometer_started";

static MYSQL_SERVER: LazyLock<String> = LazyLock::new(|| for_each_product(mysql_server));
static MYSQL_STARTED: LazyLock<String> = LazyLock::new(|| {
    for_each_product(|shown, own| mysql_started(&mysql_server(shown, own), shown, own))
});
/// Gives the start on a connection that has kept the server. The tables of variables are large, so
/// they are not asked again.
static MYSQL_STARTED_NEXT: LazyLock<String> =
    LazyLock::new(|| for_each_product(|shown, own| mysql_started(SERVER_VARIABLE, shown, own)));

/// Returns the text of an expression that MariaDB and MySQL write in different ways. The columns of
/// the stamp have the same collation.
fn for_each_product(write: impl Fn(&str, &str) -> String) -> String {
    format!(
        "CONVERT(/*M! {} */ /*!80000 {} */ USING ascii) COLLATE ascii_bin",
        write(MARIADB_SHOWN, MARIADB_OWN),
        write(MYSQL_SHOWN, MYSQL_OWN)
    )
}

/// Returns the value of a variable of the server, from one of its tables. `NULL` if it has none.
fn mysql_value(table: &str, name: &str) -> String {
    format!("(SELECT variable_value FROM {table} WHERE variable_name = '{name}')")
}

/// Returns the name of the cluster, if the server is a node of Galera, or in a replication group that
/// takes writes at each member. Otherwise returns the mark of the server itself. `NULL` for a node of
/// Galera that is in no cluster yet.
fn mysql_server(shown: &str, own: &str) -> String {
    let variables = format!("{shown}.global_variables");
    let is_galera = format!(
        "(SELECT COUNT(*) FROM {variables} \
         WHERE (variable_name = 'wsrep_on' AND variable_value = 'ON') \
         OR (variable_name = 'wsrep_provider' AND variable_value NOT IN ('', 'none'))) = 2"
    );
    let state = mysql_value(
        &format!("{shown}.global_status"),
        "wsrep_cluster_state_uuid",
    );
    let galera = format!("NULLIF(NULLIF({state}, ''), '00000000-0000-0000-0000-000000000000')");
    let mode = mysql_value(&variables, "group_replication_single_primary_mode");
    let name = mysql_value(&variables, "group_replication_group_name");
    let group = format!("IF({mode} = 'OFF', NULLIF({name}, ''), NULL)");
    format!("IF({is_galera}, {galera}, COALESCE({group}, CONCAT({own})))")
}

/// Returns the second in which the server was started, and where, if `server` is the mark of the
/// server itself. Both numbers are counted from the time of the same statement, so the difference is
/// the same in each statement, whatever happens to the clock.
fn mysql_started(server: &str, shown: &str, own: &str) -> String {
    let uptime = mysql_value(&format!("{shown}.global_status"), "Uptime");
    let started = format!("UNIX_TIMESTAMP() - CAST({uptime} AS SIGNED)");
    // Two servers may be started in the same second.
    let place = "LEFT(SHA2(CONCAT(@@global.hostname, ':', @@global.port), 256), 8)";
    format!("IF({server} = CONCAT({own}), CONCAT({started}, '-', {place}), {CLUSTER_STARTED})")
}

/// Returns a mark that MySQL keeps with the connection.
///
/// A statement that asks for a system variable is written to a binary log of the format `MIXED` as
/// the rows that it changes. A replica may not share the condition of a guard: if it was made from a
/// dump, its stamp is a copy. If it got the statement, it would change nothing, and fall behind
/// silently.
fn kept_on_mysql(variable: &str) -> String {
    format!("IF(@@global.server_id IS NULL, NULL, {variable})")
}

/// The marks of the server that runs a statement, as expressions. Each is a text, or `NULL` if the
/// server gives no mark.
#[derive(Clone, Debug)]
pub struct ServerMark {
    /// Which server it is, and on which timeline.
    pub server: Expr,
    /// Since when it runs.
    pub started: Expr,
}

impl ServerMark {
    /// Returns the marks for statements on this kind of server. `None` if it has none.
    #[must_use]
    pub fn of(backend: DbBackend, is_pooled: bool) -> Option<Self> {
        let (server, started) = match (backend, is_pooled) {
            (DbBackend::Postgres, true) => (
                postgres_unless_standby(POSTGRES_SERVER),
                postgres_unless_standby(POSTGRES_STARTED),
            ),
            (DbBackend::Postgres, false) => (
                format!("current_setting('{SERVER_SETTING}', true)"),
                format!("current_setting('{STARTED_SETTING}', true)"),
            ),
            (DbBackend::MySql, true) => (MYSQL_SERVER.clone(), MYSQL_STARTED.clone()),
            (DbBackend::MySql, false) => (
                kept_on_mysql(SERVER_VARIABLE),
                kept_on_mysql(STARTED_VARIABLE),
            ),
            _ => return None,
        };
        Some(Self {
            server: Expr::cust(server),
            started: Expr::cust(started),
        })
    }

    /// Returns the marks that the connection has kept. If it has none, as one that was made to a
    /// standby, returns those that the functions of the server give. `None` if this kind of server
    /// has none.
    #[must_use]
    pub fn kept_or_given(backend: DbBackend) -> Option<Self> {
        let (kept, given) = (Self::of(backend, false)?, Self::of(backend, true)?);
        // PostgreSQL keeps an empty text for no mark.
        let some = |kept| Func::cust("NULLIF").args([kept, Expr::val("")]).into();
        let of = |kept, given| Func::coalesce([some(kept), given]).into();
        Some(Self {
            server: of(kept.server, given.server),
            started: of(kept.started, given.started),
        })
    }

    /// Returns the marks of a SQLite file that has this [`id`](crate::file_mark::FileMark::id).
    ///
    /// The values are bound by this process. That is right here: the process has the file open, and
    /// holds its lock, for as long as it sends statements. So no statement reaches another file. If
    /// the file is overwritten meanwhile, the heartbeat of the process shows that.
    #[must_use]
    pub fn of_file(id: &str) -> Self {
        Self {
            server: Expr::val(id),
            started: Expr::val(FILE_STARTED),
        }
    }
}

fn postgres_unless_standby(function: &str) -> String {
    format!("CASE WHEN pg_is_in_recovery() THEN NULL ELSE {function} END")
}

/// Returns whether a server says that it lacks what the marks are asked of, or keeps it from this
/// user.
#[must_use]
pub fn gives_none(error: &DbErr) -> bool {
    matches!(error, DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)) if is_lacking(error))
}

fn is_lacking(error: &SqlxError) -> bool {
    let said = error.as_database_error();
    said.is_some_and(|said| ServerErrorCode::of(said).is_of_what_it_lacks())
}

/// Lets PostgreSQL keep its marks with this connection.
///
/// # Errors
/// The server did not answer. That it lacks a function, or refuses it, is no error: it then gives no
/// mark.
pub async fn keep_on_postgres(connection: &mut PgConnection) -> Result<(), SqlxError> {
    let keep = |setting: &str, function: &str| {
        let mark = postgres_unless_standby(function);
        format!("set_config('{setting}', {mark}, false)")
    };
    let statement = format!(
        "SELECT {}, {}",
        keep(SERVER_SETTING, POSTGRES_SERVER),
        keep(STARTED_SETTING, POSTGRES_STARTED)
    );
    match connection.execute(raw_sql(AssertSqlSafe(statement))).await {
        Err(error) if is_lacking(&error) => {
            tracing::debug!(
                target: TARGET,
                error = %error,
                "the server does not say which one it is"
            );
            Ok(())
        }
        kept => kept.map(|_done| ()),
    }
}

/// Lets MySQL or MariaDB keep its marks with this connection.
///
/// A proxy that gives the connection to another server either runs the same statement there, or
/// loses the variables. In both cases no mark is one of another server.
///
/// # Errors
/// The server did not answer. That it refuses the statement is no error: it then gives no mark.
pub async fn keep_on_mysql(connection: &mut MySqlConnection) -> Result<(), SqlxError> {
    for statement in [
        format!("SET {SERVER_VARIABLE} = {}", *MYSQL_SERVER),
        format!("SET {STARTED_VARIABLE} = {}", *MYSQL_STARTED_NEXT),
    ] {
        match connection.execute(raw_sql(AssertSqlSafe(statement))).await {
            Err(SqlxError::Database(error)) => {
                tracing::debug!(
                    target: TARGET,
                    error = %error,
                    "the server does not say which one it is"
                );
                return Ok(());
            }
            kept => kept.map(|_done| ())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_product_reads_is_no_comment_within_a_comment() {
        for text in [&*MYSQL_SERVER, &*MYSQL_STARTED, &*MYSQL_STARTED_NEXT] {
            assert_eq!(text.matches("/*").count(), 2, "{text}");
            assert_eq!(text.matches("*/").count(), 2, "{text}");
            let (mariadb, mysql) = text.split_once("/*!80000").unwrap_or_default();
            assert!(!mariadb.contains(MYSQL_SHOWN), "{text}");
            assert!(!mysql.contains(MARIADB_SHOWN), "{text}");
        }
    }
}
