//! What is checked of a database before anything is issued from it.

use migration::{Installed, Migrated, OLDEST_SCHEMA, SCHEMA_VERSION};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement};

use crate::sabotage::{self, Fault};
use crate::store::{
    connection::session::DatabaseConnection,
    connection::stamp::{self, Misplaced},
    error::{Cause, Failure, StartError},
    settings::{Durability, Place},
};

/// What a first look at a database found.
#[derive(Debug)]
pub(in crate::store) enum Verdict {
    /// It can be used; where a crash of it can forget commits, a sentence says so.
    Good { weakness: Option<String> },
    /// It cannot be used yet, and may become usable by itself: a standby, a read-only server.
    Away(String),
    /// Its schema does not fit this binary yet.
    Schema(String),
    /// It will not become usable by waiting.
    Wrong(String),
}

impl From<Verdict> for StartError {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Wrong(reason) | Verdict::Schema(reason) => Self::Configuration(reason),
            Verdict::Away(reason) => Self::Other(reason),
            Verdict::Good { .. } => Self::Other("the database cannot be used".to_owned()),
        }
    }
}

/// Looks at schema, stamp, durability and tables; changes nothing.
pub(in crate::store) async fn inspect(
    database: DatabaseConnection,
    place: Place,
) -> Result<Verdict, DbErr> {
    if let Some(reason) = refuses_writes(&database).await? {
        return Ok(Verdict::Away(reason));
    }
    if lacks_rights(&database).await? {
        return Ok(Verdict::Wrong(MAY_NOT_USE.to_owned()));
    }
    if logs_statements(&database).await? {
        return Ok(Verdict::Wrong(LOGS_STATEMENTS.to_owned()));
    }
    if let Some(reason) = unfit_schema(Installed::read(&database).await?) {
        return Ok(Verdict::Schema(reason));
    }
    match stamp::misplaced(&place, &stamp::read(&database).await?) {
        Some(_) if sabotage::is(Fault::AnyStamp) => {}
        Some(Misplaced::Unstamped(reason)) => return Ok(Verdict::Schema(reason)),
        Some(Misplaced::Wrong(reason)) => return Ok(Verdict::Wrong(reason)),
        None => {}
    }
    if let Some(reason) = unfit_tables(&database).await? {
        return Ok(Verdict::Wrong(reason));
    }
    Ok(Verdict::Good {
        weakness: weak_durability(&database).await?,
    })
}

/// What a verdict means before anything was ever issued: a database that can forget commits is
/// refused, unless its store takes that.
pub(in crate::store) fn at_start(verdict: Verdict, durability: Durability) -> Verdict {
    match (verdict, durability) {
        (
            Verdict::Good {
                weakness: Some(weakness),
            },
            Durability::Full,
        ) => Verdict::Wrong(format!(
            "ODOMETER_DATABASE_URL: {weakness}; change that at the server, or take it by \
             `durability = \"weak\"` in `[store]` or in the store's own section"
        )),
        (verdict, _) => verdict,
    }
}

/// Whether all that a database lacks is its stamp.
pub(in crate::store) async fn is_to_be_stamped(
    database: &DatabaseConnection,
    place: &Place,
) -> Result<bool, DbErr> {
    if unfit_schema(Installed::read(database).await?).is_some() {
        return Ok(false);
    }
    let stamp = stamp::read(database).await?;
    let misplaced = stamp::misplaced(place, &stamp);
    Ok(matches!(misplaced, Some(Misplaced::Unstamped(_))))
}

/// What a failure to reach the database means for the start.
pub(in crate::store) fn verdict_of(failure: &Failure) -> Verdict {
    let text = failure.cause().text();
    match failure.cause() {
        Cause::Refused(_) => Verdict::Wrong(format!("ODOMETER_DATABASE_URL: {text}")),
        Cause::Denied(_) => Verdict::Wrong(format!("{MAY_NOT_USE} ({text})")),
        Cause::Server(_) | Cause::Internal(_) => Verdict::Wrong(format!(
            "ODOMETER_DATABASE_URL: the database does not do what it is asked to: {text}"
        )),
        // Whoever makes room does not think of a restart.
        Cause::NoConnection(_) | Cause::Away(_) | Cause::DiskFull(_) => {
            Verdict::Away(text.to_owned())
        }
        Cause::ReadOnly(_) => Verdict::Away(format!("the database is read-only ({text})")),
        Cause::Broken(_) => Verdict::Away(format!("the connection was lost: {text}")),
        // Another transaction was in the way, or the database is slow.
        Cause::Contention
        | Cause::Interrupted
        | Cause::Duplicate
        | Cause::Silent
        | Cause::Busy
        | Cause::WentBack => Verdict::Away(format!("a statement was not done: {text}")),
    }
}

