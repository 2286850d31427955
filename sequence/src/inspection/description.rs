//! Defines what calls can learn of sequences: definitions, state, journal.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName, period::Period, runway::Runway};

pub use crate::inspection::history::UsageSecond;
pub use odometer_store::{
    Act, Condition, DatabaseHealth, JournalBlock, LeaseGrant, Page, SequenceSummary, Serving,
    ServingRedis, StoreHealth, StoreKind,
};

/// The result of a definition that was written.
#[derive(Clone, Debug)]
pub struct Defined {
    pub created: bool,
    pub definition: Arc<Definition>,
    pub version: i64,
    /// One sentence for each setting that is allowed and may surprise.
    pub warnings: Vec<String>,
}

/// The result of a dry run.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    pub definition: Arc<Definition>,
    pub warnings: Vec<String>,
    /// The numbers that this replica would issue next, as they are printed; up to three.
    pub samples: Vec<String>,
    /// How long the numbers that nobody has reserved last.
    pub runway: Runway,
}

/// The state of a sequence after a change of its floor or of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifecycleOutcome {
    /// Whether the state was another one before.
    pub changed: bool,
    /// The floor: no number below the floor is issued.
    pub floor: i64,
    /// The first number that nobody has reserved.
    pub high_water_mark: i64,
    /// The version of the definition.
    pub version: i64,
}

/// Everything that is known of one sequence.
#[derive(Clone, Debug)]
pub struct Description {
    pub name: SequenceName,
    pub version: i64,
    pub definition: Arc<Definition>,
    /// Whether the sequence is retired; `None` if the store did not answer.
    pub is_retired: Option<bool>,
    pub state: CounterStatus,
    /// What serves the sequence; `None` if its store is not in the configuration.
    pub serving: Option<Serving>,
    /// Rows of the journal, of all replicas: of the periods that sort last, the highest first.
    pub blocks: Vec<JournalBlock>,
}

/// What memory knows of one sequence.
#[derive(Clone, Debug)]
pub struct LiveSequence {
    pub name: SequenceName,
    pub definition: Arc<Definition>,
    /// Whether the sequence is retired, as far as this replica has heard.
    pub is_retired: bool,
    /// How many of its periods are in memory; `None` if the sequence counts without periods.
    pub n_periods: Option<usize>,
    pub state: CounterStatus,
}

/// The order of a page of the names in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LiveSort {
    /// By the bytes of the names.
    #[default]
    Name,
    /// The numbers in memory that last for the shortest time first.
    Reserve,
    /// The numbers that nobody has reserved and that last for the shortest time first.
    Runway,
}

/// A page of the names in memory.
#[derive(Clone, Debug, Default)]
pub struct LivePage {
    pub sequences: Vec<LiveSequence>,
    /// The last name that was looked at, if other names follow it.
    pub next: Option<SequenceName>,
}

/// What memory knows of one sequence, with its last minutes.
#[derive(Clone, Debug)]
pub struct Watched {
    pub sequence: LiveSequence,
    /// One value for each second, the oldest first.
    pub moments: Vec<UsageSecond>,
}

/// The state of a counter on this replica.
#[derive(Clone, Debug, Default)]
pub struct CounterStatus {
    /// The period of the counter.
    pub period: Period,
    /// When its period ends, in Unix milliseconds; `None` if it is no calendar period, or not in
    /// memory.
    pub period_until_ms: Option<i64>,
    /// How many numbers are in memory.
    pub n_remaining: u64,
    /// The first number that nobody has reserved; `None` if the store did not answer.
    pub high_water_mark: Option<i64>,
    pub block: Option<BlockState>,
    pub next_block: Option<BlockState>,
    /// The lease of the worker id, if the sequence is time-ordered.
    pub lease: Option<LeaseState>,
    /// Five-minute average, in numbers a second.
    pub rate: f64,
    /// For how many seconds the numbers in memory last at the present rate.
    pub reserve_seconds: Option<f64>,
    /// Whether memory is short only because the counter has just become busy.
    pub warming_up: bool,
    pub last_refill: Option<SystemTime>,
    /// How the size of the last block was chosen.
    pub why: Option<String>,
    /// How long the numbers that nobody has reserved last.
    pub runway: Option<Runway>,
}

/// A worker id that this replica holds, and the time that is reserved with it.
#[derive(Clone, Debug)]
pub struct LeaseState {
    pub lease: LeaseGrant,
    pub renewed_at: SystemTime,
    /// For how many seconds ids can be issued without the store.
    pub seconds_left: f64,
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
    /// Returns the part of the block that is issued, 0 to 1; `None` for an empty block.
    pub fn utilization(self) -> Option<f64> {
        let left = to_float(self.remaining) / to_float(self.size);
        (self.size > 0).then_some((1.0 - left).max(0.0))
    }
}

/// Converts to a float. Numbers above 2^53 lose digits, which does not matter in a gauge or a
/// chart.
#[expect(clippy::cast_precision_loss, reason = "what is shown is a float")]
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}
