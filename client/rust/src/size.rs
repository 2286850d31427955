//! Decides how many numbers to ask for, and when, by how fast they are taken. It knows no I/O.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use odometer_core::block::MAX_COUNT;

/// The rate is measured over this time, at most.
const WINDOW: Duration = Duration::from_secs(10);
/// A span of the window has the numbers of this time.
const SPAN: Duration = Duration::from_secs(1);
/// A refill lasts for this long at the present rate, in seconds.
const REFILL_SECONDS: f64 = 10.0;
/// So many of the last refills say how long the next one may take.
const N_DURATIONS: usize = 16;
/// A prefetch starts when less than this part of the block is left.
const LOW_PART: f64 = 0.2;

/// Numbers taken a second, of the last seconds.
#[derive(Default)]
pub(crate) struct Rate {
    /// When each span began, and how many numbers were taken in it.
    spans: VecDeque<(Instant, u64)>,
    count: u64,
}

impl Rate {
    /// Counts numbers that are taken now.
    pub(crate) fn note(&mut self, now: Instant, count: u64) {
        self.count = self.count.saturating_add(count);
        if let Some((began, of_span)) = self.spans.back_mut()
            && now.saturating_duration_since(*began) < SPAN
        {
            *of_span = of_span.saturating_add(count);
            return;
        }
        self.spans.push_back((now, count));
        self.forget_old(now);
    }

    /// Takes numbers out of the count that were not used after all, the latest first.
    pub(crate) fn take_back(&mut self, count: u64) {
        let mut left = count;
        for (_, of_span) in self.spans.iter_mut().rev() {
            let part = left.min(*of_span);
            *of_span -= part;
            self.count -= part;
            left -= part;
        }
    }

    /// Returns the rate. One number alone says nothing about a rate, so it is 0 then.
    pub(crate) fn per_second(&mut self, now: Instant) -> f64 {
        self.forget_old(now);
        let Some((began, _)) = self.spans.front() else {
            return 0.0;
        };
        let seconds = now.saturating_duration_since(*began).as_secs_f64();
        self.count.saturating_sub(1) as f64 / seconds.max(1.0)
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((began, of_span)) = self.spans.front()
            && now.saturating_duration_since(*began) > WINDOW
        {
            self.count = self.count.saturating_sub(*of_span);
            self.spans.pop_front();
        }
    }
}

/// Decides the size of refills, and the low-water mark.
pub(crate) struct Size {
    pub(crate) rate: Rate,
    initial: u64,
    /// How long the last refills took.
    durations: VecDeque<Duration>,
    /// Whether a refill succeeded.
    pub(crate) has_refilled: bool,
}

impl Size {
    pub(crate) fn new(initial: u64) -> Self {
        Self {
            rate: Rate::default(),
            initial,
            durations: VecDeque::new(),
            has_refilled: false,
        }
    }

    /// Notes that a refill of this duration succeeded.
    pub(crate) fn note_refill(&mut self, duration: Duration) {
        if self.durations.len() == N_DURATIONS {
            self.durations.pop_front();
        }
        self.durations.push_back(duration);
        self.has_refilled = true;
    }

    /// Returns how many numbers the next refill asks for.
    pub(crate) fn next_size(&mut self, now: Instant) -> u64 {
        if !self.has_refilled {
            return self.initial;
        }
        let wanted = self.rate.per_second(now) * REFILL_SECONDS;
        floor_saturating(wanted).clamp(1, MAX_COUNT)
    }

    /// Returns the low-water mark: if fewer numbers are left, a prefetch starts.
    pub(crate) fn low_water_mark(&mut self, now: Instant, block_size: u64) -> f64 {
        let slowest = self.durations.iter().max().copied().unwrap_or_default();
        let of_refill = self.rate.per_second(now) * 2.0 * slowest.as_secs_f64();
        (block_size as f64 * LOW_PART).max(of_refill)
    }
}

/// Rounds down to a whole number. What is too large becomes the largest number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates, which is what is wanted"
)]
fn floor_saturating(numbers: f64) -> u64 {
    numbers as u64
}
