//! Says what a statement about a lease goes by: our clocks, the database's clock, the last
//! recovery, and the guard of the heartbeat.

use std::time::{Duration, Instant};

use entity::worker_lease;
use odometer_core::definition::Stripe;
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};

use sea_orm::FromQueryResult;

use super::lease::{LONGEST_TTL, LeaseError, LeaseGrant, LeaseKey, MAX_AHEAD_MS, millis};
use crate::guard::HeartbeatGuard;

/// Sets how far ahead a lease reserves time at least, in milliseconds.
pub(crate) const FIRST_REACH_MS: i64 = 60_000;

/// What a statement goes by. It was read just before, or is remembered from an earlier look. If it
/// does not hold any more when the statement runs, the statement does nothing.
#[derive(Clone, Debug)]
pub(crate) struct LeaseBaseline {
    /// The stripe of the database.
    pub(crate) stripe: Stripe,
    pub(crate) sent: SentAt,
    pub(crate) clock: DatabaseTime,
    pub(crate) recovery_mark: LeaseRecoveryMark,
    pub(crate) guard: HeartbeatGuard,
}

impl LeaseBaseline {
    /// Returns until when a lease reserves time, and when it ends by the database's clock (both
    /// Unix ms). It was given at `leased_at`, or is given now.
    pub(crate) fn ends_ms(&self, ttl: Duration, leased_at: Option<i64>) -> (i64, i64) {
        let latest_ms = self.clock.latest_ms;
        let expires_ms = latest_ms.saturating_add(millis(ttl));
        let until_ms = self.sent.until(latest_ms, ttl);
        (until_ms.min(self.most_until_ms(leased_at)), expires_ms)
    }

    /// Returns the latest time that a lease may reserve (Unix ms), as [`LeaseRecoveryMark`] says.
    fn most_until_ms(&self, leased_at: Option<i64>) -> i64 {
        let now_ms = self.clock.earliest_ms;
        self.recovery_mark.most_until_ms(now_ms, leased_at)
    }

    /// Returns from when on the time of a pool's id is unused (Unix ms). `row` is the row of the
    /// id.
    pub(crate) fn unused_from_ms(&self, is_named: bool, row: Option<&worker_lease::Model>) -> i64 {
        self.recovery_mark
            .unused_from_ms(is_named, row, self.clock.earliest_ms)
    }
}

impl LeaseGrant {
    /// Builds the lease of a row that was written, or that an earlier attempt wrote. The lease ends
    /// when its row says. This is counted from before the statement was sent.
    pub(crate) fn of(key: LeaseKey, row: &worker_lease::Model, baseline: &LeaseBaseline) -> Self {
        let duration = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
        let ttl = duration(row.ttl_ms);
        let left_ms = row.expires_at.saturating_sub(baseline.clock.latest_ms);
        // A fence may have raised the time of the row, for the next holder.
        let most_ms = baseline.most_until_ms(Some(row.leased_at));
        let until_ms = row.reserved_until.min(most_ms);
        let reach_ms = until_ms.saturating_sub(baseline.clock.latest_ms);
        Self {
            key,
            from_ms: row.reserved_from,
            until_ms,
            expires: baseline.sent.sent + duration(left_ms).min(ttl),
            ttl,
            reach: duration(reach_ms.max(FIRST_REACH_MS)).min(ttl),
            skew_ms: baseline.clock.skew_ms,
        }
    }
}

/// Our clocks, before a statement is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAt {
    pub(crate) sent: Instant,
    pub(crate) ours_ms: i64,
}

impl SentAt {
    pub(crate) fn read() -> Self {
        Self {
            sent: Instant::now(),
            ours_ms: now_ms(),
        }
    }

    /// Checks that our clock is not too far ahead of the database's clock.
    ///
    /// # Errors
    /// `ClockAhead`.
    pub(crate) fn check(self, database_ms: i64) -> Result<(), LeaseError> {
        let by_ms = self.ours_ms.saturating_sub(database_ms);
        if by_ms > MAX_AHEAD_MS && !faults::is(Fault::AnyClock) {
            return Err(LeaseError::ClockAhead { by_ms });
        }
        Ok(())
    }

    /// Returns the moment until which time is reserved: `ttl` after the later of both clocks. The
    /// database's clock counts as at most [`MAX_AHEAD_MS`] ahead of ours. If a clock that jumped
    /// far ahead counted in full, ids would rest long after that clock is right again.
    pub(crate) fn until(self, database_ms: i64, ttl: Duration) -> i64 {
        let most_ms = self.ours_ms.saturating_add(MAX_AHEAD_MS);
        let now_ms = Ord::max(self.ours_ms, Ord::min(database_ms, most_ms));
        now_ms.saturating_add(millis(ttl))
    }

    /// Returns the database's clock minus ours, in milliseconds, when a reply has just come. The
    /// database read its clock at some time between request and reply, and the middle is taken.
    pub(crate) fn skew_ms(self, database_ms: i64) -> i64 {
        let half = millis(self.sent.elapsed()) / 2;
        database_ms.saturating_sub(self.ours_ms.saturating_add(half))
    }
}

/// The database's clock while a statement runs (Unix ms).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DatabaseTime {
    pub(crate) earliest_ms: i64,
    pub(crate) latest_ms: i64,
    /// Whether the clock was not read, but counted on from an earlier look. The statement may then
    /// run only in this range.
    pub(crate) is_estimate: bool,
    /// The database's clock minus ours, in milliseconds.
    pub(crate) skew_ms: i64,
}

