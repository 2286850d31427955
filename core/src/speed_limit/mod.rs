//! Computes the speed limit of a counter, and the line that no copy of the counter is above.
//!
//! # The problem
//!
//! A database can fail over to a copy that lacks its last commits. Numbers that were reserved in
//! the lost commits may be in use, and nobody can say which.
//!
//! # The naive way, and why it fails
//!
//! You can skip a number of steps that you think is enough. But nothing keeps callers from having
//! taken more than that.
//!
//! # What Odometer does
//!
//! Each counter has a [`SpeedLimit`]: a rate and a burst. Each reservation moves `paced_until`, a
//! time in the counter's row, on by what its numbers cost, and does not move it further ahead of
//! the database's clock than the burst. This is the generic cell rate algorithm (ITU-T I.371, annex
//! A). So from what a copy has, it follows what its lost sequel can have given.
//!
//! # Why it is right
//!
//! Let a copy have the high-water mark *v*, the time `paced_until` *p*, and no commit that began
//! before a time *T* be missing. Let a sequel of the copy reserve *n* numbers by a time *t*.
//!
//! 1. Each statement of the sequel reads a clock at or after *T*. So the sequel begins to pay at
//!    max(*p*, *T*), and its costs, which are rounded up, add up to at least *n* / rate.
//! 2. No statement leaves `paced_until` above *t* + burst / rate.
//! 3. So *n* is at most burst + rate · (*t* − max(*p*, *T*)). The line of the copy is *v* plus this
//!    number, and no sequel is above the line.
//! 4. A reservation of *m* numbers raises *v* by *m* and lowers the other term by at least *m*. A
//!    later *T* lowers it, too. So the line of a sequel is never above the line of the copy.
//!
//! A *fence* reserves all numbers up to the line at once, and pays for them
//! ([`fence`](SpeedLimit::fence)).
//! By (4), it does not raise the line. So a later fence of an older copy lands above everything
//! that was given after the first one.
//!
//! # A clock that is set back
//!
//! If the clock of a database is set back by an hour, `paced_until` lies an hour ahead, and nothing
//! could be reserved for an hour. By (2), no reservation leaves `paced_until` so far ahead. So a
//! `paced_until` that lies more than a minute further ahead than the burst counts as now.
//!
//! A sequel of a copy may have read any clock from *T* on. If the `paced_until` of the copy is too
//! far ahead of *T*, nobody can tell whether the sequel counted it as now, so the line of the copy is
//! not [known](SpeedLimit::knows_line). Then the clock was set back, or no heartbeat was committed
//! for a minute.

use serde::{Deserialize, Serialize};

pub mod fence;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// Counts the microseconds of a second.
const SECOND_US: i128 = 1_000_000;
/// Bounds by how much `paced_until` may lie further ahead than the burst, in microseconds. If it
/// lies further ahead, the clock was set back.
const SET_BACK_US: i64 = 60_000_000;

/// How fast the numbers of one counter may be reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct SpeedLimit {
    /// The numbers a second.
    rate: u32,
    /// The numbers that may be reserved at once after a rest.
    burst: u64,
}

/// What a counter's row says of its reservations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paced {
    /// The numbers that were reserved or skipped since the start of the counter.
    pub n_reserved: u64,
    /// The time up to which the limit has been used (Unix µs, by the database's clock).
    pub paced_until_us: i64,
}

impl Paced {
    /// A counter of which nothing was ever reserved.
    pub const RESTED: Self = Self {
        n_reserved: 0,
        paced_until_us: i64::MIN,
    };
}

impl SpeedLimit {
    /// The limit of a sequence whose numbers only programs read.
    pub const DEFAULT: Self = Self {
        rate: 100_000,
        burst: 10_000_000,
    };

    /// Creates a limit of `rate` numbers a second, and of `burst` numbers at once. `None` if one of
    /// them is 0.
    #[must_use]
    pub fn new(rate: u32, burst: u64) -> Option<Self> {
        (rate > 0 && burst > 0).then_some(Self { rate, burst })
    }

    /// Returns the numbers a second.
    #[must_use]
    pub fn rate(self) -> u32 {
        self.rate
    }

    /// Returns the numbers that may be reserved at once after a rest.
    #[must_use]
    pub fn burst(self) -> u64 {
        self.burst
    }

    /// Returns what `n` numbers cost, in microseconds, rounded up.
    #[must_use]
    pub fn cost_us(self, n: u64) -> i64 {
        clamp((i128::from(n) * SECOND_US + i128::from(self.rate) - 1) / i128::from(self.rate))
    }

