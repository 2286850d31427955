//! Why an attempt ended without a block, and whether another one can help.

use odometer_core::name::SequenceName;
use odometer_database::failure::{Cause, StatementFailure};

use crate::error;
use crate::error::StoreError;

/// Whether trying again can help after such a failure.
///
/// # Errors
/// What to say where it cannot.
pub(crate) fn survive(name: &SequenceName, failure: &StatementFailure) -> Result<(), StoreError> {
    match failure.cause() {
        Cause::Contention
        | Cause::Interrupted
        | Cause::Duplicate
        | Cause::Broken(_)
        | Cause::Internal(_)
        | Cause::Silent => Ok(()),
        Cause::Busy
        | Cause::DiskFull(_)
        | Cause::Denied(_)
        | Cause::NoConnection(_)
        | Cause::Away(_)
        | Cause::Refused(_)
        | Cause::ReadOnly(_)
        | Cause::Server(_) => Err(error::unexpected(name, failure)),
    }
}

/// Why an attempt ended without a block.
pub(crate) enum AttemptError {
    /// Trying again gives the same answer.
    Told(StoreError),
    Failed(StatementFailure),
}

impl AttemptError {
    /// What to say where it is not tried again.
    pub(crate) fn untried(self) -> StoreError {
        match self {
            AttemptError::Told(error) => error,
            AttemptError::Failed(_) => StoreError::Unavailable,
        }
    }
}
