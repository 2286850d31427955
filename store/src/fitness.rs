//! Checks a database before anything is issued from it.

use std::sync::Arc;

use ::metrics::Gauge;
use migration::Installed;
use odometer_database::{
    fitness::{DatabaseFitness, MAY_NOT_USE},
    monitor::Tables,
    server_mark::{self, ServerMark},
    session::DatabaseConnection,
    start_error::StartError,
    target::Target,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, Statement, sea_query::Query};

use crate::{
    heartbeat::Heartbeat,
    identity::DatabaseIdentity,
    installation_id,
    schema::{self, unfit_schema},
    settings::{Durability, StoreLimits},
};

/// The tables of one database, as its monitor asks for them.
pub(crate) struct MonitoredTables {
    pub(crate) target: Target,
    pub(crate) identity: DatabaseIdentity,
    pub(crate) limits: StoreLimits,
    pub(crate) heartbeat: Arc<Heartbeat>,
    /// Shows whether a copy that lost commits would be refused.
    pub(crate) failover_guard: Gauge,
}

impl Tables for MonitoredTables {
    fn inspect(
        &self,
        database: DatabaseConnection,
    ) -> impl Future<Output = Result<DatabaseFitness, DbErr>> + Send + 'static + use<> {
        let (identity, heartbeat) = (self.identity.clone(), Arc::clone(&self.heartbeat));
        let (guarded, is_lossless) = (
            self.failover_guard.clone(),
            self.limits.failover.is_lossless,
        );
        async move {
            let found = inspect(database, identity, false, is_lossless).await?;
            if let DatabaseFitness::Good { has_marks, .. } = found {
                heartbeat.note_marks(has_marks);
                let is_guarded =
                    heartbeat.mark().is_some() && (!is_lossless || heartbeat.file.is_some());
                guarded.set(f64::from(u8::from(is_guarded)));
            }
            Ok(found)
        }
    }

    fn at_start(&self, found: DatabaseFitness) -> DatabaseFitness {
        at_start(found, &self.limits)
    }

    fn migrates(&self) -> bool {
        self.limits.migrate || self.target.backend == DbBackend::Sqlite
    }

    async fn migrate(&self) -> Result<Option<String>, StartError> {
        let migrated = schema::migrate(&self.target, self.limits.statement.acquire).await?;
        Ok((migrated.before != migrated.after).then(|| schema::migrated_sentence(migrated)))
    }
}

/// Looks at schema, installation id, tables, durability and marks. Changes nothing. A database that
/// `may_lack_id` is good even if `odometer migrate` has written no installation id into it yet. One
/// whose copies cannot be told apart is good only if its failovers are lossless.
pub(crate) async fn inspect(
    database: DatabaseConnection,
    identity: DatabaseIdentity,
    may_lack_id: bool,
    is_lossless: bool,
) -> Result<DatabaseFitness, DbErr> {
    if let Some(reason) = problems(&database, &WRITE_CHECKS).await?.first() {
        return Ok(DatabaseFitness::Away((*reason).to_owned()));
    }
    if let Some(reason) = problems(&database, &RIGHTS_CHECKS).await?.first() {
        return Ok(DatabaseFitness::Wrong((*reason).to_owned()));
    }
    let replication = Replication::read(&database).await?;
    if replication.logs_statements {
        return Ok(DatabaseFitness::Wrong(LOGS_STATEMENTS.to_owned()));
    }
    if let Some(reason) = unfit_schema(Installed::read(&database).await?) {
        return Ok(DatabaseFitness::Schema(reason));
    }
    match installation_id::misplaced(&identity, &installation_id::read(&database).await?) {
        Some(_) if faults::is(Fault::AnyStamp) => {}
        Some(DatabaseFitness::Schema(_)) if may_lack_id => {}
        Some(unfit) => return Ok(unfit),
        None => {}
    }
    if let Some(reason) = problems(&database, &TABLE_CHECKS).await?.first() {
        return Ok(DatabaseFitness::Wrong((*reason).to_owned()));
    }
    let has_marks = has_marks(&database).await?;
    if !has_marks && !is_lossless {
        return Ok(DatabaseFitness::Wrong(NO_MARKS.to_owned()));
    }
    let weak = problems(&database, &DURABILITY_CHECKS).await?;
    Ok(DatabaseFitness::Good {
        weakness: (!weak.is_empty()).then(|| {
            format!(
                "{}: after a crash of the database server numbers can be issued twice",
                weak.join("; ")
            )
        }),
        disorder: (replication.loses_order && !is_lossless).then_some(LOSES_ORDER),
        has_marks,
    })
}

