//! Prepares and judges each statement about a lease: the clocks, the heartbeat, and what a failure
//! means.

use std::time::Instant;

use migration::{Installed, WORKER_LEASES};
use odometer_database::{
    connection::Health,
    failure::{Cause, StatementFailure},
    session::DatabaseConnection,
};

use super::{
    lease::{LeaseError, MAX_AHEAD_MS, WorkerPool},
    look::{Clock, LeaseRecoveryMark},
    unconfirmed::LeaseRowCheck,
};
use crate::database::Database;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::worker_lease::uncertainty::{LeaseAttemptError, SentAt, UncertainCall, certain};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::worker_lease::attempt";

impl Database {
    /// Decides whether another attempt may help after a failure.
    ///
    /// # Errors
    /// What to say to the caller, if no attempt can help.
    pub(crate) fn judge(
        &self,
        failure: &StatementFailure,
        call: &mut UncertainCall,
    ) -> Result<(), LeaseError> {
        // First note whether the statement may be in the database. This holds for every cause.
        call.note(failure);
        let error = match failure.cause() {
            Cause::Contention
            | Cause::Interrupted
            | Cause::Duplicate
            | Cause::Broken(_)
            | Cause::Internal(_) => return Ok(()),
            Cause::Silent | Cause::Busy => LeaseError::Deadline,
            Cause::NoConnection(_)
            | Cause::Away(_)
            | Cause::Refused(_)
            | Cause::ReadOnly(_)
            | Cause::DiskFull(_) => LeaseError::Unavailable,
            Cause::Denied(text) | Cause::Server(text) => {
                // The schema may have changed by now.
                self.unconfirmed_leases.forget_schema();
                tracing::error!(target: TARGET, error = %text, "the database refuses a statement about a worker id");
                LeaseError::Unavailable
            }
        };
        Err(call.caller_error(error))
    }

    /// Checks that the database answers and that its schema has leases. The schema is read until it
    /// was once found to have them.
    ///
    /// # Errors
    /// `Unavailable`, `OldSchema`, or the failure of the read.
    pub(crate) async fn know_leases(&self, until: Instant) -> Result<(), LeaseAttemptError> {
        if self.health() != Health::Up {
            return Err(LeaseError::Unavailable.into());
        }
        if self.unconfirmed_leases.knows_schema() {
            return Ok(());
        }
        let read = self
            .connection
            .run(until, |database: DatabaseConnection| async move {
                Installed::read(&database).await
            });
        let installed = read.await.map_err(certain)?;
        if installed.is_none_or(|installed| installed.schema_version < WORKER_LEASES) {
            return Err(LeaseError::OldSchema.into());
        }
        self.unconfirmed_leases.note_schema();
        Ok(())
    }

    pub(crate) fn guard(&self) -> Result<HeartbeatGuard, LeaseError> {
        self.heartbeat.guard().map_err(|error| {
            if matches!(error, StoreError::WentBack) {
                LeaseError::WentBack
            } else {
                LeaseError::Unavailable
            }
        })
    }

    /// Checks that the database has not gone back. Also notes its clock, and its recovery mark if
    /// that was read.
    ///
    /// # Errors
    /// `WentBack`.
    pub(crate) fn check_clock(
        &self,
        (clock, recovery_mark): (Clock, Option<LeaseRecoveryMark>),
        guard: &HeartbeatGuard,
        clocks: SentAt,
    ) -> Result<(), LeaseError> {
        self.note_clock(clocks.skew_ms(clock.now_ms));
        if guard.is_satisfied_by(clock.heartbeat) {
            let (sent, n_recoveries) = (clocks.sent, guard.n_recoveries());
            self.known
                .saw(clock.now_ms, sent, n_recoveries, recovery_mark);
            return Ok(());
        }
        self.heartbeat.contradicted(guard);
        self.connection.refresh.notify_one();
        Err(LeaseError::WentBack)
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

    /// Checks that the row of an id is not below what this process wrote of it. `version` is 0 if
    /// there is no row.
    ///
    /// # Errors
    /// A conflict if the row may have been written since it was read. `WentBack` if it is older.
    pub(crate) fn check_given(
        &self,
        (pool, worker): (&WorkerPool, u32),
        version: i64,
        guard: &HeartbeatGuard,
        clocks: SentAt,
    ) -> Result<(), LeaseAttemptError> {
        let id = (pool, worker);
        let given = &self.unconfirmed_leases;
        match given.judge(id, version, guard.n_recoveries(), clocks.sent) {
            LeaseRowCheck::Fits => Ok(()),
            LeaseRowCheck::ReadTooEarly => Err(LeaseAttemptError::Conflict),
            LeaseRowCheck::WentBack => {
                self.note_lease_went_back(guard.n_recoveries());
                Err(LeaseError::WentBack.into())
            }
        }
    }

    /// Notes that a lease is gone, as a look says that began after `n_recoveries` recoveries.
    pub(crate) fn note_lease_went_back(&self, n_recoveries: u64) {
        self.heartbeat.note_went_back_in(
            n_recoveries,
            "a worker id that this replica leased is gone or older than it was",
        );
        self.connection.refresh.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn clocks(ours_ms: i64) -> SentAt {
        SentAt {
            sent: Instant::now(),
            ours_ms,
        }
    }

    #[test]
    fn a_database_clock_that_jumped_ahead_reserves_five_minutes_more_at_most() {
        let until = |database_ms| clocks(1_000_000).until(database_ms, TTL);
        assert_eq!(until(0), 1_030_000);
        assert_eq!(until(1_000_000), 1_030_000);
        assert_eq!(until(1_000_000 + MAX_AHEAD_MS), 1_030_000 + MAX_AHEAD_MS);
        for far_ms in [MAX_AHEAD_MS + 1, 86_400_000, i64::MAX - 1_000_000] {
            assert_eq!(until(1_000_000 + far_ms), 1_030_000 + MAX_AHEAD_MS);
        }
    }

    #[test]
    fn a_clock_of_ours_that_is_far_ahead_reserves_nothing() {
        assert!(clocks(MAX_AHEAD_MS).check(0).is_ok());
        assert!(clocks(MAX_AHEAD_MS + 1).check(0).is_err());
    }

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
        for error in [away(), LeaseError::WentBack, LeaseError::Deadline] {
            assert!(matches!(
                call.caller_error(error),
                LeaseError::MayHaveHappened
            ));
        }
        let lost = call.answered(LeaseError::Lost);
        assert!(matches!(lost, LeaseError::Lost));
        let ahead = call.answered(LeaseError::ClockAhead { by_ms: 1 });
        assert!(matches!(ahead, LeaseError::MayHaveHappened));
    }
}
