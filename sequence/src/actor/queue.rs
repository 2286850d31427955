//! Queues the callers that wait for numbers, and serves them from blocks.
//!
//! Most callers take numbers of any block. Others each want an unbroken range of their own, which
//! comes straight from the store if memory has none. The two kinds take turns. No caller in the
//! queue overtakes another one of its kind.

use std::collections::VecDeque;

use odometer_core::{block::Block, definition::MAX_STRIPES};
use odometer_process::faults::{self, Fault};
use tokio::sync::oneshot;
use tracing::Span;

use crate::error::SequenceError;

/// Bounds a group to one part in this many of the numbers left.
///
/// A single block may have 1/4096 of the numbers left. In a store of several databases, each
/// database has only its part of them, so the bound is smaller by the most databases that a store
/// can have.
pub(crate) const PART_OF_LEFT: u64 = 4096 * MAX_STRIPES as u64;

/// The ascending ranges that a caller gets, with as many numbers as were requested, or a refusal.
pub(crate) type Outcome = Result<Vec<Block>, SequenceError>;

/// A caller that waits for numbers.
pub(crate) struct Waiter {
    /// How many numbers the caller wants.
    pub(crate) count: u64,
    pub(crate) wants: Wants,
    /// Whether the caller gets a write of its own, because its group asked for too much.
    is_alone: bool,
    refill: RefillForRange,
    /// The call, as the log names it.
    pub(crate) call: Span,
    answer: oneshot::Sender<Outcome>,
}

/// Which numbers a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Any numbers, in ascending ranges.
    Numbers,
    /// One unbroken range.
    Range,
    /// A block, for a client that counts by itself.
    Block,
}

/// Whether a refill is made for a caller who wants a range. If memory has no such range after that,
/// the caller gets a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefillForRange {
    None,
    UnderWay,
    Done,
}

/// Waiters in the order in which they came.
#[derive(Default)]
pub(crate) struct Queue {
    /// Callers that want any numbers.
    numbers: VecDeque<Waiter>,
    /// Callers that want ranges and blocks.
    ranges: VecDeque<Waiter>,
    /// Whether a caller in `ranges` goes next, if callers wait in `numbers`, too.
    is_range_next: bool,
}

impl Waiter {
    /// Makes a waiter for the present call, and the channel for its answer.
    pub(crate) fn new(count: u64, wants: Wants) -> (Self, oneshot::Receiver<Outcome>) {
        let (answer, receiver) = oneshot::channel();
        let waiter = Self {
            count,
            wants,
            is_alone: false,
            refill: RefillForRange::None,
            call: Span::current(),
            answer,
        };
        (waiter, receiver)
    }

    fn is_refilled_for(&self) -> bool {
        self.refill == RefillForRange::UnderWay
    }

    fn may_be_refilled_for(&self) -> bool {
        self.wants == Wants::Range && self.refill == RefillForRange::None
    }

    /// Returns whether the caller gave up.
    pub(crate) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    /// Gives numbers to the caller. Returns false if the caller gave up.
    pub(crate) fn give(self, ranges: Vec<Block>) -> bool {
        self.answer.send(Ok(ranges)).is_ok()
    }

    /// Answers the caller that it gets nothing.
    pub(crate) fn refuse(self, why: SequenceError) {
        // A caller who gave up needs no answer.
        let _gone = self.answer.send(Err(why));
    }
}

impl Queue {
    pub(crate) fn push(&mut self, waiter: Waiter) {
        self.line_of(waiter.wants).push_back(waiter);
    }

    fn line_of(&mut self, wants: Wants) -> &mut VecDeque<Waiter> {
        match wants {
            Wants::Numbers => &mut self.numbers,
            Wants::Range | Wants::Block => &mut self.ranges,
        }
    }

