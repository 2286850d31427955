//! Locks the one row of `meta`, so that transactions which need it wait for one another.
//!
//! | | a creation | a change | exclusive work |
//! |---|---|---|---|
//! | a creation | side by side | side by side | waits |
//! | a change | side by side | waits | waits |
//! | exclusive work | waits | waits | waits |
//!
//! A *creation* makes a counter or a lease. It reads from the row what recoveries skipped, and when
//! the last recovery was: the new counter or lease begins above that. Only a recovery changes these
//! columns. Only `odometer migrate` changes the installation id. Both are *exclusive work*: they
//! exclude creations from before their first read until their end. So each creation is either seen
//! by the exclusive work, or reads what the exclusive work wrote.
//!
//! A *change* raises `definitions_version`, which no creation reads. It excludes other changes, so
//! that versions become visible in their order. It also excludes exclusive work. It need not
//! exclude creations. A creation of the same name meets the change at the primary key. A creation
//! of a period meets the change at the sequence's row, which the change holds `FOR UPDATE`.
//!
//! PostgreSQL grants a lock on a row at once if the lock fits the locks that are held, even while
//! another transaction waits. So creations that never stop would starve every transaction that
//! waits for them. Therefore a creation takes `FOR KEY SHARE` on PostgreSQL: the update of a change
//! does not wait for this lock. Exclusive work locks the table first. Tables have a queue, so later
//! creations wait behind it.
//!
//! MySQL and MariaDB have a queue for each row, and only one kind of shared lock: there creations
//! and changes wait for each other. SQLite has one writer, and no other process uses its file.

use entity::meta;
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryResult, QuerySelect, Select,
    sea_query::{LockType, SelectStatement},
};

/// Makes a query of `meta` lock the row as a creation does, until the end of the transaction.
pub(crate) fn lock_for_creation(query: &mut SelectStatement, backend: DbBackend) {
    if faults::is(Fault::CreationUnheld) {
        return;
    }
    match backend {
        DbBackend::Postgres if faults::is(Fault::CreationHoldsMore) => query.lock(LockType::Share),
        DbBackend::Postgres => query.lock(LockType::KeyShare),
        DbBackend::MySql => query.lock(LockType::Share),
        DbBackend::Sqlite | _ => query,
    };
}

/// Returns the query that reads the row, and locks it as a change does before it writes the row.
pub(crate) fn held_for_change(transaction: &DatabaseTransaction) -> Select<meta::Entity> {
    let find = plain();
    match transaction.get_database_backend() {
        DbBackend::Postgres => find.lock(LockType::NoKeyUpdate),
        DbBackend::MySql | DbBackend::Sqlite | _ => transaction.holding(find),
    }
}

/// Reads the row and locks it for exclusive work, until the end of the transaction.
///
/// # Errors
/// What the database says, or that there is no such row.
pub(crate) async fn lock_exclusively(
    transaction: &DatabaseTransaction,
) -> Result<meta::Model, DbErr> {
    if transaction.get_database_backend() == DbBackend::Postgres {
        // Transactions that only read go on.
        let lock = "LOCK TABLE meta IN EXCLUSIVE MODE";
        transaction.execute_unprepared(lock).await?;
    }
    read(transaction.holding(plain()), transaction).await
}

/// Returns the query that reads the row without a lock.
pub(crate) fn plain() -> Select<meta::Entity> {
    meta::Entity::find_by_id(1_i16)
}

/// Runs a query of `meta`, perhaps joined with other tables, that finds one row.
///
/// # Errors
/// What the database says, or that there is no row in `meta`.
pub(crate) async fn query(
    database: &impl ConnectionTrait,
    query: &SelectStatement,
) -> Result<QueryResult, DbErr> {
    let row = database.query_one(query).await?;
    row.ok_or_else(missing)
}

fn missing() -> DbErr {
    DbErr::RecordNotFound("meta".to_owned())
}

/// Reads the row by one of the queries of this file.
///
/// # Errors
/// What the database says, or that there is no such row.
pub(crate) async fn read(
    find: Select<meta::Entity>,
    database: &impl ConnectionTrait,
) -> Result<meta::Model, DbErr> {
    let row = find.one(database).await?;
    row.ok_or_else(missing)
}
