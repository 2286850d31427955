//! Serves groups: callers who share one write, each with an unbroken range of it.
//!
//! A group has callers who want ranges or blocks, or all callers of a sequence with strict order.
//!
//! In strict order nothing is kept in memory, and only callers that came before a write was sent
//! share it. Suppose that one caller is answered before a second caller calls, on any replicas. The
//! first number comes from a write that was done by then, and the write for the second caller is
//! sent later. So the second number is above the first.
//!
//! For that reason, callers that arrive while a write is under way wait for the next write. That
//! write is for all of them. Numbers of callers that have gone are abandoned, because all callers
//! who could use them came later.

use odometer_core::{
    block::{Block, MAX_COUNT},
    cursor::{Cursor, TakenBatch},
};
use odometer_process::{
    faults::{self, Fault},
    metrics::AbandonedCause,
};
use odometer_store::{BlockFate, Reserved, StoreError, Unpublished, Want};

use crate::{
    actor::queue::{PART_OF_LEFT, Waiter, Wants, sum_of},
    actor::sequence_actor::SequenceActor,
    error::SequenceError,
};

/// Bounds what a range may pass over: one part in this many of the next block.
const PART_OF_NEXT: u64 = 64;

/// Multiplies the size of a write, under the fault that lets late callers share the write.
const SHARED_LATE: u64 = 16;

impl SequenceActor {
    /// Removes and returns the callers who share the next write. Returns `None` if the next write
    /// is a refill. If memory is low, a refill is made for ranges, too.
    pub(crate) fn next_group(&mut self) -> Option<Vec<Waiter>> {
        if self.queue.take_turn() {
            let is_brought = |count| self.issuer.is_refilled_whole(count);
            if self.may_prefetch() && self.queue.refill_for_ranges(is_brought) {
                return None;
            }
            let in_bursts = self.issuer.burst().saturating_mul(PART_OF_LEFT);
            let left = self.issuer.left_to_share().min(in_bursts);
            return Some(self.queue.take_ranges(left));
        }
        let is_strict = self.issuer.is_strict();
        is_strict.then(|| self.queue.take_up_to(MAX_COUNT.min(self.issuer.burst())))
    }

    /// Takes a range from memory. At the end of a block, the range may pass over a short rest, which
    /// is abandoned. Otherwise it would keep all later ranges from memory.
    pub(crate) fn take_range(&self, cursor: &Cursor, count: u64) -> Option<TakenBatch> {
        let taken = cursor.take_batch(count, true);
        taken.or_else(|| {
            let (taken, n_passed) = cursor.take_beyond(count, PART_OF_NEXT)?;
            let abandoned = self.shared.metrics.abandoned(AbandonedCause::TooShort);
            abandoned.increment(n_passed);
            Some(taken)
        })
    }

    /// Serves callers who want a range from memory, up to the first one for whom it has none.
    pub(crate) fn serve_ranges(&mut self) {
        while !self.queue.wants_numbers()
            && let Some(waiter) = self.queue.pop()
        {
            if let Some(waiter) = self.serve_now(waiter) {
                self.queue.put_back_first(waiter);
                return;
            }
        }
    }

    /// Returns what a group asks of the store: exactly as many numbers as its callers want.
    pub(crate) fn want_of(&self, group: &[Waiter]) -> Want {
        let count = sum_of(group.iter());
        match wanted_by(group) {
            Wants::Numbers => {
                let count = match faults::is(Fault::StrictSharesLate) {
                    true => count.saturating_mul(SHARED_LATE),
                    false => count,
                };
                let demand = self.issuer.demand(count);
                Want::Strict { count, demand }
            }
            Wants::Range => Want::Exactly(count),
            Wants::Block => Want::Handover(count),
        }
    }

    /// Shares out a block among the callers that it was reserved for.
    pub(crate) fn serve_group(&mut self, block: Unpublished, mut group: Vec<Waiter>) {
        // If this actor is a former owner, no caller of its group is answered, and all of them ask
        // again.
        let Some(reserved) = self.issuer.publish(block) else {
            return;
        };
        self.issuer.note_shared_out(&reserved);
        let is_strict = self.issuer.is_strict();
        if !is_strict {
            group.retain(|waiter| !waiter.is_gone());
        }
        if !group.is_empty() && self.is_forbidden(reserved.block) {
            self.give_up(&reserved);
            // These callers get other numbers, or the answer that the sequence is retired.
            self.queue.put_back(group);
            self.enforce();
            return;
        }
        if faults::is(Fault::StrictSharesLate) && is_strict {
            group.extend(self.queue.take_numbers());
        }
        let shares = share_out(reserved.block, group);
        for (range, waiter) in shares.dealt {
            self.give(&reserved, range, waiter);
        }
        self.queue.put_back(shares.left_over);
        if let Some(rest) = shares.rest.filter(|_| !is_strict) {
            // Some callers gave up meanwhile. Their numbers go behind all that are held, and are
            // issued.
            self.add_block(&reserved.part(rest));
        }
    }

