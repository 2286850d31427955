//! Serves sequences with strict order: nothing is kept in memory, and only callers that came before
//! a write was sent share it.
//!
//! Suppose that one caller is answered before a second caller calls, on any replicas. The first
//! number comes from a write that was done by then, and the write for the second caller is sent
//! later. So the second number is above the first.
//!
//! For that reason, callers that arrive while a write is under way wait for the next write. That
//! write is for all of them. Numbers of callers that have gone are abandoned, because all callers
//! who could use them came later.

use actix::Context;
use odometer_core::block::{Block, MAX_COUNT};
use odometer_process::faults::{self, Fault};
use odometer_store::{BlockFate, StoreError, Unpublished, Want};

use crate::{
    actor::dedicated::{self, DedicatedRequest},
    actor::queue::Waiter,
    actor::sequence_actor::{ActorState, PendingWork, SequenceActor},
    error::SequenceError,
};

/// Multiplies the size of a write, under the fault that lets late callers share the write.
const SHARED_LATE: u64 = 16;

impl SequenceActor {
    /// Sends the next write, for all who wait now.
    pub(crate) fn advance_strict(&mut self, context: &mut Context<Self>) {
        // There is nothing to load.
        self.tell_loading();
        let next = match self.next_dedicated() {
            Some(group) => group,
            None if self.queue.is_empty() => {
                self.state = ActorState::Empty;
                return;
            }
            None => {
                self.is_dedicated_next = true;
                PendingWork::Group(self.queue.take_up_to(MAX_COUNT))
            }
        };
        let request = self.request(&next);
        self.in_flight = Some(next);
        self.state = ActorState::Reserving;
        self.reserve(request, context);
    }

    /// Returns what a group asks of the store: exactly as many numbers as its callers want.
    pub(crate) fn want_of(&self, group: &[Waiter]) -> Want {
        let mut count = waited_for(group);
        if faults::is(Fault::StrictSharesLate) {
            count = count.saturating_mul(SHARED_LATE);
        }
        let demand = self.issuer.demand(count);
        Want::Strict { count, demand }
    }

    /// Serves a group with the numbers that have arrived.
    pub(crate) fn serve_group(&mut self, block: Unpublished, mut group: Vec<Waiter>) {
        // If this actor is a former owner, no caller of its group is answered, and all of them ask
        // again.
        let Some(reserved) = self.issuer.publish(block) else {
            return;
        };
        self.issuer.note_added(&reserved);
        if self.is_outdated(reserved.block) {
            // A floor was raised while the numbers were on their way, and the caller who raised it
            // has the answer already.
            self.count_advanced(reserved.block.count());
            self.queue.put_back(group);
            self.enforce();
            return;
        }
        if faults::is(Fault::StrictSharesLate) {
            group.extend(self.queue.take_all());
        }
        let dealt = share_out(reserved.block, group);
        self.issuer.add_direct(dealt.n_issued);
        self.count_gone(dealt.n_unwanted);
        self.queue.put_back(dealt.left_over);
    }

    /// Handles a failed write for a group.
    pub(crate) fn fail_group(&mut self, error: &StoreError, group: Vec<Waiter>) {
        let StoreError::Exhausted { left } = error else {
            let told = self.caller_error(error);
            for waiter in group {
                // A caller who gave up needs no answer.
                let _gone = waiter.answer.send(Err(told.clone()));
            }
            return;
        };
        let (fitting, refused) = fitting(group, *left);
        for (waiter, left) in refused {
            let refusal = SequenceError::Exhausted {
                name: self.issuer.key.sequence.clone(),
                left,
            };
            // A caller who gave up needs no answer.
            let _gone = waiter.answer.send(Err(refusal));
        }
        self.queue.put_back(fitting);
    }

    /// Gives callers the ranges that have arrived for them. The ranges of callers who have gone are
    /// abandoned, because all callers who could use them came later.
    pub(crate) fn hand_over_strict(&mut self, block: Unpublished, group: Vec<DedicatedRequest>) {
        let Some(reserved) = self.issuer.publish(block) else {
            return;
        };
        self.issuer.note_added(&reserved);
        if self.is_outdated(reserved.block) {
            self.count_advanced(reserved.block.count());
            // These callers get other ranges, or the answer that the sequence is retired.
            self.dedicated_queue.put_back(group);
            self.enforce();
            return;
        }
        let (shares, _none) = dedicated::share_out(&reserved, group);
        for (share, caller) in shares {
            let count = share.block.count();
            if caller.answer.send(Ok(vec![share.block])).is_err() {
                self.count_gone(count);
            } else if caller.is_block {
                self.issuer.add_handed_over(count);
            } else {
                self.issuer.add_direct(count);
            }
            if caller.is_block {
                self.shared
                    .store
                    .write_journal(share.row(), BlockFate::HandedOver);
            }
        }
    }
}