    /// Removes callers that gave up, so that nothing is reserved for them.
    pub(crate) fn forget_gone(&mut self) {
        for line in [&mut self.numbers, &mut self.ranges] {
            line.retain(|waiter| !waiter.is_gone());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.ranges.is_empty()
    }

    /// Returns whether a caller waits for any numbers.
    pub(crate) fn wants_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Returns how many numbers the callers want together who wait for a refill.
    pub(crate) fn waited_for(&self) -> u64 {
        let ranges = self.ranges.iter().filter(|waiter| waiter.is_refilled_for());
        sum_of(self.numbers.iter().chain(ranges))
    }

    /// Lets the callers who want a range wait for a refill, too, if the first of them has not waited
    /// for one, and one brings as many numbers as it wants. Returns whether they do.
    pub(crate) fn refill_for_ranges(&mut self, is_brought: impl Fn(u64) -> bool) -> bool {
        let is_ready = |waiter: &Waiter| waiter.may_be_refilled_for() && is_brought(waiter.count);
        if !self.ranges.front().is_some_and(is_ready) {
            return false;
        }
        for waiter in &mut self.ranges {
            if waiter.may_be_refilled_for() {
                waiter.refill = RefillForRange::UnderWay;
            }
        }
        true
    }

    /// Notes that a refill has ended.
    pub(crate) fn end_refill(&mut self) {
        for waiter in &mut self.ranges {
            if waiter.is_refilled_for() {
                waiter.refill = RefillForRange::Done;
            }
        }
    }

    /// Returns the caller that has waited longest of those who want any numbers, or else of the
    /// others.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.numbers.front().or(self.ranges.front())
    }

    /// Decides who goes next. Returns false for the callers who want any numbers.
    pub(crate) fn take_turn(&mut self) -> bool {
        let is_range = !self.ranges.is_empty() && (self.is_range_next || self.numbers.is_empty());
        self.is_range_next = !is_range;
        is_range
    }