    /// Gives a caller its range of a block. A range counts for the size of the next block, so the
    /// ranges that follow come from memory.
    fn give(&self, reserved: &Reserved, range: Block, waiter: Waiter) {
        let is_block = waiter.wants == Wants::Block;
        let is_handed_over = is_block || !self.issuer.is_strict();
        let count = range.count();
        if is_handed_over {
            // Comes first. A caller who has the range may ask at once what the journal has.
            let row = reserved.part(range).row();
            self.shared.store.write_journal(row, BlockFate::HandedOver);
        }
        match waiter.give(vec![range]) {
            true if is_block => self.issuer.add_handed_over(count),
            true => self.issuer.add_direct(count),
            false => self.count_gone(count),
        }
    }

    /// Gives up a block that a change forbids, which came while the block was on its way. The
    /// caller who made the change has the answer already.
    fn give_up(&self, reserved: &Reserved) {
        let block = reserved.block;
        if self.issuer.is_strict() {
            self.count_advanced(block.count());
            return;
        }
        self.count_advanced(self.n_forbidden(block));
        self.return_block(reserved);
    }

    /// Returns how many numbers of a block a change forbids.
    fn n_forbidden(&self, block: Block) -> u64 {
        let memory = self.issuer.memory.lock();
        if memory.is_retired {
            block.count()
        } else {
            block.count().saturating_sub(block.count_from(memory.floor))
        }
    }

    /// Returns whether a change that came while the block was on its way forbids the block.
    fn is_forbidden(&self, block: Block) -> bool {
        self.issuer.memory.lock().forbids(block) && !faults::is(Fault::FloorUnheld)
    }

    /// Handles a failed write for a group.
    pub(crate) fn fail_group(&mut self, error: &StoreError, group: Vec<Waiter>) {
        let wants_numbers = wanted_by(&group) == Wants::Numbers;
        if let (StoreError::Exhausted { left }, true) = (error, wants_numbers) {
            let (fitting, refused) = fitting(group, *left);
            for (waiter, left) in refused {
                let name = self.issuer.key.sequence.clone();
                waiter.refuse(SequenceError::Exhausted { name, left });
            }
            self.queue.put_back(fitting);
            return;
        }
        if let (StoreError::RateLimited { n_available, .. }, true) = (error, wants_numbers) {
            let (fitting, refused) = fitting(group, *n_available);
            for (waiter, left) in refused {
                waiter.refuse(self.caller_error(error).with_available(left));
            }
            self.queue.put_back(fitting);
            return;
        }
        let is_too_much = matches!(
            error,
            StoreError::Exhausted { .. }
                | StoreError::TooLarge { .. }
                | StoreError::RateLimited { .. }
        );
        if is_too_much && !wants_numbers && group.len() > 1 {
            // The numbers that are left may be enough for each of them alone.
            self.queue.put_back_alone(group);
            return;
        }
        let told = self.caller_error(error);
        for waiter in group {
            waiter.refuse(told.clone());
        }
    }
}

/// Returns what the callers of a group want: all of them want the same.
fn wanted_by(group: &[Waiter]) -> Wants {
    group.first().map_or(Wants::Numbers, |first| first.wants)
}

/// The result of sharing out the numbers of one write.
struct Shares {
    dealt: Vec<(Block, Waiter)>,
    /// Callers for whom the write has no numbers.
    left_over: Vec<Waiter>,
    /// Numbers that no caller wants.
    rest: Option<Block>,
}

/// Shares out the numbers in the order in which the callers came.
fn share_out(block: Block, group: Vec<Waiter>) -> Shares {
    let mut shares = Shares {
        dealt: Vec::with_capacity(group.len()),
        left_over: Vec::new(),
        rest: Some(block),
    };
    for waiter in group {
        let enough = shares.rest.filter(|rest| rest.count() >= waiter.count);
        let Some((Some(range), behind)) = enough.map(|rest| rest.split_front(waiter.count)) else {
            shares.left_over.push(waiter);
            continue;
        };
        shares.rest = behind;
        shares.dealt.push((range, waiter));
    }
    shares
}

