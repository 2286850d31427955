//! Births: of a name never seen, and of what of a sequence is not there yet.

use std::{sync::atomic::Ordering, time::Instant};

use odometer_core::definition::Definition;

use crate::clock::now_ms;
use crate::sabotage::{self, Fault};
use crate::store::{
    catalogue::{self, Birth},
    change::beat::Witness,
    database::Database,
    error::{Cause, Failure, StoreError},
    reservation::{Reservation, Stop},
};

/// Births between two counts of all sequences.
const RECOUNT_EVERY: u64 = 1024;

impl Reservation<'_> {
    /// A live sequence is there and the counter is not.
    pub(super) async fn create_counter(
        &mut self,
        witness: &Witness,
        definition: &Definition,
    ) -> Result<(), Stop> {
        if self.request.key.period.is_none() {
            return Err(Stop::Told(self.without_counter()));
        }
        self.check_unborn()?;
        self.create_period(witness, definition).await
    }

    /// Which is never begun anew.
    pub(super) fn without_counter(&self) -> StoreError {
        let name = &self.request.key.sequence;
        let error = catalogue::without_counter(name);
        tracing::error!(sequence = name.as_str(), error = %error, "a counter is gone");
        error
    }

    /// What was seen and is gone may be born again after a recovery only, above all that was seen.
    fn check_unborn(&self) -> Result<(), Stop> {
        let may_be_born = self.request.last_seen.is_none()
            || self.database.beat.has_recovered()
            || sabotage::is(Fault::NoWentBackChecks);
        if may_be_born {
            Ok(())
        } else {
            Err(Stop::Told(self.went_back()))
        }
    }

    /// Makes a name never seen, as its template says.
    pub(super) async fn create(&mut self, witness: &Witness) -> Result<(), Stop> {
        if self.guide.agreed.is_some() {
            // The others have it, and it is copied from them.
            return Err(Stop::Told(StoreError::Behind));
        }
        self.check_unborn()?;
        let Some(template) = self.request.template.clone() else {
            return Err(Stop::Told(StoreError::NotFound));
        };
        template
            .check_time(now_ms())
            .map_err(|error| Stop::Told(StoreError::Definition(error)))?;
        self.database.admit_one_more(self.until).await?;
        let key = &self.request.key;
        let (name, borne_out) = (key.sequence.clone(), witness.clone());
        // What was seen of a period is asked of the period's birth.
        let last_seen = self.request.last_seen.filter(|_| key.period.is_none());
        let above = last_seen.map_or(0, |seen| seen.next_value);
        let stripe = self.database.stripe;
        let birth = self
            .database
            .connection
            .run(self.until, |database| {
                catalogue::bear(database, name, template, stripe, borne_out, above)
            })
            .await;
        match birth {
            Ok(Birth::Contradicted) => Err(Stop::Told(self.contradicted(witness))),
            Ok(Birth::TooLow) => Err(Stop::Told(self.went_back())),
            Ok(Birth::Born) => {
                self.database.metrics.sequences_created.increment(1);
                tracing::info!(
                    sequence = self.request.key.sequence.as_str(),
                    "a sequence was created"
                );
                Box::pin(self.read(witness)).await
            }
            // Another replica was faster: the next attempt reads its row like any other.
            Err(Failure::NotCommitted(Cause::Duplicate)) => Ok(()),
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }
}

impl Database {
    /// That one more sequence may be made.
    pub(in crate::store) async fn admit_one_more(&self, until: Instant) -> Result<(), Stop> {
        let limit = self.settings.max_sequences;
        let estimate = self.n_sequences.fetch_add(1, Ordering::Relaxed);
        // The estimate knows of this process's births only: it is renewed now and then, and near
        // the limit each time.
        let is_far = estimate.saturating_add(RECOUNT_EVERY) < limit;
        if is_far && !estimate.is_multiple_of(RECOUNT_EVERY) {
            return Ok(());
        }
        let counted = self.connection.run(until, catalogue::count).await;
        let exact = counted.map_err(Stop::Failed)?;
        self.n_sequences
            .store(exact.saturating_add(1), Ordering::Relaxed);
        if exact >= limit {
            return Err(Stop::Told(StoreError::TooMany { limit }));
        }
        Ok(())
    }
}
