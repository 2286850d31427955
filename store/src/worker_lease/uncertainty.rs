//! Remembers what an attempt at a lease may have left in the database.

use std::time::{Duration, Instant};

use odometer_database::failure::StatementFailure;
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};

use crate::worker_lease::lease::{LeaseError, MAX_AHEAD_MS, millis};

/// Why an attempt did not succeed.
pub(crate) enum LeaseAttemptError {
    /// Trying again gives the same answer.
    Final(LeaseError),
    /// Another writer came first.
    Conflict,
    Failed(StatementFailure),
}

impl From<LeaseError> for LeaseAttemptError {
    fn from(error: LeaseError) -> Self {
        Self::Final(error)
    }
}

impl From<StatementFailure> for LeaseAttemptError {
    fn from(failure: StatementFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Our clocks, before a statement is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    pub(crate) sent: Instant,
    pub(crate) ours_ms: i64,
}

impl SentAt {
    pub(crate) fn read() -> Self {
        Self {
            sent: Instant::now(),
            ours_ms: now_ms(),
        }
    }

    /// Checks that our clock is not too far ahead of the database's clock.
    ///
    /// # Errors
    /// `ClockAhead`.
    pub(crate) fn check(self, database_ms: i64) -> Result<(), LeaseError> {
        let by_ms = self.ours_ms.saturating_sub(database_ms);
        if by_ms > MAX_AHEAD_MS && !faults::is(Fault::AnyClock) {
            return Err(LeaseError::ClockAhead { by_ms });
        }
        Ok(())
    }

    /// Returns the moment until which time is reserved: `ttl` after the later of both clocks. The
    /// database's clock counts as at most [`MAX_AHEAD_MS`] ahead of ours. If a clock that jumped
    /// far ahead counted in full, ids would rest long after that clock is right again.
    pub(crate) fn until(self, database_ms: i64, ttl: Duration) -> i64 {
        let most_ms = self.ours_ms.saturating_add(MAX_AHEAD_MS);
        let now_ms = Ord::max(self.ours_ms, Ord::min(database_ms, most_ms));
        now_ms.saturating_add(millis(ttl))
    }

    /// Returns the database's clock minus ours, in milliseconds, when a reply has just come.
    pub(crate) fn skew_ms(self, database_ms: i64) -> i64 {
        let half = millis(self.sent.elapsed()) / 2;
        database_ms.saturating_sub(self.ours_ms.saturating_add(half))
    }
}

/// What one call knows after its attempts so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UncertainCall {
    /// Whether an attempt may have been done. If so, every later failure is reported as uncertain.
    may_have_happened: bool,
}

impl UncertainCall {
    /// Returns what the caller hears if the call ends and is not certain to have been done.
    pub(crate) fn caller_error(self, error: LeaseError) -> LeaseError {
        if self.may_have_happened {
            LeaseError::MayHaveHappened
        } else {
            error
        }
    }

    /// Returns what the caller hears if the database has answered. That a lease is lost is then
    /// certain.
    pub(crate) fn answered(self, error: LeaseError) -> LeaseError {
        if matches!(error, LeaseError::Lost) {
            error
        } else {
            self.caller_error(error)
        }
    }

    pub(crate) fn note(&mut self, failure: &StatementFailure) {
        self.may_have_happened |= matches!(failure, StatementFailure::MayHaveCommitted(_));
    }
}

/// Returns the failure as a certain one, for a statement that leases, renews and ends nothing.
pub(crate) fn certain(failure: StatementFailure) -> StatementFailure {
    match failure {
        StatementFailure::NotCommitted(cause) | StatementFailure::MayHaveCommitted(cause) => {
            StatementFailure::NotCommitted(cause)
        }
    }
}

pub(crate) fn signed(worker: u32) -> i32 {
    i32::try_from(worker).unwrap_or(i32::MAX)
}

pub(crate) fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
