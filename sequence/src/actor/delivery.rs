//! Gives the callers of a counter what the store brought, or the reason why it brought nothing.

use odometer_process::faults::{self, Fault};
use odometer_store::{BlockFate, Reserved, StoreError, Unpublished};

use crate::{actor::sequence_actor::SequenceActor, error::SequenceError};

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
    pub(crate) fn add_block(&mut self, reserved: &Reserved) {
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
        // A caller for whom the block is too small waits on.
        self.issuer
            .serve_waiters(&mut self.queue, |waiter, _left| Some(waiter));
        self.shared
            .store
            .write_journal(reserved.row(), BlockFate::Held);
        self.settle();
        if faults::is(Fault::ActorPanic) {
            self.shared.panic_now_and_then();
        }
    }

    /// Refuses the waiters after a failed refill, because no numbers come for them.
    ///
    /// Returns false if another try may help at once: at the end of a sequence, returned blocks may
    /// be left.
    pub(crate) fn fail(&mut self, error: &StoreError) -> bool {
        if let StoreError::Exhausted { .. } = error {
            self.issuer.memory.lock().adopts = true;
            if !self.looks_for_returned && self.queue.wants_numbers() {
                return false;
            }
            // Memory may have enough numbers for some of the waiters.
            let name = &self.issuer.key.sequence;
            self.issuer.serve_waiters(&mut self.queue, |waiter, left| {
                let name = name.clone();
                waiter.refuse(SequenceError::Exhausted { name, left });
                None
            });
            return true;
        }
        let told = self.caller_error(error);
        for waiter in self.queue.take_numbers() {
            waiter.refuse(told.clone());
        }
        true
    }
}
