//! Checks a database before anything is issued from it.

use migration::Installed;
use odometer_database::{
    fitness::{DatabaseFitness, MAY_NOT_USE},
    monitor::Tables,
    session::DatabaseConnection,
    start_error::StartError,
    target::Target,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement};

use crate::{
    identity::DatabaseIdentity,
    installation_id::{self, WrongInstallation},
    schema::{self, unfit_schema},
    settings::{Durability, StoreLimits},
};

/// The tables of one database, as its monitor asks for them.
pub(crate) struct MonitoredTables {
    target: Target,
    identity: DatabaseIdentity,
    limits: StoreLimits,
}

impl MonitoredTables {
    pub(crate) fn new(target: Target, identity: DatabaseIdentity, limits: StoreLimits) -> Self {
        Self {
            target,
            identity,
            limits,
        }
    }
}

impl Tables for MonitoredTables {
    fn inspect(
        &self,
        database: DatabaseConnection,
    ) -> impl Future<Output = Result<DatabaseFitness, DbErr>> + Send + 'static + use<> {
        inspect(database, self.identity.clone())
    }

    fn at_start(&self, found: DatabaseFitness) -> DatabaseFitness {
        at_start(found, self.limits.durability)
    }

    fn migrates(&self) -> bool {
        self.limits.migrate || self.target.backend == DbBackend::Sqlite
    }

    async fn migrate(&self) -> Result<Option<String>, StartError> {
        let migrated = schema::migrate(&self.target, self.limits.statement.acquire).await?;
        Ok((migrated.before != migrated.after).then(|| schema::migrated_sentence(migrated)))
    }
}

/// Looks at schema, installation id, tables and durability. Changes nothing.
pub(crate) async fn inspect(
    database: DatabaseConnection,
    identity: DatabaseIdentity,
) -> Result<DatabaseFitness, DbErr> {
    if let Some(reason) = refuses_writes(&database).await? {
        return Ok(DatabaseFitness::Away(reason));
    }
    if lacks_rights(&database).await? {
        return Ok(DatabaseFitness::Wrong(MAY_NOT_USE.to_owned()));
    }
    if logs_statements(&database).await? {
        return Ok(DatabaseFitness::Wrong(LOGS_STATEMENTS.to_owned()));
    }
    if let Some(reason) = unfit_schema(Installed::read(&database).await?) {
        return Ok(DatabaseFitness::Schema(reason));
    }
    match installation_id::misplaced(&identity, &installation_id::read(&database).await?) {
        Some(_) if faults::is(Fault::AnyStamp) => {}
        Some(WrongInstallation::Unstamped(reason)) => return Ok(DatabaseFitness::Schema(reason)),
        Some(WrongInstallation::Wrong(reason)) => return Ok(DatabaseFitness::Wrong(reason)),
        None => {}
    }
    if let Some(reason) = unfit_tables(&database).await? {
        return Ok(DatabaseFitness::Wrong(reason));
    }
    Ok(DatabaseFitness::Good {
        weakness: weak_durability(&database).await?,
    })
}

/// Returns what a verdict means before anything was issued. A database that can forget commits is
/// refused, unless its store accepts weak durability.
pub(crate) fn at_start(verdict: DatabaseFitness, durability: Durability) -> DatabaseFitness {
    match (verdict, durability) {
        (
            DatabaseFitness::Good {
                weakness: Some(weakness),
            },
            Durability::Full,
        ) => DatabaseFitness::Wrong(format!(
            "ODOMETER_DATABASE_URL: {weakness}; change that at the server, or take it by \
             `durability = \"weak\"` in `[store]` or in the store's own section"
        )),
        (verdict, _) => verdict,
    }
}

/// Returns whether a database lacks its installation id and nothing else.
pub(crate) async fn lacks_installation_id(
    database: &DatabaseConnection,
    identity: &DatabaseIdentity,
) -> Result<bool, DbErr> {
    if unfit_schema(Installed::read(database).await?).is_some() {
        return Ok(false);
    }
    let stamp = installation_id::read(database).await?;
    let misplaced = installation_id::misplaced(identity, &stamp);
    Ok(matches!(misplaced, Some(WrongInstallation::Unstamped(_))))
}

/// Refuses a server whose binary log holds statements: there InnoDB takes no write at READ
/// COMMITTED.
const LOGS_STATEMENTS: &str = "ODOMETER_DATABASE_URL: the server has binlog_format = STATEMENT \
                               with log_bin on, and refuses the writes of Odometer (MySQL error \
                               1665): set binlog_format = ROW or MIXED at the server";

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

/// Returns whether there are tables that this user may not use.
///
/// MySQL shows the constraints of a table only to users who may do more than read the table. It
/// hides a table from users who may not even read it. Other missing rights are reported by MySQL
/// later.
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

/// Returns whether the binary log holds statements: InnoDB then takes no write at READ COMMITTED.
///
/// A server without this setting returns no row.
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

/// Returns what is wrong if a table would lose its rows in a crash, or lost its primary key.
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
            // MySQL does not show the constraints to a user who may only read.
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

/// Returns the settings under which a crash of the server can forget what it has committed.
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
                // The value 3 writes as much of the log, and only MariaDB has it.
                "SELECT @@innodb_flush_log_at_trx_commit <> 1 AND NOT \
                 (@@innodb_flush_log_at_trx_commit = 3 AND VERSION() LIKE '%MariaDB%') AS weak",
                "innodb_flush_log_at_trx_commit is not 1",
            ),
            // After a crash, the server rolls back what the binary log has lost.
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
    // MySQL has no booleans: a comparison gives an integer.
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
