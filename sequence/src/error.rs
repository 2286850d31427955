//! Defines why a call to a sequence failed, in words that a caller may read.

use odometer_core::{
    definition::{DefinitionError, Span},
    format::InvalidId,
    name::SequenceName,
    period::{CounterKey, InvalidPeriod, Period, PeriodKind},
};
use odometer_store::StoreError;
use thiserror::Error;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::error";

/// Why a call failed. The message is public, and the cause was logged when it was found.
///
/// With each of these errors, no number was given. [`SequenceError::may_have_used_numbers`] says
/// whether numbers may be used up all the same.
#[derive(Clone, Debug, Error)]
pub enum SequenceError {
    #[error("There is no sequence `{name}`.")]
    NotFound { name: SequenceName },
    #[error(
        "There is no sequence `{name}`, and no call creates it: no template fits it, and `unknown` \
         is `reject`. Define it with `PUT`, or ask the operator for a template or for `unknown = \
         \"create\"`."
    )]
    NotCreated { name: SequenceName },
    #[error(
        "No new sequence is created: there are as many as `max_sequences` allows ({limit}), or ten \
         times as many retired ones. Retire some, or raise it."
    )]
    TooManySequences { limit: u64 },
    #[error("Sequence `{name}` has {left} numbers left, fewer than asked for.")]
    Exhausted { name: SequenceName, left: u64 },
    #[error("The sequence counts by callers' keys: name one, as in `?period=eod-7`.")]
    PeriodNeeded,
    #[error(
        "Sequence `{name}` counts in periods: name the one that is meant, as `period` of the body."
    )]
    PeriodMissing { name: SequenceName },
    #[error("Sequence `{name}` counts without periods; leave `period` out.")]
    NoPeriods { name: SequenceName },
    #[error("{0}")]
    InvalidPeriod(#[from] InvalidPeriod),
    #[error(
        "The period {period} cannot be counted in now: it is {current}, and the sequence takes \
         periods that ended less than {back} ago (`period_back`) or begin in less than {ahead} \
         (`period_ahead`)."
    )]
    PeriodOutOfBounds {
        period: Period,
        current: Period,
        back: Span,
        ahead: Span,
    },
    #[error("That id is not of the period {period}.")]
    OfAnotherPeriod { period: Period },
    #[error("{0}")]
    InvalidId(#[from] InvalidId),
    #[error("The period {period} of sequence `{name}` is removed.")]
    PeriodRemoved { name: SequenceName, period: Period },
    #[error(
        "Sequence `{name}` has as many keys as `limits.keyed_periods` allows ({limit}), or ten times \
         as many removed ones. Raise that, or remove keys, or name one that it has."
    )]
    TooManyPeriods { name: SequenceName, limit: u64 },
    #[error("Only the periods of sequences that count by callers' keys can be removed.")]
    NotForKind,
    #[error(
        "Sequence `{name}` is time-ordered: its ids come from `next` alone; it has no blocks and \
         no floor."
    )]
    TimeOrdered { name: SequenceName },
    #[error(
        "You can get at most {most} ids of this sequence at once. Its layout has no more for the \
         time that a call may reach ahead, or, if the ids are to be `contiguous`, for one tick."
    )]
    BatchTooLarge { most: u64 },
    #[error("The time bits of sequence `{name}` have ended: it has no ids any more.")]
    TimeEnded { name: SequenceName },
    #[error(
        "Ids of this sequence are issued again in {wait_ms} ms. Until then no worker id has time \
         that is free. The clock was set back, or the database failed over or was recovered."
    )]
    ClockBehind { wait_ms: u64 },
    #[error(
        "This replica's clock is {by_ms} ms ahead of the database's clock. The replica reserves no \
         time until the clock is set right; see the runbook, \"clocks apart\"."
    )]
    ClockAhead { by_ms: i64 },
    #[error(
        "All {workers} worker ids of the sequence are held or rest; see the runbook, \
         \"no worker id left\"."
    )]
    NoWorkerId { workers: u32 },
    #[error(
        "The worker id {worker}, which this replica is configured to use, is none of this \
         sequence, whose layout has {workers} from 0 on."
    )]
    NoSuchWorker { worker: u32, workers: u32 },
    #[error(
        "The worker id {worker}, which this replica is configured to use, is held by another one, \
         or by this replica's former process until its lease ends."
    )]
    WorkerHeld { worker: u32 },
    /// Sends the caller to another issuer. This error never leaves this layer.
    #[error("Another issuer has the numbers.")]
    Elsewhere,
    /// The numbers would come after a wait that is too long. `n_available` of them can be had now.
    #[error(
        "Sequence `{name}` is at its speed limit (`limit`), and its numbers do not come fast enough; \
         try again later."
    )]
    RateLimited {
        name: SequenceName,
        n_available: u64,
        wait_ms: u64,
    },
    /// The caller has waited as long as it may. Its numbers may be on their way, and memory has
    /// `n_available` numbers for a smaller call.
    #[error(
        "Sequence `{name}` is at its speed limit (`limit`), and no number came in time; try \
         again."
    )]
    LimitTimeout {
        name: SequenceName,
        n_available: u64,
    },
    #[error("You can get at most {burst} numbers of this sequence at once, its `limit.burst`.")]
    AboveBurst { burst: u64 },
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
    #[error("`floor` may be at most {highest}: the last number is at most {limit}.")]
    FloorTooHigh { highest: i64, limit: i64 },
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
    #[error(
        "A change needs all databases of its store, and {away} is away: nothing was changed; try \
         again when it is back."
    )]
    Incomplete { away: String },
    #[error("The database gives no numbers now and none is left in memory; try again.")]
    StoreUnavailable,
    #[error(
        "The database holds less than this replica has seen in it: it was restored or failed over. \
         Nothing is issued until an operator has looked; see the runbook, \"store went back\"."
    )]
    StoreWentBack,
    #[error("No number could be had in time; try again.")]
    RefillTimeout,
    #[error("Too many calls at once: {what} has reached its bound; try again.")]
    Overloaded { what: &'static str },
    #[error("This replica is shutting down; ask another one.")]
    Draining,
    #[error("Something went wrong that should not have; the log says what.")]
    Internal,
}

