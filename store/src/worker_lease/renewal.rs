//! Renews a lease and gives it back, for its holder. The row is read, if it is not known, and then
//! written on condition that it is unchanged.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use entity::worker_lease;
use odometer_database::backoff::Backoff;
use odometer_process::faults::{self, Fault};

use super::{
    lease::{LeaseError, LeaseGrant, LeaseKey, millis},
    look::{self, Clock},
    statements::{self, LeaseEnd, LeaseWrite},
    uncertainty::{LeaseAttemptError, SentAt, UncertainCall, certain, unsigned},
};
use crate::{database::Database, heartbeat::HeartbeatGuard};

/// One of the attempts of a call.
#[derive(Clone, Copy)]
struct Attempt {
    until: Instant,
    /// Whether another writer wrote the row since the call began.
    has_met: bool,
}

/// A renewal that is to be written.
pub(crate) struct Renewal {
    pub(crate) written: LeaseWrite,
    ttl: Duration,
}

impl Renewal {
    /// Builds the renewal of a row, at a moment of the database's clock. Without a `ttl`, the lease
    /// lasts as long as before.
    pub(crate) fn of(
        row: worker_lease::Model,
        ttl: Option<Duration>,
        clocks: SentAt,
        now_ms: i64,
        guard: HeartbeatGuard,
    ) -> Self {
        let former = Duration::from_millis(u64::try_from(row.ttl_ms).unwrap_or(0));
        let ttl = ttl.unwrap_or(former);
        let written = LeaseWrite {
            worker: unsigned(row.worker),
            bits: unsigned(row.bits),
            from_ms: row.reserved_from,
            until_ms: clocks.until(now_ms, ttl).max(row.reserved_until),
            expires_ms: now_ms.saturating_add(millis(ttl)),
            ttl_ms: millis(ttl),
            version: row.version,
            ours_ms: clocks.ours_ms,
            moment: None,
            pool: row.pool,
            holder: row.holder,
            token_hash: row.token_hash,
            guard,
        };
        Self { written, ttl }
    }
}

/// Says whether a lease's row may have been written after `at`. The lease's length is counted from
/// a moment before the write. The call that wrote the row may have lasted for `call` after that
/// moment.
fn may_be_later(row: &worker_lease::Model, clock: Clock, at: Instant, call: Duration) -> bool {
    if faults::is(Fault::RenewalUnseen) {
        return false;
    }
    let looked_ms = row.expires_at.saturating_sub(row.ttl_ms);
    let written_ms = looked_ms.saturating_add(millis(call));
    written_ms >= clock.now_ms.saturating_sub(millis(at.elapsed()))
}

impl Database {
    /// Renews a lease. If no time is given, the lease lasts as long as before.
    pub(crate) async fn renew_lease(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
        call: UncertainCall,
    ) -> Result<LeaseGrant, LeaseError> {
        let renewed = self
            .repeated(until, call, |attempt| {
                self.try_to_renew(key, ttl, attempt.until)
            })
            .await?;
        self.unconfirmed_leases.note(&renewed.key, &self.heartbeat);
        Ok(renewed)
    }

    async fn try_to_renew(
        &self,
        key: &LeaseKey,
        ttl: Option<Duration>,
        until: Instant,
    ) -> Result<LeaseGrant, LeaseAttemptError> {
        if let Some(lease) = self.renew_optimistically(key, ttl, until).await? {
            return Ok(lease);
        }
        let clocks = SentAt::read();
        let (clock, row, guard) = self.look_at(key, clocks, until).await?;
        if row.ended {
            return Err(LeaseError::Lost.into());
        }
        clocks.check(clock.now_ms)?;
        let renewal = Renewal::of(row, ttl, clocks, clock.now_ms, guard);
        let skew_ms = clocks.skew_ms(clock.now_ms);
        self.renew(key, renewal, clocks, skew_ms, until).await
    }

    /// Writes the renewal of a row that was seen or is known.
    pub(crate) async fn renew(
        &self,
        key: &LeaseKey,
        Renewal { written, ttl }: Renewal,
        clocks: SentAt,
        skew_ms: i64,
        until: Instant,
    ) -> Result<LeaseGrant, LeaseAttemptError> {
        let (statement, n_recoveries) = (written.clone(), written.guard.n_recoveries());
        let renewing = self
            .connection
            .run(until, |database| statements::renew(database, statement));
        if !renewing.await? {
            return Err(LeaseAttemptError::Conflict);
        }
        self.known.note(written.row(), n_recoveries);
        let mut key = key.clone();
        (key.version, key.n_recoveries) = (written.version_after(), n_recoveries);
        Ok(LeaseGrant {
            key,
            from_ms: written.from_ms,
            until_ms: written.until_ms,
            expires: clocks.sent + ttl,
            ttl,
            skew_ms,
        })
    }

