//! Caches the rows of leases that this process gave. A caller that renews, ends or takes one of
//! them again needs no look at its row first.
//!
//! No statement trusts the cache. Each statement names the row's version, the recovery and the
//! moment of the clock that it was made for. If one of them is different, the caller looks.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use entity::worker_lease::Model;
use parking_lot::Mutex;

use super::{
    baseline::{DatabaseTime, LeaseRecoveryMark, SentAt},
    lease::millis,
};
use crate::bounded_map::BoundedMap;

/// The most rows that are known at once.
const MAX: usize = 16_384;
/// How long a database's clock is counted on from a look. Two clocks that drift apart by 1 ms in 10
/// s stay within the tolerance below for this time.
const COUNTED_ON: Duration = Duration::from_secs(60);
/// How much earlier than its estimated moment a statement may run, in milliseconds.
const EARLIER_MS: i64 = 50;
/// How much later a statement may run, in milliseconds, besides the time that the last look took.
const LATER_MS: i64 = 100;
/// A look that took longer than this says nothing useful of the clock.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// The rows as this process left them, and the clock and recovery mark that it last saw.
#[derive(Debug, Default)]
pub(crate) struct LeaseRowCache(Mutex<CachedRows>);

#[derive(Debug, Default)]
struct CachedRows {
    rows: BoundedMap<(String, i32), CachedLease, MAX>,
    /// The id that a holder gave back last, by pool and holder.
    former: BoundedMap<(String, String), i32, MAX>,
    seen: Option<SeenClock>,
}

#[derive(Debug)]
struct CachedLease {
    row: Model,
    n_recoveries: u64,
}

/// What a look saw.
#[derive(Clone, Copy, Debug)]
struct SeenClock {
    recovery_mark: LeaseRecoveryMark,
    n_recoveries: u64,
    /// What the database's clock said (Unix ms).
    now_ms: i64,
    /// When it said so, by our monotonic clock.
    at: Instant,
    took: Duration,
}

impl LeaseRowCache {
    /// Notes a row that the database has confirmed.
    pub(crate) fn note(&self, row: Model, n_recoveries: u64) {
        let mut state = self.0.lock();
        let id = (row.pool.clone(), row.worker);
        let known = state.rows.get(&id);
        if known.is_some_and(|known| {
            (known.n_recoveries, known.row.version) > (n_recoveries, row.version)
        }) {
            return;
        }
        if row.ended {
            let holder = (row.pool.clone(), row.holder.clone());
            state.former.insert(holder, row.worker);
        }
        state.rows.insert(id, CachedLease { row, n_recoveries });
    }

    /// Forgets a row that is not as it was known, so that it could not be written as `written`.
    pub(crate) fn forget(&self, written: &Model) {
        let mut state = self.0.lock();
        let id = (written.pool.clone(), written.worker);
        if state
            .rows
            .get(&id)
            .is_some_and(|known| known.row.version < written.version)
        {
            state.rows.remove(&id);
        }
    }

    /// Returns the row of a lease that is held, if it was read after `n_recoveries` recoveries.
    pub(crate) fn held(&self, pool: String, worker: i32, n_recoveries: u64) -> Option<Model> {
        let state = self.0.lock();
        let known = state.rows.get(&(pool, worker))?;
        (known.n_recoveries == n_recoveries && !known.row.ended).then(|| known.row.clone())
    }

    /// Returns the row of the id that a holder gave back last, if it was read after `n_recoveries`
    /// recoveries.
    pub(crate) fn former(&self, pool: &str, holder: &str, n_recoveries: u64) -> Option<Model> {
        let state = self.0.lock();
        let worker = *state.former.get(&(pool.to_owned(), holder.to_owned()))?;
        let known = state.rows.get(&(pool.to_owned(), worker))?;
        let is_its =
            known.n_recoveries == n_recoveries && known.row.ended && known.row.holder == holder;
        is_its.then(|| known.row.clone())
    }

    /// Returns pools with ids of at most `most_bits` bits, at most `most` of them, chosen at
    /// random. This process has given an id of each pool, which was not given back as far as is
    /// known.
    pub(crate) fn pools(&self, most_bits: i32, most: usize) -> Vec<String> {
        let state = self.0.lock();
        let rows = state.rows.iter().map(|(_, known)| &known.row);
        let held = rows.filter(|row| !row.ended && row.bits <= most_bits);
        let pools: HashSet<&str> = held.map(|row| row.pool.as_str()).collect();
        pools.into_iter().take(most).map(str::to_owned).collect()
    }

    /// Notes the database's clock and its recovery mark, from a look that was just answered.
    pub(crate) fn saw(
        &self,
        now_ms: i64,
        recovery_mark: LeaseRecoveryMark,
        sent: SentAt,
        n_recoveries: u64,
    ) {
        let took = sent.sent.elapsed();
        if took > LONGEST_LOOK {
            return;
        }
        self.0.lock().seen = Some(SeenClock {
            recovery_mark,
            n_recoveries,
            now_ms,
            at: sent.sent + took / 2,
            took,
        });
    }