    /// Returns how far ahead of the database's clock `paced_until` may lie, in microseconds.
    #[must_use]
    pub fn capacity_us(self) -> i64 {
        self.cost_us(self.burst)
    }

    /// Returns by which factor the time that was paid for changes, if another limit follows this
    /// one: the numbers that were paid for stay the same.
    #[must_use]
    pub fn factor_to(self, next: Self) -> f64 {
        f64::from(self.rate) / f64::from(next.rate)
    }

    /// Returns how far `paced_until` may lie ahead of the clock, in microseconds. A time that is
    /// further ahead counts as now.
    #[must_use]
    pub fn horizon_us(self) -> i64 {
        self.capacity_us().saturating_add(SET_BACK_US)
    }

    /// Returns the time from which the limit is unused: not before `from_us`. By the clock it is
    /// `now_us`.
    fn free_from(self, paced_until_us: i64, from_us: i64, now_us: i64) -> i64 {
        if paced_until_us > now_us.saturating_add(self.horizon_us()) {
            return from_us;
        }
        paced_until_us.max(from_us)
    }

    /// Returns how many numbers can be reserved now.
    #[must_use]
    pub fn n_available(self, paced_until_us: i64, now_us: i64) -> u64 {
        let free_from = self.free_from(paced_until_us, now_us, now_us);
        let free_us = i128::from(now_us) + i128::from(self.capacity_us()) - i128::from(free_from);
        let n = free_us.max(0) * i128::from(self.rate) / SECOND_US;
        u64::try_from(n).unwrap_or(u64::MAX).min(self.burst)
    }

    /// Returns for how long to wait until `n` numbers can be reserved, in microseconds. `None` if so
    /// many can never be reserved at once.
    #[must_use]
    pub fn wait_us(self, paced_until_us: i64, n: u64, now_us: i64) -> Option<u64> {
        let free_us = self.capacity_us().checked_sub(self.cost_us(n))?;
        if n > self.burst || free_us < 0 {
            return None;
        }
        let free_from = self.free_from(paced_until_us, now_us, now_us);
        let wait_us = free_from.saturating_sub(now_us).saturating_sub(free_us);
        Some(u64::try_from(wait_us).unwrap_or(0))
    }

    /// Reserves `n` numbers, as the statement in the database does it. `None` if the limit does not
    /// allow so many now.
    #[must_use]
    pub fn reserve(self, counter: Paced, n: u64, now_us: i64) -> Option<Paced> {
        let paced_until_us = self
            .free_from(counter.paced_until_us, now_us, now_us)
            .saturating_add(self.cost_us(n));
        let ahead_us = paced_until_us.saturating_sub(now_us);
        (ahead_us <= self.capacity_us()).then_some(Paced {
            n_reserved: counter.n_reserved.saturating_add(n),
            paced_until_us,
        })
    }

    /// Returns whether it is known how many numbers a lost sequel of a copy can have reserved. No
    /// commit that began before `since_us` is missing in the copy.
    #[must_use]
    pub fn knows_line(self, copy: Paced, since_us: i64) -> bool {
        copy.paced_until_us <= since_us.saturating_add(self.horizon_us())
    }

    /// Returns how many numbers a lost sequel of a copy can have reserved until `until_us`. No
    /// commit that began before `since_us` is missing in the copy.
    ///
    /// If [`knows_line`](Self::knows_line) is false, the result may be too low.
    #[must_use]
    pub fn n_lost(self, copy: Paced, since_us: i64, until_us: i64) -> u64 {
        let paid_until = self.free_from(copy.paced_until_us, since_us, until_us);
        let free_us =
            i128::from(until_us) + i128::from(self.capacity_us()) - i128::from(paid_until);
        let n = (free_us.max(0) * i128::from(self.rate) + SECOND_US - 1) / SECOND_US;
        u64::try_from(n).unwrap_or(u64::MAX)
    }

    /// Skips all numbers that a lost sequel of a copy can have reserved until `until_us`, and pays
    /// for them. So nothing more can be reserved before `until_us`, and then no more than the rate.
    #[must_use]
    pub fn fence(self, copy: Paced, since_us: i64, until_us: i64) -> Paced {
        let n = self.n_lost(copy, since_us, until_us);
        let paid_until = self.free_from(copy.paced_until_us, since_us, until_us);
        Paced {
            n_reserved: copy.n_reserved.saturating_add(n),
            paced_until_us: paid_until.saturating_add(self.cost_us(n)),
        }
    }
}

fn clamp(us: i128) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}
