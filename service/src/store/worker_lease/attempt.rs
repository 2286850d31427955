//! What every attempt to lease, renew or give back stands on: both clocks, a database that answers,
//! has leases and has not gone back, and what a failure means.

use std::time::{Duration, Instant};

use migration::{Installed, WORKER_LEASES};

use super::{LeaseError, MOST_AHEAD_MS, look::Clock, millis};
use crate::clock::now_ms;
use crate::store::{
    change::beat::Witness,
    connection::{Health, session::DatabaseConnection},
    database::Database,
    error::{Cause, Failure, StoreError},
};

/// Why an attempt came to nothing.
pub(super) enum Stop {
    /// It is not to be tried again.
    Told(LeaseError),
    /// Somebody else was faster.
    Conflict,
    Failed(Failure),
}

impl From<LeaseError> for Stop {
    fn from(error: LeaseError) -> Self {
        Self::Told(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Both clocks at one moment, and what is asked for by them.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    /// Before the first statement was sent.
    pub(super) sent: Instant,
    pub(super) ours_ms: i64,
}

impl Clocks {
    pub(super) fn read() -> Self {
        Self {
            sent: Instant::now(),
            ours_ms: now_ms(),
        }
    }

    /// # Errors
    /// `ClockAhead`.
    pub(super) fn check(self, database_ms: i64) -> Result<(), LeaseError> {
        let by_ms = self.ours_ms.saturating_sub(database_ms);
        if by_ms > MOST_AHEAD_MS {
            return Err(LeaseError::ClockAhead { by_ms });
        }
        Ok(())
    }

    /// So far ahead time is reserved.
    pub(super) fn until(self, database_ms: i64, ttl: Duration) -> i64 {
        self.ours_ms.max(database_ms).saturating_add(millis(ttl))
    }

    /// The database's clock minus ours, as of a reply that has just come.
    pub(super) fn skew_ms(self, database_ms: i64) -> i64 {
        let half = millis(self.sent.elapsed()) / 2;
        database_ms.saturating_sub(self.ours_ms.saturating_add(half))
    }
}

impl Database {
    /// Whether a failure may pass; what is told of one after which nothing more is tried.
    pub(super) fn judge(&self, failure: Failure, uncertain: LeaseError) -> Result<(), LeaseError> {
        match failure.cause() {
            Cause::Contention | Cause::Interrupted | Cause::Duplicate | Cause::Broken(_) => Ok(()),
            Cause::Silent | Cause::Busy => Err(uncertain),
            Cause::NoConnection(_) | Cause::Refused(_) | Cause::ReadOnly(_) | Cause::DiskFull => {
                Err(LeaseError::Unavailable)
            }
            Cause::WentBack => Err(LeaseError::WentBack),
            Cause::Denied(text) | Cause::Server(text) => {
                // The schema may be another one by now.
                self.given.forget_schema();
                tracing::error!(error = %text, "the database refuses a statement about a worker id");
                Err(LeaseError::Unavailable)
            }
        }
    }

    /// That the database answers and its schema has leases, which is asked until it has.
    pub(super) async fn know_leases(&self, until: Instant) -> Result<(), Stop> {
        if self.health() != Health::Up {
            return Err(LeaseError::Unavailable.into());
        }
        if self.given.knows_schema() {
            return Ok(());
        }
        let read = self
            .connection
            .run(until, |database: DatabaseConnection| async move {
                Installed::read(&database).await
            });
        let installed = read.await?;
        if installed.is_none_or(|installed| installed.schema_version < WORKER_LEASES) {
            return Err(LeaseError::OldSchema.into());
        }
        self.given.note_schema();
        Ok(())
    }

    pub(super) fn witness(&self) -> Result<Witness, LeaseError> {
        self.beat.witness().map_err(|error| {
            if matches!(error, StoreError::WentBack) {
                LeaseError::WentBack
            } else {
                LeaseError::Unavailable
            }
        })
    }

    /// That the database has not gone back; its clock is taken notice of.
    pub(super) fn check_clock(
        &self,
        clock: Clock,
        witness: &Witness,
        clocks: Clocks,
    ) -> Result<(), LeaseError> {
        self.counted.note_skew(clocks.skew_ms(clock.now_ms));
        if witness.is_borne_out_by(clock.beat) {
            return Ok(());
        }
        self.beat.contradicted(witness);
        self.connection.refresh.notify_one();
        Err(LeaseError::WentBack)
    }

    pub(super) fn note_lease_went_back(&self) {
        self.beat
            .note_went_back("a worker id that this replica leased is gone or older than it was");
        self.connection.refresh.notify_one();
    }
}

pub(super) fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
