//! Divides the bits of a time-ordered id, composes ids, and reads their parts.

use serde::{Deserialize, Serialize};

use super::epoch::{self, DEFAULT_EPOCH_MS};

/// Sets how many positions a layout keeps free at the end of its bits.
///
/// The end of the layout's time is rounded down to a tick. Because of the free positions, takers
/// that claim past a limit never carry into the bits of the worker id.
pub const HEADROOM: u64 = 1 << 16;

const MS_A_DAY: i64 = 86_400_000;

/// The division of the bits of a time-ordered id. The default has the default values of the API.
///
/// [`Definition`](crate::definition::Definition) checks which widths are possible. Each width is 1
/// or more, and the worker id and the sequence have at most 22 bits each. All have at most 63 bits
/// together. Time and sequence have 32 or more together. With other widths the ids mean nothing,
/// but nothing panics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// The part in the highest bits.
    pub high: High,
    /// The instant at which the time of the layout begins, in Unix milliseconds, 0 or more. RFC
    /// 3339 in JSON.
    #[serde(rename = "epoch", with = "epoch")]
    pub epoch_ms: i64,
    /// The length of a tick.
    pub unit: LayoutUnit,
    /// The bits of the time.
    pub time: u32,
    /// The bits of the worker id.
    pub worker: u32,
    /// The bits of the counter.
    pub sequence: u32,
}

/// The part in the highest bits of a time-ordered id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum High {
    /// `[time][worker][sequence]`: the ids of all worker ids together ascend with time. This is the
    /// layout of Twitter's snowflake.
    #[default]
    Time,
    /// `[worker][time][sequence]`: the ids of one worker id are counted, and the clock is read at
    /// an opening only. This is the layout of Seata since 1.4.
    Worker,
}

/// The length of a tick.
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

/// The parts that an id is composed of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// The whole units since the epoch.
    pub tick: u64,
    /// The worker id.
    pub worker: u32,
    /// The place of the id among the ids of this worker id and tick.
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
    /// Returns the length of a tick in milliseconds.
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
    /// Returns a layout with ids below 2^53, which JavaScript reads exactly. It lasts for 87 years,
    /// and has 64 worker ids.
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

    /// Composes an id from its parts. If a part does not fit its bits, the higher bits of the part
    /// are cut off.
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

    /// Reads the parts of an id; `None` if the id is negative or has bits that the layout does not
    /// have.
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

    /// Returns the tick of an instant in Unix milliseconds; `None` before the epoch.
    ///
    /// The layout may have no bits for the tick.
    #[must_use]
    pub fn tick_at(&self, unix_ms: i64) -> Option<u64> {
        let since = u64::try_from(unix_ms.checked_sub(self.epoch_ms)?).ok()?;
        since.checked_div(self.unit.ms().unsigned_abs())
    }

    /// Returns the ticks that are wholly between two instants in Unix milliseconds: the first tick,
    /// and the tick after the last.
    #[must_use]
    pub fn whole_ticks(&self, from_ms: i64, until_ms: i64) -> (u64, u64) {
        let until_tick = self.tick_at(until_ms).unwrap_or(0);
        let from_tick = match self.tick_at(from_ms) {
            None => 0,
            Some(tick) if self.unix_ms_of(tick) < from_ms => tick.saturating_add(1),
            Some(tick) => tick,
        };
        (from_tick, until_tick)
    }

    /// Returns when a tick begins, in Unix milliseconds, at most 2^63 − 1.
    #[must_use]
    pub fn unix_ms_of(&self, tick: u64) -> i64 {
        let tick = i64::try_from(tick).unwrap_or(i64::MAX);
        let since = tick.saturating_mul(self.unit.ms());
        self.epoch_ms.saturating_add(since)
    }

    /// Returns the first tick that issues no id: the end of the time bits, less the [`HEADROOM`].
    #[must_use]
    pub fn end_tick(&self) -> u64 {
        let positions = ones(self.time.saturating_add(self.sequence));
        let positions = positions.saturating_add(1).saturating_sub(HEADROOM);
        positions.checked_shr(self.sequence).unwrap_or(0)
    }

    /// Returns the first instant at which no id is issued, in Unix milliseconds.
    #[must_use]
    pub fn ends_at_ms(&self) -> i64 {
        self.unix_ms_of(self.end_tick())
    }

    /// Returns how much time is left at an instant in Unix milliseconds. The result is in days, and
    /// 0 if no time is left.
    #[must_use]
    pub fn days_left(&self, now_ms: i64) -> f64 {
        let left_ms = self.ends_at_ms().saturating_sub(now_ms).max(0);
        left_ms as f64 / MS_A_DAY as f64
    }

    /// Returns the highest id that the layout can have.
    #[must_use]
    pub fn highest(&self) -> i64 {
        let bits = self.time.saturating_add(self.worker);
        ones(bits.saturating_add(self.sequence)).cast_signed()
    }

    /// Returns how many worker ids there are. The worker ids count from 0.
    #[must_use]
    pub fn workers(&self) -> u32 {
        1_u32.checked_shl(self.worker).unwrap_or(u32::MAX)
    }

    /// Returns how many ids one worker id has in a tick.
    #[must_use]
    pub fn ids_a_tick(&self) -> u64 {
        ones(self.sequence).saturating_add(1)
    }
}

/// Returns a number of `bits` ones, at most 63.
fn ones(bits: u32) -> u64 {
    shifted(1, bits.min(63)).saturating_sub(1)
}

fn shifted(bits: u64, by: u32) -> u64 {
    bits.checked_shl(by).unwrap_or(0)
}