impl SequenceError {
    /// Returns whether numbers may have been used up for the caller, although it got none.
    ///
    /// A refusal by the speed limit, or at the end of the numbers, counts as certain. An earlier
    /// attempt of the same call may have been written all the same, if its reply was lost. But
    /// these two bound by themselves how many numbers can be lost so.
    pub fn may_have_used_numbers(&self) -> bool {
        match self {
            Self::NotFound { .. }
            | Self::NotCreated { .. }
            | Self::TooManySequences { .. }
            | Self::Exhausted { .. }
            | Self::PeriodNeeded
            | Self::PeriodMissing { .. }
            | Self::NoPeriods { .. }
            | Self::InvalidPeriod(_)
            | Self::PeriodOutOfBounds { .. }
            | Self::OfAnotherPeriod { .. }
            | Self::InvalidId(_)
            | Self::PeriodRemoved { .. }
            | Self::TooManyPeriods { .. }
            | Self::NotForKind
            | Self::TimeOrdered { .. }
            | Self::BatchTooLarge { .. }
            | Self::TimeEnded { .. }
            | Self::ClockBehind { .. }
            | Self::ClockAhead { .. }
            | Self::NoWorkerId { .. }
            | Self::NoSuchWorker { .. }
            | Self::WorkerHeld { .. }
            | Self::RateLimited { .. }
            | Self::AboveBurst { .. }
            | Self::Retired { .. }
            | Self::TooLarge { .. }
            | Self::Definition(_)
            | Self::AlreadyExists { .. }
            | Self::VersionMismatch { .. }
            | Self::FloorTooHigh { .. }
            | Self::ConfirmNeeded { .. }
            | Self::NotChanged
            | Self::Incomplete { .. }
            | Self::Overloaded { .. } => false,
            Self::Elsewhere
            | Self::LimitTimeout { .. }
            | Self::MayHaveChanged
            | Self::StoreUnavailable
            | Self::StoreWentBack
            | Self::RefillTimeout
            | Self::Draining
            | Self::Internal => true,
        }
    }

    /// Returns the same error for a caller who can have `n` numbers now, if the speed limit refused
    /// it. Any other error stays as it is.
    pub(crate) fn with_available(mut self, n: u64) -> Self {
        if let Self::RateLimited { n_available, .. } = &mut self {
            *n_available = n;
        }
        self
    }

    /// Returns what a caller of a sequence reads about a failure of the store.
    pub fn from_store(name: &SequenceName, error: StoreError) -> Self {
        Self::of_counter(&CounterKey::whole(name.clone()), error)
    }

