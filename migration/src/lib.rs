//! Brings the schema of Odometer up to date: one file for each step, run under a lock of the
//! database.
//!
//! This crate owns tables, columns and indexes, as the steps make them. It knows neither the
//! entities nor any other crate. [`run`] is safe to call from several processes at once, and as
//! often as you like.
//!
//! Read first:
//!
//! - `lib.rs`: lists the steps and the versions of the schema.
//! - `lock.rs`: lets one process at a time change the schema.
//! - `column.rs`: names the types of columns on each database.
//! - `m0003_counter.rs`: makes the table that counts.
//! - `next.rs`: stands for the schema of a later version in tests.

#![allow(
    elided_lifetimes_in_paths,
    reason = "`MigrationTrait` is written with an elided one, and async-trait wants the same"
)]

mod column;
mod lock;
mod m0001_meta;
mod m0002_sequence;
mod m0003_counter;
mod m0004_block;
mod m0005_worker_lease;
mod m0006_replica;
mod m0007_stamp;
mod m0008_journal_index;
mod m0009_redis;
mod m0010_leases;
mod m0011_lineage;
mod m0012_speed_limit;
mod m0013_fence;
mod m0014_disarming;
#[cfg(feature = "next")]
mod next;
mod step;

use sea_orm_migration::{
    prelude::*,
    sea_orm::{DatabaseConnection, DbBackend, IsolationLevel, Statement, TransactionTrait},
};

/// Says which version of the schema these migrations make and this version of Odometer works with.
pub const SCHEMA_VERSION: i32 = 8;
/// Says which version of the schema is the oldest that this version of Odometer can work with.
pub const OLDEST_SCHEMA: i32 = DISARMING;
/// Names the first schema with the indexes by which the journal is checked and pruned.
pub(crate) const JOURNAL_INDEX: i32 = 2;
/// Names the first schema that records which Redis servers count.
pub(crate) const REDIS_LIST: i32 = 3;
/// Names the first schema in which worker ids can be leased.
pub(crate) const WORKER_LEASES: i32 = 4;
/// Names the first schema in which a database shows where it was last good.
pub(crate) const LINEAGE: i32 = 5;
/// Names the first schema in which the database enforces speed limits.
pub(crate) const SPEED_LIMIT: i32 = 6;
/// Names the first schema that keeps fences. A database that is armed keeps older programs out.
pub const FENCE: i32 = 7;
/// Names the first schema in which an operator can say that a database is not armed. Its programs
/// know how databases are fenced that count together, or in front of which Redis counts.
pub const DISARMING: i32 = 8;
/// Says which schema the oldest programs know that can work with a database that is not armed.
pub const OLDEST_BESIDE: i32 = WORKER_LEASES;

struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        step::steps![
            m0001_meta,
            m0002_sequence,
            m0003_counter,
            m0004_block,
            m0005_worker_lease,
            m0006_replica,
            m0007_stamp,
            m0008_journal_index,
            m0009_redis,
            m0010_leases,
            m0011_lineage,
            m0012_speed_limit,
            m0013_fence,
            m0014_disarming,
        ]
    }

    fn migration_table_name() -> DynIden {
        "odometer_migrations".into_iden()
    }
}

/// Brings the database to [`SCHEMA_VERSION`]. Does nothing if the database is there already, or
/// further. Returns what was installed before and what is installed now.
///
/// `connection` must be a pool of exactly one connection, because the lock belongs to the
/// connection that took it. Waits up to a minute for another process that migrates the same
/// database.
///
/// # Errors
/// What the database said, or that the lock stayed taken for a minute.
pub async fn run(connection: &DatabaseConnection) -> Result<Migrated, DbErr> {
    run_all::<Migrator>(connection, SCHEMA_VERSION).await
}

/// Does the same as [`run`], and one step more: for tests of a version next to the version that
/// follows it.
///
/// # Errors
/// The same as those of [`run`].
#[cfg(feature = "next")]
pub async fn run_next(connection: &DatabaseConnection) -> Result<Migrated, DbErr> {
    run_all::<next::Migrator>(connection, next::SCHEMA_VERSION).await
}