/// Returns whether the server gives the marks by which a copy of the database is told apart. A kind
/// of server that is not asked for marks counts as one that gives them.
async fn has_marks(database: &DatabaseConnection) -> Result<bool, DbErr> {
    let Some(mark) = ServerMark::kept_or_given(database.get_database_backend()) else {
        return Ok(true);
    };
    let query = Query::select()
        .expr_as(mark.server, "server")
        .expr_as(mark.started, "started")
        .to_owned();
    let row = match database.query_one(&query).await {
        Ok(row) => row,
        Err(error) if server_mark::gives_none(&error) => None,
        Err(error) => return Err(error),
    };
    let Some(row) = row else {
        return Ok(false);
    };
    for mark in ["server", "started"] {
        let mark: Option<String> = row.try_get("", mark)?;
        if mark.is_none_or(|mark| mark.is_empty()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says what to do about a server that gives no marks.
const NO_MARKS: &str = "ODOMETER_DATABASE_URL: the server does not say which one it is, so a copy \
                        that lost commits could take its place unnoticed. Let this user call \
                        pg_control_system and pg_walfile_name (PostgreSQL), or read server_uuid \
                        (MySQL) or server_id (MariaDB), and Uptime. If no failover can lose a commit, say so by \
                        `failover.lossless = true`";

/// Returns what a verdict means before anything was issued. A database that can forget commits is
/// refused, unless its store accepts weak durability.
pub(crate) fn at_start(verdict: DatabaseFitness, limits: &StoreLimits) -> DatabaseFitness {
    match (verdict, limits.durability) {
        (
            DatabaseFitness::Good {
                weakness: Some(weakness),
                ..
            },
            Durability::Full,
        ) => DatabaseFitness::Wrong(format!(
            "ODOMETER_DATABASE_URL: {weakness}; change that at the server, or take it by \
             `durability = \"weak\"` in `[store]` or in the store's own section"
        )),
        (verdict, _) => verdict,
    }
}

/// Refuses a server whose binary log holds statements: there InnoDB takes no write at READ
/// COMMITTED.
const LOGS_STATEMENTS: &str = "ODOMETER_DATABASE_URL: the server has binlog_format = STATEMENT \
                               with log_bin on, and refuses the writes of Odometer (MySQL error \
                               1665): set binlog_format = ROW or MIXED at the server";

/// Says what a replica of MySQL may do that has the same settings as this server.
const LOSES_ORDER: &str = "the server has replica_preserve_commit_order = OFF: a MySQL replica with \
                           this setting that takes over may lack commits from before its last one, \
                           and numbers can then be issued twice. Set it to ON at every server";

/// A query for one flag, `found`, on one kind of server, and what is wrong if the flag is set.
type Check = (DbBackend, &'static str, &'static str);

const FORGETFUL: &str =
    "a table of Odometer is not crash-safe: make it logged (PostgreSQL) or InnoDB (MySQL)";
const KEYLESS: &str =
    "a table of Odometer has lost its primary key: restore it before numbers are issued";

const TIMELESS: &str = "ODOMETER_DATABASE_URL: the table `lineage` does not note when its row was \
                        written, as after a move from MySQL to MariaDB. Run \
                        `ALTER TABLE lineage ADD SYSTEM VERSIONING`, and then `odometer recover`";

/// Finds servers that take no writes.
const WRITE_CHECKS: [Check; 3] = [
    (
        DbBackend::Postgres,
        "SELECT pg_is_in_recovery() AS found",
        "the database is a standby in recovery",
    ),
    (
        DbBackend::Postgres,
        "SELECT current_setting('transaction_read_only') = 'on' AS found",
        "the database is read-only (default_transaction_read_only)",
    ),
    (
        DbBackend::MySql,
        "SELECT @@global.read_only NOT IN ('0', 'OFF') AS found",
        "the database server is read-only (read_only=ON)",
    ),
];

/// Finds tables that this user may not use.
///
/// MySQL shows the constraints of a table only to users who may do more than read the table. It
/// hides a table from users who may not even read it. Other missing rights are reported by MySQL
/// later.
const RIGHTS_CHECKS: [Check; 2] = [
    (
        DbBackend::Postgres,
        "SELECT count(*) <> 0 AS found FROM pg_class WHERE relkind = 'r' \
         AND relname IN ('meta', 'lineage', 'fence', 'sequence', 'counter', 'block', 'replica', \
         'worker_lease') \
         AND pg_table_is_visible(oid) AND NOT (has_table_privilege(oid, 'SELECT') \
         AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') \
         AND has_table_privilege(oid, 'DELETE'))",
        MAY_NOT_USE,
    ),
    (
        DbBackend::MySql,
        "SELECT count(*) <> 0 AS found FROM information_schema.tables t \
         WHERE t.table_schema = DATABASE() \
         AND t.table_name IN ('meta', 'lineage', 'fence', 'sequence', 'counter', 'block', 'replica', \
         'worker_lease') \
         AND EXISTS (SELECT 1 FROM information_schema.statistics s \
         WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name \
         AND s.index_name = 'PRIMARY') \
         AND NOT EXISTS (SELECT 1 FROM information_schema.table_constraints k \
         WHERE k.table_schema = t.table_schema AND k.table_name = t.table_name)",
        MAY_NOT_USE,
    ),
];

/// Finds tables that would lose their rows in a crash, or that lost their primary key.
const TABLE_CHECKS: [Check; 5] = [
    (
        DbBackend::Postgres,
        "SELECT count(*) <> 0 AS found FROM pg_class \
         WHERE relname IN ('meta', 'lineage', 'fence', 'sequence', 'counter', 'block', 'worker_lease') \
         AND relkind = 'r' AND relpersistence <> 'p' AND pg_table_is_visible(oid)",
        FORGETFUL,
    ),
    (
        DbBackend::Postgres,
        "SELECT count(*) <> 7 AS found FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid \
         WHERE k.contype = 'p' AND pg_table_is_visible(c.oid) \
         AND c.relname IN ('meta', 'lineage', 'fence', 'sequence', 'counter', 'block', 'worker_lease')",
        KEYLESS,
    ),
    (
        DbBackend::MySql,
        "SELECT count(*) <> 0 AS found FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND engine <> 'InnoDB' \
         AND table_name IN ('meta', 'lineage', 'fence', 'sequence', 'counter', 'block', 'worker_lease')",
        FORGETFUL,
    ),
    // MySQL does not show the constraints to a user who may only read.
    (
        DbBackend::MySql,
        "SELECT count(*) <> 7 AS found FROM information_schema.statistics \
         WHERE table_schema = DATABASE() AND index_name = 'PRIMARY' AND seq_in_index = 1 \
         AND table_name IN ('meta', 'lineage', 'fence', 'sequence', 'counter', 'block', 'worker_lease')",
        KEYLESS,
    ),
    // MySQL reads no comment of MariaDB.
    (
        DbBackend::MySql,
        "SELECT 0 /*M! + (SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = 'lineage' \
         AND table_type <> 'SYSTEM VERSIONED') */ <> 0 AS found",
        TIMELESS,
    ),
];

/// Finds settings under which a crash of the server can forget what it has committed.
const DURABILITY_CHECKS: [Check; 5] = [
    (
        DbBackend::Postgres,
        "SELECT current_setting('synchronous_commit') = 'off' AS found",
        "synchronous_commit is off",
    ),
    (
        DbBackend::Postgres,
        "SELECT current_setting('fsync') = 'off' AS found",
        "fsync is off",
    ),
    (
        DbBackend::Postgres,
        "SELECT current_setting('full_page_writes') = 'off' AS found",
        "full_page_writes is off",
    ),
    // The value 3 writes as much of the log, and only MariaDB has it.
    (
        DbBackend::MySql,
        "SELECT @@innodb_flush_log_at_trx_commit <> 1 AND NOT \
         (@@innodb_flush_log_at_trx_commit = 3 AND VERSION() LIKE '%MariaDB%') AS found",
        "innodb_flush_log_at_trx_commit is not 1",
    ),
    // After a crash, the server rolls back what the binary log has lost.
    (
        DbBackend::MySql,
        "SELECT @@log_bin <> 0 AND @@sync_binlog <> 1 AS found",
        "sync_binlog is not 1, with log_bin on",
    ),
];

/// What a MySQL or MariaDB server with a binary log says of its replication.
#[derive(Default)]
struct Replication {
    /// Whether the binary log holds statements: InnoDB then takes no write at READ COMMITTED.
    logs_statements: bool,
    /// Whether a replica with this setting may commit a transaction before an earlier one.
    loses_order: bool,
}

impl Replication {
    /// A server without one of these settings returns no row for it.
    async fn read(database: &DatabaseConnection) -> Result<Self, DbErr> {
        const SETTINGS: &str = "SHOW VARIABLES WHERE \
            Variable_name = 'binlog_format' AND Value = 'STATEMENT' OR Variable_name IN \
            ('replica_preserve_commit_order', 'slave_preserve_commit_order') AND Value = 'OFF' OR \
            Variable_name IN ('replica_parallel_workers', 'slave_parallel_workers') \
            AND Value IN ('0', '1')";
        let backend = database.get_database_backend();
        let mut found = Self::default();
        if backend != DbBackend::MySql || !flag(database, "SELECT @@log_bin <> 0 AS found").await? {
            return Ok(found);
        }
        let statement = Statement::from_string(backend, SETTINGS);
        let mut is_serial = false;
        for row in database.query_all_raw(statement).await? {
            let name: String = row.try_get_by_index(0)?;
            if name.eq_ignore_ascii_case("binlog_format") {
                found.logs_statements = true;
            } else if name.ends_with("workers") {
                is_serial = true;
            } else {
                found.loses_order = true;
            }
        }
        found.loses_order &= !is_serial;
        Ok(found)
    }
}

/// Returns what is wrong, in the order of the checks.
async fn problems(
    database: &DatabaseConnection,
    checks: &[Check],
) -> Result<Vec<&'static str>, DbErr> {
    let mut found = Vec::new();
    for (backend, sql, what) in checks {
        if database.get_database_backend() == *backend && flag(database, sql).await? {
            found.push(*what);
        }
    }
    Ok(found)
}

async fn flag(database: &DatabaseConnection, sql: &str) -> Result<bool, DbErr> {
    let statement = Statement::from_string(database.get_database_backend(), sql);
    let Some(row) = database.query_one_raw(statement).await? else {
        return Ok(false);
    };
    // MySQL has no booleans: a comparison gives an integer.
    if database.get_database_backend() == DbBackend::MySql {
        Ok(row.try_get::<i64>("", "found")? != 0)
    } else {
        row.try_get("", "found")
    }
}
