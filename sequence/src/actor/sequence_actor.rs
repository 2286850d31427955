//! Runs one counter: its actor alone reserves blocks, fills and closes the cursor, and returns
//! numbers.
//!
//! ```text
//! Empty ──Take──▶ Reserving ──block──▶ Serving ──LowWater──▶ Prefetching ──block──▶ Serving
//!   ▲                 │ failed            │                       │ failed: tries again by itself
//!   └─────────────────┘                   └──── Drain, Unload ────┴──▶ Draining
//! ```
//!
//! No field holds these states: they follow from the numbers in memory and the work under way.
//!
//! At most one reservation is under way. The actor never waits for a reservation: the outcome comes
//! back to the actor as a call of its own.

use std::{sync::Arc, time::Duration};

use actix::{Actor, ActorContext, AsyncContext, Context, WrapFuture, fut::ActorFutureExt};
use odometer_core::block::Block;
use odometer_process::{
    faults::{self, Fault},
    log,
    metrics::AbandonedCause,
};
use odometer_store::{
    BlockFate, ReservationProgress, ReserveRequest, Reserved, StoreError, Unpublished, Want,
};
use tokio::sync::{Notify, oneshot};
use tracing::Span;

use crate::{
    actor::queue::{Queue, Waiter},
    actor::snowflake_lease::Leasing,
    directory::shared::Shared,
    error::SequenceError,
    issuer::memory::ActorLink,
    issuer::ownership::Ownership,
};

/// Sets the first pause before a failed prefetch is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
/// Bounds how long an unloading name waits for its row in the journal. Then the name may be loaded
/// again.
pub(crate) const UNLOAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Delays each outcome under the fault `StrictArrivesLate`.
const LATE: Duration = Duration::from_millis(1500);

pub(crate) struct SequenceActor {
    pub(crate) issuer: Ownership,
    pub(crate) shared: Arc<Shared>,
    /// Why the actor takes no new work; `None` while it does.
    pub(crate) ending: Option<Ending>,
    /// Callers that wait for numbers.
    pub(crate) queue: Queue,
    pub(crate) in_flight: Option<PendingWork>,
    /// Notified when a caller waits for a refill that was started ahead of need; `None` before the
    /// first refill of this actor, and after each one.
    urgency: Option<Arc<Notify>>,
    /// How many tries ahead of need have failed since the last success.
    n_failures: u32,
    /// Whether the store gave a reason that another try does not change. Then the actor reserves
    /// only for callers, not ahead of need.
    pub(crate) is_refused: bool,
    /// Whether the reservation under way first looks for returned blocks.
    pub(crate) looks_for_returned: bool,
    /// Whether the reservation under way is ahead of need.
    pub(crate) is_ahead: bool,
    /// Whether a failed prefetch will be tried again later.
    pub(crate) will_retry: bool,
    /// Notified when a load has ended: numbers are in memory, or do not come for now.
    pub(crate) loading: Vec<oneshot::Sender<()>>,
    /// Notified when the actor is drained.
    pub(crate) draining: Vec<oneshot::Sender<u64>>,
    /// What is remembered about the lease of the worker id, if the sequence is time-ordered. Most
    /// sequences are not, and need no memory for this.
    pub(crate) leasing: Option<Box<Leasing>>,
}

/// Why an actor takes no new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The replica stops.
    Draining,
    /// The name is leaving memory. Its callers must look the name up again.
    Leaving,
}

/// What the work under way is for.
pub(crate) enum PendingWork {
    Refill,
    /// Callers who share one write. Each of them gets a range of it.
    Group(Vec<Waiter>),
    /// The lease of a worker id, or the question before it, whether the sequence lives.
    Lease,
    /// The renewal of the lease that the actor has.
    Renewal,
}

impl PendingWork {
    /// Returns the callers who share a write.
    fn group(&self) -> Option<&[Waiter]> {
        match self {
            Self::Group(group) => Some(group),
            Self::Refill | Self::Lease | Self::Renewal => None,
        }
    }
}

impl Actor for SequenceActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.shared.metrics.actors.increment(1.0);
        if faults::is(Fault::TakeoverKeepsBlock) {
            self.issuer.refill_with_what_was_held();
        }
        // The actor before may have died in the middle of a change.
        self.enforce();
        self.advance(context);
    }
}

impl Drop for SequenceActor {
    fn drop(&mut self) {
        self.shared.metrics.actors.decrement(1.0);
    }
}

