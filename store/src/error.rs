//! Says why the store did not do what it was asked for, by what this means for the numbers.

use std::sync::Arc;

use odometer_core::definition::{Definition, DefinitionError};

use thiserror::Error;

use odometer_core::name::SequenceName;
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::AttemptError,
};

/// Why the store did not do what it was asked for.
///
/// No block exists after any of these errors: numbers that may have been reserved count as
/// abandoned.
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
    /// The speed limit allows `n_available` numbers now, and enough of them after `wait_ms`.
    #[error("the speed limit of the sequence is reached")]
    RateLimited { n_available: u64, wait_ms: u64 },
    /// The speed limit never allows so many numbers at once.
    #[error("at most {burst} numbers can be reserved at once")]
    AboveBurst { burst: u64 },
    #[error("the sequence is retired")]
    Retired,
    /// The sequence has another kind, another order or other periods than the request assumed. The
    /// definition is the one that the sequence has now.
    #[error("the sequence is another one than was assumed")]
    Changed(Arc<Definition>),
    #[error("the period is removed")]
    PeriodRemoved,
    #[error("as many periods as allowed")]
    TooManyPeriods { limit: u64 },
    #[error("not for this kind of sequence")]
    NotForKind,
    #[error("{0}")]
    Definition(#[from] DefinitionError),
    #[error("the sequence exists")]
    AlreadyExists,
    #[error("the sequence is at version {current}")]
    VersionMismatch { current: i64 },
    #[error("a floor may be at most {highest}")]
    FloorTooHigh { highest: i64, limit: i64 },
    #[error("{skipped} of {left} numbers left would be skipped")]
    ConfirmNeeded { skipped: u64, left: u64 },
    /// The change was certainly not made.
    #[error("the change was not made")]
    NotChanged,
    /// The outcome of the change is not known.
    #[error("the change may have been made")]
    MayHaveChanged,
    #[error("the store holds less than was seen in it")]
    WentBack,
    /// A guard did not hold, and a look must tell why. This error never leaves the store.
    #[error("a guard did not hold")]
    Unguarded,
    /// One of several databases lacks what the others agreed on. This error never leaves the store.
    #[error("a database is behind the others")]
    Behind,
    /// A change needs a database that is away. The text names this database.
    #[error("{away} is away")]
    Incomplete { away: String },
    /// The reason was logged once, where it was found.
    #[error("{0}")]
    Broken(String),
}

impl StoreError {
    /// Returns of two limits that are reached the one that allows more numbers sooner.
    pub(crate) fn sooner(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::RateLimited { wait_ms: one, .. }, Self::RateLimited { wait_ms, .. })
                if wait_ms < one =>
            {
                other
            }
            _ => self,
        }
    }

    /// Converts an error that came before a change was tried. Nothing was changed then.
    pub(crate) fn not_changed(self) -> Self {
        if matches!(self, Self::Unavailable | Self::Deadline) {
            Self::NotChanged
        } else {
            self
        }
    }
}

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::catalogue";

/// Returns the error for a live sequence whose counter is gone. Such a counter is never created
/// again.
pub(crate) fn without_counter(name: &SequenceName) -> StoreError {
    StoreError::Broken(format!(
        "sequence `{name}` has a definition and no counter: insert its row into `counter` with a \
         `next_value` above every number ever issued"
    ))
}

impl From<StoreError> for AttemptError<StoreError> {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

/// Returns all answers, if there is one.
///
/// # Errors
/// The last error. `Unavailable` if nothing was asked.
pub(crate) fn any_answers<T>(outcomes: Vec<Result<T, StoreError>>) -> Result<Vec<T>, StoreError> {
    let mut error = StoreError::Unavailable;
    let mut answers = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(answer) => answers.push(answer),
            Err(failed) => error = failed,
        }
    }
    if answers.is_empty() {
        Err(error)
    } else {
        Ok(answers)
    }
}

/// The outcome of one attempt.
pub(crate) type Attempted<T> = Result<T, AttemptError<StoreError>>;

/// Decides whether another attempt can help after this failure.
///
/// # Errors
/// The error for the caller, if another attempt cannot help.
pub(crate) fn survive(name: &SequenceName, failure: &StatementFailure) -> Result<(), StoreError> {
    let cause = failure.cause();
    if cause.may_pass() || matches!(cause, Cause::Silent) {
        return Ok(());
    }
    Err(unexpected(name, failure))
}

/// Converts an unexpected failure. Logs it if the database refuses the statement.
pub(crate) fn unexpected(name: &SequenceName, failure: &StatementFailure) -> StoreError {
    match failure.cause() {
        Cause::NoConnection(_)
        | Cause::Away(_)
        | Cause::Refused(_)
        | Cause::ReadOnly(_)
        | Cause::Broken(_)
        | Cause::Internal(_) => StoreError::Unavailable,
        // A full disk is logged where every statement passes, and not for each name.
        Cause::DiskFull(_) => StoreError::Unavailable,
        Cause::Busy | Cause::Silent | Cause::Interrupted | Cause::Contention | Cause::Duplicate => {
            StoreError::Deadline
        }
        // The refusal may pass. Until then nothing can be reserved.
        Cause::Denied(text) | Cause::Server(text) => {
            tracing::error!(target: TARGET, sequence = name.as_str(), error = %text, "the database refuses a statement");
            StoreError::Unavailable
        }
    }
}
