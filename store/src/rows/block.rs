//! A block, as its row of the journal says.

use odometer_core::{block::Block, period::CounterKey};
use uuid::Uuid;

use crate::settings::Source;

/// A block as the journal knows it.
#[derive(Clone, Debug)]
pub struct JournalRow {
    pub id: Uuid,
    pub key: CounterKey,
    pub block: Block,
    /// Whose journal it belongs to.
    pub source: Source,
    /// Milliseconds since the Unix epoch.
    pub reserved_at: i64,
    /// The last `odometer recover` that this process had seen before it was reserved.
    pub recovered_at: Option<i64>,
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFate {
    Held,
    /// All of it was issued.
    Spent,
    /// All of it left at once, for one caller.
    HandedOver,
    /// From `next_unissued` on it may be adopted by another replica.
    Returned {
        next_unissued: i64,
    },
}

impl BlockFate {
    pub(crate) fn word(self) -> &'static str {
        match self {
            BlockFate::Held => "held",
            BlockFate::Spent | BlockFate::HandedOver => "spent",
            BlockFate::Returned { .. } => "returned",
        }
    }

    pub(crate) fn next_unissued(self, block: Block) -> i64 {
        match self {
            BlockFate::Held => block.first(),
            BlockFate::Spent | BlockFate::HandedOver => block.end(),
            BlockFate::Returned { next_unissued } => next_unissued,
        }
    }
}