    /// Removes and returns the caller whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        match self.take_turn() {
            true => self.ranges.pop_front(),
            false => self.numbers.pop_front(),
        }
    }

    /// Puts a caller back whose turn it is again.
    pub(crate) fn put_back_first(&mut self, waiter: Waiter) {
        self.is_range_next = waiter.wants != Wants::Numbers;
        self.put_back(vec![waiter]);
    }

    /// Puts callers back before all callers of their kind that came later.
    pub(crate) fn put_back(&mut self, earlier: Vec<Waiter>) {
        for waiter in earlier.into_iter().rev() {
            self.line_of(waiter.wants).push_front(waiter);
        }
    }

    /// Puts callers back before all callers of their kind that came later. Each of them gets a
    /// write of its own.
    pub(crate) fn put_back_alone(&mut self, mut earlier: Vec<Waiter>) {
        for waiter in &mut earlier {
            waiter.is_alone = true;
        }
        self.put_back(earlier);
    }

    /// Removes and returns the first callers who want any numbers, and together want at most `most`
    /// of them. At least one caller is returned, if there is one.
    pub(crate) fn take_up_to(&mut self, most: u64) -> Vec<Waiter> {
        let mut sum: u64 = 0;
        let n_fitting = self.numbers.iter().take_while(|waiter| {
            sum = sum.saturating_add(waiter.count);
            sum <= most
        });
        let n_taken = n_fitting.count().max(1).min(self.numbers.len());
        self.numbers.drain(..n_taken).collect()
    }

    /// Removes and returns the caller that has waited longest for a range or a block, with the
    /// callers of its kind that can share its write while `left` numbers are left. They want few of
    /// the numbers left, so a group is never refused for asking too much if its callers alone would
    /// not be refused.
    pub(crate) fn take_ranges(&mut self, left: u64) -> Vec<Waiter> {
        let Some(first) = self.ranges.pop_front() else {
            return Vec::new();
        };
        let wants = first.wants;
        let mut room = match first.is_alone || faults::is(Fault::WriteForEachBlock) {
            true => None,
            false => (left / PART_OF_LEFT).checked_sub(first.count),
        };
        let mut group = vec![first];
        if room.is_none() {
            return group;
        }
        for waiter in std::mem::take(&mut self.ranges) {
            if waiter.wants != wants {
                self.ranges.push_back(waiter);
                continue;
            }
            room = room
                .filter(|_| !waiter.is_alone)
                .and_then(|room| room.checked_sub(waiter.count));
            match room {
                Some(_) => group.push(waiter),
                None => self.ranges.push_back(waiter),
            }
        }
        group
    }

    /// Removes and returns the callers who wait for a refill.
    pub(crate) fn take_refilled_for(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        let ranges = std::mem::take(&mut self.ranges).into_iter();
        let (waiting, others): (VecDeque<_>, _) = ranges.partition(Waiter::is_refilled_for);
        self.ranges = others;
        self.take_numbers().chain(waiting)
    }

    /// Removes and returns the callers who want any numbers, in order.
    pub(crate) fn take_numbers(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        std::mem::take(&mut self.numbers).into_iter()
    }

    /// Removes and returns all callers.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        self.take_numbers().chain(std::mem::take(&mut self.ranges))
    }

    /// Answers the callers who want any numbers, in order, with numbers of `left`. Asks `too_many`
    /// about a caller who wants more numbers than there are, with how many there are. If the caller
    /// is returned, the caller waits on, and so do all behind it.
    ///
    /// Returns how many numbers were issued. A caller that gave up is passed over, and its numbers
    /// go to the next caller.
    pub(crate) fn serve_waiters(
        &mut self,
        left: &mut VecDeque<Block>,
        too_many: impl Fn(Waiter, u64) -> Option<Waiter>,
    ) -> u64 {
        let mut available: u64 = left.iter().map(Block::count).sum();
        let mut n_issued: u64 = 0;
        while let Some(waiter) = self.numbers.pop_front() {
            if waiter.is_gone() {
                continue;
            }
            if waiter.count > available {
                let Some(waiter) = too_many(waiter, available) else {
                    continue;
                };
                self.numbers.push_front(waiter);
                break;
            }
            let ranges = take_front(left, waiter.count);
            match waiter.answer.send(Ok(ranges)) {
                Ok(()) => {
                    available = available.saturating_sub(waiter.count);
                    n_issued = n_issued.saturating_add(waiter.count);
                }
                Err(Ok(unwanted)) => put_back(left, unwanted),
                Err(Err(_)) => {}
            }
        }
        if self.numbers.is_empty() {
            // Most names have no waiter for most of the time: free the memory.
            self.numbers = VecDeque::new();
        }
        n_issued
    }
}

/// Returns how many numbers callers want together.
pub(crate) fn sum_of<'a>(waiters: impl Iterator<Item = &'a Waiter>) -> u64 {
    waiters.fold(0, |sum, waiter| sum.saturating_add(waiter.count))
}

/// Removes and returns the first `count` numbers of `blocks`, which has at least as many.
fn take_front(blocks: &mut VecDeque<Block>, count: u64) -> Vec<Block> {
    let mut ranges = Vec::with_capacity(1);
    let mut wanted = count;
    while wanted > 0 {
        let Some(block) = blocks.pop_front() else {
            break;
        };
        let (front, rest) = block.split_front(wanted);
        if let Some(front) = front {
            wanted = wanted.saturating_sub(front.count());
            ranges.push(front);
        }
        if let Some(rest) = rest {
            blocks.push_front(rest);
        }
    }
    ranges
}

/// Puts numbers that no caller got back to the front, in order.
fn put_back(blocks: &mut VecDeque<Block>, unwanted: Vec<Block>) {
    for range in unwanted.into_iter().rev() {
        blocks.push_front(range);
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests may fail loudly"
)]
pub(crate) mod tests {
    use super::*;

    pub(crate) type Receiver = oneshot::Receiver<Outcome>;

    /// More numbers than all callers here want together.
    const PLENTY: u64 = 1_000 * PART_OF_LEFT;