fn waited_for(group: &[Waiter]) -> u64 {
    let counts = group.iter().map(|waiter| waiter.count);
    counts.fold(0, u64::saturating_add)
}

/// The result of sharing out the numbers of one write.
struct SharedOut {
    n_issued: u64,
    /// Numbers of callers that had gone.
    n_unwanted: u64,
    /// Callers for whom the write has no numbers.
    left_over: Vec<Waiter>,
}

/// Shares out the numbers in the order in which the callers came.
fn share_out(block: Block, group: Vec<Waiter>) -> SharedOut {
    let mut dealt = SharedOut {
        n_issued: 0,
        n_unwanted: 0,
        left_over: Vec::new(),
    };
    let mut rest = Some(block);
    for waiter in group {
        let Some(left) = rest.filter(|left| left.count() >= waiter.count) else {
            dealt.left_over.push(waiter);
            continue;
        };
        let (range, behind) = left.split_front(waiter.count);
        rest = behind;
        let answered = waiter.answer.send(Ok(range.into_iter().collect()));
        let sum = match answered {
            Ok(()) => &mut dealt.n_issued,
            Err(_gone) => &mut dealt.n_unwanted,
        };
        *sum = sum.saturating_add(waiter.count);
    }
    dealt
}

/// Separates the waiters for whom the numbers left suffice from the others. Each of the others is
/// returned with the number that its refusal reports as left.
///
/// Nothing is kept for callers that have gone, because nothing was written for them yet.
fn fitting(group: Vec<Waiter>, mut left: u64) -> (Vec<Waiter>, Vec<(Waiter, u64)>) {
    let mut kept = Vec::new();
    let mut refused = Vec::new();
    let there = group
        .into_iter()
        .filter(|waiter| !waiter.answer.is_closed());
    for waiter in there {
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
    use tokio::sync::oneshot;

    use super::*;
    use crate::actor::command::{Outcome, ReplySender};

    type Receiver = oneshot::Receiver<Outcome>;

    fn group(counts: &[u64]) -> (Vec<Waiter>, Vec<Receiver>) {
        let both = counts.iter().map(|count| {
            let (answer, receiver) = ReplySender::channel();
            let count = *count;
            (Waiter { count, answer }, receiver)
        });
        both.unzip()
    }

    fn block(first: i64, count: u64) -> Block {
        Block::new(first, count, 10).unwrap()
    }

    fn got(receiver: &mut Receiver) -> Vec<Block> {
        receiver.try_recv().expect("an answer").expect("numbers")
    }

    #[test]
    fn callers_are_dealt_unbroken_ranges_in_their_order() {
        let (waiters, mut receivers) = group(&[1, 3, 2]);
        let dealt = share_out(block(100, 6), waiters);
        let ranges: Vec<_> = receivers.iter_mut().map(got).collect();
        assert_eq!(
            ranges,
            [
                vec![block(100, 1)],
                vec![block(110, 3)],
                vec![block(140, 2)]
            ]
        );
        assert_eq!((dealt.n_issued, dealt.n_unwanted), (6, 0));
        assert!(dealt.left_over.is_empty());
    }

    #[test]
    fn what_was_reserved_for_a_caller_that_has_gone_goes_to_nobody_else() {
        let (waiters, mut receivers) = group(&[1, 3, 2]);
        drop(receivers.remove(1));
        let dealt = share_out(block(100, 6), waiters);
        assert_eq!(got(&mut receivers[0]), [block(100, 1)]);
        assert_eq!(got(&mut receivers[1]), [block(140, 2)]);
        assert_eq!((dealt.n_issued, dealt.n_unwanted), (3, 3));
    }

    #[test]
    fn at_the_end_whoever_asks_for_too_much_is_refused_alone() {
        let (waiters, _receivers) = group(&[3, 4, 2, 1]);
        let (kept, refused) = fitting(waiters, 5);
        let kept: Vec<u64> = kept.iter().map(|waiter| waiter.count).collect();
        let refused: Vec<_> = refused.iter().map(|(w, left)| (w.count, *left)).collect();
        assert_eq!((kept, refused), (vec![3, 2], vec![(4, 2), (1, 0)]));
    }

    #[test]
    fn at_the_end_nothing_is_kept_for_a_caller_that_has_gone() {
        let (waiters, mut receivers) = group(&[5, 1, 4]);
        drop(receivers.remove(0));
        let (kept, refused) = fitting(waiters, 5);
        let kept: Vec<u64> = kept.iter().map(|waiter| waiter.count).collect();
        assert_eq!(kept, [1, 4]);
        assert!(refused.is_empty());
    }
}
