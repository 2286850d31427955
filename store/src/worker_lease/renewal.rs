//! Renews a lease and gives it back, for its holder. The row is read, if it is not remembered, and
//! then written on condition that it is unchanged.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use entity::worker_lease;
use odometer_database::retry::AttemptError;
use odometer_process::faults::{self, Fault};

use super::{
    attempt::{LeaseAttempted, certain},
    baseline::{LeaseBaseline, SentAt},
    lease::{LONGEST_TTL, LeaseError, LeaseGrant, LeaseKey, millis, signed},
    look, statements,
};
use crate::{database::Database, guard::HeartbeatGuard};

/// A call to end a lease that is under way.
struct EndCall<'a> {
    key: &'a LeaseKey,
    unused_from_ms: Option<i64>,
    began: Instant,
    /// Whether the row was not as it was remembered.
    is_otherwise: AtomicBool,
    until: Instant,
}

/// Says whether a lease's row may have been written after `at`, which was `since` ago. The lease's
/// length is counted from a moment before the write. The call that wrote the row may have lasted
/// for `call` after that moment.
fn may_be_later(row: &worker_lease::Model, now_ms: i64, since: Duration, call: Duration) -> bool {
    if faults::is(Fault::RenewalUnseen) {
        return false;
    }
    let looked_ms = row.expires_at.saturating_sub(row.ttl_ms);
    let written_ms = looked_ms.saturating_add(millis(call));
    written_ms >= now_ms.saturating_sub(millis(since))
}

impl Database {
    /// Renews a lease. If no time is given, the lease lasts as long as before.
    pub(crate) async fn renew_lease(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
    ) -> Result<LeaseGrant, LeaseError> {
        let renewing = self.repeated(until, |_| self.try_to_renew(key, ttl, until));
        let renewed = renewing.await?;
        self.unconfirmed_leases.note(&renewed.key, &self.heartbeat);
        Ok(renewed)
    }

    async fn try_to_renew(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
    ) -> LeaseAttempted<LeaseGrant> {
        let guard = self.guard()?;
        let remembered = self.remembered_lease(key, guard.n_recoveries);
        if let (Some(row), Some(baseline)) = (remembered, self.remembered_baseline(guard)) {
            match self.renew(key, row, ttl, baseline, until).await {
                Err(AttemptError::Conflict) => {}
                done => return done,
            }
        }
        let (row, baseline) = self.look_at(key, until).await?;
        if row.ended {
            return Err(LeaseError::Lost.into());
        }
        baseline.sent.check(baseline.clock.latest_ms)?;
        self.renew(key, row, ttl, baseline, until).await
    }

    /// Writes the renewal of a row that was seen or is remembered. Without a `ttl`, the lease lasts
    /// as long as before.
    async fn renew(
        &self,
        key: &LeaseKey,
        seen: worker_lease::Model,
        ttl: Option<Duration>,
        baseline: LeaseBaseline,
        until: Instant,
    ) -> LeaseAttempted<LeaseGrant> {
        let former = Duration::from_millis(u64::try_from(seen.ttl_ms).unwrap_or(0));
        let ttl = ttl.unwrap_or(former);
        let (until_ms, expires_ms) = baseline.ends_ms(ttl, Some(seen.leased_at));
        // A shorter renewal lets the lease expire no earlier: a copy that lost the renewal would let
        // the lease go on, although somebody else may have had the id since. Only an end that no
        // lease can have falls: the database's clock was wrong when it was written.
        let longest_ms = millis(LONGEST_TTL.max(former).max(ttl));
        let latest_ms = baseline.clock.latest_ms.saturating_add(longest_ms);
        let written = worker_lease::Model {
            expires_at: expires_ms.max(seen.expires_at.min(latest_ms)),
            reserved_until: until_ms.max(seen.reserved_until),
            version: seen.version.saturating_add(1),
            ttl_ms: millis(ttl),
            ..seen
        };
        let (row, conditions) = (written.clone(), baseline.clone());
        let n_recoveries = baseline.guard.n_recoveries;
        self.write_lease(until, &written, n_recoveries, |database| {
            statements::renew(database, row, conditions)
        })
        .await?;
        let key = LeaseKey {
            version: written.version,
            n_recoveries,
            ..key.clone()
        };
        Ok(LeaseGrant::of(key, &written, &baseline))
    }

    /// Ends a lease. The time from `unused_from_ms` on is free again, unless the call meets a
    /// renewal: the row is not as it was remembered, and may have been renewed since the call
    /// began, or the row changes after a look at it. Then the id rests until all of its time has
    /// passed. If nothing is remembered, a renewal from before the look counts as earlier.
    pub(crate) async fn give_back_lease(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
        until: Instant,
    ) -> Result<(), LeaseError> {
        let call = EndCall {
            key,
            unused_from_ms,
            began: Instant::now(),
            is_otherwise: AtomicBool::new(false),
            until,
        };
        self.repeated(until, |n_conflicts| self.try_to_end(&call, n_conflicts))
            .await
    }

