//! What can go wrong in the store, told apart by what it means for the numbers.

use std::sync::Arc;

use odometer_core::definition::{Definition, DefinitionError};

use thiserror::Error;

use crate::outcome::Resolved;
use odometer_core::name::SequenceName;
use odometer_database::failure::{Cause, StatementFailure};

/// Why the store did not do what it was asked for.
///
/// With any of them no block exists: what may have been reserved was counted as abandoned.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    #[error("the database cannot be used now")]
    Unavailable,
    #[error("the attempts or the time for one reservation are used up")]
    Deadline,
    #[error("no such sequence")]
    NotFound,
    /// The name is claimed for the store that the definition names.
    #[error("the sequence lives in the store `{}`", .0.store)]
    Elsewhere(Arc<Definition>),
    #[error("as many sequences as allowed")]
    TooMany { limit: u64 },
    #[error("{left} numbers are left")]
    Exhausted { left: u64 },
    #[error("a block may have at most {limit} numbers")]
    TooLarge { limit: u64 },
    /// The sequence has another order than the reservation was asked for.
    #[error("the sequence has another order")]
    OtherOrder {
        known: Box<Resolved>,
        /// The rate that is stored with the counter.
        rate: Option<f64>,
    },
    #[error("the sequence is retired")]
    Retired,
    /// A period has to be named, or is one of another calendar than the sequence has; what is known
    /// is of the sequence.
    #[error("the sequence counts in periods")]
    HasPeriods(Box<Resolved>),
    /// A period was named in vain; what is known is of the sequence's one counter.
    #[error("the sequence does not count in periods")]
    NoPeriods(Box<Resolved>),
    #[error("the period is removed")]
    PeriodRemoved,
    /// Removed ones count: their tombstones stay.
    #[error("as many periods as allowed")]
    TooManyPeriods { limit: u64 },
    #[error("not for this kind of sequence")]
    NotForKind,
    /// Its ids are stamped, not counted: what is known of it.
    #[error("the sequence is time-ordered")]
    TimeOrdered(Box<Resolved>),
    #[error("{0}")]
    Definition(DefinitionError),
    #[error("the sequence exists")]
    AlreadyExists,
    #[error("the sequence is at version {current}")]
    VersionMismatch { current: i64 },
    #[error("a floor may be at most {highest}")]
    FloorTooHigh { highest: i64, limit: i64 },
    #[error("{skipped} of {left} numbers left would be skipped")]
    ConfirmNeeded { skipped: u64, left: u64 },
    /// A change that certainly was not made.
    #[error("the change was not made")]
    NotChanged,
    /// A change whose outcome was not told.
    #[error("the change may have been made")]
    MayHaveChanged,
    #[error("the store holds less than was seen in it")]
    WentBack,
    /// Never leaves the store: one of several databases has not what the others agreed on.
    #[error("a database is behind the others")]
    Behind,
    /// A change needs a database that is away; the text names it.
    #[error("{away} is away")]
    Incomplete { away: String },
    /// Said once in the log where it was found.
    #[error("{0}")]
    Broken(String),
}

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::catalogue";

/// What is said of a live sequence whose counter is gone: never started anew.
pub(crate) fn without_counter(name: &SequenceName) -> StoreError {
    StoreError::Broken(format!(
        "sequence `{name}` has a definition and no counter: insert its row into `counter` with a \
         `next_value` above every number ever issued"
    ))
}

/// An unexpected failure, said once in the log.
pub(crate) fn unexpected(name: &SequenceName, failure: &StatementFailure) -> StoreError {
    match failure.cause() {
        Cause::NoConnection(_)
        | Cause::Away(_)
        | Cause::Refused(_)
        | Cause::ReadOnly(_)
        | Cause::Broken(_)
        | Cause::Internal(_) => StoreError::Unavailable,
        // Said where every statement passes, and not for each name.
        Cause::DiskFull(_) => StoreError::Unavailable,
        Cause::Busy | Cause::Silent | Cause::Interrupted | Cause::Contention | Cause::Duplicate => {
            StoreError::Deadline
        }
        // It may pass, and until then nothing can be reserved.
        Cause::Denied(text) | Cause::Server(text) => {
            tracing::error!(target: TARGET, sequence = name.as_str(), error = %text, "the database refuses a statement");
            StoreError::Unavailable
        }
    }
}
