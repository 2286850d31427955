//! Decides how large the next block is, and when it is fetched.
//!
//! A block holds what its sequence needs for `block.refill`. The next block is fetched when the
//! rest lasts for `block.hold`. A sequence that has only just become busy has no useful average.
//! Its blocks are sized for a minute at the rate of its last second. So each block is larger than
//! the one before, until the average has caught up.
//!
//! A calendar period ends. No more is fetched for it than it needs up to its cut-over.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::block::MAX_COUNT;
use crate::definition::BlockPolicy;

/// Sets the time constant of the average, in seconds.
const AVERAGE_OVER: f64 = 300.0;

/// Says for how many seconds a block lasts at the rate of the last second.
const BURST_SECONDS: f64 = 60.0;

/// Bounds the time that a need is computed for, in seconds. Rates are counted by the second, so a
/// shorter time has no rate of its own.
const GRAIN_SECONDS: f64 = 1.0;

/// Bounds a block to a part of the numbers that are left: one in this many.
const PART_OF_LEFT: u64 = 4096;

/// The rates at which a sequence issues, in numbers a second. Each rate is finite, and 0 or more.
/// The default rates are those of a sequence that has issued nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    average: f64,
    last_second: f64,
}

/// The demand that the next block must meet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Demand {
    /// The rates at which the sequence issues.
    pub rates: Rates,
    /// Numbers issued since the last sample of the rates.
    pub this_second: u64,
    /// Numbers that callers are waiting for now.
    pub waited_for: u64,
    /// The size of the block before, if its reservation met two or more conflicts.
    pub conflicted_size: Option<u64>,
    /// The seconds that are left of the period, if it is a calendar period.
    pub seconds_left: Option<f64>,
}

/// The size that a block should have, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The size that suits the demand: 1 to [`MAX_COUNT`].
    pub preferred: u64,
    /// The numbers that callers are waiting for: 1 to [`MAX_COUNT`], at most `preferred`.
    pub at_least: u64,
    /// The reason for `preferred`.
    pub why: SizeReason,
}

/// The size that a block gets, as far as numbers are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The numbers of the block: at most what is left, and 0 only if nothing is left.
    pub count: u64,
    /// The reason for `count`.
    pub why: SizeReason,
}

/// The reason for the size of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeReason {
    /// The five-minute average times `block.refill`.
    Average,
    /// The rate of the last second times a minute.
    LastSecond,
    /// The numbers that callers were waiting for.
    Waiting,
    /// The setting `block.min`.
    Minimum,
    /// Twice the block before, because its reservation met conflicts.
    Conflicts,
    /// Cut to `block.max`, or to the most that a block can hold.
    Maximum,
    /// Cut to what is needed up to the cut-over.
    Cutover,
    /// Cut to 1/4096 of what is left, or to what is left.
    Left,
    /// Cut to what the speed limit allows now.
    Limit,
}

impl SizeReason {
    /// All reasons, each at the place that it has as a number.
    pub const ALL: [Self; 9] = [
        Self::Average,
        Self::LastSecond,
        Self::Waiting,
        Self::Minimum,
        Self::Conflicts,
        Self::Maximum,
        Self::Cutover,
        Self::Left,
        Self::Limit,
    ];
}

impl Granted {
    /// Cuts the block to what the speed limit allows now.
    #[must_use]
    pub fn cut(self, n_allowed: u64) -> Self {
        let (count, why) = smaller((self.count, self.why), (n_allowed, SizeReason::Limit));
        Self { count, why }
    }
}

impl Rates {
    /// Creates the rates of a sequence with an average that is already known. NaN, infinity and
    /// rates below 0 count as 0.
    #[must_use]
    pub fn resume(average: f64) -> Self {
        Self {
            average: finite_or_zero(average),
            last_second: 0.0,
        }
    }

