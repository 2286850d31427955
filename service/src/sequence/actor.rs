//! The actor of one name: it alone reserves, fills, closes and returns.
//!
//! ```text
//! Empty ──Take──▶ Reserving ──block──▶ Serving ──LowWater──▶ Prefetching ──block──▶ Serving
//!   ▲                 │ failed            │                       │ failed: tries again by itself
//!   └─────────────────┘                   └──── Drain, Unload ────┴──▶ Draining
//! ```
//!
//! At most one reservation is in flight. Nothing here awaits while it holds a
//! caller: refills arrive as messages to itself.

use std::{sync::Arc, time::Duration};

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, SpawnHandle, WrapFuture,
    fut::ActorFutureExt,
};
use odometer_core::block::Block;
use tokio::sync::oneshot;

use super::{
    error::SequenceError,
    issuer::{Issuer, Link},
    messages::{Answer, Change, Drain, HandOver, LowWater, Park, Take, Unload},
    queue::{Queue, Waiter},
    shared::Shared,
};
use crate::{
    metrics::AbandonedCause,
    sabotage::{self, Fault},
    store::{Contact, Fate, ReserveRequest, StoreError, Unpublished, Want},
};

/// The first wait before a prefetch is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// How long an unloaded name waits for its row in the journal before it may be loaded again.
const UNLOAD_PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct SequenceActor {
    issuer: Arc<Issuer>,
    shared: Arc<Shared>,
    state: State,
    /// Callers that wait for a refill.
    queue: Queue,
    /// Callers that wait for a range of their own, straight from the store.
    apart: Vec<Apart>,
    in_flight: Option<InFlight>,
    backoff: Duration,
    /// Set when the store said what trying again does not change: no prefetch until asked for.
    is_refused: bool,
    /// Whether the reservation under way looks for returned blocks first.
    looks_for_returned: bool,
    /// Whose turn it is when both kinds of callers wait.
    is_turn_of_apart: bool,
    retry: Option<SpawnHandle>,
    /// The name leaves memory: callers are to look it up again.
    is_unloading: bool,
    draining: Vec<oneshot::Sender<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing in memory, nothing under way.
    Empty,
    /// Nothing in memory, a block on its way.
    Reserving,
    /// Numbers in memory.
    Serving,
    /// Numbers in memory, the next block on its way or tried again.
    Prefetching,
    /// No new work is taken.
    Draining,
}

/// What the reservation under way is for.
enum InFlight {
    Refill,
    Apart(Apart),
}

/// A caller that gets a reservation of its own.
struct Apart {
    want: Want,
    answer: Answer,
}

impl Actor for SequenceActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.shared.metrics.actors.increment(1.0);
        if sabotage::is(Fault::TakeoverKeepsBlock) {
            self.issuer.refill_with_what_was_held();
        }
        if self.issuer.remaining() > 0 {
            self.state = State::Serving;
        }
        self.advance(context);
    }
}

impl Drop for SequenceActor {
    fn drop(&mut self) {
        self.shared.metrics.actors.decrement(1.0);
    }
}

impl SequenceActor {
    pub(super) fn new(issuer: Arc<Issuer>, shared: Arc<Shared>) -> Self {
        Self {
            issuer,
            shared,
            state: State::Empty,
            queue: Queue::default(),
            apart: Vec::new(),
            in_flight: None,
            backoff: BACKOFF_MIN,
            is_refused: false,
            looks_for_returned: false,
            is_turn_of_apart: false,
            retry: None,
            is_unloading: false,
            draining: Vec::new(),
        }
    }

    /// Starts the next reservation, if one is needed and none is under way.
    fn advance(&mut self, context: &mut Context<Self>) {
        let is_busy = self.in_flight.is_some() && !sabotage::is(Fault::RefillForEach);
        if is_busy || self.state == State::Draining || self.shared.is_drained() {
            return;
        }
        self.queue.forget_gone();
        self.apart.retain(|caller| !caller.answer.is_closed());
        self.fill_from_spare();
        let is_turn_of_apart = self.queue.is_empty() || self.is_turn_of_apart;
        let next = if !self.apart.is_empty() && is_turn_of_apart {
            self.is_turn_of_apart = false;
            Some(InFlight::Apart(self.apart.remove(0)))
        } else if !self.queue.is_empty() {
            self.is_turn_of_apart = true;
            Some(InFlight::Refill)
        } else if !self.is_refused && self.issuer.wants_prefetch() {
            Some(InFlight::Refill)
        } else {
            None
        };
        let Some(next) = next else {
            self.rest();
            return;
        };
        let request = self.request(&next);
        self.in_flight = Some(next);
        self.state = match self.issuer.cursor.remaining() {
            0 => State::Reserving,
            _ => State::Prefetching,
        };
        self.reserve(request, context);
    }

