//! Defines a block, its journal row and its fate.

use entity::block;
use odometer_core::{block::Block, period::CounterKey};
use uuid::Uuid;

use crate::settings::Source;

/// A block as the journal knows it.
#[derive(Clone, Debug)]
pub struct JournalRow {
    pub id: Uuid,
    pub key: CounterKey,
    pub block: Block,
    /// The database whose journal has the row.
    pub source: Source,
    /// Milliseconds since the Unix epoch.
    pub reserved_at: i64,
    /// The last `odometer recover` that this process had seen before the block was reserved.
    pub recovered_at: Option<i64>,
}

/// The fate of a block: what became of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockFate {
    Held,
    /// All of its numbers were issued.
    Spent,
    /// All of its numbers went to one caller at once.
    HandedOver,
    /// Another replica may adopt the numbers from `next_unissued` on.
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

/// Returns the numbers of a block that its holder did not issue, as the block's row has them. `None`
/// if there are none, or if the row makes no sense.
pub(crate) fn rest_of(row: &block::Model) -> Option<Block> {
    let span = row.last.checked_sub(row.next_unissued)?;
    let n_steps = u64::try_from(span.checked_div(row.step)?).ok()?;
    Block::new(row.next_unissued, n_steps.saturating_add(1), row.step).ok()
}
