//! Why a call to a sequence failed, in words that a caller may read.

use odometer_core::{definition::DefinitionError, name::SequenceName};
use thiserror::Error;

use crate::store::StoreError;

/// Why a call failed. The message is public; the cause was logged where it was seen.
///
/// With any of them no number was given.
#[derive(Clone, Debug, Error)]
pub enum SequenceError {
    #[error("There is no sequence `{name}`.")]
    NotFound { name: SequenceName },
    #[error(
        "There are {limit} sequences, as many as `max_sequences` allows; no new one is created."
    )]
    TooManySequences { limit: u64 },
    #[error("Sequence `{name}` has {left} numbers left, fewer than asked for.")]
    Exhausted { name: SequenceName, left: u64 },
    #[error("Sequence `{name}` is retired.")]
    Retired { name: SequenceName },
    #[error("A block may have at most {limit} numbers now: 1/4096 of what is left.")]
    TooLarge { limit: u64 },
    #[error("{0}")]
    Definition(DefinitionError),
    #[error("Sequence `{name}` exists already.")]
    AlreadyExists { name: SequenceName },
    #[error("The sequence has changed: its version is \"{current}\" now.")]
    VersionMismatch { current: i64 },
    #[error("`floor` may be at most {highest}, the number after the last one: `max` is {max}.")]
    FloorTooHigh { highest: i64, max: i64 },
    #[error(
        "{skipped} of the {left} numbers left of sequence `{name}` would be skipped, more than 1 %; \
         give `confirm` as true if that is meant."
    )]
    ConfirmNeeded {
        name: SequenceName,
        skipped: u64,
        left: u64,
    },
    #[error("The database did not take the change, nothing was changed; try again.")]
    NotChanged,
    #[error(
        "The database has not said whether the change was made: it may have been. Making it again \
         is safe."
    )]
    MayHaveChanged,
    #[error("The database cannot be reached and no number is left in memory; try again.")]
    StoreUnavailable,
    #[error(
        "The database holds less than this replica has seen in it: it was restored or failed over. \
         Nothing is issued until an operator has looked; see the runbook, \"store went back\"."
    )]
    StoreWentBack,
    #[error("No block could be reserved in time; try again.")]
    RefillTimeout,
    #[error("Too many calls at once: {what} has reached its bound; try again.")]
    Overloaded { what: &'static str },
    #[error("This replica is shutting down; ask another one.")]
    Draining,
    #[error("Something went wrong that should not have; the log says what.")]
    Internal,
}

impl SequenceError {
    /// What a caller of `name` reads of a failure of the store.
    pub(super) fn from_store(name: &SequenceName, error: StoreError) -> Self {
        let name = name.clone();
        match error {
            StoreError::Unavailable => Self::StoreUnavailable,
            StoreError::Deadline => Self::RefillTimeout,
            StoreError::NotFound => Self::NotFound { name },
            StoreError::TooMany { limit } => Self::TooManySequences { limit },
            StoreError::Exhausted { left } => Self::Exhausted { name, left },
            StoreError::TooLarge { limit } => Self::TooLarge { limit },
            StoreError::Retired => Self::Retired { name },
            StoreError::Definition(error) => Self::Definition(error),
            StoreError::AlreadyExists => Self::AlreadyExists { name },
            StoreError::VersionMismatch { current } => Self::VersionMismatch { current },
            StoreError::FloorTooHigh { highest, max } => Self::FloorTooHigh { highest, max },
            StoreError::ConfirmNeeded { skipped, left } => Self::ConfirmNeeded {
                name,
                skipped,
                left,
            },
            StoreError::NotChanged => Self::NotChanged,
            StoreError::MayHaveChanged => Self::MayHaveChanged,
            StoreError::WentBack => Self::StoreWentBack,
            StoreError::HasPeriods(_)
            | StoreError::NoPeriods(_)
            | StoreError::PeriodRemoved
            | StoreError::TooManyPeriods { .. }
            | StoreError::NotForKind
            | StoreError::Broken(_) => Self::Internal,
        }
    }
}