    /// Ends a lease. The time from `unused_from_ms` on is free again, unless the lease may have
    /// been renewed since the call began. If it may have been renewed, the id rests until all of
    /// its time has passed.
    ///
    /// `met_since` is when the call began, if the row was not as it was known.
    pub(crate) async fn give_back_lease(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
        until: Instant,
        call: UncertainCall,
        met_since: Option<Instant>,
    ) -> Result<(), LeaseError> {
        self.repeated(until, call, |attempt| {
            self.try_to_end(key, unused_from_ms, met_since, attempt)
        })
        .await
    }

    async fn try_to_end(
        &self,
        key: &LeaseKey,
        unused_from_ms: Option<i64>,
        met_since: Option<Instant>,
        attempt: Attempt,
    ) -> Result<(), LeaseAttemptError> {
        let looking = self.look_at(key, SentAt::read(), attempt.until);
        let (clock, row, guard) = looking.await?;
        if row.ended {
            // An earlier attempt ended the lease, and what that attempt said of the time stands.
            return Ok(());
        }
        let (from_ms, until_ms) = (row.reserved_from, row.reserved_until);
        if unused_from_ms.is_some_and(|unused| unused < from_ms || unused > until_ms) {
            return Err(LeaseError::NotOfTheLease { from_ms, until_ms }.into());
        }
        // The call may be that of another replica, which has the same configuration.
        let call = self.settings.deadline;
        let has_met =
            attempt.has_met || met_since.is_some_and(|at| may_be_later(&row, clock, at, call));
        // The caller that renewed the lease may use the time that is called unused here.
        let unused_from_ms = unused_from_ms.filter(|_| !has_met);
        self.end(row, unused_from_ms, guard, attempt.until).await
    }

    /// Writes the end of a row that was seen or is known.
    pub(crate) async fn end(
        &self,
        mut row: worker_lease::Model,
        unused_from_ms: Option<i64>,
        guard: HeartbeatGuard,
        until: Instant,
    ) -> Result<(), LeaseAttemptError> {
        let (unused_from_ms, n_recoveries) = (
            unused_from_ms.unwrap_or(row.reserved_until),
            guard.n_recoveries(),
        );
        let end = LeaseEnd {
            row: row.clone(),
            unused_from_ms,
            guard,
        };
        let ending = self
            .connection
            .run(until, |database| statements::end(database, end));
        if !ending.await? {
            return Err(LeaseAttemptError::Conflict);
        }
        (row.ended, row.reserved_until) = (true, unused_from_ms);
        row.version = row.version.saturating_add(1);
        self.known.note(row, n_recoveries);
        Ok(())
    }

    /// Reads the row of a lease, if the lease is still the holder's.
    async fn look_at(
        &self,
        key: &LeaseKey,
        clocks: SentAt,
        until: Instant,
    ) -> Result<(Clock, worker_lease::Model, HeartbeatGuard), LeaseAttemptError> {
        self.know_leases(until).await?;
        let guard = self.guard()?;
        let (pool, worker) = (key.pool.key(), key.worker);
        let guard_copy = guard.clone();
        let looking = self.connection.run(until, |database| async move {
            let clock = look::read_clock(&database, &guard_copy).await?;
            let row = look::read_row(&database, &pool, worker).await?;
            Ok((clock, row))
        });
        let (clock, row) = looking.await.map_err(certain)?;
        self.check_clock((clock, None), &guard, clocks)?;
        let version = row.as_ref().map_or(0, |row| row.version);
        if version < key.least_version(guard.n_recoveries()) {
            self.note_lease_went_back(guard.n_recoveries());
            return Err(LeaseError::WentBack.into());
        }
        self.check_given((&key.pool, worker), version, &guard, clocks)?;
        match row.filter(|row| row.token_hash == key.token.hash()) {
            Some(row) => Ok((clock, row, guard)),
            None => Err(LeaseError::Lost.into()),
        }
    }

    /// Repeats an attempt that does no harm if it is done twice.
    async fn repeated<T, F, Fut>(
        &self,
        until: Instant,
        mut call: UncertainCall,
        attempt: F,
    ) -> Result<T, LeaseError>
    where
        F: Fn(Attempt) -> Fut,
        Fut: Future<Output = Result<T, LeaseAttemptError>>,
    {
        let mut backoff = Backoff::new(&self.settings.statement);
        let (mut n_attempts, mut has_met) = (0, false);
        loop {
            n_attempts += 1;
            match attempt(Attempt { until, has_met }).await {
                Ok(done) => return Ok(done),
                Err(LeaseAttemptError::Conflict) => has_met = true,
                Err(LeaseAttemptError::Final(error)) => return Err(call.answered(error)),
                Err(LeaseAttemptError::Failed(failure)) => self.judge(&failure, &mut call)?,
            }
            if n_attempts >= self.settings.attempts || Instant::now() >= until {
                return Err(call.caller_error(LeaseError::Deadline));
            }
            backoff.wait(until).await;
        }
    }
}
