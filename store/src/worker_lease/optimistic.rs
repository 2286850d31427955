//! Takes a lease again, renews it or ends it in one statement without a look, if its row is known.
//!
//! The statement names all that a look would have found: the version, the recovery, and the moment
//! by the database's clock. If one of them is different, the statement does nothing, and a look
//! follows.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::worker_lease;

use super::{
    grant::LeaseCall,
    lease::{LeaseError, LeaseGrant, LeaseKey, WorkerChoice, WorkerPool, millis},
    renewal::Renewal,
    statements::{LeaseBaseline, LeaseWrite},
    uncertainty::{LeaseAttemptError, SentAt, UncertainCall, signed, unsigned},
};
use crate::database::Database;

/// The outcome of the first attempt to end a lease.
pub(crate) enum First {
    Ended,
    /// This process does not know the row, or does not know the outcome.
    Unknown,
    /// The row was not as it was known.
    Otherwise,
}

impl Database {
    /// Makes the first attempt at a lease. Returns `None` if other attempts have to follow.
    pub(crate) async fn lease_first(
        self: &Arc<Self>,
        asking: &mut LeaseCall,
    ) -> Result<Option<LeaseGrant>, LeaseError> {
        let first = self.lease_optimistically(asking).await;
        let leased = self.followed(first, &mut asking.call);
        match &leased {
            Ok(Some(lease)) => self.unconfirmed_leases.note(&lease.key, &self.heartbeat),
            Ok(None) => {}
            Err(_) => self.take_back_uncertain(asking, None),
        }
        leased
    }

    /// Makes the first attempt at a renewal, like [`Database::lease_first`].
    pub(crate) async fn renew_first(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
        call: &mut UncertainCall,
    ) -> Result<Option<LeaseGrant>, LeaseError> {
        let renewed = self.renew_optimistically(key, ttl, until).await;
        let renewed = self.followed(renewed, call)?;
        if let Some(lease) = &renewed {
            self.unconfirmed_leases.note(&lease.key, &self.heartbeat);
        }
        Ok(renewed)
    }

    /// Makes the first attempt to end a lease, like [`Database::lease_first`].
    pub(crate) async fn end_first(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
        until: Instant,
        call: &mut UncertainCall,
    ) -> Result<First, LeaseError> {
        let ended = self.end_optimistically(key, unused_from_ms, until).await;
        let ended = self.followed(ended.map(Some), call)?;
        Ok(ended.unwrap_or(First::Unknown))
    }

    /// Returns the outcome of a first attempt. Returns `None` if other attempts have to follow.
    fn followed<T>(
        &self,
        first: Result<Option<T>, LeaseAttemptError>,
        call: &mut UncertainCall,
    ) -> Result<Option<T>, LeaseError> {
        match first {
            Ok(done) => Ok(done),
            Err(LeaseAttemptError::Conflict) => Ok(None),
            Err(LeaseAttemptError::Final(error)) => Err(error),
            Err(LeaseAttemptError::Failed(failure)) => self.judge(&failure, call).map(|()| None),
        }
    }

