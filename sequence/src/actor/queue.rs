//! Queues the callers that wait for a refill, and serves them from blocks.

use std::collections::VecDeque;

use odometer_core::block::Block;

use crate::actor::command::ReplySender;

/// A caller that waits for numbers.
pub(crate) struct Waiter {
    pub(crate) count: u64,
    pub(crate) answer: ReplySender,
}

/// Waiters in the order in which they came.
#[derive(Default)]
pub(crate) struct Queue {
    waiters: VecDeque<Waiter>,
}

impl Queue {
    pub(crate) fn push(&mut self, waiter: Waiter) {
        self.waiters.push_back(waiter);
    }

    /// Removes callers that gave up, so that nothing is reserved for them.
    pub(crate) fn forget_gone(&mut self) {
        self.waiters.retain(|waiter| !waiter.answer.is_closed());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns how many numbers all waiters want together.
    pub(crate) fn waited_for(&self) -> u64 {
        self.waiters
            .iter()
            .fold(0, |sum, waiter| sum.saturating_add(waiter.count))
    }

    /// Removes and returns the first waiters that together want at most `most` numbers. At least
    /// one waiter is returned, if there is one.
    pub(crate) fn take_up_to(&mut self, most: u64) -> Vec<Waiter> {
        let mut sum: u64 = 0;
        let n_fitting = self.waiters.iter().take_while(|waiter| {
            sum = sum.saturating_add(waiter.count);
            sum <= most
        });
        let n_taken = n_fitting.count().max(1).min(self.waiters.len());
        self.waiters.drain(..n_taken).collect()
    }

    /// Puts waiters back before all waiters that came later.
    pub(crate) fn put_back(&mut self, earlier: Vec<Waiter>) {
        for waiter in earlier.into_iter().rev() {
            self.waiters.push_front(waiter);
        }
    }

    /// Returns the first waiter, who stays in the queue.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiters.front()
    }

    /// Removes and returns the first waiter.
    pub(crate) fn pop(&mut self) -> Option<Waiter> {
        self.waiters.pop_front()
    }

    /// Removes and returns all waiters, in order.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiter> {
        std::mem::take(&mut self.waiters).into_iter()
    }

    /// Answers waiters in order with numbers of `left`, until one wants more numbers than there
    /// are.
    ///
    /// Returns how many numbers were issued. A caller that gave up is passed over, and its numbers
    /// go to the next caller.
    pub(crate) fn serve_waiters(&mut self, left: &mut VecDeque<Block>) -> u64 {
        let mut available: u64 = left.iter().map(Block::count).sum();
        let mut n_issued: u64 = 0;
        while let Some(waiter) = self.waiters.pop_front() {
            if waiter.answer.is_closed() {
                continue;
            }
            if waiter.count > available {
                self.waiters.push_front(waiter);
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
        if self.waiters.is_empty() {
            // Most names have no waiter for most of the time: free the memory.
            self.waiters = VecDeque::new();
        }
        n_issued
    }
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
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::actor::command::Outcome;

    type Receiver = oneshot::Receiver<Outcome>;

    fn block(first: i64, count: u64) -> Block {
        Block::new(first, count, 1).unwrap()
    }

    fn wait(queue: &mut Queue, count: u64) -> Receiver {
        let (answer, receiver) = ReplySender::channel();
        queue.push(Waiter { count, answer });
        receiver
    }

    fn got(receiver: &mut Receiver) -> Vec<Block> {
        receiver.try_recv().expect("an answer").expect("numbers")
    }

    #[test]
    fn callers_are_answered_in_order_and_the_rest_is_given_back() {
        let mut queue = Queue::default();
        let mut first = wait(&mut queue, 3);
        let mut second = wait(&mut queue, 4);
        let mut left = VecDeque::from([block(1, 5), block(11, 5)]);
        let n_issued = queue.serve_waiters(&mut left);
        assert_eq!(got(&mut first), vec![block(1, 3)]);
        assert_eq!(got(&mut second), vec![block(4, 2), block(11, 2)]);
        assert_eq!((left, n_issued), (VecDeque::from([block(13, 3)]), 7));
        assert!(queue.is_empty());
    }

    #[test]
    fn those_who_came_first_are_taken_and_put_back_in_order() {
        let mut queue = Queue::default();
        let _receivers: Vec<_> = [3, 4, 5].map(|count| wait(&mut queue, count)).into();
        let counts = |waiters: &[Waiter]| waiters.iter().map(|w| w.count).collect::<Vec<_>>();
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
        let n_issued = queue.serve_waiters(&mut left);
        assert_eq!(got(&mut second), vec![block(1, 2)]);
        assert_eq!((left, n_issued), (VecDeque::from([block(3, 3)]), 2));
    }

    #[test]
    fn a_caller_that_wants_more_than_there_is_keeps_its_place() {
        let mut queue = Queue::default();
        let mut first = wait(&mut queue, 6);
        let mut second = wait(&mut queue, 1);
        let mut left = VecDeque::from([block(1, 5)]);
        let n_issued = queue.serve_waiters(&mut left);
        assert_eq!((left, n_issued), (VecDeque::from([block(1, 5)]), 0));
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        assert_eq!(queue.waited_for(), 7);
    }
}
