//! Says why an attempt ended without a block, and whether another attempt can help.

use odometer_core::name::SequenceName;
use odometer_database::failure::{Cause, StatementFailure};

use crate::error;
use crate::error::StoreError;

/// Decides whether another attempt can help after this failure.
///
/// # Errors
/// The error for the caller, if another attempt cannot help.
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

/// The reason why an attempt ended without a block.
pub(crate) enum AttemptError {
    /// A final answer: another attempt would end in the same way.
    Final(StoreError),
    Failed(StatementFailure),
}

impl AttemptError {
    /// Returns the error for the caller if no further attempt is made.
    pub(crate) fn untried(self) -> StoreError {
        match self {
            AttemptError::Final(error) => error,
            AttemptError::Failed(_) => StoreError::Unavailable,
        }
    }
}