    /// As `advance`; what is under way is asked for by somebody from now on.
    fn advance_for_caller(&mut self, context: &mut Context<Self>) {
        if self.in_flight.is_some() && !(self.queue.is_empty() && self.apart.is_empty()) {
            self.issuer.urgency.notify_one();
        }
        self.advance(context);
    }

    fn rest(&mut self) {
        self.state = match self.issuer.cursor.remaining() {
            0 => State::Empty,
            _ => State::Serving,
        };
    }

    fn request(&mut self, purpose: &InFlight) -> ReserveRequest {
        let earlier = self.shared.forgotten(&self.issuer.name);
        let memory = self.issuer.memory.lock();
        let adopt_from = match (purpose, &earlier) {
            (InFlight::Refill, Ok(earlier)) if memory.adopts => {
                let all_below = earlier.map_or(0, |earlier| earlier.all_below);
                Some(memory.all_below.max(all_below))
            }
            (InFlight::Refill | InFlight::Apart(_), _) => None,
        };
        let known = memory.known.clone();
        // Also where nothing may be adopted: then there is nothing to look for.
        self.looks_for_returned = memory.adopts;
        drop(memory);
        let last_seen = match &known {
            Some(known) => Some(known.seen),
            None => earlier.ok().flatten().map(|earlier| earlier.seen),
        };
        ReserveRequest {
            last_seen,
            name: self.issuer.name.clone(),
            known,
            want: match purpose {
                InFlight::Refill => Want::Refill(self.issuer.demand(self.queue.waited_for())),
                InFlight::Apart(caller) => caller.want.clone(),
            },
            adopt_from,
            template: self
                .shared
                .settings
                .unknown_create
                .then(|| Arc::clone(&self.shared.settings.template)),
            urgency: Arc::clone(&self.issuer.urgency),
        }
    }

    fn reserve(&mut self, request: ReserveRequest, context: &mut Context<Self>) {
        if sabotage::is(Fault::FirstRefillError)
            && !std::mem::replace(&mut self.issuer.memory.lock().failed_once, true)
        {
            if sabotage::is(Fault::FirstRefillInvents)
                && let Ok(invented) = Block::new(1, 100, 1)
            {
                // What the peer in FIELD.md did: the empty step stays and is issued from.
                let _room = self.issuer.cursor.fill(invented, 0);
            }
            self.ended(Err(StoreError::Unavailable), context);
            return;
        }
        let outcome = self.shared.store.reserve(request);
        let arrival = async move {
            // Where the store's runtime is gone, the program is on its way out.
            outcome.await.unwrap_or(Err(StoreError::Unavailable))
        };
        context.spawn(
            arrival
                .into_actor(self)
                .map(|outcome, actor, context| actor.ended(outcome, context)),
        );
    }

    /// A reservation has ended, well or not.
    fn ended(&mut self, outcome: Result<Unpublished, StoreError>, context: &mut Context<Self>) {
        let purpose = self.in_flight.take();
        match (outcome, purpose) {
            (Ok(block), Some(InFlight::Apart(caller))) => self.hand_over(block, caller),
            (Ok(block), _) => self.refill(block),
            (Err(error), Some(InFlight::Apart(caller))) => {
                // Whoever gave up does not need to know.
                let _gone = caller.answer.send(Err(self.told(&error)));
            }
            (Err(error), _) => {
                if self.fail(&error) {
                    let may_pass = matches!(error, StoreError::Unavailable | StoreError::Deadline);
                    self.is_refused = !may_pass;
                    if may_pass && self.state != State::Draining && self.issuer.wants_prefetch() {
                        self.try_again_later(context);
                        return;
                    }
                }
                let is_stranger =
                    matches!(error, StoreError::NotFound | StoreError::TooMany { .. });
                if is_stranger && !self.issuer.is_known() {
                    // A name that does not exist takes no place from one that does.
                    context.notify(Unload);
                }
            }
        }
        if self.state == State::Draining {
            self.finish_draining(context);
            return;
        }
        self.advance(context);
    }

