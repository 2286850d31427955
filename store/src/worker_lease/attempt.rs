//! Repeats the attempts of one call, and checks what an attempt reads: the clocks, the guard, and
//! the row.

use std::{future::Future, time::Instant};

use entity::worker_lease;
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::{AttemptError, Retry},
};

use super::{
    baseline::{DatabaseTime, LeaseBaseline, SentAt},
    lease::{LeaseError, MAX_AHEAD_MS, WorkerPool},
    look::LeaseRead,
    unconfirmed::LeaseRowCheck,
};
use crate::database::Database;
use crate::error::StoreError;
use crate::guard::HeartbeatGuard;

/// The target of this file's log events.
const TARGET: &str = "odometer::store::worker_lease::attempt";

/// The outcome of one attempt.
pub(crate) type LeaseAttempted<T> = Result<T, AttemptError<LeaseError>>;

impl From<LeaseError> for AttemptError<LeaseError> {
    fn from(error: LeaseError) -> Self {
        Self::Final(error)
    }
}

/// What one call knows after its attempts so far.
#[derive(Clone, Copy, Debug, Default)]
struct UncertainCall {
    /// Whether an attempt may have been done. If so, every later failure is reported as uncertain.
    may_have_happened: bool,
}

impl UncertainCall {
    fn note(&mut self, failure: &StatementFailure) {
        self.may_have_happened |= matches!(failure, StatementFailure::MayHaveCommitted(_));
    }

