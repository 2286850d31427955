//! Makes one connection of its own, to learn whether the server can be reached, in what way, and
//! why not. A pool would try again until its time is up, and then say no more than that.

use std::{future::Future, sync::atomic::Ordering, time::Duration};

use sea_orm::{
    DbBackend, SqlxError,
    sqlx::{ConnectOptions, Connection},
};
use tokio::time::timeout;

use crate::{
    bounds,
    code::ServerErrorCode,
    failure::{Cause, StatementFailure},
    stranger,
    target::Target,
};

/// Connects once, notes whether a pooler is in between, and hangs up.
///
/// # Errors
/// Why there was no connection within `time_limit`, or none that can be used.
pub async fn reach(target: &Target, time_limit: Duration) -> Result<(), StatementFailure> {
    let Err(unreached) = reach_expected(target, time_limit).await else {
        target.was_met.store(true, Ordering::Release);
        return Ok(());
    };
    if unreached.may_be_another
        && !target.was_met.load(Ordering::Acquire)
        && let Some((host, port)) = target.host_and_port()
        && let Some(found) = stranger::identify(target.backend, &host, port).await
    {
        return Err(StatementFailure::NotCommitted(Cause::Refused(format!(
            "{found} answers at its host and port: correct the port, or the scheme of the URL"
        ))));
    }
    Err(unreached.failure)
}

/// Why there is no connection.
struct Unreached {
    failure: StatementFailure,
    /// Whether another kind of server may be there: there was silence, or an answer that cannot be
    /// understood. A server that answered with a code of its own is not asked what it is: MySQL
    /// counts such questions, and keeps out a host that asks too many.
    may_be_another: bool,
}

impl Unreached {
    fn of(error: &SqlxError) -> Self {
        let failure = StatementFailure::to_connect(error);
        let is_silence = matches!(failure.cause(), Cause::NoConnection(_));
        Self {
            may_be_another: is_silence || matches!(error, SqlxError::Protocol(_)),
            failure,
        }
    }
}

async fn reach_expected(target: &Target, time_limit: Duration) -> Result<(), Unreached> {
    match target.backend {
        DbBackend::Postgres => {
            let was_pooled = target.route.is_pooled();
            let first = within(time_limit, postgres(target)).await;
            if first.is_ok() || target.route.is_pooled() == was_pooled {
                return first;
            }
            // The pooler refused only what is meant for a server.
            within(time_limit, postgres(target)).await
        }
        DbBackend::MySql => within(time_limit, mysql(target)).await,
        // A file is opened by its pool.
        DbBackend::Sqlite | _ => Ok(()),
    }
}

async fn within(
    time_limit: Duration,
    attempt: impl Future<Output = Result<(), SqlxError>>,
) -> Result<(), Unreached> {
    match timeout(time_limit, Box::pin(attempt)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Unreached::of(&error)),
        Err(_) => Err(Unreached {
            failure: StatementFailure::NotCommitted(Cause::NoConnection(
                "the database cannot be reached: it does not answer within the time for making a \
                 connection"
                    .to_owned(),
            )),
            may_be_another: true,
        }),
    }
}

async fn postgres(target: &Target) -> Result<(), SqlxError> {
    let was_pooled = target.route.is_pooled();
    let connected = target.postgres()?.connect().await;
    let mut connection = match connected {
        Ok(connection) => connection,
        Err(error) => {
            if !was_pooled && is_of_a_pooler(&error) {
                target.route.meet_pooler();
            }
            return Err(error);
        }
    };
    if !was_pooled && !bounds::is_direct(&mut connection).await? {
        target.route.meet_pooler();
    }
    // The answer is known, whether or not closing works.
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
        .is_some_and(|said| ServerErrorCode::of(said).is_of_a_pooler())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_silence_and_what_is_not_understood_may_be_another_server() {
        let unreached = |error| Unreached::of(&error);
        let closed = unreached(SqlxError::Io(io::ErrorKind::UnexpectedEof.into()));
        assert!(closed.may_be_another);
        let odd = unreached(SqlxError::Protocol("0x48".to_owned()));
        assert!(odd.may_be_another);
        // Until a probe says more, the database is away.
        assert!(matches!(odd.failure.cause(), Cause::Away(_)));
        let untrusted = unreached(SqlxError::Tls("no certificate".into()));
        assert!(!untrusted.may_be_another);
    }
}