impl SequenceActor {
    pub(crate) fn new(issuer: Ownership, shared: Arc<Shared>) -> Self {
        Self {
            issuer,
            shared,
            ending: None,
            queue: Queue::default(),
            in_flight: None,
            urgency: None,
            n_failures: 0,
            is_refused: false,
            looks_for_returned: false,
            is_ahead: false,
            will_retry: false,
            loading: Vec::new(),
            draining: Vec::new(),
            leasing: None,
        }
    }

    /// Starts the next reservation, if one is needed and none is under way.
    pub(crate) fn advance(&mut self, context: &mut Context<Self>) {
        if self.ending.is_some() || self.shared.is_drained() {
            return;
        }
        if self.issuer.is_outdated() {
            self.give_way(context);
            return;
        }
        if let Some(snowflake) = self.issuer.snowflake().map(Arc::clone) {
            self.advance_snowflake(&snowflake, context);
            return;
        }
        if self.in_flight.is_some() && !faults::is(Fault::RefillForEach) {
            return;
        }
        self.queue.forget_gone();
        if self.issuer.is_strict() {
            // There is nothing to load.
            self.tell_loading();
        }
        self.issuer.refill_cursor();
        self.serve_ranges();
        if let Some(next) = self.next_work() {
            let request = self.request(&next);
            self.in_flight = Some(next);
            self.reserve(request, context);
        }
    }

    /// Returns what the next reservation is for, if one is needed.
    fn next_work(&mut self) -> Option<PendingWork> {
        if !self.queue.is_empty() {
            let group = self.next_group();
            return Some(group.map_or(PendingWork::Refill, PendingWork::Group));
        }
        let is_needed = self.may_prefetch() || (self.may_refill() && self.wants_load());
        is_needed.then_some(PendingWork::Refill)
    }

    /// Returns whether a refill may help that no caller needs at once: the store refused none for
    /// good, and none is to be tried again later.
    fn may_refill(&self) -> bool {
        !self.will_retry && !self.is_refused
    }

    /// Returns whether memory is low, and a refill may help.
    pub(crate) fn may_prefetch(&self) -> bool {
        self.may_refill() && self.issuer.wants_prefetch()
    }

    fn wants_load(&self) -> bool {
        !self.loading.is_empty() && self.issuer.remaining() == 0
    }

    /// Makes the work under way urgent, if callers wait.
    pub(crate) fn hurry(&self) {
        if let (false, Some(urgency)) = (self.queue.is_empty(), &self.urgency) {
            urgency.notify_one();
        }
    }

    fn request(&mut self, work: &PendingWork) -> ReserveRequest {
        let earlier = self.shared.forgotten(&self.issuer.key);
        let mut memory = self.issuer.memory.lock();
        let issued_below = self.shared.issued_below(earlier);
        let issued_below = issued_below.filter(|_| memory.adopts && work.group().is_none());
        let adopt_from = issued_below.map(|below| below.max(memory.issued_below));
        let (known, counted_by) = (memory.known.clone(), Arc::clone(&memory.definition));
        let (is_fresh, is_first) = (memory.take_is_fresh(), !memory.is_used);
        let last_seen = memory.last_seen();
        // Set this even if no block may be adopted. Otherwise `fail_refill` would ask for one more
        // try forever.
        self.looks_for_returned = memory.adopts;
        drop(memory);
        let last_seen = last_seen.or(earlier.map(|earlier| earlier.seen));
        self.is_ahead = self.queue.waited_for() == 0;
        ReserveRequest {
            last_seen,
            key: self.issuer.key.clone(),
            counted_by: Some(counted_by),
            known,
            is_fresh,
            is_first,
            want: match work.group() {
                None => Want::Refill(self.issuer.demand(self.queue.waited_for())),
                Some(group) => self.want_of(group),
            },
            adopt_from,
            urgency: Arc::clone(self.urgency.insert(Arc::default())),
            progress: Arc::new(self.progress_of(work)),
        }
    }

    fn progress_of(&self, work: &PendingWork) -> ReservationProgress {
        let key = &self.issuer.key;
        let (sequence, period) = (key.sequence.as_str(), key.period.shown());
        let call = self.call_of(work);
        ReservationProgress::of(log::reservation(call, sequence, period))
    }

