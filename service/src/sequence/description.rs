//! What can be told of sequences: definitions, state, journal.

use std::{sync::Arc, time::SystemTime};

use odometer_core::{definition::Definition, name::SequenceName};

pub use crate::store::{Condition, Defined, JournalBlock, Listed, Page};

/// All that is known of one sequence.
#[derive(Clone, Debug)]
pub struct Description {
    pub name: SequenceName,
    pub version: i64,
    pub definition: Arc<Definition>,
    pub state: State,
    /// The youngest rows of the journal, those of all replicas.
    pub blocks: Vec<JournalBlock>,
}

/// How a sequence stands on this replica.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The first number that nobody has reserved; `None` where the store did not answer.
    pub high_water_mark: Option<i64>,
    pub block: Option<BlockState>,
    pub next_block: Option<BlockState>,
    /// Five-minute average, in numbers a second.
    pub rate: f64,
    /// How long what is in memory lasts at the present rate.
    pub reserve_seconds: Option<f64>,
    pub last_refill: Option<SystemTime>,
    /// How the size of the last block was chosen.
    pub why: Option<String>,
    /// Numbers that nobody has reserved yet.
    pub runway: Option<u64>,
}

/// What is left of a block in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    pub first: i64,
    pub last: i64,
    pub remaining: u64,
    pub size: u64,
}