    fn block(first: i64, count: u64) -> Block {
        Block::new(first, count, 1).unwrap()
    }

    fn call(queue: &mut Queue, count: u64, wants: Wants) -> Receiver {
        let (waiter, receiver) = Waiter::new(count, wants);
        queue.push(waiter);
        receiver
    }

    fn wait(queue: &mut Queue, count: u64) -> Receiver {
        call(queue, count, Wants::Numbers)
    }

    pub(crate) fn counts(waiters: &[Waiter]) -> Vec<u64> {
        waiters.iter().map(|waiter| waiter.count).collect()
    }

    pub(crate) fn got(receiver: &mut Receiver) -> Vec<Block> {
        receiver.try_recv().expect("an answer").expect("numbers")
    }

    fn serve(queue: &mut Queue, left: &mut VecDeque<Block>) -> u64 {
        queue.serve_waiters(left, |waiter, _left| Some(waiter))
    }

    #[test]
    fn callers_are_answered_in_order_and_the_rest_is_given_back() {
        let mut queue = Queue::default();
        let mut first = wait(&mut queue, 3);
        let mut second = wait(&mut queue, 4);
        let mut left = VecDeque::from([block(1, 5), block(11, 5)]);
        let n_issued = serve(&mut queue, &mut left);
        assert_eq!(got(&mut first), vec![block(1, 3)]);
        assert_eq!(got(&mut second), vec![block(4, 2), block(11, 2)]);
        assert_eq!((left, n_issued), (VecDeque::from([block(13, 3)]), 7));
        assert!(queue.is_empty());
    }

    #[test]
    fn those_who_came_first_are_taken_and_put_back_in_order() {
        let mut queue = Queue::default();
        let _receivers: Vec<_> = [3, 4, 5].map(|count| wait(&mut queue, count)).into();
        let taken = queue.take_up_to(11);
        assert_eq!((counts(&taken), queue.waited_for()), (vec![3, 4], 5));
        queue.put_back(taken);
        // A waiter that wants more than the limit is taken alone.
        assert_eq!(counts(&queue.take_up_to(2)), [3]);
        assert_eq!(counts(&queue.take_up_to(u64::MAX)), [4, 5]);
        assert!(queue.take_up_to(1).is_empty());
    }

    #[test]
    fn a_caller_that_gave_up_burns_nothing() {
        let mut queue = Queue::default();
        drop(wait(&mut queue, 3));
        let mut second = wait(&mut queue, 2);
        let mut left = VecDeque::from([block(1, 5)]);
        let n_issued = serve(&mut queue, &mut left);
        assert_eq!(got(&mut second), vec![block(1, 2)]);
        assert_eq!((left, n_issued), (VecDeque::from([block(3, 3)]), 2));
    }

    #[test]
    fn a_caller_that_wants_more_than_there_is_keeps_its_place() {
        let mut queue = Queue::default();
        let mut first = wait(&mut queue, 6);
        let mut second = wait(&mut queue, 1);
        let mut left = VecDeque::from([block(1, 5)]);
        let n_issued = serve(&mut queue, &mut left);
        assert_eq!((left, n_issued), (VecDeque::from([block(1, 5)]), 0));
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        assert_eq!(queue.waited_for(), 7);
    }

    #[test]
    fn at_the_end_a_caller_that_wants_more_than_there_is_holds_up_nobody() {
        let mut queue = Queue::default();
        let mut receivers = [2, 6, 3].map(|count| wait(&mut queue, count));
        let mut left = VecDeque::from([block(1, 5)]);
        let n_issued = queue.serve_waiters(&mut left, |waiter, left| {
            waiter.refuse(SequenceError::TooLarge { limit: left });
            None
        });
        assert_eq!((got(&mut receivers[0]), n_issued), (vec![block(1, 2)], 5));
        assert_eq!(got(&mut receivers[2]), [block(3, 3)]);
        let refused = receivers[1].try_recv().expect("an answer");
        assert!(matches!(refused, Err(SequenceError::TooLarge { limit: 3 })));
    }

