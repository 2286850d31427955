//! Leases a worker id of one database. It looks at the id, if the row is not remembered. Then it
//! writes on condition that the row is unchanged. If that fails, it looks again.

use std::{future::Future, sync::Arc, time::Instant};

use entity::worker_lease;
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::AttemptError,
    session::DatabaseConnection,
};
use parking_lot::Mutex;
use sea_orm::DbErr;

use super::{
    attempt::{LeaseAttempted, certain},
    baseline::{LeaseBaseline, SentAt},
    choice::{self, LeaseCandidate, Question},
    lease::{
        LeaseError, LeaseGrant, LeaseKey, LeaseWanted, Share, WorkerChoice, millis, signed,
        unsigned,
    },
    look, statements,
    token::Token,
};
use crate::database::Database;

/// A call for a lease that is under way in one database.
struct LeaseCall {
    wanted: LeaseWanted,
    /// The token, the same in all attempts, so that each attempt finds what an earlier one got.
    token: Token,
    /// The leases that an attempt may have got, and when their time would begin (Unix ms).
    uncertain: Mutex<Vec<(LeaseKey, i64)>>,
    until: Instant,
}

impl Database {
    /// Leases one of this database's ids before the deadline. Other ids that an attempt may have
    /// got are taken back in the background.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        wanted: LeaseWanted,
        until: Instant,
    ) -> Result<LeaseGrant, LeaseError> {
        let call = LeaseCall {
            wanted,
            token: Token::draw(),
            uncertain: Mutex::default(),
            until,
        };
        let leasing = self.repeated(until, |n_conflicts| self.try_to_lease(&call, n_conflicts));
        let leased = leasing.await;
        if let Ok(lease) = &leased {
            self.unconfirmed_leases.note(&lease.key, &self.heartbeat);
        }
        let got = leased.as_ref().ok().map(|lease| lease.key.worker);
        for (key, from_ms) in call.uncertain.into_inner() {
            if got != Some(key.worker) {
                self.take_back(key, from_ms, call.wanted.ttl);
            }
        }
        leased
    }

    /// Returns what the holder needs of a row that `call` leased.
    fn key_of(
        &self,
        call: &LeaseCall,
        row: &worker_lease::Model,
        baseline: &LeaseBaseline,
    ) -> LeaseKey {
        LeaseKey {
            pool: call.wanted.pool.clone(),
            worker: unsigned(row.worker),
            token: call.token.clone(),
            version: row.version,
            n_recoveries: baseline.guard.n_recoveries,
            store: self.identity.source.store.into(),
        }
    }

    async fn try_to_lease(&self, call: &LeaseCall, n_conflicts: u32) -> LeaseAttempted<LeaseGrant> {
        // An earlier attempt may have got an id, or another writer is here: only a look can tell.
        let uncertain = call.uncertain.lock().clone();
        let uncertain: Vec<u32> = uncertain.iter().map(|(key, _)| key.worker).collect();
        if uncertain.is_empty()
            && n_conflicts == 0
            && let Some((row, baseline)) = self.former(&call.wanted)?
        {
            match self
                .take(call, row.worker, row.version, Some(&row), baseline)
                .await
            {
                Err(AttemptError::Conflict) => {}
                done => return done,
            }
        }
        let (sent, guard) = (SentAt::read(), self.guard()?);
        let question = Question {
            wanted: call.wanted.clone(),
            token_hash: call.token.hash(),
            uncertain,
            n_conflicts,
            share: Share::of(self.identity.stripe),
            sent,
            guard: guard.clone(),
        };
        let looking = self
            .connection
            .run(call.until, |database| choice::look(database, question));
        let (pool, found) = looking.await.map_err(certain)?;
        let baseline = self.check_read(&pool.read, guard, sent)?;
        sent.check(pool.read.now_ms)?;
        let (worker, version, row) = match found {
            LeaseCandidate::Ours(row) => {
                let key = self.key_of(call, &row, &baseline);
                self.check_row((&key.pool, key.worker), Some(&row), &baseline)?;
                return Ok(LeaseGrant::of(key, &row, &baseline));
            }
            LeaseCandidate::Free(row) => (row.worker, row.version, Some(row)),
            LeaseCandidate::New(worker) => (signed(worker), pool.version_of_new(), None),
            LeaseCandidate::Refused(error) => return Err(error.into()),
        };
        let id = (&call.wanted.pool, unsigned(worker));
        self.check_row(id, row.as_ref(), &baseline)?;
        self.take(call, worker, version, row.as_ref(), baseline)
            .await
    }

    /// Returns the id that this holder gave back here, if it is the best one as far as is
    /// remembered.
    fn former(
        &self,
        wanted: &LeaseWanted,
    ) -> Result<Option<(worker_lease::Model, LeaseBaseline)>, LeaseError> {
        if wanted.choice != WorkerChoice::Any {
            return Ok(None);
        }
        let guard = self.guard();
        let guard = guard.map_err(|error| error.untried(LeaseError::Unavailable))?;
        let pool = wanted.pool.key();
        let former = self.known.former(&pool, &wanted.holder, guard.n_recoveries);
        let (Some(row), Some(baseline)) = (former, self.remembered_baseline(guard)) else {
            return Ok(None);
        };
        let from_ms = baseline.unused_from_ms(wanted.pool.is_named(), Some(&row));
        let (until_ms, _) = baseline.ends_ms(wanted.ttl, None);
        // An id that still rests may not be the best one, and an id without time cannot be used.
        let is_usable = from_ms <= baseline.clock.earliest_ms
            && from_ms < until_ms
            && wanted.usable_by_ms.is_none_or(|by_ms| from_ms <= by_ms);
        let is_its = is_usable && unsigned(row.bits) == wanted.bits;
        Ok(is_its.then_some((row, baseline)))
    }

    /// Writes the lease of the chosen id. `seen` is its row, and `version` the version that the new
    /// one lies above.
    async fn take(
        &self,
        call: &LeaseCall,
        worker: i32,
        version: i64,
        seen: Option<&worker_lease::Model>,
        baseline: LeaseBaseline,
    ) -> LeaseAttempted<LeaseGrant> {
        let wanted = &call.wanted;
        let from_ms = baseline.unused_from_ms(wanted.pool.is_named(), seen);
        let (until_ms, expires_ms) = baseline.ends_ms(wanted.ttl, None);
        let written = worker_lease::Model {
            pool: wanted.pool.key(),
            worker,
            bits: signed(wanted.bits),
            holder: wanted.holder.to_string(),
            token_hash: call.token.hash(),
            expires_at: expires_ms,
            // It was checked that the lease has some time.
            reserved_until: until_ms.max(from_ms),
            version: version.saturating_add(1),
            reserved_from: from_ms,
            ttl_ms: millis(wanted.ttl),
            ended: false,
            leased_at: baseline.clock.latest_ms,
        };
        let key = self.key_of(call, &written, &baseline);
        let (row, conditions) = (written.clone(), baseline.clone());
        let is_new = seen.is_none();
        let n_recoveries = baseline.guard.n_recoveries;
        let writing = self.write_lease(call.until, &written, n_recoveries, |database| async move {
            if is_new {
                statements::create(database, row, conditions).await
            } else {
                statements::take(database, row, conditions).await
            }
        });
        match writing.await {
            Ok(()) => Ok(LeaseGrant::of(key, &written, &baseline)),
            Err(error) => {
                if let AttemptError::Failed(StatementFailure::MayHaveCommitted(_)) = error {
                    let uncertain = LeaseKey { version: 0, ..key };
                    call.uncertain.lock().push((uncertain, from_ms));
                }
                Err(error)
            }
        }
    }

    /// Runs a statement that writes a row on condition that it is as it was seen, and remembers the
    /// row as it was `written`.
    ///
    /// # Errors
    /// `Conflict` if the row was not as it was seen. What is remembered of it is forgotten then.
    pub(crate) async fn write_lease<Fut>(
        &self,
        until: Instant,
        written: &worker_lease::Model,
        n_recoveries: u64,
        statement: impl FnOnce(DatabaseConnection) -> Fut,
    ) -> LeaseAttempted<()>
    where
        Fut: Future<Output = Result<bool, DbErr>> + Send + 'static,
    {
        match self.connection.run(until, statement).await {
            Ok(true) => {
                self.known.note(written.clone(), n_recoveries);
                Ok(())
            }
            Ok(false) | Err(StatementFailure::NotCommitted(Cause::Duplicate)) => {
                self.known.forget(written);
                Err(AttemptError::Conflict)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Says whether this holder had an id here that is free now. Also says no if that is not known.
    pub(crate) async fn has_former(&self, wanted: &LeaseWanted, until: Instant) -> bool {
        if !self.is_up() {
            return false;
        }
        let (pool, holder) = (wanted.pool.key(), wanted.holder.to_string());
        let reading = self
            .connection
            .run(until, |database| look::has_former(database, pool, holder));
        reading.await.unwrap_or(false)
    }
}
