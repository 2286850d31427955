//! Gives the callers of a counter what a refill brought, or the reason why it brought nothing.

use std::time::Duration;

use actix::Context;
use odometer_process::faults::{self, Fault};
use odometer_store::{BlockFate, Reserved, StoreError, Unpublished};

use crate::{actor::sequence_actor::SequenceActor, error::SequenceError};

/// Bounds the pause of a prefetch that the speed limit does not allow. The limit may be raised.
const MAX_PAUSE: Duration = Duration::from_secs(60);

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

    /// Handles a failed refill. Refuses the callers who wait for it, because no numbers come for
    /// them. At the end or at a speed limit, those who want a range go on to a write of their own.
    pub(crate) fn fail_refill(&mut self, error: &StoreError, context: &mut Context<Self>) {
        // Nobody has waited for what is fetched ahead of need. Callers who came since then are served
        // by the next refill.
        let limited = if let StoreError::RateLimited {
            n_available,
            wait_ms,
        } = error
        {
            Some((*n_available, Duration::from_millis(*wait_ms)))
        } else {
            None
        };
        if let StoreError::Exhausted { .. } = error {
            self.issuer.memory.lock().adopts = true;
            if !self.looks_for_returned && self.queue.wants_numbers() {
                // Returned blocks may be left, so another try may help at once.
                return;
            }
            // Memory may have enough numbers for some of the waiters.
            let name = &self.issuer.key.sequence;
            self.issuer.serve_waiters(&mut self.queue, |waiter, left| {
                let name = name.clone();
                waiter.refuse(SequenceError::Exhausted { name, left });
                None
            });
        } else if let Some((n_available, _)) = limited {
            if !self.is_ahead {
                // Memory may have enough numbers for some of the waiters.
                let told = self.caller_error(error);
                self.issuer.serve_waiters(&mut self.queue, |waiter, left| {
                    waiter.refuse(told.clone().with_available(left.max(n_available)));
                    None
                });
            }
        } else {
            let told = self.caller_error(error);
            for waiter in self.queue.take_refilled_for() {
                waiter.refuse(told.clone());
            }
        }
        if matches!(error, StoreError::Retired) {
            // Another replica retired the sequence, and the news has not arrived. The numbers in
            // memory must not be issued, either.
            let n_returned = self.give_back();
            self.count_advanced(n_returned);
        }
        let may_pass = matches!(
            error,
            StoreError::Unavailable
                | StoreError::Deadline
                | StoreError::WentBack
                | StoreError::RateLimited { .. }
        );
        self.is_refused = !may_pass;
        if may_pass && self.ending.is_none() && self.issuer.wants_prefetch() {
            let wait = limited.map_or(Duration::ZERO, |(_, wait)| wait);
            self.try_again_later(wait.min(MAX_PAUSE), context);
        }
    }
}
