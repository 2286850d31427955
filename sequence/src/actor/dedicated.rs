//! Queues the callers who each get an unbroken range of their own, straight from the store.
//!
//! Callers that wait when a write is sent share the write, if they want few of the numbers that are
//! left. So a group is never refused for asking too much if its callers alone would not be refused.

use std::collections::VecDeque;

use odometer_core::{block::Block, definition::MAX_STRIPES};
use odometer_process::faults::{self, Fault};
use odometer_store::{Reserved, Want};

use crate::actor::command::ReplySender;

/// Bounds a group to one part in this many of the numbers left.
///
/// A single block may have 1/4096 of the numbers left. In a store of several databases, each
/// database has only its part of them, so the bound is smaller by the most databases that a store
/// can have.
const PART_OF_LEFT: u64 = 4096 * MAX_STRIPES as u64;

/// A caller that gets a range of its own.
pub(crate) struct DedicatedRequest {
    /// How many numbers the caller wants.
    pub(crate) count: u64,
    /// Whether the caller wants a block, for a client that counts by itself. Otherwise the caller
    /// wants an unbroken batch.
    pub(crate) is_block: bool,
    /// Whether the caller gets a write of its own, because its group asked for too much.
    pub(crate) is_alone: bool,
    pub(crate) answer: ReplySender,
}

impl DedicatedRequest {
    pub(crate) fn new(count: u64, is_block: bool, answer: ReplySender) -> Self {
        Self {
            count,
            is_block,
            is_alone: false,
            answer,
        }
    }
}

/// Callers in the order in which they came.
#[derive(Default)]
pub(crate) struct DedicatedQueue {
    callers: VecDeque<DedicatedRequest>,
}

impl DedicatedQueue {
    pub(crate) fn push(&mut self, caller: DedicatedRequest) {
        self.callers.push_back(caller);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    /// Returns the caller that has waited longest.
    pub(crate) fn first(&self) -> Option<&DedicatedRequest> {
        self.callers.front()
    }

    /// Removes callers that gave up, so that nothing is reserved for them.
    pub(crate) fn forget_gone(&mut self) {
        self.callers.retain(|caller| !caller.answer.is_closed());
    }

    /// Removes and returns the caller that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<DedicatedRequest> {
        self.callers.pop_front()
    }

    /// Removes and returns the caller that has waited longest, with the callers of its kind that
    /// can share its write while `left` numbers are left. No caller overtakes another one of its
    /// kind.
    pub(crate) fn take_group(&mut self, left: u64) -> Vec<DedicatedRequest> {
        let Some(first) = self.pop() else {
            return Vec::new();
        };
        let is_block = first.is_block;
        let mut room = match first.is_alone || faults::is(Fault::WriteForEachBlock) {
            true => None,
            false => (left / PART_OF_LEFT).checked_sub(first.count),
        };
        let mut group = vec![first];
        if room.is_none() {
            return group;
        }
        for caller in std::mem::take(&mut self.callers) {
            if caller.is_block != is_block {
                self.callers.push_back(caller);
                continue;
            }
            room = room
                .filter(|_| !caller.is_alone)
                .and_then(|room| room.checked_sub(caller.count));
            match room {
                Some(_) => group.push(caller),
                None => self.callers.push_back(caller),
            }
        }
        group
    }

    /// Puts callers back before all callers that came later.
    pub(crate) fn put_back(&mut self, earlier: Vec<DedicatedRequest>) {
        for caller in earlier.into_iter().rev() {
            self.callers.push_front(caller);
        }
    }

    /// Puts callers back before all callers that came later. Each of them gets a write of its own.
    pub(crate) fn put_back_alone(&mut self, mut earlier: Vec<DedicatedRequest>) {
        for caller in &mut earlier {
            caller.is_alone = true;
        }
        self.put_back(earlier);
    }

    /// Removes and returns the callers that want a block.
    pub(crate) fn take_blocks(&mut self) -> VecDeque<DedicatedRequest> {
        let (blocks, others) = self.take_all().partition(|caller| caller.is_block);
        self.callers = others;
        blocks
    }

    /// Removes and returns all callers, in order.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = DedicatedRequest> {
        std::mem::take(&mut self.callers).into_iter()
    }
}

/// Returns what a group asks of the store: exactly as many numbers as its callers want.
pub(crate) fn want_of(group: &[DedicatedRequest]) -> Want {
    let counts = group.iter().map(|caller| caller.count);
    let count = counts.fold(0, u64::saturating_add);
    match group.first().is_some_and(|first| first.is_block) {
        true => Want::Handover(count),
        false => Want::Exactly(count),
    }
}

