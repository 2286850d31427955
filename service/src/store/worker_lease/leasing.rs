//! One database gives, renews and takes back leases: it is looked at, then written on condition that
//! it is still so, and looked at again where it is not.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use entity::worker_lease;
use migration::{Installed, WORKER_LEASES};

use super::{
    LeaseError, LeaseKey, LeaseWanted, MOST_AHEAD_MS, MOST_POOLS, Pool, Share, WorkerLease,
    look::{self, Clock, Found, Head, Look, Question},
    millis,
    statements::{self, End, Written},
    token::Token,
    workers,
};
use crate::clock::now_ms;
use crate::store::{
    backoff::Backoff,
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
struct Clocks {
    /// Before the first statement was sent.
    sent: Instant,
    ours_ms: i64,
}

impl Clocks {
    fn read() -> Self {
        Self {
            sent: Instant::now(),
            ours_ms: now_ms(),
        }
    }

    /// # Errors
    /// `ClockAhead`.
    fn check(self, database_ms: i64) -> Result<(), LeaseError> {
        let by_ms = self.ours_ms.saturating_sub(database_ms);
        if by_ms > MOST_AHEAD_MS {
            return Err(LeaseError::ClockAhead { by_ms });
        }
        Ok(())
    }

    /// So far ahead time is reserved.
    fn until(self, database_ms: i64, ttl: Duration) -> i64 {
        self.ours_ms.max(database_ms).saturating_add(millis(ttl))
    }

    /// The database's clock minus ours, as of a reply that has just come.
    fn skew_ms(self, database_ms: i64) -> i64 {
        let half = millis(self.sent.elapsed()) / 2;
        database_ms.saturating_sub(self.ours_ms.saturating_add(half))
    }
}

/// What an earlier attempt of a lease may have got.
#[derive(Clone, Copy)]
struct Tried {
    worker: u32,
    clocks: Clocks,
}

/// A lease on its way.
struct Asking<'a> {
    wanted: &'a LeaseWanted,
    /// The store's place in the configuration.
    store: usize,
    token: Token,
    tried: Option<Tried>,
    n_conflicts: u32,
    until: Instant,
}

impl Database {
    /// Leases one of this database's ids, within `until`.
    pub(in crate::store) async fn lease(
        &self,
        wanted: &LeaseWanted,
        store: usize,
        until: Instant,
    ) -> Result<WorkerLease, LeaseError> {
        let mut asking = Asking {
            wanted,
            store,
            token: Token::draw(),
            tried: None,
            n_conflicts: 0,
            until,
        };
        let mut backoff = Backoff::new(&self.settings);
        let mut n_attempts = 0;
        loop {
            n_attempts += 1;
            match self.attempt(&mut asking).await {
                Ok(lease) => {
                    self.given.note(&lease.key, &self.beat);
                    return Ok(lease);
                }
                Err(Stop::Conflict) => asking.n_conflicts += 1,
                Err(Stop::Told(error)) => return Err(error),
                Err(Stop::Failed(failure)) => self.judge(failure, LeaseError::Deadline)?,
            }
            if n_attempts >= self.settings.attempts || Instant::now() >= until {
                return Err(LeaseError::Deadline);
            }
            backoff.wait(until).await;
        }
    }

    async fn attempt(&self, asking: &mut Asking<'_>) -> Result<WorkerLease, Stop> {
        self.know_leases(asking.until).await?;
        let clocks = Clocks::read();
        let witness = self.witness()?;
        let wanted = asking.wanted;
        let question = Question {
            pool: wanted.pool.key(),
            holder: wanted.holder.to_string(),
            token_hash: asking.token.hash(),
            share: Share::of(self.place.stripe),
            workers: workers(wanted.bits),
            choice: wanted.choice,
            usable_by_ms: wanted.usable_by_ms,
            is_named: matches!(wanted.pool, Pool::Named(_)),
            tried: asking.tried.map(|tried| tried.worker),
            n_conflicts: asking.n_conflicts,
            witness: witness.clone(),
        };
        let looking = self
            .connection
            .run(asking.until, |database| look::look(database, question));
        let Look { head, found } = looking.await?;
        self.check_clock(head.clock, &witness, clocks)?;
        clocks.check(head.clock.now_ms)?;
        if let Some(bits) = head.bits.filter(|bits| *bits != wanted.bits) {
            return Err(LeaseError::OtherWidth { bits }.into());
        }
        let row = match found {
            Found::Ours(row) => return Ok(self.found_again(asking, clocks, &head, &row)),
            Found::Free(row) => Some(row),
            Found::New(worker) => {
                if head.bits.is_none() && head.n_pools >= MOST_POOLS {
                    return Err(LeaseError::TooManyPools { limit: MOST_POOLS }.into());
                }
                self.check_given(wanted, worker, None)?;
                return self
                    .write(asking, clocks, &head, worker, None, witness)
                    .await;
            }
            Found::Held(worker) => return Err(LeaseError::Held { worker }.into()),
            Found::Late(from_ms) => return Err(LeaseError::NoneUsable { from_ms }.into()),
            Found::None => {
                let workers = workers(wanted.bits);
                return Err(LeaseError::NoneFree { workers }.into());
            }
        };
        let worker = row.as_ref().map_or(0, |row| unsigned(row.worker));
        self.check_given(wanted, worker, row.as_ref())?;
        self.write(asking, clocks, &head, worker, row.as_ref(), witness)
            .await
    }