    /// Returns the database's clock for a statement that is sent now, and what the last recovery
    /// said. `None` if no look after `n_recoveries` recoveries has said it lately.
    pub(crate) fn clock(
        &self,
        sent: SentAt,
        n_recoveries: u64,
    ) -> Option<(DatabaseTime, LeaseRecoveryMark)> {
        let seen = self.0.lock().seen?;
        let since = sent.sent.saturating_duration_since(seen.at);
        if since > COUNTED_ON || seen.n_recoveries != n_recoveries {
            return None;
        }
        let since_ms = i64::try_from(since.as_millis()).ok()?;
        let now_ms = seen.now_ms.checked_add(since_ms)?;
        let time = DatabaseTime {
            earliest_ms: now_ms.checked_sub(EARLIER_MS)?,
            latest_ms: now_ms.checked_add(LATER_MS + millis(seen.took))?,
            is_estimate: true,
            skew_ms: now_ms.saturating_sub(sent.ours_ms),
        };
        Some((time, seen.recovery_mark))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use crate::worker_lease::row_cache::*;

    const UNRECOVERED: LeaseRecoveryMark = LeaseRecoveryMark {
        recovered_at: None,
        leases_from: None,
        named_leases_from: None,
        armed_at: None,
    };

    fn row(worker: i32, version: i64, ended: bool) -> Model {
        Model {
            pool: "billing".into(),
            worker,
            bits: 10,
            holder: "billing-7".into(),
            token_hash: "0f".repeat(32),
            expires_at: 2000,
            reserved_until: 2000,
            version,
            reserved_from: 1000,
            ttl_ms: 1000,
            ended,
            leased_at: 900,
        }
    }

    fn known(rows: impl IntoIterator<Item = (Model, u64)>) -> LeaseRowCache {
        let known = LeaseRowCache::default();
        for (row, n_recoveries) in rows {
            known.note(row, n_recoveries);
        }
        known
    }

    #[test]
    fn a_row_is_known_as_it_was_last_written() {
        let known = known([(row(3, 7, false), 0), (row(3, 6, true), 0)]);
        assert_eq!(known.held("billing".into(), 3, 0), Some(row(3, 7, false)));
        assert_eq!(known.former("billing", "billing-7", 0), None);
        known.note(row(3, 8, true), 0);
        assert_eq!(known.held("billing".into(), 3, 0), None);
        let former = known.former("billing", "billing-7", 0);
        assert_eq!(former, Some(row(3, 8, true)));
        assert_eq!(known.former("billing", "billing-8", 0), None);
        assert_eq!(known.former("invoices", "billing-7", 0), None);
    }

    #[test]
    fn an_id_that_somebody_else_took_is_nobodys_former_one() {
        let mut others = row(3, 9, false);
        others.holder = "billing-8".into();
        let known = known([(row(3, 8, true), 0), (others.clone(), 0)]);
        assert_eq!(known.former("billing", "billing-7", 0), None);
        others.ended = true;
        others.version = 10;
        known.note(others, 0);
        assert_eq!(known.former("billing", "billing-7", 0), None);
    }

    #[test]
    fn what_is_not_as_it_was_known_is_forgotten_and_what_came_since_is_not() {
        let known = known([(row(3, 8, true), 0)]);
        known.forget(&row(3, 8, false));
        assert!(known.former("billing", "billing-7", 0).is_some());
        known.forget(&row(3, 9, false));
        assert!(known.former("billing", "billing-7", 0).is_none());
    }

    #[test]
    fn a_recovery_voids_all_that_was_known() {
        let known = known([(row(3, 8, true), 0), (row(4, 2, false), 0)]);
        let sent = SentAt::read();
        known.saw(1000, UNRECOVERED, sent, 0);
        assert_eq!(known.clock(sent, 0).unwrap().1, UNRECOVERED);
        assert!(known.clock(sent, 1).is_none());
        assert!(known.former("billing", "billing-7", 1).is_none());
        assert!(known.held("billing".into(), 4, 1).is_none());
        known.note(row(3, 1, true), 1);
        assert!(known.former("billing", "billing-7", 1).is_some());
        known.note(row(3, 9, true), 0);
        let former = known.former("billing", "billing-7", 1);
        assert_eq!(
            former,
            Some(row(3, 1, true)),
            "late word from before a recovery"
        );
    }

    #[test]
    fn the_clock_of_a_look_is_counted_on_for_a_minute() {
        let known = LeaseRowCache::default();
        let sent = SentAt::read();
        assert_eq!(known.clock(sent, 0), None);
        known.saw(1_000_000, UNRECOVERED, sent, 0);
        let at = |seconds| {
            let sent = SentAt {
                sent: sent.sent + Duration::from_secs(seconds),
                ..sent
            };
            known.clock(sent, 0).map(|(clock, _)| clock)
        };
        let moment = at(10).unwrap();
        let rest = moment.latest_ms - moment.earliest_ms;
        assert!((EARLIER_MS + LATER_MS..=EARLIER_MS + LATER_MS + 500).contains(&rest));
        let about = 1_010_000 - EARLIER_MS;
        assert!(
            (about - 1..=about).contains(&moment.earliest_ms),
            "{moment:?}"
        );
        assert!(at(59).is_some());
        assert_eq!(at(61), None);
    }

    #[test]
    fn no_more_rows_are_known_than_allowed() {
        let most = i32::try_from(MAX).unwrap();
        let known = known((0..most).map(|worker| (row(worker, 1, true), 0)));
        let n_known = || known.0.lock().rows.iter().count();
        assert_eq!(n_known(), MAX);
        known.note(row(most, 1, true), 0);
        assert!(n_known() < MAX);
        let former = known.former("billing", "billing-7", 0);
        assert_eq!(former, Some(row(most, 1, true)));
    }
}