    /// Adds the numbers that were issued in the seconds since the last sample.
    ///
    /// A sample is about one second long. A longer time counts like the seconds that it consists
    /// of. If no time has passed, nothing changes.
    ///
    /// The average is exponential with a time constant of five minutes, for samples at irregular
    /// intervals: `average += (rate − average) × (1 − exp(−seconds / 300))`.
    pub fn sample(&mut self, numbers: u64, seconds: f64) {
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        let numbers = float(numbers);
        let weight = -(-seconds / AVERAGE_OVER).exp_m1();
        self.average = finite_or_zero(self.average + (numbers / seconds - self.average) * weight);
        // A sample shorter than a second says nothing about the rest of that second.
        self.last_second = finite_or_zero(numbers / seconds.max(1.0));
    }

    /// Returns the five-minute average, in numbers a second.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.average
    }

    /// Returns the highest rate that can be expected. `this_second` counts the numbers issued since
    /// the last sample.
    fn highest(&self, this_second: u64) -> f64 {
        self.average.max(self.last_second).max(float(this_second))
    }

    /// Returns for how many seconds `remaining` numbers last at the higher of the two rates; `None`
    /// at rate 0.
    #[must_use]
    pub fn reserve_seconds(&self, remaining: u64) -> Option<f64> {
        let rate = self.average.max(self.last_second);
        (rate > 0.0)
            .then(|| float(remaining) / rate)
            .filter(|seconds| seconds.is_finite())
    }
}

impl fmt::Display for SizeReason {
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
            Self::Limit => "speed limit",
        })
    }
}

/// Decides how large the next block should be.
///
/// The size is the highest of `average × refill`, `last second × 60 s`, twice the block before
/// after conflicts, the numbers waited for, and `block.min`. `last second` is the rate at the last
/// sample, or the numbers since then if they are more. The size is at most `block.max`.
///
/// For a calendar period, the size is also at most what the period needs up to its cut-over, at the
/// highest of the rates. The size is never less than the numbers that callers are waiting for.
#[must_use]
pub fn size(policy: &BlockPolicy, demand: &Demand) -> Size {
    let at_least = demand.waited_for.clamp(1, MAX_COUNT);
    let last_second = demand.rates.last_second.max(float(demand.this_second));
    let doubled = demand.conflicted_size.unwrap_or(0).saturating_mul(2);
    let average = ceil_saturating(demand.rates.average * policy.refill.as_secs_f64());
    // If two sizes are equal, the first one is named.
    let wanted = [
        (
            ceil_saturating(last_second * BURST_SECONDS),
            SizeReason::LastSecond,
        ),
        (doubled, SizeReason::Conflicts),
        (at_least, SizeReason::Waiting),
        (policy.min, SizeReason::Minimum),
    ]
    .into_iter()
    .fold((average, SizeReason::Average), larger);
    let to_cutover = demand.seconds_left.map_or(u64::MAX, |seconds| {
        ceil_saturating(demand.rates.highest(demand.this_second) * seconds.max(GRAIN_SECONDS))
    });
    let bounded = [
        (policy.max.clamp(1, MAX_COUNT), SizeReason::Maximum),
        (to_cutover, SizeReason::Cutover),
    ]
    .into_iter()
    .fold(wanted, smaller);
    let (preferred, why) = larger(bounded, (at_least, SizeReason::Waiting));
    Size {
        preferred,
        at_least,
        why,
    }
}

/// Returns the larger one of two sizes. If they are equal, it is the first one.
fn larger(first: (u64, SizeReason), second: (u64, SizeReason)) -> (u64, SizeReason) {
    if second.0 > first.0 { second } else { first }
}

/// Returns the smaller one of two sizes. If they are equal, it is the first one.
fn smaller(first: (u64, SizeReason), second: (u64, SizeReason)) -> (u64, SizeReason) {
    if second.0 < first.0 { second } else { first }
}

