//! One database gives an id: it is looked at, then written on condition that it is still so, and
//! looked at again where it is not.

use std::time::Instant;

use entity::worker_lease;

use super::{
    LeaseError, LeaseKey, LeaseWanted, MOST_POOLS, Pool, Share, WorkerLease,
    attempt::{Clocks, Stop, unsigned},
    choice,
    given::Moment,
    look::{self, Found, Head, Look, Question},
    millis,
    statements::{self, Written},
    token::Token,
    workers,
};
use crate::store::{
    backoff::Backoff,
    change::beat::Witness,
    database::Database,
    error::{Cause, Failure},
};

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
        let (witness, since) = (self.witness()?, self.given.now());
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
            .run(asking.until, |database| choice::look(database, question));
        let Look { head, found } = looking.await?;
        self.check_clock(head.clock, &witness, clocks)?;
        clocks.check(head.clock.now_ms)?;
        if let Some(bits) = head.bits.filter(|bits| *bits != wanted.bits) {
            return Err(LeaseError::OtherWidth { bits }.into());
        }
        let (worker, row) = match found {
            Found::Ours(row) => return Ok(found_again(asking, clocks, &head, &row)),
            Found::Free(row) => (unsigned(row.worker), Some(row)),
            Found::New(worker) => (worker, None),
            Found::Held(worker) => return Err(LeaseError::Held { worker }.into()),
            Found::Late(from_ms) => return Err(LeaseError::NoneUsable { from_ms }.into()),
            Found::None => {
                let workers = workers(wanted.bits);
                return Err(LeaseError::NoneFree { workers }.into());
            }
        };
        if head.bits.is_none() && head.n_pools >= MOST_POOLS {
            return Err(LeaseError::TooManyPools { limit: MOST_POOLS }.into());
        }
        self.check_given((wanted, worker), row.as_ref(), since)?;
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
        let from_ms = choice::from_ms(row, head);
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

    /// That an id is not below what this process had written of it when the look was sent.
    fn check_given(
        &self,
        (wanted, worker): (&LeaseWanted, u32),
        row: Option<&worker_lease::Model>,
        since: Moment,
    ) -> Result<(), LeaseError> {
        let known = self.given.version(&wanted.pool, worker, since, &self.beat);
        if row.map_or(0, |row| row.version) >= known {
            return Ok(());
        }
        self.note_lease_went_back();
        Err(LeaseError::WentBack)
    }
}

/// An earlier attempt, whose answer was lost, had done it.
fn found_again(
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