    async fn try_to_end(&self, call: &EndCall<'_>, n_conflicts: u32) -> LeaseAttempted<()> {
        let (until, unused_from_ms) = (call.until, call.unused_from_ms);
        let guard = self.guard()?;
        // After a conflict, what is remembered may be the renewal that this call met. Its caller may
        // use the time that is called unused here, so only a look tells how much time is free.
        let has_met = n_conflicts > 0 || call.is_otherwise.load(Ordering::Relaxed);
        let remembered = self.remembered_lease(call.key, guard.n_recoveries);
        let remembered = remembered.filter(|row| !has_met && is_in(row, unused_from_ms));
        if let Some(row) = remembered {
            match self.end(row, unused_from_ms, guard, until).await {
                Err(AttemptError::Conflict) => {
                    call.is_otherwise.store(true, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        let (row, baseline) = self.look_at(call.key, until).await?;
        if row.ended {
            // An earlier attempt ended the lease, and what that attempt said of the time stands.
            return Ok(());
        }
        if !is_in(&row, unused_from_ms) {
            let (from_ms, until_ms) = (row.reserved_from, row.reserved_until);
            return Err(LeaseError::NotOfTheLease { from_ms, until_ms }.into());
        }
        let is_otherwise = call.is_otherwise.load(Ordering::Relaxed);
        // The call that renewed may be that of another replica, which has the same configuration.
        let (now_ms, longest) = (baseline.clock.latest_ms, self.settings.deadline);
        let is_renewed = n_conflicts > 0
            || is_otherwise && may_be_later(&row, now_ms, call.began.elapsed(), longest);
        // The caller that renewed the lease may use the time that is called unused here.
        let unused_from_ms = unused_from_ms.filter(|_| !is_renewed);
        self.end(row, unused_from_ms, baseline.guard, until).await
    }

    /// Writes the end of a row that was seen or is remembered.
    async fn end(
        &self,
        seen: worker_lease::Model,
        unused_from_ms: Option<i64>,
        guard: HeartbeatGuard,
        until: Instant,
    ) -> LeaseAttempted<()> {
        let until_ms = seen.reserved_until;
        let written = worker_lease::Model {
            ended: true,
            reserved_until: unused_from_ms.unwrap_or(until_ms),
            version: seen.version.saturating_add(1),
            ..seen
        };
        let (row, n_recoveries) = (written.clone(), guard.n_recoveries);
        self.write_lease(until, &written, n_recoveries, |database| {
            statements::end(database, row, until_ms, guard)
        })
        .await
    }

    /// Returns the row of a lease that is held, as this process left it.
    fn remembered_lease(&self, key: &LeaseKey, n_recoveries: u64) -> Option<worker_lease::Model> {
        let (pool, worker) = (key.pool.key(), signed(key.worker));
        let row = self.known.held(pool, worker, n_recoveries)?;
        let is_its =
            row.token_hash == key.token.hash() && row.version >= key.least_version(n_recoveries);
        is_its.then_some(row)
    }

    /// Reads the row of a lease, if the lease is still the holder's.
    async fn look_at(
        &self,
        key: &LeaseKey,
        until: Instant,
    ) -> LeaseAttempted<(worker_lease::Model, LeaseBaseline)> {
        let (sent, guard) = (SentAt::read(), self.guard()?);
        let (pool, worker, guard_copy) = (key.pool.key(), key.worker, guard.clone());
        let looking = self.connection.run(until, |database| {
            look::read_lease(database, guard_copy, pool, worker)
        });
        let (read, row) = looking.await.map_err(certain)?;
        let baseline = self.check_read(&read, guard, sent)?;
        let n_recoveries = baseline.guard.n_recoveries;
        let version = row.as_ref().map_or(0, |row| row.version);
        if version < key.least_version(n_recoveries) {
            self.note_lease_went_back(n_recoveries);
            return Err(LeaseError::WentBack.into());
        }
        self.check_row((&key.pool, worker), row.as_ref(), &baseline)?;
        match row.filter(|row| row.token_hash == key.token.hash()) {
            Some(row) => Ok((row, baseline)),
            None => Err(LeaseError::Lost.into()),
        }
    }
}

/// Says whether a time is part of the lease of a row.
fn is_in(row: &worker_lease::Model, unused_from_ms: Option<i64>) -> bool {
    let lease = row.reserved_from..=row.reserved_until;
    unused_from_ms.is_none_or(|unused_ms| lease.contains(&unused_ms))
}