impl DatabaseTime {
    /// Returns the clock as a look has read it.
    pub(crate) fn of_a_look(now_ms: i64, sent: SentAt) -> Self {
        Self {
            earliest_ms: now_ms,
            latest_ms: now_ms,
            is_estimate: false,
            skew_ms: sent.skew_ms(now_ms),
        }
    }
}

/// What the last recovery of a database says of all its leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromQueryResult)]
pub(crate) struct LeaseRecoveryMark {
    pub(crate) recovered_at: Option<i64>,
    /// No id's time begins before this, no matter what its row says. The reason is that the
    /// recovery of an older program does not raise the rows.
    pub(crate) leases_from: Option<i64>,
    /// The same for pools of other programs.
    pub(crate) named_leases_from: Option<i64>,
    /// Since when replicas may fence the database. A fence keeps ids from new holders for as long
    /// as a lease may reach ahead that the database has forgotten.
    pub(crate) armed_at: Option<i64>,
}

impl LeaseRecoveryMark {
    /// Returns from when on the time of a pool's id is unused, at a moment of the database's clock.
    pub(crate) fn unused_from_ms(
        self,
        is_named: bool,
        row: Option<&worker_lease::Model>,
        now_ms: i64,
    ) -> i64 {
        if faults::is(Fault::NoReservedUntil) {
            return now_ms;
        }
        let reserved_until = row.map_or(0, |row| row.reserved_until);
        let from_ms = Ord::max(reserved_until, self.leases_from.unwrap_or(0));
        if is_named {
            return Ord::max(from_ms, self.named_leases_from.unwrap_or(0));
        }
        from_ms
    }

    /// Returns the latest time that a lease may reserve at a moment of the database's clock, if it
    /// was given at `leased_at`, or is given now (all Unix ms).
    ///
    /// In a database that replicas may fence, a lease reaches ahead no further than it has lasted,
    /// and a minute at least. So one that was given in lost commits reaches no further after the
    /// fence than these commits go back.
    pub(crate) fn most_until_ms(self, now_ms: i64, leased_at: Option<i64>) -> i64 {
        if self.armed_at.is_none() || faults::is(Fault::LeasesReachFar) {
            return i64::MAX;
        }
        let lasted_ms = leased_at.map_or(0, |leased_at| now_ms.saturating_sub(leased_at));
        now_ms.saturating_add(lasted_ms.max(FIRST_REACH_MS))
    }
}

/// Returns when the time begins in pools of other programs after a recovery in which an operator
/// says what was lost.
///
/// A lease of the longest length may have been forgotten. It was reserved by a clock at most
/// [`MAX_AHEAD_MS`] ahead of the database's clock. That clock may be as far ahead of the clock of
/// the recovery.
pub(crate) fn named_from(recovered_at: i64) -> i64 {
    let rest = millis(LONGEST_TTL).saturating_add(2 * MAX_AHEAD_MS);
    recovered_at.saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn clocks(ours_ms: i64) -> SentAt {
        SentAt {
            sent: Instant::now(),
            ours_ms,
        }
    }

    #[test]
    fn a_database_clock_that_jumped_ahead_reserves_five_minutes_more_at_most() {
        let until = |database_ms| clocks(1_000_000).until(database_ms, TTL);
        assert_eq!(until(0), 1_030_000);
        assert_eq!(until(1_000_000), 1_030_000);
        assert_eq!(until(1_000_000 + MAX_AHEAD_MS), 1_030_000 + MAX_AHEAD_MS);
        for far_ms in [MAX_AHEAD_MS + 1, 86_400_000, i64::MAX - 1_000_000] {
            assert_eq!(until(1_000_000 + far_ms), 1_030_000 + MAX_AHEAD_MS);
        }
    }

    #[test]
    fn a_lease_reaches_ahead_as_far_as_it_has_lasted() {
        let unarmed = LeaseRecoveryMark {
            recovered_at: None,
            leases_from: None,
            named_leases_from: None,
            armed_at: None,
        };
        assert_eq!(unarmed.most_until_ms(1_000_000, None), i64::MAX);
        let armed = LeaseRecoveryMark {
            armed_at: Some(1),
            ..unarmed
        };
        let most = |leased_at| armed.most_until_ms(1_000_000, leased_at);
        assert_eq!(most(None), 1_060_000);
        assert_eq!(most(Some(950_000)), 1_060_000);
        assert_eq!(most(Some(900_000)), 1_100_000);
        assert_eq!(most(Some(0)), 2_000_000);
        // The clock was set back since.
        assert_eq!(most(Some(1_100_000)), 1_060_000);
    }

    #[test]
    fn pools_of_other_programs_may_begin_later() {
        let mark = LeaseRecoveryMark {
            recovered_at: Some(1),
            leases_from: Some(100),
            named_leases_from: Some(200),
            armed_at: None,
        };
        assert_eq!(mark.unused_from_ms(false, None, 0), 100);
        assert_eq!(mark.unused_from_ms(true, None, 0), 200);
        let fenced = LeaseRecoveryMark {
            named_leases_from: None,
            ..mark
        };
        assert_eq!(fenced.unused_from_ms(true, None, 0), 100);
    }

    #[test]
    fn a_clock_of_ours_that_is_far_ahead_reserves_nothing() {
        assert!(clocks(MAX_AHEAD_MS).check(0).is_ok());
        assert!(clocks(MAX_AHEAD_MS + 1).check(0).is_err());
    }
}
