//! Gives the callers of a counter what the store brought, or the reason why it brought nothing.

use odometer_core::block::Block;
use odometer_process::faults::{self, Fault};
use odometer_store::{BlockFate, Reserved, StoreError, Unpublished};

use crate::{
    actor::dedicated::{self, DedicatedRequest},
    actor::sequence_actor::SequenceActor,
    error::SequenceError,
};

impl SequenceActor {
    /// Publishes a block that has arrived for the cursor, and adds the block to memory.
    pub(crate) fn refill(&mut self, block: Unpublished) {
        if faults::is(Fault::ActorPanic) {
            self.shared.panic_now_and_then();
        }
        self.reset_backoff();
        self.is_refused = false;
        let Some(reserved) = self.issuer.publish(block) else {
            return;
        };
        self.add_block(&reserved);
    }

    /// Adds a published block: the waiters get its numbers first, in order, and the cursor gets the
    /// rest.
    fn add_block(&mut self, reserved: &Reserved) {
        let n_cut = self.issuer.add_block(reserved);
        self.count_advanced(n_cut);
        // A change may have come while the block was on its way, or was read together with the
        // block.
        if self.enforce() {
            return;
        }
        if faults::is(Fault::ActorPanic) {
            self.shared.panic_now_and_then();
        }
        self.queue.forget_gone();
        self.issuer.serve_waiters(&mut self.queue);
        self.shared
            .store
            .write_journal(reserved.row(), BlockFate::Held);
        self.settle();
        if faults::is(Fault::ActorPanic) {
            self.shared.panic_now_and_then();
        }
    }

    /// Shares out a block among callers who each get a range of it.
    pub(crate) fn hand_over(&mut self, block: Unpublished, mut group: Vec<DedicatedRequest>) {
        let Some(reserved) = self.issuer.publish(block) else {
            return;
        };
        self.issuer.note_handed_over(&reserved);
        group.retain(|caller| !caller.answer.is_closed());
        if !group.is_empty() && self.is_outdated(reserved.block) {
            self.count_advanced(self.n_forbidden(reserved.block));
            let next_unissued = reserved.block.first();
            let fate = BlockFate::Returned { next_unissued };
            self.shared.store.write_journal(reserved.row(), fate);
            // These callers get another range, or the answer that the sequence is retired.
            self.dedicated_queue.put_back(group);
            self.enforce();
            return;
        }
        let (shares, rest) = dedicated::share_out(&reserved, group);
        for (share, caller) in shares {
            let count = share.block.count();
            if caller.answer.send(Ok(vec![share.block])).is_ok() {
                self.issuer.add_handed_over(count);
            } else {
                self.count_gone(count);
            }
            self.shared
                .store
                .write_journal(share.row(), BlockFate::HandedOver);
        }
        if let Some(rest) = rest {
            // Some callers gave up meanwhile. Their numbers go behind all that are held, and are
            // issued.
            self.add_block(&rest);
        }
    }

    /// Handles a failed write for callers who want ranges of their own.
    pub(crate) fn fail_dedicated(&mut self, error: &StoreError, group: Vec<DedicatedRequest>) {
        let is_too_much = matches!(
            error,
            StoreError::Exhausted { .. } | StoreError::TooLarge { .. }
        );
        if is_too_much && group.len() > 1 {
            // The numbers that are left may be enough for each of them alone.
            self.dedicated_queue.put_back_alone(group);
            return;
        }
        for caller in group {
            // A caller who gave up needs no answer.
            let _gone = caller.answer.send(Err(self.caller_error(error)));
        }
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
    pub(crate) fn is_outdated(&self, block: Block) -> bool {
        self.issuer.memory.lock().forbids(block) && !faults::is(Fault::FloorUnheld)
    }

    /// Refuses the waiters after a failed refill, because no numbers come for them.
    ///
    /// Returns false if another try may help at once: at the end of a sequence, returned blocks may
    /// be left.
    pub(crate) fn fail(&mut self, error: &StoreError) -> bool {
        if let StoreError::Exhausted { .. } = error {
            self.issuer.memory.lock().adopts = true;
            if !self.looks_for_returned && !self.queue.is_empty() {
                return false;
            }
            self.serve_the_last();
            return true;
        }
        let told = self.caller_error(error);
        self.refuse_all(&told);
        true
    }

    /// Serves the waiters for whom memory has enough numbers, at the end of a sequence. Refuses the
    /// others.
    fn serve_the_last(&mut self) {
        let name = &self.issuer.key.sequence;
        self.issuer
            .serve_last_waiters(&mut self.queue, |waiter, left| {
                let refused = SequenceError::Exhausted {
                    name: name.clone(),
                    left,
                };
                // A caller who gave up needs no answer.
                let _gone = waiter.answer.send(Err(refused));
            });
    }
}
