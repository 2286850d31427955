//! Takes the lock of the database that lets one process migrate while others wait.

use sea_orm_migration::{
    prelude::*,
    sea_orm::{DatabaseTransaction, RuntimeErr, Statement, sqlx::mysql::MySqlDatabaseError},
};

/// Bounds how long a process waits for another process's migration, in seconds.
const WAIT_SECONDS: u32 = 60;
/// Identifies the lock. Any number would do, as long as it stays the same. This is "odometer" in
/// ASCII, without its last letter.
const POSTGRES_KEY: i64 = 0x6f_646f_6d65_7465;

/// Takes the lock to the end of the transaction, so a pooler in transaction mode does no harm.
pub(crate) async fn take_postgres(transaction: &DatabaseTransaction) -> Result<(), DbErr> {
    transaction
        .execute_unprepared(&format!("SET LOCAL lock_timeout = '{WAIT_SECONDS}s'"))
        .await?;
    transaction
        .execute_unprepared(&format!("SELECT pg_advisory_xact_lock({POSTGRES_KEY})"))
        .await?;
    Ok(())
}

/// Names the lock. MySQL's named locks belong to the server, so the name has a hash of the
/// database's name. It uses all 64 characters that a name may have.
const MYSQL_NAME: &str = "CONCAT('odometer:', LEFT(SHA2(DATABASE(), 256), 55))";
/// Names the lock as earlier versions do, by a function that MySQL lacks since 9.6.
const MYSQL_NAME_WITH_MD5: &str = "CONCAT('odometer:', MD5(DATABASE()))";
/// Lists MySQL's error codes for a function that it does not have. MySQL then looks for a stored
/// function of the database, so a user who may not execute any gets the second code.
const NO_SUCH_FUNCTION: [u16; 2] = [1305, 1370];

/// Takes the lock, and also the lock of earlier versions on servers where they can take it
/// themselves.
pub(crate) async fn take_mysql(connection: &impl ConnectionTrait) -> Result<(), DbErr> {
    take_named(connection, MYSQL_NAME).await?;
    match take_named(connection, MYSQL_NAME_WITH_MD5).await {
        Err(error) if number_of(&error).is_some_and(|it| NO_SUCH_FUNCTION.contains(&it)) => Ok(()),
        taken => taken,
    }
}

async fn take_named(connection: &impl ConnectionTrait, name: &str) -> Result<(), DbErr> {
    let statement = Statement::from_string(
        connection.get_database_backend(),
        format!("SELECT CAST(GET_LOCK({name}, {WAIT_SECONDS}) AS SIGNED) AS taken"),
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

fn number_of(error: &DbErr) -> Option<u16> {
    let (DbErr::Exec(RuntimeErr::SqlxError(said)) | DbErr::Query(RuntimeErr::SqlxError(said))) =
        error
    else {
        return None;
    };
    let said = said.as_database_error()?;
    Some(said.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// Gives back all locks that this connection holds.
pub(crate) async fn give_back_mysql(connection: &impl ConnectionTrait) -> Result<(), DbErr> {
    let released = connection
        .execute_unprepared("DO RELEASE_ALL_LOCKS()")
        .await;
    released.map(|_released| ())
}