async fn run_all<M: MigratorTrait>(
    connection: &DatabaseConnection,
    version: i32,
) -> Result<Migrated, DbErr> {
    match connection.get_database_backend() {
        DbBackend::Postgres => {
            // DDL is transactional here: all steps happen, or none. At this level, a process that
            // waited for the lock sees what the other process made.
            let level = Some(IsolationLevel::ReadCommitted);
            let transaction = connection.begin_with_config(level, None).await?;
            // A pooler may give a connection on which statements of these names are known already.
            transaction.execute_unprepared("DEALLOCATE ALL").await?;
            lock::take_postgres(&transaction).await?;
            // Outside the transaction, a pooler may answer on another connection.
            let migrated = up_where_older::<M, _>(&transaction, version).await?;
            transaction.commit().await?;
            Ok(migrated)
        }
        DbBackend::MySql => {
            lock::take_mysql(connection).await?;
            let outcome = up_where_older::<M, _>(connection, version).await;
            let given_back = lock::give_back_mysql(connection).await;
            let migrated = outcome?;
            given_back?;
            Ok(migrated)
        }
        // One process owns a SQLite file: the service holds a lock next to the file.
        DbBackend::Sqlite | _ => up_where_older::<M, _>(connection, version).await,
    }
}

async fn up_where_older<'c, M: MigratorTrait, C: ConnectionTrait>(
    connection: &'c C,
    version: i32,
) -> Result<Migrated, DbErr>
where
    &'c C: IntoSchemaManagerConnection<'c>,
{
    let before = Installed::read(connection).await?;
    if is_older(before, version) {
        M::up(connection, None).await?;
    }
    let after = Installed::read(connection).await?;
    Ok(Migrated { before, after })
}

/// Returns whether steps may be missing. In a newer schema no step of this version is missing, and
/// its further steps are unknown here.
fn is_older(installed: Option<Installed>, version: i32) -> bool {
    installed.is_none_or(|installed| installed.schema_version <= version)
}

/// What a migration found, and what it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// `None` if the database had no schema of Odometer.
    pub before: Option<Installed>,
    pub after: Option<Installed>,
}

/// The schema that a database says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The version of the schema.
    pub schema_version: i32,
    /// The oldest program, by its schema version, that can work with this schema.
    pub compatible_from: i32,
}

impl Installed {
    /// Reads which schema a database has. `None` if it has no schema of Odometer.
    ///
    /// # Errors
    /// What the database said.
    pub async fn read(connection: &impl ConnectionTrait) -> Result<Option<Self>, DbErr> {
        if !has_meta(connection).await? {
            return Ok(None);
        }
        let query = Query::select()
            .columns(["schema_version", "compatible_from"])
            .from("meta")
            .to_owned();
        let Some(row) = connection.query_one(&query).await? else {
            return Ok(None);
        };
        Ok(Some(Self {
            schema_version: row.try_get("", "schema_version")?,
            compatible_from: row.try_get("", "compatible_from")?,
        }))
    }
}

/// Returns whether there is a schema at all, where this connection looks for tables.
async fn has_meta(connection: &impl ConnectionTrait) -> Result<bool, DbErr> {
    let backend = connection.get_database_backend();
    let sql = match backend {
        DbBackend::Postgres => {
            "SELECT count(*) AS n FROM pg_class \
             WHERE relname = 'meta' AND relkind = 'r' AND pg_table_is_visible(oid)"
        }
        DbBackend::MySql => {
            "SELECT count(*) AS n FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = 'meta'"
        }
        DbBackend::Sqlite | _ => {
            "SELECT count(*) AS n FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
        }
    };
    let row = connection
        .query_one_raw(Statement::from_string(backend, sql))
        .await?;
    let n: i64 = match row {
        Some(row) => row.try_get("", "n")?,
        None => 0,
    };
    Ok(n > 0)
}
