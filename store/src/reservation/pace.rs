//! Keeps a reservation within the speed limit of its sequence.
//!
//! The statement that reserves decides whether the limit allows its numbers
//! (`rows/payment.rs`). As long as the counter is only remembered, nothing is known of how far the
//! limit has been used, and the statement asks for what the demand needs. So an undisturbed refill
//! is one round trip. If the statement is refused, the next attempt reads the counter, and asks for
//! what the limit has left.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{
    definition::{Definition, Order},
    sizing::{Demand, Granted},
    speed_limit::SpeedLimit,
};
use odometer_database::retry::AttemptError;

use crate::{
    error::{Attempted, StoreError},
    outcome::Resolved,
    reservation::{attempts::Reservation, request::Want},
    rows::{counter::SeenCounter, payment::limit_of},
};

/// Divides the rate: callers wait until the limit allows what it gives in this part of a second, so
/// that a sequence at its limit is not written for each number.
const PART_OF_SECOND: u64 = 10;
/// Divides the burst: nothing smaller is fetched ahead of need.
const PART_OF_BURST: u64 = 10;
/// Divides the burst: no refill takes more, unless callers wait for more. What is fetched ahead of
/// need leaves as much to callers who wait, at any replica.
const PART_FOR_ONE: u64 = 2;

/// How far the speed limit of a counter had been used when the counter was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// By the database's clock (Unix µs).
    paced_until_us: i64,
    now_us: i64,
    /// When the answer had come.
    read_at: Instant,
}

impl Bucket {
    /// Keeps what was read just now.
    pub(crate) fn read(paced_until_us: i64, now_us: i64) -> Self {
        Self {
            paced_until_us,
            now_us,
            read_at: Instant::now(),
        }
    }

    /// Returns the least that the database's clock shows now.
    fn now_us(&self) -> i64 {
        let passed = i64::try_from(self.read_at.elapsed().as_micros());
        self.now_us.saturating_add(passed.unwrap_or(i64::MAX))
    }

    /// Returns how many numbers the limit allows now.
    pub(crate) fn n_available(&self, limit: SpeedLimit) -> u64 {
        limit.n_available(self.paced_until_us, self.now_us())
    }

    /// Returns for how long to wait until the limit allows `n` numbers.
    pub(crate) fn wait(&self, limit: SpeedLimit, n: u64) -> Duration {
        let wait_us = limit.wait_us(self.paced_until_us, n, self.now_us());
        wait_us.map_or(Duration::MAX, Duration::from_micros)
    }
}

/// The numbers for which a write is worth it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) enough: u64,
    /// How many are to be left.
    kept: u64,
}

impl Need {
    /// Needs all numbers that are wanted.
    pub(crate) fn all(count: u64) -> Self {
        Self {
            enough: count,
            kept: 0,
        }
    }

    /// Needs what makes a write worth it if callers wait for it, and at least `least`.
    pub(crate) fn of_callers(limit: SpeedLimit, least: u64) -> Self {
        Self::all(worth_a_write(limit).max(least).clamp(1, limit.burst()))
    }

    fn of_refill(limit: SpeedLimit, count: u64, demand: &Demand) -> Self {
        let need = match demand.waited_for {
            0 => Self {
                enough: (limit.burst() / PART_OF_BURST).max(1),
                kept: limit.burst() / PART_FOR_ONE,
            },
            _ => Self::of_callers(limit, 1),
        };
        need.at_most(count)
    }

    /// Needs no more than what is wanted.
    pub(crate) fn at_most(self, count: u64) -> Self {
        Self {
            enough: self.enough.min(count),
            ..self
        }
    }
}

/// Returns for how many numbers a limit makes a refill wait, if callers wait for the refill. So a
/// refill brings them at least as many, unless they want fewer.
#[must_use]
pub fn worth_a_write(limit: SpeedLimit) -> u64 {
    (u64::from(limit.rate()) / PART_OF_SECOND).clamp(1, limit.burst())
}

/// What the speed limit allows of the numbers that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// So many may be reserved now.
    Now(u64),
    /// Enough of them may be reserved after this time, and `n_now` now.
    After { wait: Duration, n_now: u64 },
}

impl Allowed {
    /// Says what a limit allows of `count` numbers. As long as the bucket was not read, it counts as
    /// full.
    pub(crate) fn of(limit: SpeedLimit, bucket: Option<Bucket>, count: u64, need: Need) -> Self {
        let Some(bucket) = bucket else {
            return Self::Now(count.min(limit.burst()));
        };
        let n_now = bucket.n_available(limit).saturating_sub(need.kept);
        if n_now >= need.enough {
            return Self::Now(count.min(n_now));
        }
        let wanted = need.enough.saturating_add(need.kept).min(limit.burst());
        let wait = bucket.wait(limit, wanted);
        Self::After { wait, n_now }
    }
}

