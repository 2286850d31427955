//! Creates sequences and counters that a reservation finds missing.

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

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation::birth";

/// Sets how many sequences this process creates between two exact counts of all sequences.
const RECOUNT_EVERY: u64 = 1024;

impl Reservation<'_> {
    /// Creates the missing counter of a live sequence, if it is the counter of a period.
    pub(crate) async fn create_counter(
        &mut self,
        guard: &HeartbeatGuard,
        definition: &Definition,
    ) -> Result<(), AttemptError> {
        if self.request.key.period.is_none() {
            return Err(AttemptError::Final(self.without_counter()));
        }
        self.check_creatable()?;
        self.create_period(guard, definition).await
    }

    /// Logs that a sequence has lost its counter, and returns the error. Such a counter is never
    /// created again, because it would repeat numbers.
    pub(crate) fn without_counter(&self) -> StoreError {
        let name = &self.request.key.sequence;
        let error = error::without_counter(name);
        tracing::error!(target: TARGET, sequence = name.as_str(), error = %error, "a counter is gone");
        error
    }

    /// Refuses to create what this process has seen and what is now missing. After a recovery it
    /// may be created again, above everything that was seen.
    fn check_creatable(&self) -> Result<(), AttemptError> {
        let may_be_created = self.request.last_seen.is_none()
            || self.database.heartbeat.has_recovered()
            || faults::is(Fault::NoWentBackChecks);
        if may_be_created {
            Ok(())
        } else {
            Err(AttemptError::Final(self.went_back()))
        }
    }

    /// Creates a sequence from its template, because its name does not exist yet.
    pub(crate) async fn create(&mut self, guard: &HeartbeatGuard) -> Result<(), AttemptError> {
        if self.constraints.agreed.is_some() {
            // The other members have the sequence, so it is copied from them.
            return Err(AttemptError::Final(StoreError::Behind));
        }
        self.check_creatable()?;
        let Some(template) = self.request.template.clone() else {
            return Err(AttemptError::Final(StoreError::NotFound));
        };
        template
            .check_time(now_ms())
            .map_err(|error| AttemptError::Final(StoreError::Definition(error)))?;
        self.database.admit_one_more(self.until).await?;
        let key = &self.request.key;
        let (name, guard_copy) = (key.sequence.clone(), guard.clone());
        // If a period is asked for, `last_seen` is about the period's counter. The creation of that
        // counter checks it.
        let last_seen = self.request.last_seen.filter(|_| key.period.is_none());
        let above = last_seen.map_or(0, |seen| seen.next_value);
        let stripe = self.database.stripe;
        let creation = self
            .database
            .connection
            .run(self.until, |database| {
                creation::create(database, name, template, stripe, guard_copy, above)
            })
            .await;
        match creation {
            Ok(Creation::Contradicted) => Err(AttemptError::Final(self.note_guard_failed(guard))),
            Ok(Creation::TooLow) => Err(AttemptError::Final(self.went_back())),
            Ok(Creation::Created) => {
                self.database.metrics.sequences_created.increment(1);
                tracing::info!(
                    target: TARGET,
                    sequence = self.request.key.sequence.as_str(),
                    "a sequence was created"
                );
                Box::pin(self.read(guard)).await
            }
            // Another replica created the name first. The next attempt reads its row.
            Err(StatementFailure::NotCommitted(Cause::Duplicate)) => Ok(()),
            Err(failure) => Err(AttemptError::Failed(failure)),
        }
    }
}

impl Database {
    /// Checks that one more sequence may be created.
    ///
    /// # Errors
    /// `TooMany` if the limit is reached, or the failure of the count.
    pub(crate) async fn admit_one_more(&self, until: Instant) -> Result<(), AttemptError> {
        let limit = self.settings.max_sequences;
        let estimate = self.n_sequences.fetch_add(1, Ordering::Relaxed);
        // The estimate knows only the sequences that this process created. So an exact count
        // replaces it from time to time, and near the limit each time.
        let is_far = estimate.saturating_add(RECOUNT_EVERY) < limit;
        if is_far && !estimate.is_multiple_of(RECOUNT_EVERY) {
            return Ok(());
        }
        let counted = self.connection.run(until, catalog::count).await;
        let exact = counted.map_err(AttemptError::Failed)?;
        self.n_sequences
            .store(exact.saturating_add(1), Ordering::Relaxed);
        if exact >= limit {
            return Err(AttemptError::Final(StoreError::TooMany { limit }));
        }
        Ok(())
    }
}
