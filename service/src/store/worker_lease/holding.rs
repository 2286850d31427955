//! Whoever holds a lease renews it and gives it back: the row is read, then written on condition
//! that it is still so.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use entity::worker_lease;

use super::{
    LeaseError, LeaseKey, WorkerLease,
    attempt::{Clocks, Stop, unsigned},
    look::{self, Clock},
    millis,
    statements::{self, End, Written},
};
use crate::store::{backoff::Backoff, change::beat::Witness, database::Database, error::Failure};

impl Database {
    /// Renews a lease, for as long as before where no time is given.
    pub(in crate::store) async fn renew_lease(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
    ) -> Result<WorkerLease, LeaseError> {
        let renewed = self
            .repeated(|until| self.try_to_renew(key, ttl, until))
            .await?;
        self.given.note(&renewed.key, &self.beat);
        Ok(renewed)
    }

    async fn try_to_renew(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
    ) -> Result<WorkerLease, Stop> {
        let clocks = Clocks::read();
        let (clock, row, witness) = self.look_at(key, clocks, until).await?;
        if row.ended {
            return Err(LeaseError::Lost.into());
        }
        clocks.check(clock.now_ms)?;
        let former = Duration::from_millis(u64::try_from(row.ttl_ms).unwrap_or(0));
        let ttl = ttl.unwrap_or(former);
        let written = Written {
            pool: row.pool.clone(),
            worker: key.worker,
            bits: unsigned(row.bits),
            holder: row.holder.clone(),
            token_hash: row.token_hash.clone(),
            from_ms: row.reserved_from,
            until_ms: clocks.until(clock.now_ms, ttl).max(row.reserved_until),
            expires_ms: clock.now_ms.saturating_add(millis(ttl)),
            ttl_ms: millis(ttl),
            version: row.version,
            ours_ms: clocks.ours_ms,
            witness,
        };
        let (statement, skew_ms) = (written.clone(), clocks.skew_ms(clock.now_ms));
        let renewing = self
            .connection
            .run(until, |database| statements::renew(database, statement));
        if !renewing.await? {
            return Err(Stop::Conflict);
        }
        let mut key = key.clone();
        key.version = written.version_after();
        Ok(WorkerLease {
            key,
            from_ms: written.from_ms,
            until_ms: written.until_ms,
            expires: clocks.sent + ttl,
            ttl,
            skew_ms,
        })
    }

    /// Ends a lease; the time from `unused_from_ms` on is free again.
    pub(in crate::store) async fn give_back_lease(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
    ) -> Result<(), LeaseError> {
        self.repeated(|until| self.try_to_end(key, unused_from_ms, until))
            .await
    }

    async fn try_to_end(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
        until: Instant,
    ) -> Result<(), Stop> {
        let (clock, row, witness) = self.look_at(key, Clocks::read(), until).await?;
        if row.ended {
            // An earlier attempt did it, and what it said of the time stands.
            return Ok(());
        }
        let (from_ms, until_ms) = (row.reserved_from, row.reserved_until);
        if unused_from_ms.is_some_and(|unused| unused < from_ms || unused > until_ms) {
            return Err(LeaseError::NotOfTheLease { from_ms, until_ms }.into());
        }
        let end = End {
            pool: row.pool,
            worker: key.worker,
            token_hash: row.token_hash,
            until_ms: unused_from_ms.unwrap_or(until_ms),
            expires_ms: clock.now_ms.min(row.expires_at),
            version: row.version,
            witness,
        };
        let ending = self
            .connection
            .run(until, |database| statements::end(database, end));
        if ending.await? {
            Ok(())
        } else {
            Err(Stop::Conflict)
        }
    }

    /// The row of a lease, where it is still the holder's.
    async fn look_at(
        &self,
        key: &LeaseKey,
        clocks: Clocks,
        until: Instant,
    ) -> Result<(Clock, worker_lease::Model, Witness), Stop> {
        self.know_leases(until).await?;
        let witness = self.witness()?;
        let (pool, worker) = (key.pool.key(), key.worker);
        // What another call writes meanwhile is no contradiction to this look.
        let known = self.given.version_of(key, &self.beat).max(key.version);
        let borne_out = witness.clone();
        let looking = self.connection.run(until, |database| async move {
            let clock = look::read_clock(&database, &borne_out).await?;
            let row = look::read_row(&database, &pool, worker).await?;
            Ok((clock, row))
        });
        let (clock, row) = looking.await?;
        self.check_clock(clock, &witness, clocks)?;
        let version = row.as_ref().map_or(0, |row| row.version);
        if version < known {
            self.note_lease_went_back();
            return Err(LeaseError::WentBack.into());
        }
        match row.filter(|row| row.token_hash == key.token.hash()) {
            Some(row) => Ok((clock, row, witness)),
            None => Err(LeaseError::Lost.into()),
        }
    }

    /// Repeats what does no harm when it is done twice.
    async fn repeated<T, F, Fut>(&self, attempt: F) -> Result<T, LeaseError>
    where
        F: Fn(Instant) -> Fut,
        Fut: Future<Output = Result<T, Stop>>,
    {
        let until = Instant::now() + self.settings.deadline;
        let mut backoff = Backoff::new(&self.settings);
        let mut n_attempts = 0;
        let mut told = LeaseError::Deadline;
        loop {
            n_attempts += 1;
            match attempt(until).await {
                Ok(done) => return Ok(done),
                Err(Stop::Conflict) => {}
                Err(Stop::Told(error)) => return Err(error),
                Err(Stop::Failed(failure)) => {
                    if matches!(failure, Failure::MayHaveCommitted(_)) {
                        told = LeaseError::MayHaveHappened;
                    }
                    self.judge(failure, told.clone())?;
                }
            }
            if n_attempts >= self.settings.attempts || Instant::now() >= until {
                return Err(told);
            }
            backoff.wait(until).await;
        }
    }
}
