//! Leases a worker id of one database. It looks at the id, if the row is not known. Then it writes
//! on condition that the row is unchanged. If that fails, it looks again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::worker_lease;
use migration::WORKER_LEASES;
use odometer_database::{
    backoff::Backoff,
    failure::{Cause, StatementFailure},
};

use super::{
    choice,
    lease::{
        LeaseError, LeaseGrant, LeaseKey, LeaseWanted, MAX_POOLS, Share, WorkerPool, millis,
        workers,
    },
    look::{self, LeaseCandidate, LeaseRead, PoolSummary, Question},
    statements::{self, LeaseBaseline, LeaseWrite},
    token::Token,
    uncertainty::{LeaseAttemptError, SentAt, UncertainCall, certain, unsigned},
};
use crate::{database::Database, heartbeat::HeartbeatGuard};

/// An id that an attempt may have got, and when the id's time would begin.
#[derive(Clone, Copy)]
struct Uncertain {
    worker: u32,
    from_ms: i64,
    n_recoveries: u64,
}

/// A call for a lease that is under way.
pub(crate) struct LeaseCall {
    pub(crate) wanted: LeaseWanted,
    /// The store's place in the configuration.
    pub(crate) store: usize,
    /// The token, the same in all attempts, so that each attempt finds what an earlier one got.
    pub(crate) token: Token,
    uncertain: Vec<Uncertain>,
    pub(crate) call: UncertainCall,
    n_conflicts: u32,
    pub(crate) until: Instant,
}

impl LeaseCall {
    pub(crate) fn new(wanted: LeaseWanted, store: usize, until: Instant) -> Self {
        Self {
            wanted,
            store,
            token: Token::draw(),
            uncertain: Vec::new(),
            call: UncertainCall::default(),
            n_conflicts: 0,
            until,
        }
    }

    /// Says whether this is the first attempt. It is not if an earlier one may have been done, or
    /// met another writer.
    pub(crate) fn is_first(&self) -> bool {
        self.uncertain.is_empty() && self.n_conflicts == 0
    }

    fn question(&self, share: Share, clocks: SentAt, guard: &HeartbeatGuard) -> Question {
        let wanted = &self.wanted;
        Question {
            pool: wanted.pool.key(),
            holder: wanted.holder.to_string(),
            token_hash: self.token.hash(),
            share,
            workers: workers(wanted.bits),
            choice: wanted.choice,
            usable_by_ms: wanted.usable_by_ms,
            is_named: matches!(wanted.pool, WorkerPool::Named(_)),
            uncertain: self.uncertain.iter().map(|it| it.worker).collect(),
            clocks,
            ttl: wanted.ttl,
            n_conflicts: self.n_conflicts,
            guard: guard.clone(),
        }
    }

    fn key(&self, worker: u32, version: i64, n_recoveries: u64) -> LeaseKey {
        LeaseKey {
            pool: self.wanted.pool.clone(),
            worker,
            token: self.token.clone(),
            version,
            n_recoveries,
            store: self.store,
        }
    }

    /// Builds the lease that an earlier attempt got, whose reply was lost. The lease ends when its
    /// row says. This is counted from before the present look.
    fn found_again(
        &self,
        clocks: SentAt,
        head: &PoolSummary,
        row: &worker_lease::Model,
        n_recoveries: u64,
    ) -> LeaseGrant {
        let ttl = self.wanted.ttl;
        let left_ms = row.expires_at.saturating_sub(head.clock.now_ms);
        let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
        LeaseGrant {
            key: self.key(unsigned(row.worker), row.version, n_recoveries),
            from_ms: row.reserved_from,
            until_ms: row.reserved_until,
            expires: clocks.sent + left.min(ttl),
            ttl,
            skew_ms: clocks.skew_ms(head.clock.now_ms),
        }
    }
}