    /// A block for the cursor has arrived: waiters first, in order, then the cursor.
    fn refill(&mut self, block: Unpublished) {
        if sabotage::is(Fault::ActorPanic) {
            self.shared.panic_now_and_then();
        }
        self.backoff = BACKOFF_MIN;
        self.is_refused = false;
        let Some(reserved) = block.publish() else {
            return;
        };
        self.issuer.note_reserved(&reserved);
        self.queue.forget_gone();
        if self.queue.is_empty() {
            self.put(vec![reserved.block]);
        } else {
            let mut blocks = self.issuer.cursor.close();
            blocks.append(&mut self.issuer.memory.lock().spare);
            blocks.push(reserved.block);
            let (left, n_issued) = self.queue.deal(blocks);
            self.issuer.add_direct(n_issued);
            self.put(left);
        }
        self.shared.store.write_journal(reserved.row(), Fate::Held);
        self.settle();
        if sabotage::is(Fault::ActorPanic) {
            self.shared.panic_now_and_then();
        }
    }

    /// Puts blocks behind what is in the cursor, and what does not fit into the spare.
    fn put(&self, blocks: Vec<Block>) {
        self.issuer.memory.lock().spare.extend(blocks);
        self.fill_from_spare();
    }

    fn fill_from_spare(&self) {
        let low_water = self.issuer.low_water();
        let mut memory = self.issuer.memory.lock();
        while self.issuer.cursor.room() > 0 && !memory.spare.is_empty() {
            let block = memory.spare.remove(0);
            if self.issuer.cursor.fill(block, low_water).is_err() {
                memory.spare.insert(0, block);
                break;
            }
        }
    }

    /// A block of its own has arrived for one caller.
    fn hand_over(&mut self, block: Unpublished, caller: Apart) {
        if caller.answer.is_closed() {
            // The caller gave up meanwhile. The block lies above all that is held: it is issued here.
            self.refill(block);
            return;
        }
        let Some(reserved) = block.publish() else {
            return;
        };
        self.issuer.note_handed_over(&reserved);
        let count = reserved.block.count();
        if caller.answer.send(Ok(vec![reserved.block])).is_ok() {
            self.issuer.add_handed_over(count);
        } else {
            self.shared
                .metrics
                .abandoned(AbandonedCause::CallerGone)
                .increment(count);
        }
        self.shared.store.write_journal(reserved.row(), Fate::Spent);
    }

    fn settle(&self) {
        for row in self.issuer.settle() {
            self.shared.store.write_journal(row, Fate::Spent);
        }
    }

    /// A refill failed: nobody is kept waiting for what is known not to come.
    ///
    /// False where it is worth another try at once: returned blocks may be left at the very end.
    fn fail(&mut self, error: &StoreError) -> bool {
        if let StoreError::Exhausted { .. } = error {
            self.issuer.memory.lock().adopts = true;
            if !self.looks_for_returned && !self.queue.is_empty() {
                return false;
            }
            self.serve_the_last();
            return true;
        }
        let told = self.told(error);
        for waiter in self.queue.take_all() {
            // Whoever gave up does not need to know.
            let _gone = waiter.answer.send(Err(told.clone()));
        }
        true
    }

    /// The sequence is at its end: who can be served from memory is, the others are refused.
    fn serve_the_last(&mut self) {
        let mut left = self.issuer.cursor.close();
        left.append(&mut self.issuer.memory.lock().spare);
        let mut n_issued: u64 = 0;
        for waiter in self.queue.take_all() {
            let n_left = left.iter().map(Block::count).sum();
            if waiter.count > n_left {
                let _gone = waiter.answer.send(Err(SequenceError::Exhausted {
                    name: self.issuer.name.clone(),
                    left: n_left,
                }));
                continue;
            }
            let mut alone = Queue::default();
            alone.push(waiter);
            let (rest, n_now) = alone.deal(left);
            left = rest;
            n_issued = n_issued.saturating_add(n_now);
        }
        self.issuer.add_direct(n_issued);
        self.put(left);
    }

    /// What a caller reads of a failure of the store; what is left includes what is in memory.
    fn told(&self, error: &StoreError) -> SequenceError {
        let mut error = error.clone();
        if let StoreError::Exhausted { left } = &mut error {
            *left = left.saturating_add(self.issuer.remaining());
        }
        SequenceError::from_store(&self.issuer.name, error)
    }

    /// A prefetch that failed is nobody's call: the actor tries it again by itself.
    fn try_again_later(&mut self, context: &mut Context<Self>) {
        self.rest();
        if self.retry.is_some() {
            return;
        }
        let bound = self.backoff.max(self.issuer.patience());
        let pause = bound.mul_f64(rand::random::<f64>());
        self.backoff = (self.backoff * 2).min(self.shared.settings.backoff_max);
        self.retry = Some(context.run_later(pause, |actor, context| {
            actor.retry = None;
            actor.advance(context);
        }));
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_none()
            && self.queue.is_empty()
            && self.apart.is_empty()
            && self.state != State::Draining
    }