/// Decides how large the next block is, if `left` numbers of the sequence are left.
///
/// The block is at most 1/4096 of these numbers (but at least 1), so that many replicas can share
/// the end of a range. The block is not smaller than the numbers that callers are waiting for. It
/// is never larger than what is left.
#[must_use]
pub fn grant(size: &Size, left: u64) -> Granted {
    let shared = (max_at_once(left), SizeReason::Left);
    let most = larger(shared, (size.at_least, SizeReason::Waiting));
    let most = smaller(most, (left, SizeReason::Left));
    let (count, why) = smaller((size.preferred, size.why), most);
    Granted { count, why }
}

/// Returns the most numbers that a client may reserve at once, if `left` numbers are left.
///
/// It is 1/4096 of these numbers, at least 1 and at most [`MAX_COUNT`]. It is 0 if nothing is left.
#[must_use]
pub fn max_at_once(left: u64) -> u64 {
    (left / PART_OF_LEFT).clamp(1, MAX_COUNT).min(left)
}

/// Returns the low-water mark: the next block is fetched when this many numbers of a block are
/// left.
///
/// The mark is what `hold` needs at the highest of the rates, and 0 at rate 0.
///
/// A steady sequence has blocks for `refill`, and fetches the next block when `hold` is left of
/// one. So it writes once in `refill`, and its reserve lasts between `hold` and `hold + refill`.
///
/// A sequence that has only just become busy has blocks shorter than `hold`. The mark then lies at
/// or before the block's first number, so the next block is fetched at once. A block gives its
/// signal once, so there is one write a block. Each block is larger than the one before, until
/// blocks are long enough.
///
/// A calendar period may end in `seconds_left`, sooner than `hold`. Then the mark is only what the
/// period needs until its end. The same bound holds for the next block. So near the end one block
/// is in reserve, and no series of ever smaller blocks follows.
#[must_use]
pub fn low_water(
    policy: &BlockPolicy,
    rates: &Rates,
    this_second: u64,
    seconds_left: Option<f64>,
) -> u64 {
    let hold = policy.hold.as_secs_f64();
    let seconds = seconds_left.map_or(hold, |left| hold.min(left.max(0.0)));
    ceil_saturating(rates.highest(this_second) * seconds)
}

/// Returns whether memory is short only because the sequence has just become busy.
///
/// Then the newest block does not last for `hold` at the present rate, but nothing cut it: it was
/// sized for a lower rate, and the next blocks are larger. `size` and `why` are the size of the
/// newest block and its reason, which is `None` for an adopted block.
///
/// Blocks stay short if no block may have what `hold` needs, because of `block.max` or because only
/// `left` numbers of the sequence are left, or if `refill` is shorter than `hold`. Such a sequence
/// never warms up.
#[must_use]
pub fn is_warming_up(
    policy: &BlockPolicy,
    rates: &Rates,
    (size, why): (u64, Option<SizeReason>),
    left: u64,
) -> bool {
    let (hold, refill) = (policy.hold.as_secs_f64(), policy.refill.as_secs_f64());
    let needed = ceil_saturating(rates.highest(0) * hold);
    let is_cut = match why {
        None
        | Some(
            SizeReason::Average
            | SizeReason::LastSecond
            | SizeReason::Waiting
            | SizeReason::Minimum
            | SizeReason::Conflicts,
        ) => false,
        Some(SizeReason::Maximum | SizeReason::Cutover | SizeReason::Left | SizeReason::Limit) => {
            true
        }
    };
    let most = policy.max.clamp(1, MAX_COUNT).min(max_at_once(left));
    let is_possible = refill >= hold && needed <= most;
    !is_cut && is_possible && size < needed
}

fn finite_or_zero(rate: f64) -> f64 {
    if rate.is_finite() && rate > 0.0 {
        rate
    } else {
        0.0
    }
}

/// Converts to floating point. This is exact below 2^53, far above the numbers of a second.
fn float(numbers: u64) -> f64 {
    numbers as f64
}

/// Rounds up to a whole number. A number that is too large becomes `u64::MAX`. NaN and numbers
/// below 0 become 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, which is what is wanted"
)]
fn ceil_saturating(numbers: f64) -> u64 {
    numbers.ceil() as u64
}