/// Separates the waiters for whom the numbers left suffice from the others. Each of the others is
/// returned with the number that its refusal reports as left.
///
/// Nothing is kept for callers that have gone, because nothing was written for them yet.
fn fitting(group: Vec<Waiter>, mut left: u64) -> (Vec<Waiter>, Vec<(Waiter, u64)>) {
    let mut kept = Vec::new();
    let mut refused = Vec::new();
    for waiter in group.into_iter().filter(|waiter| !waiter.is_gone()) {
        if waiter.count > left {
            refused.push((waiter, left));
        } else {
            left -= waiter.count;
            kept.push(waiter);
        }
    }
    (kept, refused)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests may fail loudly"
)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use odometer_core::{name::SequenceName, period::CounterKey};
    use odometer_process::metrics::Metrics;

    use super::*;
    use crate::actor::queue::tests::{Receiver, counts, got};
    use crate::issuer::memory::Issuer;

    fn group(counts: &[u64]) -> (Vec<Waiter>, Vec<Receiver>) {
        let waiters = counts.iter();
        waiters
            .map(|count| Waiter::new(*count, Wants::Numbers))
            .unzip()
    }

    fn block(first: i64, count: u64) -> Block {
        Block::new(first, count, 10).unwrap()
    }

    /// Gives each caller its range. Returns which callers got it.
    fn give(dealt: Vec<(Block, Waiter)>) -> Vec<bool> {
        let shares = dealt.into_iter();
        shares
            .map(|(range, waiter)| waiter.give(vec![range]))
            .collect()
    }

    #[test]
    fn callers_are_dealt_unbroken_ranges_in_their_order() {
        let (waiters, mut receivers) = group(&[1, 3, 2]);
        let shares = share_out(block(100, 6), waiters);
        assert!(shares.left_over.is_empty() && shares.rest.is_none());
        assert_eq!(give(shares.dealt), [true; 3]);
        let ranges: Vec<_> = receivers.iter_mut().map(got).collect();
        assert_eq!(
            ranges,
            [
                vec![block(100, 1)],
                vec![block(110, 3)],
                vec![block(140, 2)]
            ]
        );
    }

    #[test]
    fn what_was_reserved_for_a_caller_that_has_gone_goes_to_nobody_else() {
        let (waiters, mut receivers) = group(&[1, 3, 2]);
        drop(receivers.remove(1));
        let shares = share_out(block(100, 6), waiters);
        assert_eq!(give(shares.dealt), [true, false, true]);
        assert_eq!(got(&mut receivers[0]), [block(100, 1)]);
        assert_eq!(got(&mut receivers[1]), [block(140, 2)]);
    }

    #[test]
    fn each_gets_a_block_of_its_own_and_what_nobody_wants_is_left() {
        let (waiters, _receivers) = group(&[2, 9, 3]);
        let key = CounterKey::whole(SequenceName::parse("orders").unwrap());
        let block = Block::new(11, 7, 2).unwrap();
        let reserved = Issuer::block_for_tests(key, block, Arc::new(Metrics::new()));
        let reserved = reserved.publish_for(true).unwrap();
        let shares = share_out(reserved.block, waiters);
        let ranges = |range: &Block| (range.first(), range.last());
        let dealt = shares.dealt.iter().map(|(range, _)| range);
        let parts = dealt.chain(&shares.rest).map(|range| reserved.part(*range));
        let parts: Vec<Reserved> = parts.collect();
        let all: Vec<_> = parts.iter().map(|part| ranges(&part.block)).collect();
        assert_eq!(all, [(11, 13), (15, 19), (21, 23)]);
        // There are too few numbers for this caller.
        assert_eq!(counts(&shares.left_over), [9]);
        let ids: BTreeSet<_> = parts.iter().map(|part| part.row().id).collect();
        assert_eq!(ids.len(), 3);
    }

    #[test]
    fn at_the_end_whoever_asks_for_too_much_is_refused_alone() {
        let (waiters, _receivers) = group(&[3, 4, 2, 1]);
        let (kept, refused) = fitting(waiters, 5);
        let refused: Vec<_> = refused.iter().map(|(w, left)| (w.count, *left)).collect();
        assert_eq!((counts(&kept), refused), (vec![3, 2], vec![(4, 2), (1, 0)]));
    }

    #[test]
    fn at_the_end_nothing_is_kept_for_a_caller_that_has_gone() {
        let (waiters, mut receivers) = group(&[5, 1, 4]);
        drop(receivers.remove(0));
        let (kept, refused) = fitting(waiters, 5);
        assert_eq!(counts(&kept), [1, 4]);
        assert!(refused.is_empty());
    }
}
