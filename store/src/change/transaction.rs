//! Ends a transaction after its work, whichever way the work ended.

use odometer_database::{session::DatabaseTransaction, start_error::StartError};
use sea_orm::DbErr;

use crate::error::StoreError;

/// Why the work within a transaction ended early.
pub(crate) enum TransactionError<E> {
    /// What was asked for is refused.
    Refused(E),
    Failed(DbErr),
}

impl<E> From<DbErr> for TransactionError<E> {
    fn from(error: DbErr) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for TransactionError<StoreError> {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<StartError> for TransactionError<StartError> {
    fn from(error: StartError) -> Self {
        Self::Refused(error)
    }
}

/// Returns whether the work was refused, or how the database failed.
pub(crate) fn refused<T, E>(
    outcome: Result<T, TransactionError<E>>,
) -> Result<Result<T, E>, DbErr> {
    match outcome {
        Ok(done) => Ok(Ok(done)),
        Err(TransactionError::Refused(error)) => Ok(Err(error)),
        Err(TransactionError::Failed(error)) => Err(error),
    }
}

/// Commits a transaction if its work was done and is to be kept, or else rolls it back.
pub(crate) async fn end<T, E>(
    transaction: DatabaseTransaction,
    outcome: Result<T, TransactionError<E>>,
    is_kept: impl FnOnce(&T) -> bool,
) -> Result<Result<T, E>, DbErr> {
    let outcome = refused(outcome)?;
    if outcome.as_ref().is_ok_and(is_kept) {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(outcome)
}
