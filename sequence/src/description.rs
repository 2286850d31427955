//! What can be told of sequences: definitions, state, journal.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName, period::Period, runway::Runway};

pub use crate::history::UsageSecond;
pub use odometer_store::{
    Condition, JournalBlock, Page, SequenceSummary, Serving, ServingDatabase, ServingRedis,
    StoreHealth, StoreKind,
};

/// What a definition has become.
#[derive(Clone, Debug)]
pub struct Defined {
    pub created: bool,
    pub definition: Arc<Definition>,
    pub version: i64,
    /// What is allowed and may surprise, a sentence each.
    pub warnings: Vec<String>,
}

/// What a definition would become.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    pub definition: Arc<Definition>,
    pub warnings: Vec<String>,
    /// What this replica would give next, as it is printed, three where there are so many.
    pub samples: Vec<String>,
    /// How long the numbers that nobody has reserved yet last.
    pub runway: Runway,
}

/// How a sequence stands after a change of its floor or of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifecycleOutcome {
    /// Whether it stood otherwise before.
    pub changed: bool,
    /// Nothing below it is issued.
    pub floor: i64,
    /// The first number that nobody has reserved.
    pub high_water_mark: i64,
    /// The version of the definition.
    pub version: i64,
}

/// All that is known of one sequence.
#[derive(Clone, Debug)]
pub struct Description {
    pub name: SequenceName,
    pub version: i64,
    pub definition: Arc<Definition>,
    /// `None` where the store did not answer.
    pub is_retired: Option<bool>,
    pub state: CounterStatus,
    /// `None` where its store is not in the configuration.
    pub serving: Option<Serving>,
    /// Rows of the journal of all replicas: of the periods that sort last, the highest first.
    pub blocks: Vec<JournalBlock>,
}

/// What memory knows of one sequence.
#[derive(Clone, Debug)]
pub struct LiveSequence {
    pub name: SequenceName,
    pub definition: Arc<Definition>,
    /// As far as this replica has heard.
    pub is_retired: bool,
    /// Periods in memory; `None` where it counts without.
    pub n_periods: Option<usize>,
    /// When the period that is shown ends, in Unix milliseconds; `None` where it is none of a
    /// calendar.
    pub period_until_ms: Option<i64>,
    /// Numbers in memory.
    pub n_remaining: u64,
    pub state: CounterStatus,
}

/// A page of what memory knows.
#[derive(Clone, Debug, Default)]
pub struct LivePage {
    pub sequences: Vec<LiveSequence>,
    /// The last name that was looked at, where others follow it.
    pub next: Option<SequenceName>,
}

/// What memory knows of one sequence, with its last minutes.
#[derive(Clone, Debug)]
pub struct Watched {
    pub sequence: LiveSequence,
    /// One a second, the oldest first.
    pub moments: Vec<UsageSecond>,
}

/// How a sequence stands on this replica.
#[derive(Clone, Debug, Default)]
pub struct CounterStatus {
    /// The period that all this is said of.
    pub period: Period,
    /// The first number that nobody has reserved; `None` where the store did not answer.
    pub high_water_mark: Option<i64>,
    pub block: Option<BlockState>,
    pub next_block: Option<BlockState>,
    /// Of the worker id that ids are stamped with, where they are time-ordered.
    pub lease: Option<LeaseState>,
    /// Five-minute average, in numbers a second.
    pub rate: f64,
    /// How long what is in memory lasts at the present rate.
    pub reserve_seconds: Option<f64>,
    pub last_refill: Option<SystemTime>,
    /// How the size of the last block was chosen.
    pub why: Option<String>,
    /// How long the numbers that nobody has reserved yet last.
    pub runway: Option<Runway>,
}

/// A worker id that is held, and the time that is reserved with it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LeaseState {
    pub worker: u32,
    /// Times are stamped from here on, in Unix milliseconds.
    pub from_ms: i64,
    /// Up to here, that one excluded.
    pub until_ms: i64,
    pub renewed_at: SystemTime,
    /// For how long ids can be issued without the store.
    pub seconds_left: f64,
    /// The database's clock minus ours.
    pub skew_ms: i64,
}

/// What is left of a block in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    pub first: i64,
    pub last: i64,
    pub remaining: u64,
    pub size: u64,
}

impl BlockState {
    /// The part that is issued, 0 to 1; `None` of an empty one.
    pub fn utilization(self) -> Option<f64> {
        let left = to_float(self.remaining) / to_float(self.size);
        (self.size > 0).then_some((1.0 - left).max(0.0))
    }
}

/// Numbers above 2^53 lose digits, which is nothing to a gauge or a chart.
#[expect(clippy::cast_precision_loss, reason = "what is shown is a float")]
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}
