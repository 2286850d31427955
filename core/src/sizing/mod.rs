//! How large the next block is, and when it is fetched.
//!
//! A block holds what its sequence needs for `block.refill`; the next one is fetched while enough
//! for `block.hold` is left. A sequence that has only just become busy has no average to go by:
//! its blocks are sized for a minute of its last second, so they grow from block to block until
//! the average has caught up.
//!
//! A calendar period ends: of it no more is fetched than it needs to its cut-over.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::block::MAX_COUNT;
use crate::definition::BlockPolicy;

/// The time constant of the average, in seconds.
const AVERAGE_OVER: f64 = 300.0;

/// For how many seconds a block lasts at the rate of the last second.
const BURST_SECONDS: f64 = 60.0;

/// The rates are counted by the second: for less than that there is nothing to go by.
const GRAIN_SECONDS: f64 = 1.0;

/// The part of what is left of a sequence that one block may be: one in this many.
const PART_OF_LEFT: u64 = 4096;

/// How fast a sequence issues, in numbers a second: finite, 0 or more.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    average: f64,
    last_second: f64,
}

/// What the next block is wanted for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// How fast the sequence issues.
    pub rates: Rates,
    /// Numbers issued since the last sample of the rates.
    pub this_second: u64,
    /// Numbers that callers are waiting for now.
    pub waited_for: u64,
    /// The size of the block before, where its reservation met two or more conflicts.
    pub double_of: Option<u64>,
    /// For how many seconds the period goes on, where it is one of the calendar.
    pub seconds_left: Option<f64>,
}

/// How large a block should be, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// What suits the demand: 1 to [`MAX_COUNT`].
    pub preferred: u64,
    /// What callers are waiting for: 1 to [`MAX_COUNT`], at most `preferred`.
    pub at_least: u64,
    /// What `preferred` comes from.
    pub why: Why,
}

/// How large a block may be, as far as numbers are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// Numbers: at most what is left, so 0 only where nothing is.
    pub count: u64,
    /// What `count` comes from.
    pub why: Why,
}

/// What decided the size of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The five-minute average, for as long as `block.refill`.
    Average,
    /// The last second, for a minute.
    LastSecond,
    /// What callers were waiting for.
    Waiting,
    /// `block.min`.
    Minimum,
    /// Twice the block before, since its reservation met conflicts.
    Conflicts,
    /// Cut to `block.max`, or to what a block can hold.
    Maximum,
    /// Cut to what is needed to the cut-over.
    Cutover,
    /// Cut to 1/4096 of what is left, or to what is left.
    Left,
}

impl Rates {
    /// The rates of a sequence that has issued nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::resume(0.0)
    }

    /// The rates of a sequence whose average is known from before. NaN, infinity and what is below
    /// 0 count as 0.
    #[must_use]
    pub fn resume(average: f64) -> Self {
        Self {
            average: sound(average),
            last_second: 0.0,
        }
    }

    /// Takes note of the numbers issued in the seconds since the last sample: about one second,
    /// but longer gaps decay as they should. Without time passed nothing changes.
    ///
    /// The average is exponential with a time constant of five minutes, for samples at irregular
    /// intervals: `average += (rate − average) × (1 − exp(−seconds / 300))`.
    pub fn sample(&mut self, numbers: u64, seconds: f64) {
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        let numbers = float(numbers);
        let weight = -(-seconds / AVERAGE_OVER).exp_m1();
        self.average = sound(self.average + (numbers / seconds - self.average) * weight);
        // Less than a second is no reason to expect more in the rest of it.
        self.last_second = sound(numbers / seconds.max(1.0));
    }

    /// The five-minute average, in numbers a second.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.average
    }

    /// The rate at the last sample, in numbers a second.
    #[must_use]
    pub fn last_second(&self) -> f64 {
        self.last_second
    }

    /// The highest rate there is reason to expect, where so many numbers were issued since the last
    /// sample.
    fn highest(&self, this_second: u64) -> f64 {
        self.average.max(self.last_second).max(float(this_second))
    }

    /// For how many seconds so many numbers last at the higher of the two rates; `None` at rate 0.
    #[must_use]
    pub fn reserve_seconds(&self, remaining: u64) -> Option<f64> {
        let rate = self.average.max(self.last_second);
        (rate > 0.0)
            .then(|| float(remaining) / rate)
            .filter(|seconds| seconds.is_finite())
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Average => "five-minute average × refill",
            Self::LastSecond => "last second × 60 s",
            Self::Waiting => "numbers waited for",
            Self::Minimum => "block.min",
            Self::Conflicts => "doubled after conflicts",
            Self::Maximum => "block.max",
            Self::Cutover => "what is needed to the cut-over",
            Self::Left => "1/4096 of what is left",
        })
    }
}

