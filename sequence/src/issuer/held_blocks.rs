//! Changes the blocks of an issuer on behalf of its owner: adds them, serves waiters from them,
//! clips them to the floor, and returns them.
//!
//! Each change holds the lock of the issuer's memory from its first step to its last. So no other
//! thread sees a number that is neither in the cursor nor spare. After a panic half-way, the
//! numbers are in `spare`, where the next owner finds them.

#[cfg(test)]
use std::cell::Cell;
use std::collections::VecDeque;

use odometer_core::{block::Block, cursor::Cursor};
use odometer_process::faults::{self, Fault};
use odometer_store::{JournalRow, Reserved};

use crate::{
    actor::queue::{Queue, Waiter},
    issuer::ownership::Ownership,
    issuer::parked_name::ParkedName,
    issuer::state::IssuerState,
};

impl Ownership {
    /// Notes what a reservation brought, and adds its block behind the blocks that are held. The
    /// fate of the block is open from here on.
    ///
    /// Leaves out the numbers below the floor, and returns how many they are.
    pub(crate) fn add_block(&self, reserved: &Reserved) -> u64 {
        let mut memory = self.memory.lock();
        memory.note_reserved(reserved);
        self.update_printer(&mut memory);
        let (kept, n_cut) = clipped(reserved.block, memory.floor);
        memory.spare.extend(kept);
        n_cut
    }

    /// Serves the waiters from the held blocks, in order, and puts the rest into the cursor. Asks
    /// `too_many` about a waiter for whom memory has too few numbers, as [`Queue::serve_waiters`]
    /// does.
    pub(crate) fn serve_waiters(
        &self,
        queue: &mut Queue,
        too_many: impl Fn(Waiter, u64) -> Option<Waiter>,
    ) {
        let low_water = self.low_water();
        let mut memory = self.memory.lock();
        if queue.wants_numbers() {
            self.close_into_spare(&mut memory);
            let n_issued = queue.serve_waiters(&mut memory.spare, too_many);
            self.add_direct(n_issued);
        }
        self.fill_from_spare(&mut memory, low_water);
    }

    /// Moves spare blocks into the cursor until the cursor is full.
    pub(crate) fn refill_cursor(&self) {
        let low_water = self.low_water();
        self.fill_from_spare(&mut self.memory.lock(), low_water);
    }

    /// Removes the numbers below the floor from memory. Returns how many they were.
    ///
    /// The cursor is closed first. Numbers taken before that are issued, and numbers taken later
    /// are not below the floor.
    pub(crate) fn clip(&self) -> u64 {
        let low_water = self.low_water();
        let mut memory = self.memory.lock();
        let floor = memory.floor;
        let is_below = |block: &Block| block.first() < floor;
        if !self.blocks(&memory).iter().any(is_below) {
            return 0;
        }
        self.close_into_spare(&mut memory);
        let mut n_cut: u64 = 0;
        let all = std::mem::take(&mut memory.spare);
        for block in all {
            let (kept, n_below) = clipped(block, floor);
            n_cut = n_cut.saturating_add(n_below);
            memory.spare.extend(kept);
        }
        self.fill_from_spare(&mut memory, low_water);
        n_cut
    }

    /// Returns the journal rows of the blocks that are issued completely. Each row is returned
    /// once.
    pub(crate) fn settle(&self) -> Vec<JournalRow> {
        let mut memory = self.memory.lock();
        if memory.held.is_empty() {
            return Vec::new();
        }
        // Blocks of several databases do not follow one another, so check each block by itself.
        let left = self.blocks(&memory);
        let held = std::mem::take(&mut memory.held).into_iter();
        let (spent, held): (Vec<_>, Vec<_>) = held.partition(|open| open.first_of(&left).is_none());
        memory.held = held.into_boxed_slice();
        spent.iter().map(|open| open.row(&self.key)).collect()
    }