impl Database {
    /// Leases one of this database's ids before the deadline. Other ids that an attempt may have
    /// got are taken back in the background.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        mut asking: LeaseCall,
    ) -> Result<LeaseGrant, LeaseError> {
        let leased = self.lease_within(&mut asking).await;
        let got = leased.as_ref().ok().map(|lease| lease.key.worker);
        self.take_back_uncertain(&asking, got);
        leased
    }

    /// Takes back what attempts may have got, except the id that was got for certain.
    pub(crate) fn take_back_uncertain(self: &Arc<Self>, asking: &LeaseCall, got: Option<u32>) {
        for left in &asking.uncertain {
            if got != Some(left.worker) {
                let key = asking.key(left.worker, 0, left.n_recoveries);
                self.take_back(key, left.from_ms, asking.wanted.ttl);
            }
        }
    }

    async fn lease_within(
        self: &Arc<Self>,
        asking: &mut LeaseCall,
    ) -> Result<LeaseGrant, LeaseError> {
        let mut backoff = Backoff::new(&self.settings.statement);
        let mut n_attempts = 0;
        loop {
            n_attempts += 1;
            match self.attempt(asking).await {
                Ok(lease) => {
                    self.unconfirmed_leases.note(&lease.key, &self.heartbeat);
                    return Ok(lease);
                }
                Err(LeaseAttemptError::Conflict) => asking.n_conflicts += 1,
                Err(LeaseAttemptError::Final(error)) => {
                    return Err(asking.call.caller_error(error));
                }
                Err(LeaseAttemptError::Failed(failure)) => {
                    self.judge(&failure, &mut asking.call)?
                }
            }
            if n_attempts >= self.settings.attempts || Instant::now() >= asking.until {
                return Err(asking.call.caller_error(LeaseError::Deadline));
            }
            backoff.wait(asking.until).await;
        }
    }

    async fn attempt(
        self: &Arc<Self>,
        asking: &mut LeaseCall,
    ) -> Result<LeaseGrant, LeaseAttemptError> {
        if let Some(lease) = self.lease_optimistically(asking).await? {
            return Ok(lease);
        }
        let clocks = SentAt::read();
        let guard = self.guard()?;
        let wanted = asking.wanted.clone();
        let question = asking.question(Share::of(self.identity.stripe), clocks, &guard);
        let looking = self
            .connection
            .run(asking.until, |database| choice::look(database, question));
        let LeaseRead { head, found } = looking.await.map_err(certain)?;
        let seen = (head.clock, Some(head.recovery_mark));
        self.check_clock(seen, &guard, clocks)?;
        clocks.check(head.clock.now_ms)?;
        if let Some(bits) = head.bits.filter(|bits| *bits != wanted.bits) {
            return Err(LeaseError::OtherWidth { bits }.into());
        }
        let (worker, row) = match found {
            LeaseCandidate::Ours(row) => {
                let id = (&wanted.pool, unsigned(row.worker));
                self.check_given(id, row.version, &guard, clocks)?;
                return Ok(asking.found_again(clocks, &head, &row, guard.n_recoveries()));
            }
            LeaseCandidate::Free(row) => (unsigned(row.worker), Some(row)),
            LeaseCandidate::New(worker) => {
                if head.bits.is_none() && head.n_pools >= MAX_POOLS {
                    return Err(LeaseError::TooManyPools { limit: MAX_POOLS }.into());
                }
                (worker, None)
            }
            LeaseCandidate::Held(worker) => return Err(LeaseError::Held { worker }.into()),
            LeaseCandidate::Late(from_ms) => return Err(LeaseError::NoneUsable { from_ms }.into()),
            LeaseCandidate::None => {
                let workers = workers(wanted.bits);
                return Err(LeaseError::NoneFree { workers }.into());
            }
        };
        let version = row.as_ref().map_or(0, |row| row.version);
        self.check_given((&wanted.pool, worker), version, &guard, clocks)?;
        if head.compatible_from < WORKER_LEASES {
            let raising = self
                .connection
                .run(asking.until, statements::keep_older_programs_out);
            raising.await.map_err(certain)?;
        }
        let written = self.as_written(asking, clocks, &head, (worker, row.as_ref()), guard);
        let baseline = LeaseBaseline {
            stripe: self.identity.stripe,
            recovered_at: head.recovery_mark.recovered_at,
        };
        let skew_ms = clocks.skew_ms(head.clock.now_ms);
        let statement = (written, baseline);
        self.write(asking, clocks, skew_ms, statement, row.is_none())
            .await
    }

    /// Builds the new row of the chosen id.
    fn as_written(
        &self,
        asking: &LeaseCall,
        clocks: SentAt,
        head: &PoolSummary,
        (worker, row): (u32, Option<&worker_lease::Model>),
        guard: HeartbeatGuard,
    ) -> LeaseWrite {
        let (wanted, ttl) = (&asking.wanted, asking.wanted.ttl);
        let is_named = matches!(wanted.pool, WorkerPool::Named(_));
        let from_ms = head
            .recovery_mark
            .unused_from_ms(is_named, row, head.clock.now_ms);
        LeaseWrite {
            pool: wanted.pool.key(),
            worker,
            bits: wanted.bits,
            holder: wanted.holder.to_string(),
            token_hash: asking.token.hash(),
            from_ms,
            // The look has checked that the lease has some time.
            until_ms: clocks.until(head.clock.now_ms, ttl).max(from_ms),
            expires_ms: head.clock.now_ms.saturating_add(millis(ttl)),
            ttl_ms: millis(ttl),
            version: row.map_or(head.version, |row| row.version),
            ours_ms: clocks.ours_ms,
            moment: None,
            guard,
        }
    }

    /// Writes the lease of the chosen id, whose row was seen or is known.
    pub(crate) async fn write(
        &self,
        asking: &mut LeaseCall,
        clocks: SentAt,
        skew_ms: i64,
        (written, baseline): (LeaseWrite, LeaseBaseline),
        is_new: bool,
    ) -> Result<LeaseGrant, LeaseAttemptError> {
        let n_recoveries = written.guard.n_recoveries();
        let statement = written.clone();
        let writing = self.connection.run(asking.until, |database| async move {
            if is_new {
                statements::create(database, statement, baseline).await
            } else {
                statements::take(database, statement, baseline).await
            }
        });
        match writing.await {
            Ok(true) => {}
            Ok(false) | Err(StatementFailure::NotCommitted(Cause::Duplicate)) => {
                return Err(LeaseAttemptError::Conflict);
            }
            Err(failure) => {
                if matches!(failure, StatementFailure::MayHaveCommitted(_)) {
                    asking.uncertain.push(Uncertain {
                        worker: written.worker,
                        from_ms: written.from_ms,
                        n_recoveries,
                    });
                }
                return Err(failure.into());
            }
        }
        self.known.note(written.row(), n_recoveries);
        Ok(LeaseGrant {
            key: asking.key(written.worker, written.version_after(), n_recoveries),
            from_ms: written.from_ms,
            until_ms: written.until_ms,
            expires: clocks.sent + asking.wanted.ttl,
            ttl: asking.wanted.ttl,
            skew_ms,
        })
    }

    /// Says whether this holder had an id here that is free now. Also says no if that is not known.
    pub(crate) async fn has_former(&self, wanted: &LeaseWanted, until: Instant) -> bool {
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