/// How large the next block should be.
///
/// `max(average × refill, last second × 60 s, waited for, block.min)`, twice the block before
/// after conflicts, at most `block.max`, and of a calendar period at most what it needs to its
/// cut-over at the higher of the two rates, but never less than what is waited for.
#[must_use]
pub fn size(policy: &BlockPolicy, demand: &Demand) -> Size {
    let at_least = demand.waited_for.clamp(1, MAX_COUNT);
    let last_second = demand.rates.last_second.max(float(demand.this_second));
    let doubled = demand.double_of.unwrap_or(0).saturating_mul(2);
    let average = whole(demand.rates.average * policy.refill.as_secs_f64());
    // Of equals the first is named.
    let (wanted, why) = [
        (whole(last_second * BURST_SECONDS), Why::LastSecond),
        (doubled, Why::Conflicts),
        (at_least, Why::Waiting),
        (policy.min, Why::Minimum),
    ]
    .into_iter()
    .fold((average, Why::Average), |best, other| {
        if other.0 > best.0 { other } else { best }
    });
    let to_cutover = demand.seconds_left.map_or(u64::MAX, |seconds| {
        whole(demand.rates.highest(demand.this_second) * seconds.max(GRAIN_SECONDS))
    });
    let (preferred, why) = [
        (policy.max.clamp(1, MAX_COUNT), Why::Maximum),
        (to_cutover, Why::Cutover),
    ]
    .into_iter()
    .fold(
        (wanted, why),
        |least, bound| {
            if bound.0 < least.0 { bound } else { least }
        },
    );
    if preferred < at_least {
        return Size {
            preferred: at_least,
            at_least,
            why: Why::Waiting,
        };
    }
    Size {
        preferred,
        at_least,
        why,
    }
}

/// How large the next block is, where so many numbers are left of the sequence.
///
/// At most 1/4096 of them (but 1), so that many replicas can share the end of a range; not less
/// than what is waited for; never more than what is left.
#[must_use]
pub fn grant(size: &Size, left: u64) -> Granted {
    let most = most_at_once(left).max(size.at_least).min(left);
    if size.preferred <= most {
        return Granted {
            count: size.preferred,
            why: size.why,
        };
    }
    let waiting = most == size.at_least && most > most_at_once(left);
    Granted {
        count: most,
        why: if waiting { Why::Waiting } else { Why::Left },
    }
}

/// The most numbers that a client may reserve at once of those left: 1/4096 of them, at least 1,
/// at most [`MAX_COUNT`]; 0 where nothing is left.
#[must_use]
pub fn most_at_once(left: u64) -> u64 {
    (left / PART_OF_LEFT).clamp(1, MAX_COUNT).min(left)
}

/// With how many numbers of a block left the next one is fetched: what `hold` needs at the highest
/// of the rates, 0 at rate 0.
///
/// A steady sequence has blocks for `refill` and fetches the next when `hold` is left of one, so it
/// writes once in `refill` and has between `hold` and `hold + refill` in reserve. One that has
/// only just become busy has blocks shorter than `hold`: the mark lies at or before the block's
/// first number, which fetches the next one at once. As a block gives its signal once, that is one
/// write a block, and each block is larger than the one before, until they are long enough.
///
/// Of a calendar period that ends in `seconds_left`, sooner than `hold`, no more is held than it
/// needs until then. The block fetched next is bound by the same, so near the end one block lies
/// in reserve, and it is not followed by ever smaller ones.
#[must_use]
pub fn low_water(
    policy: &BlockPolicy,
    rates: &Rates,
    this_second: u64,
    seconds_left: Option<f64>,
) -> u64 {
    let hold = policy.hold.as_secs_f64();
    let seconds = seconds_left.map_or(hold, |left| hold.min(left.max(0.0)));
    whole(rates.highest(this_second) * seconds)
}

fn sound(rate: f64) -> f64 {
    if rate.is_finite() && rate > 0.0 {
        rate
    } else {
        0.0
    }
}

/// Precise below 2^53, which is far above what is counted here in a second.
fn float(numbers: u64) -> f64 {
    numbers as f64
}

/// The next whole number; what is too large becomes `u64::MAX`, NaN and less than 0 become 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, which is what is wanted"
)]
fn whole(numbers: f64) -> u64 {
    numbers.ceil() as u64
}
