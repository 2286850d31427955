//! One database leases a worker id: it is looked at, then written on condition that it is still so,
//! and looked at again where it is not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::worker_lease;
use migration::WORKER_LEASES;

use super::{
    LeaseError, LeaseKey, LeaseWanted, MOST_POOLS, Pool, Share, WorkerLease,
    attempt::{Clocks, Doubt, Stop, certain, unsigned},
    choice,
    look::{self, Found, Head, Look, Question},
    millis,
    statements::{self, Ground, Written},
    token::Token,
    workers,
};
use crate::store::{
    backoff::Backoff,
    change::beat::Witness,
    database::Database,
    error::{Cause, Failure},
};

/// An id that an attempt may have got, and where its time would begin.
#[derive(Clone, Copy)]
struct Uncertain {
    worker: u32,
    from_ms: i64,
    era: u64,
}

/// A lease on its way.
struct Asking<'a> {
    wanted: &'a LeaseWanted,
    /// The store's place in the configuration.
    store: usize,
    /// The same in all attempts, so that each knows what another one got.
    token: Token,
    uncertain: Vec<Uncertain>,
    n_conflicts: u32,
    until: Instant,
}

impl Asking<'_> {
    fn question(&self, share: Share, clocks: Clocks, witness: &Witness) -> Question {
        let wanted = self.wanted;
        Question {
            pool: wanted.pool.key(),
            holder: wanted.holder.to_string(),
            token_hash: self.token.hash(),
            share,
            workers: workers(wanted.bits),
            choice: wanted.choice,
            usable_by_ms: wanted.usable_by_ms,
            is_named: matches!(wanted.pool, Pool::Named(_)),
            uncertain: self.uncertain.iter().map(|it| it.worker).collect(),
            clocks,
            ttl: wanted.ttl,
            n_conflicts: self.n_conflicts,
            witness: witness.clone(),
        }
    }

    fn key(&self, worker: u32, version: i64, era: u64) -> LeaseKey {
        LeaseKey {
            pool: self.wanted.pool.clone(),
            worker,
            token: self.token.clone(),
            version,
            era,
            store: self.store,
        }
    }

    /// An earlier attempt, whose answer was lost, had done it. Its lease ends when its row says, which
    /// is counted from before this look.
    fn found_again(
        &self,
        clocks: Clocks,
        head: &Head,
        row: &worker_lease::Model,
        era: u64,
    ) -> WorkerLease {
        let ttl = self.wanted.ttl;
        let left_ms = row.expires_at.saturating_sub(head.clock.now_ms);
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        WorkerLease {
            key: self.key(unsigned(row.worker), row.version, era),
            from_ms: row.reserved_from,
            until_ms: row.reserved_until,
            expires: clocks.sent + left.min(ttl),
            ttl,
            skew_ms: clocks.skew_ms(head.clock.now_ms),
        }
    }
}

impl Database {
    /// Leases one of this database's ids, within `until`. What an attempt may have got beside it is
    /// taken back in the background.
    pub(in crate::store) async fn lease(
        self: &Arc<Self>,
        wanted: &LeaseWanted,
        store: usize,
        until: Instant,
    ) -> Result<WorkerLease, LeaseError> {
        let mut asking = Asking {
            wanted,
            store,
            token: Token::draw(),
            uncertain: Vec::new(),
            n_conflicts: 0,
            until,
        };
        let leased = self.lease_within(&mut asking).await;
        let got = leased.as_ref().ok().map(|lease| lease.key.worker);
        for left in &asking.uncertain {
            if got != Some(left.worker) {
                let key = asking.key(left.worker, 0, left.era);
                self.take_back(key, left.from_ms, wanted.ttl);
            }
        }
        leased
    }

    async fn lease_within(&self, asking: &mut Asking<'_>) -> Result<WorkerLease, LeaseError> {
        let mut backoff = Backoff::new(&self.settings);
        let (mut n_attempts, mut doubt) = (0, Doubt::default());
        loop {
            n_attempts += 1;
            match self.attempt(asking).await {
                Ok(lease) => {
                    self.given.note(&lease.key, &self.beat);
                    return Ok(lease);
                }
                Err(Stop::Conflict) => asking.n_conflicts += 1,
                Err(Stop::Told(error)) => return Err(doubt.told(error)),
                Err(Stop::Failed(failure)) => self.judge(&failure, &mut doubt)?,
            }
            if n_attempts >= self.settings.attempts || Instant::now() >= asking.until {
                return Err(doubt.told(LeaseError::Deadline));
            }
            backoff.wait(asking.until).await;
        }
    }

