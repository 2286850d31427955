//! One connection of its own, to learn whether the server can be reached, in what way, and why not:
//! a pool tries again until its time is up and then says no more than that.

use std::{future::Future, time::Duration};

use sea_orm::{
    DbBackend, SqlxError,
    sqlx::{ConnectOptions, Connection},
};
use tokio::time::timeout;

use crate::store::{
    code::Code,
    connection::bounds,
    connection::target::Target,
    error::{Cause, Failure},
};

/// Connects once, notes where a pooler is in between, and hangs up.
///
/// # Errors
/// Why there was no connection within `patience`, or none that can be used.
pub(in crate::store) async fn reach(target: &Target, patience: Duration) -> Result<(), Failure> {
    match target.backend {
        DbBackend::Postgres => {
            let was_pooled = target.route.is_pooled();
            let first = within(patience, postgres(target)).await;
            if first.is_ok() || target.route.is_pooled() == was_pooled {
                return first;
            }
            // What the pooler refused was only the way of a server.
            within(patience, postgres(target)).await
        }
        DbBackend::MySql => within(patience, mysql(target)).await,
        // A file is opened by its pool.
        DbBackend::Sqlite | _ => Ok(()),
    }
}

async fn within(
    patience: Duration,
    attempt: impl Future<Output = Result<(), SqlxError>>,
) -> Result<(), Failure> {
    match timeout(patience, Box::pin(attempt)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::to_connect(&error)),
        Err(_) => Err(Failure::NotCommitted(Cause::NoConnection(
            "it does not answer within the time for making a connection".to_owned(),
        ))),
    }
}

async fn postgres(target: &Target) -> Result<(), SqlxError> {
    let was_pooled = target.route.is_pooled();
    let connected = target.postgres(None)?.connect().await;
    let mut connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            if !was_pooled && is_of_a_pooler(&error) {
                target.route.meet_pooler();
            }
            return Err(error);
        }
    };
    if !was_pooled && !bounds::is_straight(&mut connection).await? {
        target.route.meet_pooler();
    }
    // What was asked for is known.
    let _closed = connection.close().await;
    Ok(())
}

async fn mysql(target: &Target) -> Result<(), SqlxError> {
    let connection = target.mysql()?.connect().await?;
    let _closed = connection.close().await;
    Ok(())
}

fn is_of_a_pooler(error: &SqlxError) -> bool {
    error
        .as_database_error()
        .is_some_and(|said| Code::of(said).is_of_a_pooler())
}