    /// Takes the id again that this holder gave back here. Returns `None` if a look is needed.
    pub(crate) async fn lease_optimistically(
        self: &Arc<Self>,
        asking: &mut LeaseCall,
    ) -> Result<Option<LeaseGrant>, LeaseAttemptError> {
        self.know_leases(asking.until).await?;
        let wanted = &asking.wanted;
        if !asking.is_first() || wanted.choice != WorkerChoice::Any {
            return Ok(None);
        }
        let (clocks, guard, pool) = (SentAt::read(), self.guard()?, wanted.pool.key());
        let n_recoveries = guard.n_recoveries();
        let former = self.known.former(&pool, &wanted.holder, n_recoveries);
        let (Some(row), Some(moment), Some(recovery_mark)) = (
            former,
            self.known.moment(clocks.sent),
            self.known.recovery_mark(n_recoveries),
        ) else {
            return Ok(None);
        };
        let is_named = matches!(wanted.pool, WorkerPool::Named(_));
        let from_ms = recovery_mark.unused_from_ms(is_named, Some(&row), moment.earliest_ms);
        let until_ms = clocks.until(moment.latest_ms, wanted.ttl);
        // An id that still rests may not be the best one, and an id without time cannot be used.
        let is_usable = from_ms <= moment.earliest_ms
            && from_ms < until_ms
            && wanted.usable_by_ms.is_none_or(|by_ms| from_ms <= by_ms);
        if unsigned(row.bits) != wanted.bits || !is_usable {
            return Ok(None);
        }
        let written = LeaseWrite {
            pool,
            worker: unsigned(row.worker),
            bits: wanted.bits,
            holder: row.holder.clone(),
            token_hash: asking.token.hash(),
            from_ms,
            until_ms,
            expires_ms: moment.latest_ms.saturating_add(millis(wanted.ttl)),
            ttl_ms: millis(wanted.ttl),
            version: row.version,
            ours_ms: clocks.ours_ms,
            moment: Some(moment),
            guard,
        };
        let baseline = LeaseBaseline {
            stripe: self.identity.stripe,
            recovered_at: recovery_mark.recovered_at,
        };
        let skew_ms = moment.skew_ms(clocks.ours_ms);
        let taking = self.write(asking, clocks, skew_ms, (written, baseline), false);
        match taking.await {
            Ok(lease) => Ok(Some(lease)),
            Err(LeaseAttemptError::Conflict) => {
                self.known.forget(&row.pool, row.worker, row.version);
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Renews a lease that was given here. Returns `None` if a look is needed.
    pub(crate) async fn renew_optimistically(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
    ) -> Result<Option<LeaseGrant>, LeaseAttemptError> {
        self.know_leases(until).await?;
        let (clocks, guard) = (SentAt::read(), self.guard()?);
        let row = self.held(key, guard.n_recoveries());
        let (Some(row), Some(moment)) = (row, self.known.moment(clocks.sent)) else {
            return Ok(None);
        };
        let version = row.version;
        let mut renewal = Renewal::of(row, ttl, clocks, moment.latest_ms, guard);
        renewal.written.moment = Some(moment);
        let skew_ms = moment.skew_ms(clocks.ours_ms);
        let renewed = self.renew(key, renewal, clocks, skew_ms, until).await;
        self.unless_otherwise(key, version, renewed)
    }

    /// Ends a lease that was given here.
    async fn end_optimistically(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
        until: Instant,
    ) -> Result<First, LeaseAttemptError> {
        self.know_leases(until).await?;
        let guard = self.guard()?;
        let Some(row) = self.held(key, guard.n_recoveries()) else {
            return Ok(First::Unknown);
        };
        let lease = row.reserved_from..=row.reserved_until;
        if unused_from_ms.is_some_and(|unused_ms| !lease.contains(&unused_ms)) {
            return Ok(First::Unknown);
        }
        let version = row.version;
        let ended = self.end(row, unused_from_ms, guard, until).await;
        let ended = self.unless_otherwise(key, version, ended)?;
        Ok(ended.map_or(First::Otherwise, |()| First::Ended))
    }

    /// Returns the row of a lease as this process left it.
    fn held(&self, key: &LeaseKey, n_recoveries: u64) -> Option<worker_lease::Model> {
        let row = self
            .known
            .held(key.pool.key(), signed(key.worker), n_recoveries)?;
        let is_its =
            row.token_hash == key.token.hash() && row.version >= key.least_version(n_recoveries);
        is_its.then_some(row)
    }

    /// Returns what was done. Returns `None` if the row was not as it was known, and forgets that
    /// row.
    fn unless_otherwise<T>(
        &self,
        key: &LeaseKey,
        version: i64,
        outcome: Result<T, LeaseAttemptError>,
    ) -> Result<Option<T>, LeaseAttemptError> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(LeaseAttemptError::Conflict) => {
                let (pool, worker) = (key.pool.key(), signed(key.worker));
                self.known.forget(&pool, worker, version);
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }
}