/// What a failure to change the schema means.
pub(in crate::store) fn verdict_of_migration(failure: &Failure) -> Verdict {
    if matches!(failure.cause(), Cause::Denied(_)) {
        return Verdict::Wrong(format!(
            "ODOMETER_DATABASE_URL: this user may not create or change tables ({}): give \
             `odometer migrate` the URL of one that may",
            failure.cause().text()
        ));
    }
    verdict_of(failure)
}

/// From which version of the schema to which a migration went.
pub(in crate::store) fn migrated_sentence(migrated: Migrated) -> String {
    let version = |installed: Option<Installed>| installed.map(|it| it.schema_version);
    match (version(migrated.before), version(migrated.after)) {
        (None, Some(after)) => format!("the schema was created, at version {after}"),
        (Some(before), Some(after)) if before != after => {
            format!("the schema was brought from version {before} to version {after}")
        }
        (_, Some(after)) => format!("the schema is at version {after} already: nothing to do"),
        (_, None) => "there is no schema".to_owned(),
    }
}

/// Of a user that lacks rights on the tables.
const MAY_NOT_USE: &str = "ODOMETER_DATABASE_URL: this user may not read or write the tables of \
                           Odometer: grant it SELECT, INSERT, UPDATE and DELETE on all of them";

/// Of a server whose binary log has statements, where InnoDB takes no write at READ COMMITTED.
const LOGS_STATEMENTS: &str = "ODOMETER_DATABASE_URL: the server has binlog_format = STATEMENT \
                               with log_bin on, and refuses the writes of Odometer (MySQL error \
                               1665): set binlog_format = ROW or MIXED at the server";

pub(in crate::store) fn unfit_schema(installed: Option<Installed>) -> Option<String> {
    let Some(installed) = installed else {
        return Some(
            "the database has no schema of Odometer: run `odometer migrate`, or `odometer serve --migrate`"
                .to_owned(),
        );
    };
    if sabotage::is(Fault::AnySchema) {
        return None;
    }
    if installed.schema_version < OLDEST_SCHEMA {
        return Some(format!(
            "the schema is at version {}, too old for this program, which needs {OLDEST_SCHEMA}: \
             run `odometer migrate`",
            installed.schema_version
        ));
    }
    let is_exact = sabotage::is(Fault::ExactSchema);
    if installed.compatible_from > SCHEMA_VERSION
        || (is_exact && installed.schema_version > SCHEMA_VERSION)
    {
        return Some(format!(
            "the schema is at version {} and works with programs from schema version {} on; \
             this program knows {SCHEMA_VERSION}: start a newer Odometer",
            installed.schema_version, installed.compatible_from
        ));
    }
    None
}

async fn refuses_writes(database: &DatabaseConnection) -> Result<Option<String>, DbErr> {
    Ok(match database.get_database_backend() {
        DbBackend::Postgres => {
            let sql = "SELECT pg_is_in_recovery() AS recovery, \
                       current_setting('transaction_read_only') = 'on' AS read_only";
            if flag(database, sql, "recovery").await? {
                Some("the database is a standby in recovery".to_owned())
            } else if flag(database, sql, "read_only").await? {
                Some("the database is read-only (default_transaction_read_only)".to_owned())
            } else {
                None
            }
        }
        DbBackend::MySql => {
            let sql = "SELECT @@global.read_only NOT IN ('0', 'OFF') AS read_only";
            let is_read_only = flag(database, sql, "read_only").await?;
            is_read_only.then(|| "the database server is read-only (read_only=ON)".to_owned())
        }
        DbBackend::Sqlite | _ => None,
    })
}

/// Whether there are tables that this user may not use.
///
/// MySQL tells the constraints of a table to those who may do more than read it, and hides a table
/// from those who may not even do that; what else is missing it says later.
async fn lacks_rights(database: &DatabaseConnection) -> Result<bool, DbErr> {
    const READ_ONLY: &str = "SELECT count(*) AS n FROM information_schema.tables t \
         WHERE t.table_schema = DATABASE() \
         AND t.table_name IN ('meta', 'sequence', 'counter', 'block', 'replica', 'worker_lease') \
         AND EXISTS (SELECT 1 FROM information_schema.statistics s \
         WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name \
         AND s.index_name = 'PRIMARY') \
         AND NOT EXISTS (SELECT 1 FROM information_schema.table_constraints k \
         WHERE k.table_schema = t.table_schema AND k.table_name = t.table_name)";
    const SQL: &str = "SELECT count(*) AS n FROM pg_class WHERE relkind = 'r' \
         AND relname IN ('meta', 'sequence', 'counter', 'block', 'replica', 'worker_lease') \
         AND pg_table_is_visible(oid) AND NOT (has_table_privilege(oid, 'SELECT') \
         AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') \
         AND has_table_privilege(oid, 'DELETE'))";
    Ok(match database.get_database_backend() {
        DbBackend::Postgres => number(database, SQL).await? != 0,
        DbBackend::MySql => number(database, READ_ONLY).await? != 0,
        DbBackend::Sqlite | _ => false,
    })
}

