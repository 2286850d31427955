//! Handles each command of an actor. What the actor does after that is in `actor`.

use std::sync::Arc;

use actix::{ActorContext, AsyncContext, Context, Handler, WrapFuture, fut::ActorFutureExt};
use odometer_core::cursor::TakenBatch;
use odometer_store::Contact;
use tokio::sync::oneshot;

use crate::{
    actor::command::Command,
    actor::queue::{Waiter, Wants},
    actor::sequence_actor::{Ending, SequenceActor, UNLOAD_TIMEOUT},
    error::SequenceError,
    issuer::memory::ActorLink,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::mailbox";

impl Handler<Command> for SequenceActor {
    type Result = ();

    fn handle(&mut self, command: Command, context: &mut Self::Context) {
        match command {
            Command::Take(waiter) => self.take_for(waiter, context),
            Command::LowWater => self.refill_ahead(context),
            Command::Load { done } => self.load_for(done, context),
            Command::Change { done } => self.obey(done, context),
            Command::Park => self.park(context),
            Command::Unload => self.unload(context),
            Command::Drain { answer } => self.drain_for(answer, context),
        }
    }
}

impl SequenceActor {
    fn take_for(&mut self, mut waiter: Waiter, context: &mut Context<Self>) {
        match self.ending {
            None if waiter.is_gone() => return,
            None => {}
            Some(Ending::Draining) => return waiter.refuse(SequenceError::Draining),
            // The caller gets no answer, and looks the name up again.
            Some(Ending::Leaving) => return,
        }
        if waiter.wants == Wants::Block && self.issues_ids() {
            let name = self.issuer.key.sequence.clone();
            waiter.refuse(SequenceError::TimeOrdered { name });
            return;
        }
        if waiter.wants == Wants::Range && self.issuer.is_strict() {
            // Each caller of a write gets one range of it.
            waiter.wants = Wants::Numbers;
        }
        if let Some(waiter) = self.serve_now(waiter) {
            match self.above_burst(waiter.count) {
                Some(told) => waiter.refuse(told),
                None => self.queue.push(waiter),
            }
        }
        self.hurry();
        self.advance(context);
    }

    /// Refuses a caller who wants more numbers than the speed limit ever allows at once.
    fn above_burst(&self, count: u64) -> Option<SequenceError> {
        // Each limit allows one number.
        let is_one = count <= 1 || self.issuer.is_outdated();
        let burst = if is_one {
            u64::MAX
        } else {
            self.issuer.burst()
        };
        (count > burst).then_some(SequenceError::AboveBurst { burst })
    }

    /// Returns whether the sequence is time-ordered, and needs no other issuer by now.
    fn issues_ids(&self) -> bool {
        self.issuer.snowflake().is_some() && !self.issuer.is_outdated()
    }

    /// Gives a caller numbers that arrived since it found none, unless callers who want any numbers
    /// have waited longer. Returns the caller if there are none for it. A time-ordered sequence has no cursor,
    /// and `advance` serves its callers.
    pub(crate) fn serve_now(&self, waiter: Waiter) -> Option<Waiter> {
        let Some(batch) = self.take_now(&waiter) else {
            return Some(waiter);
        };
        let count = waiter.count;
        if !waiter.give(batch.ranges.as_slice().to_vec()) {
            self.count_gone(count);
        }
        None
    }

    fn take_now(&self, waiter: &Waiter) -> Option<TakenBatch> {
        if self.queue.wants_numbers() || self.issuer.is_outdated() {
            return None;
        }
        let cursor = self.issuer.cursor()?;
        match waiter.wants {
            Wants::Numbers => cursor.take_batch(waiter.count, false),
            Wants::Range => self.take_range(cursor, waiter.count),
            Wants::Block => None,
        }
    }

    fn refill_ahead(&mut self, context: &mut Context<Self>) {
        self.settle();
        // After a failed try, this name has a random time of its own for the next try. So not all
        // names try at the same time.
        if !self.will_retry {
            self.advance(context);
        }
    }

    fn load_for(&mut self, done: oneshot::Sender<()>, context: &mut Context<Self>) {
        if self.issuer.remaining() == 0 && self.ending.is_none() {
            self.loading.push(done);
        }
        self.advance(context);
    }

    fn obey(&mut self, done: oneshot::Sender<()>, context: &mut Context<Self>) {
        self.is_refused = false;
        self.forget_refusal();
        self.enforce();
        // A caller who gave up needs no answer.
        let _gone = done.send(());
        self.advance(context);
    }

    fn park(&mut self, context: &mut Context<Self>) {
        if self.issuer.is_outdated() {
            self.unload(context);
            return;
        }
        // A lease that is not renewed ends, and a later caller gets another lease.
        let wants_none = self.is_refused || self.issuer.snowflake().is_some();
        let may_park = self.is_idle() && (wants_none || !self.issuer.wants_prefetch());
        if may_park {
            self.settle();
            if !self.shared.park(&self.issuer) {
                let mut link = self.issuer.actor.lock();
                if self.issuer.is_current() {
                    *link = ActorLink::Idle;
                }
            }
            context.stop();
        }
    }

    fn unload(&mut self, context: &mut Context<Self>) {
        if self.issuer.is_outdated() {
            if self.ending.is_none() {
                self.give_way(context);
            }
            return;
        }
        let store = self.issuer.store();
        let store_answers = self.shared.store.contact_of(&store) == Contact::Up;
        if !self.is_idle() || (self.issuer.is_known() && !store_answers) {
            return;
        }
        self.leave(context);
    }

    /// Closes memory, because the sequence needs another issuer by now, or is gone. Leaves memory if
    /// no work is under way, or else when it ends. Callers look the name up again.
    pub(crate) fn give_way(&mut self, context: &mut Context<Self>) {
        self.issuer.outdate();
        self.refuse_all(&SequenceError::Elsewhere);
        self.close_snowflake();
        self.give_back();
        if self.in_flight.is_some() {
            return;
        }
        if let Some(head) = self.shared.names.look(&self.issuer.key.sequence)
            && self.shared.find(&self.issuer.key).is_some_and(|found| {
                !Arc::ptr_eq(&found, &head) && Arc::ptr_eq(&found, self.issuer.issuer())
            })
        {
            // The period was chosen by a calendar that the sequence does not have any more.
            self.shared.dismiss_periods(&head);
        }
        self.leave(context);
    }

    /// Leaves memory: gives back what was not issued, and stops. Callers look the name up again.
    fn leave(&mut self, context: &mut Context<Self>) {
        let store = self.issuer.store();
        self.ending = Some(Ending::Leaving);
        let (n_returned, returning) = self.leave_memory();
        let shared = Arc::clone(&self.shared);
        // The returned numbers must be in the store before the name is loaded again. Otherwise its
        // next issuer does not find them.
        let written = async move {
            let flush = async {
                shared.store.flush_journal_of(&store).await;
                returning.await;
            };
            tokio::time::timeout(UNLOAD_TIMEOUT, flush).await.is_ok()
        };
        context.spawn(
            written
                .into_actor(self)
                .map(move |_written, actor, context| {
                    actor.shared.forget(actor.issuer.issuer());
                    // An issuer that gives way was perhaps in use.
                    if !actor.issuer.is_outdated() {
                        tracing::debug!(
                            target: TARGET,
                            sequence = actor.issuer.key.sequence.as_str(),
                            n_returned,
                            "an idle sequence was unloaded"
                        );
                    }
                    context.stop();
                }),
        );
    }

    fn drain_for(&mut self, answer: oneshot::Sender<u64>, context: &mut Context<Self>) {
        self.draining.push(answer);
        self.ending = Some(Ending::Draining);
        if self.in_flight.is_none() {
            self.finish_draining(context);
        }
    }
}
