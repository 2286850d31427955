//! The lock of the database that lets one process migrate while others wait.

use sea_orm_migration::{
    prelude::*,
    sea_orm::{DatabaseTransaction, Statement},
};

/// How long a process waits for another one's migration, in seconds.
const WAIT_SECONDS: u32 = 60;
/// Any number, as long as it stays the same: "odometer" in ASCII, less its last letter.
const POSTGRES_KEY: i64 = 0x6f_646f_6d65_7465;

/// Held to the end of the transaction, so a pooler in transaction mode does no harm.
pub(crate) async fn take_postgres(transaction: &DatabaseTransaction) -> Result<(), DbErr> {
    transaction
        .execute_unprepared(&format!("SET LOCAL lock_timeout = '{WAIT_SECONDS}s'"))
        .await?;
    transaction
        .execute_unprepared(&format!("SELECT pg_advisory_xact_lock({POSTGRES_KEY})"))
        .await?;
    Ok(())
}

/// MySQL's named locks belong to the server, so the name carries the database's.
const MYSQL_NAME: &str = "CONCAT('odometer:', MD5(DATABASE()))";

pub(crate) async fn take_mysql(connection: &impl ConnectionTrait) -> Result<(), DbErr> {
    let statement = Statement::from_string(
        connection.get_database_backend(),
        format!("SELECT CAST(GET_LOCK({MYSQL_NAME}, {WAIT_SECONDS}) AS SIGNED) AS taken"),
    );
    let row = connection.query_one_raw(statement).await?;
    let taken: Option<i64> = match row {
        Some(row) => row.try_get("", "taken")?,
        None => None,
    };
    if taken == Some(1) {
        Ok(())
    } else {
        Err(DbErr::Migration(format!(
            "another process has been migrating this database for {WAIT_SECONDS} seconds"
        )))
    }
}

pub(crate) async fn give_back_mysql(connection: &impl ConnectionTrait) -> Result<(), DbErr> {
    connection
        .execute_unprepared(&format!("DO RELEASE_LOCK({MYSQL_NAME})"))
        .await?;
    Ok(())
}