    /// Returns what a caller of a counter reads about a failure of the store.
    pub(crate) fn of_counter(key: &CounterKey, error: StoreError) -> Self {
        let name = key.sequence.clone();
        match error {
            StoreError::Unavailable => Self::StoreUnavailable,
            StoreError::Deadline => Self::RefillTimeout,
            StoreError::NotFound => Self::NotFound { name },
            StoreError::Elsewhere(definition) => {
                tracing::error!(
                    target: TARGET,
                    sequence = name.as_str(),
                    store = definition.store,
                    "the sequence lives in a store that is not in the configuration"
                );
                Self::StoreUnavailable
            }
            StoreError::TooMany { limit } => Self::TooManySequences { limit },
            StoreError::Exhausted { left } => Self::Exhausted { name, left },
            StoreError::TooLarge { limit } => Self::TooLarge { limit },
            StoreError::RateLimited {
                n_available,
                wait_ms,
            } => Self::RateLimited {
                name,
                n_available,
                wait_ms,
            },
            StoreError::AboveBurst { burst } => Self::AboveBurst { burst },
            StoreError::Retired => Self::Retired { name },
            StoreError::Definition(error) => Self::Definition(error),
            StoreError::AlreadyExists => Self::AlreadyExists { name },
            StoreError::VersionMismatch { current } => Self::VersionMismatch { current },
            StoreError::FloorTooHigh { highest, limit } => Self::FloorTooHigh { highest, limit },
            StoreError::ConfirmNeeded { skipped, left } => Self::ConfirmNeeded {
                name,
                skipped,
                left,
            },
            StoreError::NotChanged => Self::NotChanged,
            StoreError::Incomplete { away } => Self::Incomplete { away },
            StoreError::MayHaveChanged => Self::MayHaveChanged,
            StoreError::WentBack => Self::StoreWentBack,
            // Only questions and changes lead here: a caller for numbers goes to the issuer that
            // the sequence needs.
            StoreError::Changed(definition) => {
                match (definition.period == PeriodKind::None, key.period.is_none()) {
                    (true, false) => Self::NoPeriods { name },
                    (false, true) => Self::PeriodMissing { name },
                    (true, true) | (false, false) => Self::TimeOrdered { name },
                }
            }
            StoreError::PeriodRemoved => Self::PeriodRemoved {
                name,
                period: key.period.clone(),
            },
            StoreError::TooManyPeriods { limit } => Self::TooManyPeriods { name, limit },
            StoreError::NotForKind => Self::NotForKind,
            StoreError::Behind | StoreError::Unguarded | StoreError::Broken(_) => Self::Internal,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn told(error: StoreError) -> String {
        SequenceError::from_store(&SequenceName::parse("orders").unwrap(), error).to_string()
    }

    #[test]
    fn a_failure_may_have_used_numbers_and_a_refusal_has_not() {
        let name = || SequenceName::parse("orders").unwrap();
        let limited = StoreError::RateLimited {
            n_available: 0,
            wait_ms: 1,
        };
        for (error, expected) in [
            (StoreError::Deadline, true),
            (StoreError::Unavailable, true),
            (StoreError::WentBack, true),
            (StoreError::Broken("a row is gone".to_owned()), true),
            (limited, false),
            (StoreError::Exhausted { left: 1 }, false),
            (StoreError::TooLarge { limit: 1 }, false),
            (StoreError::AboveBurst { burst: 1 }, false),
            (StoreError::NotFound, false),
            (StoreError::Retired, false),
        ] {
            let error = SequenceError::from_store(&name(), error);
            assert_eq!(error.may_have_used_numbers(), expected, "{error:?}");
        }
        let late = SequenceError::LimitTimeout {
            name: name(),
            n_available: 7,
        };
        assert!(late.may_have_used_numbers());
        let overloaded = SequenceError::Overloaded { what: "a limit" };
        assert!(!overloaded.may_have_used_numbers());
    }

    #[test]
    fn the_numbers_that_can_be_had_now_are_kept() {
        let name = SequenceName::parse("orders").unwrap();
        let limited = StoreError::RateLimited {
            n_available: 7,
            wait_ms: 1,
        };
        let error = SequenceError::from_store(&name, limited);
        let n_of = |error: SequenceError| {
            if let SequenceError::RateLimited { n_available, .. } = error {
                Some(n_available)
            } else {
                None
            }
        };
        assert_eq!(n_of(error.clone()), Some(7));
        assert_eq!(n_of(error.with_available(9)), Some(9));
        let late = SequenceError::LimitTimeout {
            name,
            n_available: 7,
        };
        assert_eq!(n_of(late.with_available(9)), None);
    }

    #[test]
    fn the_way_out_that_is_told_is_one() {
        let full = told(StoreError::TooManyPeriods { limit: 7 });
        assert!(
            full.contains("Raise that") && full.contains("remove keys"),
            "{full}"
        );
        let high = told(StoreError::FloorTooHigh {
            highest: 1_000_000,
            limit: 999_999,
        });
        assert!(
            high.contains(" 1000000: ") && high.contains(" 999999."),
            "{high}"
        );
    }
}