    #[test]
    fn the_two_kinds_take_turns() {
        let mut queue = Queue::default();
        let wanted = [Wants::Numbers, Wants::Numbers, Wants::Range, Wants::Range];
        let _receivers = wanted.map(|wants| call(&mut queue, 1, wants));
        let first = queue.pop().unwrap();
        assert_eq!(first.wants, Wants::Numbers);
        // A caller that is put back has its turn again.
        queue.put_back_first(first);
        let all = std::iter::from_fn(|| queue.pop());
        let order: Vec<Wants> = all.map(|waiter| waiter.wants).collect();
        let expected = [Wants::Numbers, Wants::Range, Wants::Numbers, Wants::Range];
        assert_eq!(order, expected);
    }

    #[test]
    fn a_range_waits_for_one_refill_and_then_for_a_write() {
        let mut queue = Queue::default();
        let wanted = [(5, Wants::Range), (7, Wants::Block), (6, Wants::Range)];
        let _receivers = wanted.map(|(count, wants)| call(&mut queue, count, wants));
        assert!(!queue.refill_for_ranges(|count| count != 5));
        assert_eq!(queue.waited_for(), 0);
        assert!(queue.refill_for_ranges(|count| count == 5));
        assert_eq!(queue.waited_for(), 11);
        let _late = call(&mut queue, 3, Wants::Range);
        queue.end_refill();
        assert_eq!(queue.waited_for(), 0);
        assert!(!queue.refill_for_ranges(|_| true));
    }

    #[test]
    fn a_refill_fails_for_those_who_waited_for_it() {
        let mut queue = Queue::default();
        let wanted = [(1, Wants::Numbers), (5, Wants::Range), (7, Wants::Block)];
        let _receivers = wanted.map(|(count, wants)| call(&mut queue, count, wants));
        assert!(queue.refill_for_ranges(|_| true));
        let _late = call(&mut queue, 4, Wants::Range);
        let failed: Vec<Waiter> = queue.take_refilled_for().collect();
        assert_eq!(counts(&failed), [1, 5]);
        let others: Vec<Waiter> = queue.take_all().collect();
        assert_eq!(counts(&others), [7, 4]);
    }

    #[test]
    fn those_who_want_the_same_share_a_write_in_their_order() {
        let mut queue = Queue::default();
        let wanted = [
            (3, Wants::Block),
            (5, Wants::Range),
            (4, Wants::Block),
            (6, Wants::Range),
        ];
        let _receivers = wanted.map(|(count, wants)| call(&mut queue, count, wants));
        assert_eq!(counts(&queue.take_ranges(PLENTY)), [3, 4]);
        assert_eq!(counts(&queue.take_ranges(PLENTY)), [5, 6]);
        assert!(queue.take_ranges(PLENTY).is_empty());
    }

    #[test]
    fn a_group_is_small_beside_what_is_left_and_nobody_overtakes() {
        let mut queue = Queue::default();
        let _receivers = [9, 2, 1].map(|count| call(&mut queue, count, Wants::Block));
        assert_eq!(counts(&queue.take_ranges(10 * PART_OF_LEFT)), [9]);
        assert_eq!(counts(&queue.take_ranges(2 * PART_OF_LEFT)), [2]);
        // The first caller is served even if no numbers are left to share.
        assert_eq!(counts(&queue.take_ranges(0)), [1]);
    }

    #[test]
    fn those_put_back_alone_share_no_write_again() {
        let mut queue = Queue::default();
        let _receivers = [1, 2].map(|count| call(&mut queue, count, Wants::Block));
        let group = queue.take_ranges(PLENTY);
        let _later = [3, 4].map(|count| call(&mut queue, count, Wants::Block));
        queue.put_back_alone(group);
        let groups = [(); 3].map(|()| counts(&queue.take_ranges(PLENTY)));
        assert_eq!(groups, [vec![1], vec![2], vec![3, 4]]);
    }
}