    async fn attempt(&self, asking: &mut Asking<'_>) -> Result<WorkerLease, Stop> {
        self.know_leases(asking.until).await?;
        let clocks = Clocks::read();
        let witness = self.witness()?;
        let wanted = asking.wanted;
        let question = asking.question(Share::of(self.place.stripe), clocks, &witness);
        let looking = self
            .connection
            .run(asking.until, |database| choice::look(database, question));
        let Look { head, found } = looking.await.map_err(certain)?;
        self.check_clock(head.clock, &witness, clocks)?;
        clocks.check(head.clock.now_ms)?;
        if let Some(bits) = head.bits.filter(|bits| *bits != wanted.bits) {
            return Err(LeaseError::OtherWidth { bits }.into());
        }
        let (worker, row) = match found {
            Found::Ours(row) => {
                let id = (&wanted.pool, unsigned(row.worker));
                self.check_given(id, row.version, &witness, clocks)?;
                return Ok(asking.found_again(clocks, &head, &row, witness.era()));
            }
            Found::Free(row) => (unsigned(row.worker), Some(row)),
            Found::New(worker) => {
                if head.bits.is_none() && head.n_pools >= MOST_POOLS {
                    return Err(LeaseError::TooManyPools { limit: MOST_POOLS }.into());
                }
                (worker, None)
            }
            Found::Held(worker) => return Err(LeaseError::Held { worker }.into()),
            Found::Late(from_ms) => return Err(LeaseError::NoneUsable { from_ms }.into()),
            Found::None => {
                let workers = workers(wanted.bits);
                return Err(LeaseError::NoneFree { workers }.into());
            }
        };
        let version = row.as_ref().map_or(0, |row| row.version);
        self.check_given((&wanted.pool, worker), version, &witness, clocks)?;
        if head.compatible_from < WORKER_LEASES {
            let raising = self
                .connection
                .run(asking.until, statements::keep_older_programs_out);
            raising.await.map_err(certain)?;
        }
        let written = self.as_written(asking, clocks, &head, (worker, row.as_ref()), witness);
        self.write(asking, clocks, &head, written, row.is_none())
            .await
    }

    /// The row of the id that was chosen, as it is to be.
    fn as_written(
        &self,
        asking: &Asking<'_>,
        clocks: Clocks,
        head: &Head,
        (worker, row): (u32, Option<&worker_lease::Model>),
        witness: Witness,
    ) -> Written {
        let (wanted, ttl) = (asking.wanted, asking.wanted.ttl);
        let from_ms = choice::from_ms(row, head);
        Written {
            pool: wanted.pool.key(),
            worker,
            bits: wanted.bits,
            holder: wanted.holder.to_string(),
            token_hash: asking.token.hash(),
            from_ms,
            // The look has seen to it that this is later.
            until_ms: clocks.until(head.clock.now_ms, ttl).max(from_ms),
            expires_ms: head.clock.now_ms.saturating_add(millis(ttl)),
            ttl_ms: millis(ttl),
            version: row.map_or(head.version, |row| row.version),
            ours_ms: clocks.ours_ms,
            witness,
        }
    }

    /// Takes the id that was chosen, as it was seen.
    async fn write(
        &self,
        asking: &mut Asking<'_>,
        clocks: Clocks,
        head: &Head,
        written: Written,
        is_new: bool,
    ) -> Result<WorkerLease, Stop> {
        let (skew_ms, era) = (clocks.skew_ms(head.clock.now_ms), written.witness.era());
        let statement = written.clone();
        let ground = Ground {
            stripe: self.place.stripe,
            recovered_at: head.recovered_at,
        };
        let writing = self.connection.run(asking.until, |database| async move {
            if is_new {
                statements::bear(database, statement, ground).await
            } else {
                statements::take(database, statement, ground).await
            }
        });
        match writing.await {
            Ok(true) => {}
            Ok(false) | Err(Failure::NotCommitted(Cause::Duplicate)) => return Err(Stop::Conflict),
            Err(failure) => {
                if matches!(failure, Failure::MayHaveCommitted(_)) {
                    asking.uncertain.push(Uncertain {
                        worker: written.worker,
                        from_ms: written.from_ms,
                        era,
                    });
                }
                return Err(failure.into());
            }
        }
        Ok(WorkerLease {
            key: asking.key(written.worker, written.version_after(), era),
            from_ms: written.from_ms,
            until_ms: written.until_ms,
            expires: clocks.sent + asking.wanted.ttl,
            ttl: asking.wanted.ttl,
            skew_ms,
        })
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
}
