//! What each message makes the actor do; how it goes on from there is in `actor`.

use std::sync::Arc;

use actix::{ActorContext, AsyncContext, Handler, WrapFuture, fut::ActorFutureExt};
use odometer_process::metrics::AbandonedCause;
use odometer_store::Contact;

use crate::{
    actor::{ActorState, SequenceActor, UNLOAD_TIMEOUT},
    dedicated::DedicatedRequest,
    issuer::ActorLink,
    messages::{Change, Drain, HandOver, Learn, Load, LowWater, Park, Take, Unload},
    queue::Waiter,
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::sequence::mailbox";

impl Handler<Take> for SequenceActor {
    type Result = ();

    fn handle(&mut self, take: Take, context: &mut Self::Context) {
        if self.refuses(&take.answer) {
            self.refuse(take.answer);
            return;
        }
        // What was filled in since the caller looked is taken at once, unless others wait longer.
        // Of a time-ordered sequence it is served in its turn, which may be now.
        if self.queue.is_empty()
            && let Some(batch) = self.issuer.cursor.take_batch(take.count, take.contiguous)
        {
            if take
                .answer
                .send(Ok(batch.ranges.as_slice().to_vec()))
                .is_err()
            {
                self.shared
                    .metrics
                    .abandoned(AbandonedCause::CallerGone)
                    .increment(take.count);
            }
        } else if take.contiguous && !self.issuer.is_strict() {
            self.apart
                .push(DedicatedRequest::new(take.count, false, take.answer));
        } else {
            self.queue.push(Waiter {
                count: take.count,
                answer: take.answer,
            });
        }
        self.advance_for_caller(context);
    }
}

impl Handler<HandOver> for SequenceActor {
    type Result = ();

    fn handle(&mut self, asked: HandOver, context: &mut Self::Context) {
        if self.refuses(&asked.answer) {
            self.refuse(asked.answer);
            return;
        }
        self.apart
            .push(DedicatedRequest::new(asked.size, true, asked.answer));
        self.advance_for_caller(context);
    }
}

impl Handler<LowWater> for SequenceActor {
    type Result = ();

    fn handle(&mut self, _: LowWater, context: &mut Self::Context) {
        self.settle();
        // Where a try has failed, the next one is due at a time of its own, not of all names.
        if self.retry.is_none() {
            self.advance(context);
        }
    }
}

impl Handler<Learn> for SequenceActor {
    type Result = ();

    fn handle(&mut self, learn: Learn, context: &mut Self::Context) {
        self.learning.push(learn.answer);
        if self.learning.len() == 1 {
            self.learn(context);
        }
    }
}

impl Handler<Load> for SequenceActor {
    type Result = ();

    fn handle(&mut self, load: Load, context: &mut Self::Context) {
        if self.issuer.remaining() == 0 && self.state != ActorState::Draining {
            self.loading.push(load.done);
        }
        self.advance(context);
    }
}

impl Handler<Change> for SequenceActor {
    type Result = ();

    fn handle(&mut self, change: Change, context: &mut Self::Context) {
        self.is_refused = false;
        self.forget_refusal();
        self.enforce();
        // Whoever gave up does not need to know.
        let _gone = change.done.send(());
        self.advance(context);
    }
}

impl Handler<Park> for SequenceActor {
    type Result = ();

    fn handle(&mut self, _: Park, context: &mut Self::Context) {
        // A lease that nobody renews runs out, and whoever comes later gets another one.
        let wants_none = self.is_refused || self.issuer.timed().is_some();
        let may_park = self.is_idle() && (wants_none || !self.issuer.wants_prefetch());
        if may_park {
            self.settle();
            *self.issuer.actor.lock() = ActorLink::Parked;
            context.stop();
        }
    }
}

impl Handler<Unload> for SequenceActor {
    type Result = ();

    fn handle(&mut self, _: Unload, context: &mut Self::Context) {
        let store = self.issuer.store();
        let store_answers = self.shared.store.contact_of(&store) == Contact::Up;
        if !self.is_idle() || (self.issuer.is_known() && !store_answers) {
            return;
        }
        if self
            .issuer
            .periods()
            .is_some_and(|periods| !periods.close())
        {
            // It leads to issuers in use.
            return;
        }
        self.state = ActorState::Draining;
        self.is_unloading = true;
        // Whoever finds the issuer from here on looks the name up again.
        *self.issuer.actor.lock() = ActorLink::Gone;
        let n_returned = self.give_back();
        self.close_timed();
        let returning = self.returned();
        let shared = Arc::clone(&self.shared);
        // What is given back has to be there before the name is loaded again, or it is passed over.
        let written = async move {
            let flush = async {
                shared.store.flush_journal_of(&store).await;
                if let Some(returning) = returning {
                    returning.await;
                }
            };
            tokio::time::timeout(UNLOAD_TIMEOUT, flush).await.is_ok()
        };
        context.spawn(
            written
                .into_actor(self)
                .map(move |_written, actor, context| {
                    actor.shared.forget(actor.issuer.issuer());
                    tracing::debug!(
                        target: TARGET,
                        sequence = actor.issuer.key.sequence.as_str(),
                        n_returned,
                        "an idle sequence was unloaded"
                    );
                    context.stop();
                }),
        );
    }
}

impl Handler<Drain> for SequenceActor {
    type Result = ();

    fn handle(&mut self, drain: Drain, context: &mut Self::Context) {
        self.draining.push(drain.answer);
        self.state = ActorState::Draining;
        self.is_unloading = false;
        if self.in_flight.is_none() {
            self.finish_draining(context);
        }
    }
}
