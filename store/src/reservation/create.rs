//! Births: of a name never seen, and of what of a sequence is not there yet.

use std::{sync::atomic::Ordering, time::Instant};

use odometer_core::definition::Definition;
use odometer_database::failure::{Cause, StatementFailure};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};

use crate::creation;
use crate::creation::Creation;
use crate::database::Database;
use crate::error;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::reservation::{attempt_error::AttemptError, attempts::Reservation};
use crate::rows::catalog;

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::reservation::birth";

/// Births between two counts of all sequences.
const RECOUNT_EVERY: u64 = 1024;

impl Reservation<'_> {
    /// A live sequence is there and the counter is not.
    pub(crate) async fn create_counter(
        &mut self,
        guard: &HeartbeatGuard,
        definition: &Definition,
    ) -> Result<(), AttemptError> {
        if self.request.key.period.is_none() {
            return Err(AttemptError::Told(self.without_counter()));
        }
        self.check_unborn()?;
        self.create_period(guard, definition).await
    }

    /// Which is never begun anew.
    pub(crate) fn without_counter(&self) -> StoreError {
        let name = &self.request.key.sequence;
        let error = error::without_counter(name);
        tracing::error!(target: TARGET, sequence = name.as_str(), error = %error, "a counter is gone");
        error
    }

    /// What was seen and is gone may be born again after a recovery only, above all that was seen.
    fn check_unborn(&self) -> Result<(), AttemptError> {
        let may_be_born = self.request.last_seen.is_none()
            || self.database.heartbeat.has_recovered()
            || faults::is(Fault::NoWentBackChecks);
        if may_be_born {
            Ok(())
        } else {
            Err(AttemptError::Told(self.went_back()))
        }
    }

    /// Makes a name never seen, as its template says.
    pub(crate) async fn create(&mut self, guard: &HeartbeatGuard) -> Result<(), AttemptError> {
        if self.constraints.agreed.is_some() {
            // The others have it, and it is copied from them.
            return Err(AttemptError::Told(StoreError::Behind));
        }
        self.check_unborn()?;
        let Some(template) = self.request.template.clone() else {
            return Err(AttemptError::Told(StoreError::NotFound));
        };
        template
            .check_time(now_ms())
            .map_err(|error| AttemptError::Told(StoreError::Definition(error)))?;
        self.database.admit_one_more(self.until).await?;
        let key = &self.request.key;
        let (name, borne_out) = (key.sequence.clone(), guard.clone());
        // What was seen of a period is asked of the period's birth.
        let last_seen = self.request.last_seen.filter(|_| key.period.is_none());
        let above = last_seen.map_or(0, |seen| seen.next_value);
        let stripe = self.database.stripe;
        let birth = self
            .database
            .connection
            .run(self.until, |database| {
                creation::create(database, name, template, stripe, borne_out, above)
            })
            .await;
        match birth {
            Ok(Creation::Contradicted) => Err(AttemptError::Told(self.contradicted(guard))),
            Ok(Creation::TooLow) => Err(AttemptError::Told(self.went_back())),
            Ok(Creation::Born) => {
                self.database.metrics.sequences_created.increment(1);
                tracing::info!(
                    target: TARGET,
                    sequence = self.request.key.sequence.as_str(),
                    "a sequence was created"
                );
                Box::pin(self.read(guard)).await
            }
            // Another replica was faster: the next attempt reads its row like any other.
            Err(StatementFailure::NotCommitted(Cause::Duplicate)) => Ok(()),
            Err(failure) => Err(AttemptError::Failed(failure)),
        }
    }
}

impl Database {
    /// That one more sequence may be made.
    pub(crate) async fn admit_one_more(&self, until: Instant) -> Result<(), AttemptError> {
        let limit = self.settings.max_sequences;
        let estimate = self.n_sequences.fetch_add(1, Ordering::Relaxed);
        // The estimate knows of this process's births only: it is renewed now and then, and near
        // the limit each time.
        let is_far = estimate.saturating_add(RECOUNT_EVERY) < limit;
        if is_far && !estimate.is_multiple_of(RECOUNT_EVERY) {
            return Ok(());
        }
        let counted = self.connection.run(until, catalog::count).await;
        let exact = counted.map_err(AttemptError::Failed)?;
        self.n_sequences
            .store(exact.saturating_add(1), Ordering::Relaxed);
        if exact >= limit {
            return Err(AttemptError::Told(StoreError::TooMany { limit }));
        }
        Ok(())
    }
}