/// Shares out the numbers reserved for a group, in the order of its callers. Each range becomes a
/// block of its own. Also returns the rest, which callers have left that gave up since.
pub(crate) fn share_out(
    reserved: &Reserved,
    group: Vec<DedicatedRequest>,
) -> (Vec<(Reserved, DedicatedRequest)>, Option<Reserved>) {
    let mut rest: Option<Block> = Some(reserved.block);
    let mut shares = Vec::with_capacity(group.len());
    for caller in group {
        let (range, behind) = rest.map_or((None, None), |left| left.split_front(caller.count));
        rest = behind;
        if let Some(range) = range {
            shares.push((reserved.part(range), caller));
        }
    }
    (shares, rest.map(|rest| reserved.part(rest)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use odometer_core::{name::SequenceName, period::CounterKey};
    use odometer_process::metrics::Metrics;
    use odometer_store::Unpublished;
    use tokio::sync::oneshot;

    use crate::actor::command::Outcome;
    use crate::actor::dedicated::*;

    /// More numbers than all callers here want together.
    const PLENTY: u64 = 1_000 * PART_OF_LEFT;

    fn call(queue: &mut DedicatedQueue, count: u64, is_block: bool) -> oneshot::Receiver<Outcome> {
        let (answer, receiver) = ReplySender::channel();
        queue.push(DedicatedRequest::new(count, is_block, answer));
        receiver
    }

    fn counts(group: &[DedicatedRequest]) -> Vec<u64> {
        group.iter().map(|caller| caller.count).collect()
    }

    #[test]
    fn those_who_want_the_same_share_a_write_in_their_order() {
        let mut queue = DedicatedQueue::default();
        let wanted = [(3, true), (5, false), (4, true), (6, false)];
        let _receivers = wanted.map(|(count, is_block)| call(&mut queue, count, is_block));
        let group = queue.take_group(PLENTY);
        assert_eq!(counts(&group), [3, 4]);
        assert!(matches!(want_of(&group), Want::Handover(7)));
        let group = queue.take_group(PLENTY);
        assert_eq!(counts(&group), [5, 6]);
        assert!(matches!(want_of(&group), Want::Exactly(11)));
        assert!(queue.take_group(PLENTY).is_empty());
    }

    #[test]
    fn a_group_is_small_beside_what_is_left_and_nobody_overtakes() {
        let mut queue = DedicatedQueue::default();
        let _receivers = [9, 2, 1].map(|count| call(&mut queue, count, true));
        assert_eq!(counts(&queue.take_group(10 * PART_OF_LEFT)), [9]);
        assert_eq!(counts(&queue.take_group(2 * PART_OF_LEFT)), [2]);
        // The first caller is served even if no numbers are left to share.
        assert_eq!(counts(&queue.take_group(0)), [1]);
    }

    #[test]
    fn those_put_back_alone_share_no_write_again() {
        let mut queue = DedicatedQueue::default();
        let _receivers = [1, 2].map(|count| call(&mut queue, count, true));
        let group = queue.take_group(PLENTY);
        let _later = [3, 4].map(|count| call(&mut queue, count, true));
        queue.put_back_alone(group);
        let groups = [(); 3].map(|()| counts(&queue.take_group(PLENTY)));
        assert_eq!(groups, [vec![1], vec![2], vec![3, 4]]);
    }

    #[test]
    fn each_gets_a_block_of_its_own_and_what_nobody_wants_is_left() {
        let mut queue = DedicatedQueue::default();
        let _receivers = [2, 3].map(|count| call(&mut queue, count, true));
        let group = queue.take_group(PLENTY);
        let key = CounterKey::whole(SequenceName::parse("orders").unwrap());
        let metrics = Arc::new(Metrics::new());
        let block = Block::new(11, 10, 2).unwrap();
        let reserved = Unpublished::for_tests(key, block, metrics);
        let reserved = reserved.publish_for(true).unwrap();
        let (shares, rest) = share_out(&reserved, group);
        let ranges = |reserved: &Reserved| (reserved.block.first(), reserved.block.last());
        let dealt: Vec<_> = shares.iter().map(|(share, _)| ranges(share)).collect();
        assert_eq!(dealt, [(11, 13), (15, 19)]);
        assert_eq!(rest.as_ref().map(ranges), Some((21, 29)));
        let ids = shares.iter().map(|(share, _)| share.id);
        let ids: BTreeSet<_> = ids.chain(rest.map(|rest| rest.id)).collect();
        assert_eq!(ids.len(), 3);
    }
}