/// Whether the binary log has statements, for which transactions at READ COMMITTED are no good.
///
/// A server that has no such setting gives no row.
async fn logs_statements(database: &DatabaseConnection) -> Result<bool, DbErr> {
    const LOGS: &str = "SELECT @@log_bin <> 0 AS logs";
    const FORMAT: &str =
        "SHOW VARIABLES WHERE Variable_name = 'binlog_format' AND Value = 'STATEMENT'";
    let backend = database.get_database_backend();
    if backend != DbBackend::MySql || !flag(database, LOGS, "logs").await? {
        return Ok(false);
    }
    let statement = Statement::from_string(backend, FORMAT);
    Ok(database.query_one_raw(statement).await?.is_some())
}

/// Tables that would forget their rows in a crash, or that lost their primary keys.
async fn unfit_tables(database: &DatabaseConnection) -> Result<Option<String>, DbErr> {
    const TABLES: &str = "('meta', 'sequence', 'counter', 'block', 'worker_lease')";
    let (forgetful, keyed) = match database.get_database_backend() {
        DbBackend::Postgres => (
            format!(
                "SELECT count(*) AS n FROM pg_class WHERE relname IN {TABLES} \
                 AND relkind = 'r' AND relpersistence <> 'p' AND pg_table_is_visible(oid)"
            ),
            format!(
                "SELECT count(*) AS n FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
                 WHERE k.contype = 'p' AND c.relname IN {TABLES} AND pg_table_is_visible(c.oid)"
            ),
        ),
        DbBackend::MySql => (
            format!(
                "SELECT count(*) AS n FROM information_schema.tables \
                 WHERE table_schema = DATABASE() AND table_name IN {TABLES} AND engine <> 'InnoDB'"
            ),
            // Its constraints are not told to a user that may only read.
            format!(
                "SELECT count(*) AS n FROM information_schema.statistics \
                 WHERE table_schema = DATABASE() AND table_name IN {TABLES} \
                 AND index_name = 'PRIMARY' AND seq_in_index = 1"
            ),
        ),
        DbBackend::Sqlite | _ => return Ok(None),
    };
    if number(database, &forgetful).await? != 0 {
        return Ok(Some(
            "a table of Odometer is not crash-safe: make it logged (PostgreSQL) or InnoDB (MySQL)"
                .to_owned(),
        ));
    }
    if number(database, &keyed).await? != 5 {
        return Ok(Some(
            "a table of Odometer has lost its primary key: restore it before numbers are issued"
                .to_owned(),
        ));
    }
    Ok(None)
}

/// Settings under which a crash of the server can forget what it has committed.
async fn weak_durability(database: &DatabaseConnection) -> Result<Option<String>, DbErr> {
    let checks: &[(&str, &str)] = match database.get_database_backend() {
        DbBackend::Postgres => &[
            (
                "SELECT current_setting('synchronous_commit') = 'off' AS weak",
                "synchronous_commit is off",
            ),
            (
                "SELECT current_setting('fsync') = 'off' AS weak",
                "fsync is off",
            ),
            (
                "SELECT current_setting('full_page_writes') = 'off' AS weak",
                "full_page_writes is off",
            ),
        ],
        DbBackend::MySql => &[
            (
                // 3 writes as much of the log, and is MariaDB's alone.
                "SELECT @@innodb_flush_log_at_trx_commit <> 1 AND NOT \
                 (@@innodb_flush_log_at_trx_commit = 3 AND VERSION() LIKE '%MariaDB%') AS weak",
                "innodb_flush_log_at_trx_commit is not 1",
            ),
            // What the binary log has lost is rolled back.
            (
                "SELECT @@log_bin <> 0 AND @@sync_binlog <> 1 AS weak",
                "sync_binlog is not 1, with log_bin on",
            ),
        ],
        DbBackend::Sqlite | _ => &[],
    };
    let mut found = Vec::new();
    for &(sql, what) in checks {
        if flag(database, sql, "weak").await? {
            found.push(what);
        }
    }
    Ok((!found.is_empty()).then(|| {
        format!(
            "{}: after a crash of the database server numbers can be issued twice",
            found.join("; ")
        )
    }))
}

async fn flag(database: &DatabaseConnection, sql: &str, column: &str) -> Result<bool, DbErr> {
    let statement = Statement::from_string(database.get_database_backend(), sql);
    let Some(row) = database.query_one_raw(statement).await? else {
        return Ok(false);
    };
    // MySQL has no booleans: a comparison is an integer there.
    if database.get_database_backend() == DbBackend::MySql {
        Ok(row.try_get::<i64>("", column)? != 0)
    } else {
        row.try_get("", column)
    }
}

async fn number(database: &DatabaseConnection, sql: &str) -> Result<i64, DbErr> {
    let statement = Statement::from_string(database.get_database_backend(), sql);
    match database.query_one_raw(statement).await? {
        Some(row) => row.try_get("", "n"),
        None => Ok(0),
    }
}
