//! What a try at a lease may have left behind.

use std::time::{Duration, Instant};

use odometer_database::failure::StatementFailure;
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};

use crate::worker_lease::lease::{LeaseError, MAX_AHEAD_MS, millis};

/// Why an attempt came to nothing.
pub(crate) enum LeaseAttemptError {
    /// It is not to be tried again.
    Told(LeaseError),
    /// Somebody else was faster.
    Conflict,
    Failed(StatementFailure),
}

impl From<LeaseError> for LeaseAttemptError {
    fn from(error: LeaseError) -> Self {
        Self::Told(error)
    }
}

impl From<StatementFailure> for LeaseAttemptError {
    fn from(failure: StatementFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Our clocks before anything is sent.
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

    /// # Errors
    /// `ClockAhead`.
    pub(crate) fn check(self, database_ms: i64) -> Result<(), LeaseError> {
        let by_ms = self.ours_ms.saturating_sub(database_ms);
        if by_ms > MAX_AHEAD_MS && !faults::is(Fault::AnyClock) {
            return Err(LeaseError::ClockAhead { by_ms });
        }
        Ok(())
    }

    /// So far ahead time is reserved: by the later clock, but by the database's at most as far ahead
    /// of ours as ours may be of it. One that jumped far ahead would else keep its ids from being
    /// used long after it is right again.
    pub(crate) fn until(self, database_ms: i64, ttl: Duration) -> i64 {
        let most_ms = self.ours_ms.saturating_add(MAX_AHEAD_MS);
        let now_ms = Ord::max(self.ours_ms, Ord::min(database_ms, most_ms));
        now_ms.saturating_add(millis(ttl))
    }

    /// The database's clock minus ours, as of a reply that has just come.
    pub(crate) fn skew_ms(self, database_ms: i64) -> i64 {
        let half = millis(self.sent.elapsed()) / 2;
        database_ms.saturating_sub(self.ours_ms.saturating_add(half))
    }
}

/// What one call knows after its attempts so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UncertainCall {
    /// Whether one of them may have been done: then nothing else is told of any later failure.
    may_have_happened: bool,
}

impl UncertainCall {
    /// What is told of a call that ends without having been done for certain.
    pub(crate) fn caller_error(self, error: LeaseError) -> LeaseError {
        if self.may_have_happened {
            LeaseError::MayHaveHappened
        } else {
            error
        }
    }

    /// The same where the database has answered: that a lease is lost it says for certain.
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

/// The failure of a statement that leases, renews or ends nothing, whether it was done or not.
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
