//! How the one row of `meta` is held while others work, and who waits for whom.
//!
//! | | a birth | a change | alone |
//! |---|---|---|---|
//! | a birth | side by side | side by side | waits |
//! | a change | side by side | waits | waits |
//! | alone | waits | waits | waits |
//!
//! A *birth* makes a counter or a lease, and reads from the row where it begins: what recoveries
//! skipped, and when the last one was. Only a recovery changes these columns, and the stamp what
//! a database is one of. These two are *alone*: they exclude births from before their first look
//! until their end, so that every birth either is seen by them or reads what they wrote.
//!
//! A *change* raises `definitions_version` alone, which no birth reads. It excludes other changes,
//! so that versions become visible in their order, and what is alone. It needs not exclude births:
//! a birth of the same name meets the change at the primary key, and a birth of a period meets it
//! at the sequence's row, which the change holds `FOR UPDATE`.
//!
//! On PostgreSQL a lock on a row that fits those who have it is given at once, whoever waits for
//! another one, so births that never stop starve whatever has to wait for them. There a birth takes
//! `FOR KEY SHARE`, which the update of a change does not wait for. What is alone locks the table
//! first: tables have a queue, so births that come later wait behind it. MySQL and MariaDB have a
//! queue for each row, and know one shared lock; SQLite has one writer, and no process beside it.

use entity::meta;
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ConnectionTrait, DbBackend, DbErr, EntityTrait, QuerySelect, Select,
    sea_query::{LockType, SelectStatement},
};

/// Lets what is read of `meta` hold its row as a birth does, until the end of the transaction.
pub(crate) fn hold_for_birth(query: &mut SelectStatement, backend: DbBackend) {
    if faults::is(Fault::BirthUnheld) {
        return;
    }
    match backend {
        DbBackend::Postgres if faults::is(Fault::BirthHoldsMore) => query.lock(LockType::Share),
        DbBackend::Postgres => query.lock(LockType::KeyShare),
        DbBackend::MySql => query.lock(LockType::Share),
        DbBackend::Sqlite | _ => query,
    };
}

/// The row, held as a change holds it that has not written it yet.
pub(crate) fn held_for_change(transaction: &DatabaseTransaction) -> Select<meta::Entity> {
    let find = meta::Entity::find_by_id(1_i16);
    match transaction.get_database_backend() {
        DbBackend::Postgres => find.lock(LockType::NoKeyUpdate),
        DbBackend::MySql | DbBackend::Sqlite | _ => transaction.holding(find),
    }
}

/// The row, with nobody beside until the end of the transaction.
///
/// # Errors
/// What the database says, or that there is no such row.
pub(crate) async fn hold_alone(transaction: &DatabaseTransaction) -> Result<meta::Model, DbErr> {
    if transaction.get_database_backend() == DbBackend::Postgres {
        // Whoever only reads goes on.
        let lock = "LOCK TABLE meta IN EXCLUSIVE MODE";
        transaction.execute_unprepared(lock).await?;
    }
    let find = transaction.holding(meta::Entity::find_by_id(1_i16));
    let row = find.one(transaction).await?;
    row.ok_or_else(|| DbErr::RecordNotFound("meta".to_owned()))
}