    /// Returns what the caller hears if the call ends with this error. Only that a lease is lost is
    /// certain in any case, because the database has said it.
    fn caller_error(self, error: LeaseError) -> LeaseError {
        if self.may_have_happened && !matches!(error, LeaseError::Lost) {
            LeaseError::MayHaveHappened
        } else {
            error
        }
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

impl Database {
    /// Repeats an attempt that does no harm if it is done twice. It gets the number of attempts
    /// that met another writer.
    ///
    /// # Errors
    /// What to say to the caller: the attempts or the time are used up, or no attempt can help.
    pub(crate) async fn repeated<T, Fut>(
        &self,
        until: Instant,
        attempt: impl Fn(u32) -> Fut,
    ) -> Result<T, LeaseError>
    where
        Fut: Future<Output = LeaseAttempted<T>>,
    {
        let mut retry =
            Retry::until(until, &self.settings.statement).at_most(self.settings.attempts);
        let mut call = UncertainCall::default();
        let mut n_conflicts = 0;
        loop {
            let outcome = match self.is_up() {
                true => {
                    self.settled(until).await;
                    attempt(n_conflicts).await
                }
                false => Err(LeaseError::Unavailable.into()),
            };
            n_conflicts += u32::from(matches!(outcome, Err(AttemptError::Conflict)));
            let judge = |failure: &StatementFailure| {
                // Whether the statement may be in the database counts for every cause.
                call.note(failure);
                self.judge(failure)
            };
            let done = retry.after(outcome, judge, LeaseError::Deadline).await;
            if let Some(done) = done.map_err(|error| call.caller_error(error))? {
                return Ok(done);
            }
        }
    }

    /// Decides whether another attempt may help after a failure.
    ///
    /// # Errors
    /// The error of the call, if no attempt can help.
    fn judge(&self, failure: &StatementFailure) -> Result<(), LeaseError> {
        let cause = failure.cause();
        if cause.may_pass() {
            return Ok(());
        }
        if matches!(cause, Cause::Silent | Cause::Busy) {
            return Err(LeaseError::Deadline);
        }
        if let Cause::Denied(text) | Cause::Server(text) = cause {
            tracing::error!(target: TARGET, error = %text, "the database refuses a statement about a worker id");
        }
        Err(LeaseError::Unavailable)
    }

    /// Returns a guard.
    ///
    /// # Errors
    /// `WentBack`, or another attempt, which waits for the look that tells why a guard did not hold.
    pub(crate) fn guard(&self) -> LeaseAttempted<HeartbeatGuard> {
        let was_doubted = self.heartbeat.is_doubted();
        self.heartbeat.guard().map_err(|error| {
            if matches!(error, StoreError::WentBack) {
                LeaseError::WentBack.into()
            } else if was_doubted || self.heartbeat.is_doubted() {
                AttemptError::Again
            } else {
                LeaseError::Unavailable.into()
            }
        })
    }

    /// Checks what a look has read of the database, remembers it, and returns what the following
    /// statement goes by.
    ///
    /// # Errors
    /// `WentBack`.
    pub(crate) fn check_read(
        &self,
        read: &LeaseRead,
        guard: HeartbeatGuard,
        sent: SentAt,
    ) -> LeaseAttempted<LeaseBaseline> {
        let clock = DatabaseTime::of_a_look(read.now_ms, sent);
        self.note_clock(clock.skew_ms);
        self.check(&guard, read.guard)
            .map_err(|error| match error {
                AttemptError::Final(_) => AttemptError::Final(LeaseError::WentBack),
                AttemptError::Conflict | AttemptError::Again | AttemptError::Failed(_) => {
                    AttemptError::Again
                }
            })?;
        self.known
            .saw(read.now_ms, read.recovery_mark, sent, guard.n_recoveries);
        Ok(LeaseBaseline {
            stripe: self.identity.stripe,
            sent,
            clock,
            recovery_mark: read.recovery_mark,
            guard,
        })
    }

    /// Returns what a statement goes by that is sent now, without a look. `None` if too little is
    /// remembered.
    pub(crate) fn remembered_baseline(&self, guard: HeartbeatGuard) -> Option<LeaseBaseline> {
        let sent = SentAt::read();
        let (clock, recovery_mark) = self.known.clock(sent, guard.n_recoveries)?;
        Some(LeaseBaseline {
            stripe: self.identity.stripe,
            sent,
            clock,
            recovery_mark,
            guard,
        })
    }

    fn note_clock(&self, skew_ms: i64) {
        self.counted.note_skew(skew_ms);
        if self.unconfirmed_leases.note_ahead(skew_ms > MAX_AHEAD_MS) {
            tracing::warn!(
                target: TARGET,
                database = %self.identity,
                ahead_s = skew_ms / 1000,
                "the database's clock is more than 5 minutes ahead of this replica's: time is \
                 reserved with worker ids as if it were 5 minutes; see the runbook, \
                 \"Clocks apart\""
            );
        }
    }

    /// Checks that the row of an id is not below what this process wrote of it. There may be no
    /// row.
    ///
    /// # Errors
    /// A conflict if the row may have been written since it was read. `WentBack` if it is older.
    pub(crate) fn check_row(
        &self,
        id: (&WorkerPool, u32),
        row: Option<&worker_lease::Model>,
        baseline: &LeaseBaseline,
    ) -> LeaseAttempted<()> {
        let version = row.map_or(0, |row| row.version);
        let (n_recoveries, sent) = (baseline.guard.n_recoveries, baseline.sent.sent);
        match self
            .unconfirmed_leases
            .judge(id, version, n_recoveries, sent)
        {
            LeaseRowCheck::Fits => Ok(()),
            LeaseRowCheck::ReadTooEarly => Err(AttemptError::Conflict),
            LeaseRowCheck::WentBack => {
                self.note_lease_went_back(n_recoveries);
                Err(LeaseError::WentBack.into())
            }
        }
    }

    /// Notes that a lease is gone, as a look says that began after `n_recoveries` recoveries.
    pub(crate) fn note_lease_went_back(&self, n_recoveries: u64) {
        self.heartbeat.note_went_back(
            n_recoveries,
            "a worker id that this replica leased is gone or older than it was",
        );
        self.connection.refresh.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_attempt_that_may_have_been_done_no_failure_is_certain() {
        let mut call = UncertainCall::default();
        let away = || LeaseError::Unavailable;
        call.note(&StatementFailure::NotCommitted(Cause::Silent));
        assert!(matches!(call.caller_error(away()), LeaseError::Unavailable));
        call.note(&StatementFailure::MayHaveCommitted(Cause::DiskFull(
            String::new(),
        )));
        call.note(&StatementFailure::NotCommitted(Cause::Contention));
        let ahead = LeaseError::ClockAhead { by_ms: 1 };
        for error in [away(), LeaseError::WentBack, LeaseError::Deadline, ahead] {
            assert!(matches!(
                call.caller_error(error),
                LeaseError::MayHaveHappened
            ));
        }
        let lost = call.caller_error(LeaseError::Lost);
        assert!(matches!(lost, LeaseError::Lost));
    }
}