    /// Takes the id that was chosen, as it was seen.
    async fn write(
        &self,
        asking: &mut Asking<'_>,
        clocks: Clocks,
        head: &Head,
        worker: u32,
        row: Option<&worker_lease::Model>,
        witness: Witness,
    ) -> Result<WorkerLease, Stop> {
        let (wanted, ttl) = (asking.wanted, asking.wanted.ttl);
        let from_ms = look::from_ms(row, head);
        let written = Written {
            pool: wanted.pool.key(),
            worker,
            bits: wanted.bits,
            holder: wanted.holder.to_string(),
            token_hash: asking.token.hash(),
            from_ms,
            // Never below what is reserved already.
            until_ms: clocks.until(head.clock.now_ms, ttl).max(from_ms),
            expires_ms: head.clock.now_ms.saturating_add(millis(ttl)),
            ttl_ms: millis(ttl),
            version: row.map_or(head.version, |row| row.version),
            ours_ms: clocks.ours_ms,
            witness,
        };
        let (skew_ms, is_new) = (clocks.skew_ms(head.clock.now_ms), row.is_none());
        asking.tried = Some(Tried { worker, clocks });
        let statement = written.clone();
        let written_now = self.connection.run(asking.until, |database| async move {
            if is_new {
                statements::bear(database, statement).await
            } else {
                statements::take(database, statement).await
            }
        });
        match written_now.await {
            Ok(true) => {}
            Ok(false) | Err(Failure::NotCommitted(Cause::Duplicate)) => return Err(Stop::Conflict),
            Err(failure) => return Err(failure.into()),
        }
        Ok(WorkerLease {
            key: LeaseKey {
                pool: wanted.pool.clone(),
                worker,
                token: asking.token.clone(),
                version: written.version_after(),
                store: asking.store,
            },
            from_ms: written.from_ms,
            until_ms: written.until_ms,
            expires: clocks.sent + ttl,
            ttl,
            skew_ms,
        })
    }

    /// An earlier attempt, whose answer was lost, had done it.
    fn found_again(
        &self,
        asking: &Asking<'_>,
        clocks: Clocks,
        head: &Head,
        row: &worker_lease::Model,
    ) -> WorkerLease {
        let sent = asking.tried.map_or(clocks.sent, |tried| tried.clocks.sent);
        WorkerLease {
            key: LeaseKey {
                pool: asking.wanted.pool.clone(),
                worker: unsigned(row.worker),
                token: asking.token.clone(),
                version: row.version,
                store: asking.store,
            },
            from_ms: row.reserved_from,
            until_ms: row.reserved_until,
            expires: sent + asking.wanted.ttl,
            ttl: asking.wanted.ttl,
            skew_ms: clocks.skew_ms(head.clock.now_ms),
        }
    }

    /// Whether this holder had an id here that is free now; false also where that is not known.
    pub(in crate::store) async fn has_former(&self, wanted: &LeaseWanted, until: Instant) -> bool {
        if self.know_leases(until).await.is_err() {
            return false;
        }
        let (pool, holder) = (wanted.pool.key(), wanted.holder.to_string());
        let reading = self
            .connection
            .run(until, |database| look::has_former(database, pool, holder));
        reading.await.unwrap_or(false)
    }

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
        let borne_out = witness.clone();
        let looking = self.connection.run(until, |database| async move {
            let clock = look::read_clock(&database, &borne_out).await?;
            let row = look::read_row(&database, &pool, worker).await?;
            Ok((clock, row))
        });
        let (clock, row) = looking.await?;
        self.check_clock(clock, &witness, clocks)?;
        let known = self.given.version_of(key, &self.beat).max(key.version);
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

    /// Whether a failure may pass; what is told of one after which nothing more is tried.
    fn judge(&self, failure: Failure, uncertain: LeaseError) -> Result<(), LeaseError> {
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
    async fn know_leases(&self, until: Instant) -> Result<(), Stop> {
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

    fn witness(&self) -> Result<Witness, LeaseError> {
        self.beat.witness().map_err(|error| {
            if matches!(error, StoreError::WentBack) {
                LeaseError::WentBack
            } else {
                LeaseError::Unavailable
            }
        })
    }

    /// That the database has not gone back; its clock is taken notice of.
    fn check_clock(
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

    /// That an id is not below what this process wrote of it.
    fn check_given(
        &self,
        wanted: &LeaseWanted,
        worker: u32,
        row: Option<&worker_lease::Model>,
    ) -> Result<(), LeaseError> {
        let known = self.given.version(&wanted.pool, worker, &self.beat);
        if row.map_or(0, |row| row.version) >= known {
            return Ok(());
        }
        self.note_lease_went_back();
        Err(LeaseError::WentBack)
    }

    pub(super) fn note_lease_went_back(&self) {
        self.beat
            .note_went_back("a worker id that this replica leased is gone or older than it was");
        self.connection.refresh.notify_one();
    }
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