    /// Whether a caller gets nothing here.
    fn refuses(&self, answer: &Answer) -> bool {
        self.state == State::Draining || answer.is_closed()
    }

    /// Dropped unanswered, a caller looks the name up again; where all is drained it is told so.
    fn refuse(&self, answer: Answer) {
        if !self.is_unloading {
            let _gone = answer.send(Err(SequenceError::Draining));
        }
    }

    fn finish_draining(&mut self, context: &mut Context<Self>) {
        for waiter in self.queue.take_all() {
            let _gone = waiter.answer.send(Err(SequenceError::Draining));
        }
        for caller in self.apart.drain(..) {
            let _gone = caller.answer.send(Err(SequenceError::Draining));
        }
        let n_returned = self.give_back();
        *self.issuer.actor.lock() = Link::Gone;
        for answer in self.draining.drain(..) {
            // The drain as a whole has a deadline; it may have stopped listening.
            let _gone = answer.send(n_returned);
        }
        context.stop();
    }

    /// Closes the cursor and gives back what was not issued; how many numbers that is.
    fn give_back(&self) -> u64 {
        let mut n_returned: u64 = 0;
        for (row, next_unissued) in self.issuer.clear() {
            let fate = match next_unissued {
                Some(_) if sabotage::is(Fault::NoReturn) => continue,
                Some(next_unissued) => {
                    n_returned = n_returned.saturating_add(row.block.count_from(next_unissued));
                    Fate::Returned { next_unissued }
                }
                None => Fate::Spent,
            };
            self.shared.store.write_journal(row, fate);
        }
        n_returned
    }
}

impl Handler<Take> for SequenceActor {
    type Result = ();

    fn handle(&mut self, take: Take, context: &mut Self::Context) {
        if self.refuses(&take.answer) {
            self.refuse(take.answer);
            return;
        }
        // What was filled in since the caller looked is taken at once, unless others wait longer.
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
        } else if take.contiguous {
            self.apart.push(Apart {
                want: Want::Exactly(take.count),
                answer: take.answer,
            });
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
        self.apart.push(Apart {
            want: Want::Handover(asked.size),
            answer: asked.answer,
        });
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

impl Handler<Change> for SequenceActor {
    type Result = ();

    fn handle(&mut self, change: Change, context: &mut Self::Context) {
        let changed = change.changed;
        if let Some(known) = &mut self.issuer.memory.lock().known
            && known.definition_version < changed.version
        {
            known.definition = changed.definition;
            known.definition_version = changed.version;
            // The counter's version was raised with the definition: read before the next write.
            known.trusted = false;
        }
        self.is_refused = false;
        // Whoever gave up does not need to know.
        let _gone = change.done.send(());
        self.advance(context);
    }
}

impl Handler<Park> for SequenceActor {
    type Result = ();

    fn handle(&mut self, _: Park, context: &mut Self::Context) {
        let may_park = self.is_idle() && (self.is_refused || !self.issuer.wants_prefetch());
        if may_park {
            self.settle();
            *self.issuer.actor.lock() = Link::Parked;
            context.stop();
        }
    }
}

impl Handler<Unload> for SequenceActor {
    type Result = ();

    fn handle(&mut self, _: Unload, context: &mut Self::Context) {
        let store_answers = self.shared.store.contact() == Contact::Up;
        if !self.is_idle() || (self.issuer.is_known() && !store_answers) {
            return;
        }
        self.state = State::Draining;
        self.is_unloading = true;
        // Whoever finds the issuer from here on looks the name up again.
        *self.issuer.actor.lock() = Link::Gone;
        let n_returned = self.give_back();
        let shared = Arc::clone(&self.shared);
        // What is given back has to be there before the name is loaded again, or it is passed over.
        let written = async move {
            let flush = shared.store.flush_journal();
            tokio::time::timeout(UNLOAD_PATIENCE, flush).await.is_ok()
        };
        context.spawn(
            written
                .into_actor(self)
                .map(move |_written, actor, context| {
                    actor.shared.forget(&actor.issuer);
                    tracing::debug!(
                        sequence = actor.issuer.name.as_str(),
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
        self.state = State::Draining;
        self.is_unloading = false;
        if self.in_flight.is_none() {
            self.finish_draining(context);
        }
    }
}