    /// Returns the call that has waited longest for this work. Returns no call if the work is ahead
    /// of need.
    pub(crate) fn call_of(&self, work: &PendingWork) -> Span {
        let waiter = match work {
            PendingWork::Refill | PendingWork::Lease => self.queue.first(),
            PendingWork::Group(group) => group.first(),
            PendingWork::Renewal => None,
        };
        waiter.map_or_else(Span::none, |waiter| waiter.call.clone())
    }

    pub(crate) fn reserve(&mut self, request: ReserveRequest, context: &mut Context<Self>) {
        if faults::is(Fault::FirstRefillError)
            && !std::mem::replace(&mut self.issuer.memory.lock().failed_once, true)
        {
            if faults::is(Fault::FirstRefillInvents)
                && let Ok(invented) = Block::new(1, 100, 1)
            {
                // The invented block stays in the cursor, and callers get its numbers.
                let _room = self.issuer.cursor().map(|cursor| cursor.fill(invented, 0));
            }
            self.ended(Err(StoreError::Unavailable), context);
            return;
        }
        let progress = Arc::clone(&request.progress);
        let is_late = faults::is(Fault::StrictArrivesLate) && self.issuer.is_strict();
        let outcome = self.shared.store.reserve(request);
        let arrival = async move {
            // If the store's runtime is gone, the program is ending.
            let outcome = outcome.await.unwrap_or(Err(StoreError::Unavailable));
            if is_late {
                tokio::time::sleep(LATE).await;
            }
            outcome
        };
        context.spawn(
            arrival
                .into_actor(self)
                .map(move |outcome, actor, context| {
                    progress.call().in_scope(|| {
                        let issuer = &actor.issuer;
                        let slow = &actor.shared.slow_refills;
                        slow.tell_of(&issuer.key, &issuer.store(), &progress, &outcome);
                        actor.ended(outcome, context);
                    });
                }),
        );
    }

    /// Handles the outcome of a reservation, good or bad.
    fn ended(&mut self, outcome: Result<Unpublished, StoreError>, context: &mut Context<Self>) {
        let work = self.in_flight.take();
        self.urgency = None;
        let is_changed = matches!(
            outcome,
            Err(StoreError::Changed(_) | StoreError::NotFound | StoreError::Elsewhere(_))
        );
        if outcome.is_ok() {
            self.issuer.memory.lock().is_used = true;
        }
        if is_changed || self.issuer.is_outdated() {
            self.outdate(outcome.ok(), work);
        } else if let Some(PendingWork::Group(group)) = work {
            match outcome {
                Ok(block) => self.serve_group(block, group),
                Err(error) => self.fail_group(&error, group),
            }
        } else {
            match outcome {
                Ok(block) => self.refill(block),
                Err(error) => self.fail_refill(&error, context),
            }
            self.queue.end_refill();
        }
        self.tell_loading();
        self.go_on(context);
    }

    /// Notes that the sequence needs another issuer by now, or is gone. The actor gives way in its
    /// next step, and the callers look the name up again.
    fn outdate(&mut self, block: Option<Unpublished>, work: Option<PendingWork>) {
        if let Some(PendingWork::Group(group)) = work {
            self.queue.put_back(group);
        }
        self.issuer.outdate();
        let block = block.filter(|block| !block.is_strict());
        if let Some(reserved) = block.and_then(|block| self.issuer.publish(block)) {
            self.return_block(&reserved);
        }
    }

    /// Gives back a block of which no number was issued.
    pub(crate) fn return_block(&self, reserved: &Reserved) {
        let next_unissued = reserved.block.first();
        let fate = BlockFate::Returned { next_unissued };
        self.shared.store.write_journal(reserved.row(), fate);
    }

    /// Takes the next step after some work has ended.
    pub(crate) fn go_on(&mut self, context: &mut Context<Self>) {
        if self.ending.is_some() {
            self.finish_draining(context);
        } else {
            self.advance(context);
        }
    }

    /// Makes memory obey the last change that is known. Returns true if nothing may be issued any
    /// more.
    pub(crate) fn enforce(&mut self) -> bool {
        if self.issuer.memory.lock().is_retired {
            self.is_refused = true;
            self.close_snowflake();
            // A restored sequence goes on above these numbers.
            let n_returned = self.give_back();
            self.count_advanced(n_returned);
            let told = SequenceError::Retired {
                name: self.issuer.key.sequence.clone(),
            };
            self.refuse_all(&told);
            return true;
        }
        if self.issuer.is_outdated() {
            // Nothing of the sequence as it was is issued after the change is answered.
            self.close_snowflake();
            self.give_back();
            return true;
        }
        if self.issuer.take_must_reload() && !faults::is(Fault::FloorUnheld) {
            self.give_back();
        }
        let n_cut = self.issuer.clip();
        self.count_advanced(n_cut);
        false
    }