/// Returns how many numbers one write may take of a limit: a half of the burst, or `at_least` if this
/// is more. The rest is left to other replicas.
pub(crate) fn share_of(limit: SpeedLimit, at_least: u64) -> u64 {
    let share = limit.burst() / PART_FOR_ONE;
    share.max(at_least).clamp(1, limit.burst())
}

/// Returns the error for callers who would wait too long.
pub(crate) fn rate_limited(wait: Duration, n_available: u64) -> StoreError {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    StoreError::RateLimited {
        n_available,
        wait_ms: wait_ms.saturating_add(1),
    }
}

/// Returns the error for callers whose time is over: the limit held them back, or something else.
pub(crate) fn late(is_limited: bool) -> StoreError {
    if is_limited {
        rate_limited(Duration::ZERO, 0)
    } else {
        StoreError::Deadline
    }
}

/// Returns the error for numbers that the limit never allows at once. If the sequence has another
/// limit than its issuer knows, the callers look the name up again.
pub(crate) fn above_burst(
    limit: SpeedLimit,
    counted_by: Option<&Definition>,
    definition: &Arc<Definition>,
) -> StoreError {
    match counted_by {
        Some(by) if limit_of(by) != Some(limit) => StoreError::Changed(Arc::clone(definition)),
        Some(_) | None => StoreError::AboveBurst {
            burst: limit.burst(),
        },
    }
}

/// An update that changed no row: another write came first, or the speed limit did not allow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedUpdate {
    pub(crate) seen: SeenCounter,
    pub(crate) count: u64,
}

impl Reservation<'_> {
    /// Cuts a reservation to what the limit allows now. If this is too little, waits until there is
    /// more. The next attempt goes on then.
    ///
    /// # Errors
    /// `RateLimited` if the wait would be too long, `AboveBurst` if it would never end.
    pub(crate) async fn within_limit(
        &mut self,
        definition: &Arc<Definition>,
        granted: Granted,
    ) -> Attempted<Granted> {
        let Some(limit) = limit_of(definition) else {
            return Ok(granted);
        };
        let (granted, need) = match &self.request.want {
            Want::Refill(demand) => {
                let least = demand.waited_for.max(definition.block.min);
                let share = granted.cut(share_of(limit, least));
                (share, Need::of_refill(limit, share.count, demand))
            }
            Want::Exactly(_) | Want::Strict { .. } | Want::Handover(_) => {
                if granted.count > limit.burst() {
                    let counted_by = self.request.counted_by.as_deref();
                    return Err(above_burst(limit, counted_by, definition).into());
                }
                (granted, Need::all(granted.count))
            }
        };
        let allowed = Allowed::of(limit, self.bucket, granted.count, need);
        let (wait, n_now) = match allowed {
            Allowed::Now(n_now) => {
                self.reads_next = self.bucket.is_some() && n_now < granted.count;
                return Ok(granted.cut(n_now));
            }
            Allowed::After { wait, n_now } => (wait, n_now),
        };
        self.reads_next = true;
        let time_left = self.retry.until.saturating_duration_since(Instant::now());
        // Another database may have enough now.
        let passes_on = self.constraints.fails_fast;
        let is_ahead = self.request.want.is_ahead();
        let may_be_cut = matches!(self.request.want, Want::Refill(_)) && !is_ahead;
        if wait >= time_left && may_be_cut && n_now > 0 && !passes_on {
            return Ok(granted.cut(n_now));
        }
        self.database.metrics.limited.increment(1);
        // Nobody waits for what is fetched ahead of need, and it would hold up other sequences.
        if is_ahead || passes_on || wait >= time_left {
            return Err(rate_limited(wait, n_now).into());
        }
        self.is_limited = true;
        self.retry.spare();
        tokio::time::sleep(wait).await;
        Err(AttemptError::Again)
    }

    /// Notes that an update changed no row. The next attempt reads the counter first, and finds out
    /// why.
    pub(crate) fn refused(&mut self, seen: SeenCounter, count: u64) -> AttemptError<StoreError> {
        self.refused_update = Some(RefusedUpdate { seen, count });
        self.known = None;
        AttemptError::Conflict
    }

    /// Counts a conflict, if this is why an update changed no row: `known` was read after it.
    pub(crate) fn settle_refused_update(&mut self, known: &Resolved) {
        let Some(refused) = self.refused_update.take() else {
            return;
        };
        let limit = limit_of(&known.definition);
        let is_limited = limit.is_some_and(|limit| match known.definition.order {
            // Nothing else refuses an update of a counter that is as it was seen.
            Order::Relaxed => known.seen == refused.seen,
            Order::Strict => {
                let n_available = self.bucket.map(|bucket| bucket.n_available(limit));
                n_available.is_some_and(|n_available| n_available < refused.count)
            }
        });
        if is_limited {
            self.database.metrics.limited.increment(1);
            return;
        }
        self.database.metrics.conflict.increment(1);
        self.n_conflicts = self.n_conflicts.saturating_add(1);
    }
}