    /// Removes all numbers from memory. Returns each open block with its first number that was not
    /// issued, if there is one.
    pub(crate) fn clear(&self) -> Vec<(JournalRow, Option<i64>)> {
        let mut memory = self.memory.lock();
        self.close_into_spare(&mut memory);
        let taken = memory.take_out();
        // This process may adopt again what it gives back.
        if let Some(first) = taken.iter().find_map(|(_, next_unissued)| *next_unissued) {
            memory.issued_below = memory.issued_below.min(first);
        }
        let rows = taken.into_iter();
        rows.map(|(open, next_unissued)| (open.row(&self.key), next_unissued))
            .collect()
    }

    /// Moves everything into a parked name. The result is `None`, and nothing is changed, if the
    /// name cannot be parked, or if another actor is the owner by now.
    pub(crate) fn park(&self) -> Option<ParkedName> {
        if !self.is_current() || !self.can_be_parked() || self.is_outdated() {
            return None;
        }
        let mut memory = self.memory.lock();
        self.close_into_spare(&mut memory);
        Some(ParkedName::new(&mut memory))
    }

    /// Fills the cursor with the newest held block: the fault of an owner that starts from the
    /// block instead of from the cursor.
    pub(crate) fn refill_with_what_was_held(&self) {
        let newest = self.memory.lock().held.last().map(|row| row.block);
        if let Some(newest) = newest {
            // If the cursor is full, the fault does not show. The control of the test counts that.
            let _room = self.cursor().map(|cursor| cursor.fill(newest, 0));
        }
    }

    /// Closes the cursor, and puts what is left in it before all spare blocks.
    fn close_into_spare(&self, memory: &mut IssuerState) {
        let closed = self.cursor().map(close);
        for block in closed.into_iter().flatten().rev() {
            memory.spare.push_front(block);
        }
    }

    fn fill_from_spare(&self, memory: &mut IssuerState, low_water: u64) {
        let Some(cursor) = self.cursor() else {
            return;
        };
        while cursor.room() > 0
            && let Some(block) = memory.spare.pop_front()
        {
            if cursor.fill(block, low_water).is_err() {
                memory.spare.push_front(block);
                break;
            }
        }
        if memory.spare.is_empty() {
            // Most names have no spare blocks for most of the time: free the memory.
            memory.spare = VecDeque::new();
        }
    }
}

/// Closes a cursor. Returns what was left in it.
fn close(cursor: &Cursor) -> Vec<Block> {
    #[cfg(test)]
    if LEAVES_CURSORS_OPEN.get() {
        return cursor.rest();
    }
    cursor.close()
}

#[cfg(test)]
thread_local! {
    /// Whether this thread leaves cursors open: the fault of a control.
    pub(crate) static LEAVES_CURSORS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Returns the rest of a block from the floor on, and how many of its numbers are below the floor.
fn clipped(block: Block, floor: i64) -> (Option<Block>, u64) {
    if faults::is(Fault::FloorUnheld) {
        return (Some(block), 0);
    }
    let n_below = block.count() - block.count_from(floor);
    (rest(block, floor), n_below)
}

/// Returns the numbers of a block that are `first` or above.
pub(crate) fn rest(block: Block, first: i64) -> Option<Block> {
    let n_below = block.count() - block.count_from(first);
    block.split_front(n_below).1
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests may fail loudly"
)]
mod tests {
    use crate::issuer::held_blocks::*;

    #[test]
    fn a_block_is_clipped_to_the_floor() {
        let block = Block::new(10, 3, 5).unwrap();
        for (floor, kept, n_below) in [
            (0, Some((10, 3)), 0),
            (10, Some((10, 3)), 0),
            (11, Some((15, 2)), 1),
            (15, Some((15, 2)), 1),
            (20, Some((20, 1)), 2),
            (21, None, 3),
            (i64::MAX, None, 3),
        ] {
            let (rest, n_cut) = clipped(block, floor);
            let rest = rest.map(|rest| (rest.first(), rest.count()));
            assert_eq!((rest, n_cut), (kept, n_below), "floor {floor}");
        }
    }
}
