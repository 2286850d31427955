//! How the bits of a time-ordered id are divided.

use serde::{Deserialize, Serialize};

use super::epoch::{self, DEFAULT_EPOCH_MS};

/// So many positions before the last one the time of a layout ends, rounded down to a tick: takers
/// that claim past a limit never carry into the bits of the worker id.
pub const HEADROOM: u64 = 1 << 16;

const MS_A_DAY: i64 = 86_400_000;

/// How the bits of a time-ordered id are divided. The default is the contract's.
///
/// Which widths are possible, [`Definition`](crate::definition::Definition) checks: each 1 or more,
/// worker id and sequence at most 22, at most 63 together, time and sequence 32 or more. For others
/// what is composed means nothing, but nothing panics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// What stands in the highest bits.
    pub high: High,
    /// Where its time begins, in Unix milliseconds, 0 or more; RFC 3339 in JSON.
    #[serde(rename = "epoch", with = "epoch")]
    pub epoch_ms: i64,
    /// How long a tick lasts.
    pub unit: LayoutUnit,
    /// Bits of the time.
    pub time: u32,
    /// Bits of the worker id.
    pub worker: u32,
    /// Bits of the counter.
    pub sequence: u32,
}

/// What stands in the highest bits of a time-ordered id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum High {
    /// `[time][worker][sequence]`: ids of all workers ascend with time. The layout of Twitter's
    /// snowflake.
    #[default]
    Time,
    /// `[worker][time][sequence]`: the ids of one worker are counted, and the clock is read at an
    /// opening only. The layout of Seata since 1.4.
    Worker,
}

/// How long a tick lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LayoutUnit {
    /// 1 ms.
    #[default]
    #[serde(rename = "1ms")]
    Millisecond,
    /// 10 ms.
    #[serde(rename = "10ms")]
    TenMilliseconds,
    /// 1 s.
    #[serde(rename = "1s")]
    Second,
}

/// What an id is composed of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Whole units since the epoch.
    pub tick: u64,
    /// Whose id it is.
    pub worker: u32,
    /// Its place among those of this worker and tick.
    pub counter: u64,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            high: High::Time,
            epoch_ms: DEFAULT_EPOCH_MS,
            unit: LayoutUnit::Millisecond,
            time: 41,
            worker: 10,
            sequence: 12,
        }
    }
}

impl LayoutUnit {
    /// Its length in milliseconds.
    #[must_use]
    pub fn ms(self) -> i64 {
        match self {
            Self::Millisecond => 1,
            Self::TenMilliseconds => 10,
            Self::Second => 1_000,
        }
    }
}

impl Layout {
    /// Ids below 2^53, which JavaScript reads exactly, for 87 years and 64 workers.
    #[must_use]
    pub fn preset_53_bit() -> Self {
        Self {
            unit: LayoutUnit::TenMilliseconds,
            time: 38,
            worker: 6,
            sequence: 9,
            ..Self::default()
        }
    }

    /// The id of these parts. Of a part that its bits do not hold, what is above them is cut off.
    #[must_use]
    pub fn compose(&self, worker: u32, tick: u64, counter: u64) -> i64 {
        let tick = tick & ones(self.time);
        let worker = u64::from(worker) & ones(self.worker);
        let counter = counter & ones(self.sequence);
        let high = match self.high {
            High::Time => shifted(tick, self.worker) | worker,
            High::Worker => shifted(worker, self.time) | tick,
        };
        (shifted(high, self.sequence) | counter).cast_signed()
    }

    /// The parts of an id; `None` where it is negative or has bits that the layout has not.
    #[must_use]
    pub fn read(&self, id: i64) -> Option<Parts> {
        let id = u64::try_from(id).ok()?;
        if id > self.highest().unsigned_abs() {
            return None;
        }
        let counter = id & ones(self.sequence);
        let high = id.checked_shr(self.sequence)?;
        let (tick, worker) = match self.high {
            High::Time => (high.checked_shr(self.worker)?, high & ones(self.worker)),
            High::Worker => (high & ones(self.time), high.checked_shr(self.time)?),
        };
        Some(Parts {
            tick,
            worker: u32::try_from(worker).ok()?,
            counter,
        })
    }

    /// The tick of an instant in Unix milliseconds, whether or not the layout has bits for it;
    /// `None` before the epoch.
    #[must_use]
    pub fn tick_at(&self, unix_ms: i64) -> Option<u64> {
        let since = u64::try_from(unix_ms.checked_sub(self.epoch_ms)?).ok()?;
        since.checked_div(self.unit.ms().unsigned_abs())
    }

    /// When a tick begins, in Unix milliseconds; the last one of an `i64` for what lies behind it.
    #[must_use]
    pub fn unix_ms_of(&self, tick: u64) -> i64 {
        let tick = i64::try_from(tick).unwrap_or(i64::MAX);
        let since = tick.saturating_mul(self.unit.ms());
        self.epoch_ms.saturating_add(since)
    }

    /// The first tick of which no id is issued: the time bits end, but for a [`HEADROOM`].
    #[must_use]
    pub fn end_tick(&self) -> u64 {
        let positions = ones(self.time.saturating_add(self.sequence));
        let positions = positions.saturating_add(1).saturating_sub(HEADROOM);
        positions.checked_shr(self.sequence).unwrap_or(0)
    }

    /// The first instant of which no id is issued, in Unix milliseconds.
    #[must_use]
    pub fn ends_at_ms(&self) -> i64 {
        self.unix_ms_of(self.end_tick())
    }

    /// How much time is left at an instant in Unix milliseconds, in days; 0 where none is.
    #[must_use]
    pub fn days_left(&self, now_ms: i64) -> f64 {
        let left_ms = self.ends_at_ms().saturating_sub(now_ms).max(0);
        left_ms as f64 / MS_A_DAY as f64
    }

    /// No id is above this one.
    #[must_use]
    pub fn highest(&self) -> i64 {
        let bits = self.time.saturating_add(self.worker);
        ones(bits.saturating_add(self.sequence)).cast_signed()
    }

    /// How many worker ids there are: 0 to this, that one excluded.
    #[must_use]
    pub fn workers(&self) -> u32 {
        1_u32.checked_shl(self.worker).unwrap_or(u32::MAX)
    }

    /// How many ids of one worker a tick has.
    #[must_use]
    pub fn ids_a_tick(&self) -> u64 {
        ones(self.sequence).saturating_add(1)
    }

    /// Ids as they may look: so many of worker 0 from a tick on.
    #[must_use]
    pub fn sample(&self, tick: u64, n: u64) -> Vec<i64> {
        let first = shifted(tick, self.sequence);
        let positions = first..first.saturating_add(n);
        let tick_of = |position: u64| position.checked_shr(self.sequence).unwrap_or(0);
        positions
            .map(|position| self.compose(0, tick_of(position), position))
            .collect()
    }
}

/// A number of so many ones, at most 63.
fn ones(bits: u32) -> u64 {
    shifted(1, bits.min(63)).saturating_sub(1)
}

fn shifted(bits: u64, by: u32) -> u64 {
    bits.checked_shl(by).unwrap_or(0)
}