    pub(crate) fn count_advanced(&self, n_cut: u64) {
        self.shared
            .metrics
            .abandoned(AbandonedCause::Advanced)
            .increment(n_cut);
    }

    /// Counts numbers that were taken out for a caller who had gone.
    pub(crate) fn count_gone(&self, count: u64) {
        let gone = self.shared.metrics.abandoned(AbandonedCause::CallerGone);
        gone.increment(count);
    }

    /// Tells all who wait for a load that it has ended.
    pub(crate) fn tell_loading(&mut self) {
        for done in self.loading.drain(..) {
            // A caller who waits no longer needs no answer.
            let _gone = done.send(());
        }
    }

    pub(crate) fn settle(&self) {
        for row in self.issuer.settle() {
            self.shared.store.write_journal(row, BlockFate::Spent);
        }
    }

    pub(crate) fn refuse_all(&mut self, told: &SequenceError) {
        for waiter in self.queue.take_all() {
            waiter.refuse(told.clone());
        }
    }

    /// Returns what a caller reads about a failure of the store. The numbers left include the
    /// numbers in memory.
    pub(crate) fn caller_error(&self, error: &StoreError) -> SequenceError {
        let mut error = error.clone();
        if let StoreError::Exhausted { left } = &mut error {
            *left = left.saturating_add(self.issuer.remaining());
        }
        SequenceError::of_counter(&self.issuer.key, error)
    }

    pub(crate) fn reset_backoff(&mut self) {
        self.n_failures = 0;
    }

    /// Tries a failed prefetch again later, not before `at_least` is over. No caller waits for it, so
    /// the actor does this by itself.
    pub(crate) fn try_again_later(&mut self, at_least: Duration, context: &mut Context<Self>) {
        if self.will_retry {
            return;
        }
        let backoff = BACKOFF_MIN.saturating_mul(2_u32.saturating_pow(self.n_failures));
        let backoff = backoff.min(self.shared.settings.backoff_max);
        let bound = backoff.max(self.issuer.time_limit());
        let pause = bound.mul_f64(rand::random::<f64>()).max(at_least);
        self.n_failures = self.n_failures.saturating_add(1);
        self.will_retry = true;
        context.run_later(pause, |actor, context| {
            actor.will_retry = false;
            actor.advance(context);
        });
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.queue.is_empty() && self.ending.is_none()
    }

    pub(crate) fn finish_draining(&mut self, context: &mut Context<Self>) {
        self.refuse_all(&SequenceError::Draining);
        let (n_returned, returning) = self.leave_memory();
        let answers = std::mem::take(&mut self.draining);
        let returning = returning.into_actor(self);
        context.spawn(returning.map(move |(), _actor, context| {
            for answer in answers {
                // The drain has a deadline, so it may have stopped listening.
                let _gone = answer.send(n_returned);
            }
            context.stop();
        }));
    }

    /// Gives back what was not issued. A caller that finds the issuer from here on must look the
    /// name up again. Returns how many numbers were returned, and a future that ends when all
    /// worker ids on their way back have arrived.
    pub(crate) fn leave_memory(&mut self) -> (u64, impl Future<Output = ()> + use<>) {
        // Memory is closed before the issuer is gone: a change that finds it gone is answered.
        let n_returned = self.give_back();
        self.close_snowflake();
        *self.issuer.actor.lock() = ActorLink::Gone;
        (n_returned, self.returned())
    }

    /// Closes the cursor and returns the numbers that were not issued. The result is how many they
    /// are.
    pub(crate) fn give_back(&self) -> u64 {
        let mut n_returned: u64 = 0;
        for (row, next_unissued) in self.issuer.clear() {
            let fate = match next_unissued {
                Some(_) if faults::is(Fault::NoReturn) => continue,
                Some(next_unissued) => {
                    n_returned = n_returned.saturating_add(row.block.count_from(next_unissued));
                    BlockFate::Returned { next_unissued }
                }
                None => BlockFate::Spent,
            };
            self.shared.store.write_journal(row, fate);
        }
        n_returned
    }
}
