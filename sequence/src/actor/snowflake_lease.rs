//! Gets a worker id for the actor of a time-ordered sequence, keeps its lease, and gives it back.
//!
//! ```text
//! no lease ──look──▶ the sequence lives ──lease──▶ open ──due, or its time used up──▶ renewed
//!     ▲                                              │ the clock was set back: wait, or another id
//!     └──────────── ended, closed, given back ───────┘
//! ```
//!
//! The store may answer that a lease is lost, because `recover` voided it or another holder has the
//! worker id. The reserved time still belongs to this process alone. So ids are issued until the
//! lease ends, and meanwhile another worker id is leased.
//!
//! One statement for the lease is under way at a time. A renewal is due after a third of the lease,
//! or after a minute if that is sooner. Callers and the sweep notice that, so that no actor needs a
//! timer. A parked actor renews nothing, and its lease ends.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::{AsyncContext, Context, SpawnHandle, WrapFuture, fut::ActorFutureExt};
use futures_util::future::join_all;
use odometer_core::snowflake::{High, Layout, NotOpened};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{
    LeaseError, LeaseGrant, LeaseWanted, ReadCounter, StoreError, WorkerChoice, WorkerPool,
};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::{
    actor::sequence_actor::{PendingWork, SequenceActor},
    actor::snowflake_queue::{clock_behind, clock_behind_until},
    error::SequenceError,
    issuer::snowflake_issuer::{SnowflakeIssuer, Unused},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::leasing";

/// The pause between two renewals of a lease whose reserved time is used up.
pub(crate) const RENEWAL_PAUSE: Duration = Duration::from_millis(100);
/// Bounds how long a refusal is given to other callers without asking the store again.
const REFUSAL_TTL: Duration = Duration::from_millis(250);
/// A reason for a refusal is logged again only if it did not occur for this long.
const LOGGED_AGAIN: Duration = Duration::from_secs(60);

/// What an actor remembers between two steps of a lease.
#[derive(Default)]
pub(crate) struct Leasing {
    /// Why the last lease was refused, and until when other callers get the same refusal.
    refused: Option<(Instant, SequenceError)>,
    /// When the clock is read again, with the timer for that.
    pub(crate) awaited: Option<(Instant, SpawnHandle)>,
    /// The unused part of a lease that was closed while its renewal was under way.
    parting: Option<Unused>,
    /// Worker ids that are on their way back to the store.
    returning: Vec<JoinHandle<()>>,
}

/// Why a lease is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// There is no lease.
    First,
    /// The present worker id is of no use for this long.
    Instead(Duration),
    /// The present lease was lost, and ids are issued under it only until it ends.
    Anew,
}

impl SequenceActor {
    /// Returns what is remembered about the lease.
    pub(crate) fn leasing(&mut self) -> &mut Leasing {
        self.leasing.get_or_insert_default()
    }

    /// Reserves more time or takes another worker id, because the reserved time is used up.
    ///
    /// A renewal brings as much time as has passed since the previous renewal. So ids that are
    /// counted faster than time passes need a worker id with unused time.
    pub(crate) fn reserve_time(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        context: &mut Context<Self>,
    ) {
        let Some(held) = snowflake.held() else {
            self.seek(snowflake, Purpose::First, context);
            return;
        };
        if let Some(error) = self.refusal() {
            self.refuse_unserved(snowflake, &error, context);
            return;
        }
        let since = held.renewed.elapsed();
        if since >= RENEWAL_PAUSE {
            if !self.will_retry || !self.queue.is_empty() {
                self.renew(snowflake, context);
            }
        } else if snowflake.layout().high == High::Worker
            && self.shared.settings.worker.is_none()
            // If a whole lease was not enough, the next lease is not enough either.
            && snowflake.has_issued()
        {
            self.seek(snowflake, Purpose::Instead(RENEWAL_PAUSE), context);
        } else {
            self.look_again(RENEWAL_PAUSE.saturating_sub(since), context);
        }
    }

    /// Returns how far ahead time is reserved.
    fn hold(&self) -> Duration {
        let memory = self.issuer.memory.lock();
        let known = memory.known.as_ref();
        known.map_or(Duration::ZERO, |known| {
            let hold = known.definition.block.hold.as_secs_f64();
            Duration::try_from_secs_f64(hold).unwrap_or_default()
        })
    }

    pub(crate) fn renew(&mut self, snowflake: &Arc<SnowflakeIssuer>, context: &mut Context<Self>) {
        let Some(held) = snowflake.held() else {
            return;
        };
        if held.is_lost {
            self.seek(snowflake, Purpose::Anew, context);
            return;
        }
        let (store, hold) = (Arc::clone(&self.shared.store), self.hold());
        let renewing = async move { store.renew_lease(&held.lease.key, Some(hold)).await };
        let snowflake = Arc::clone(snowflake);
        self.ask(
            (PendingWork::Renewal, renewing),
            context,
            move |actor, outcome, context| actor.renewed(&snowflake, outcome, context),
        );
    }

    /// Asks the store, on behalf of the call that has waited longest. Calls `answered` with the
    /// answer, and then takes the next step.
    fn ask<T: 'static>(
        &mut self,
        (work, question): (PendingWork, impl Future<Output = T> + 'static),
        context: &mut Context<Self>,
        answered: impl FnOnce(&mut Self, T, &mut Context<Self>) + 'static,
    ) {
        let call = self.call_of(&work);
        self.in_flight = Some(work);
        let question = question.instrument(call.clone());
        context.spawn(
            question
                .into_actor(self)
                .map(move |answer, actor, context| {
                    actor.in_flight = None;
                    call.in_scope(|| answered(actor, answer, context));
                    actor.go_on(context);
                }),
        );
    }

    fn renewed(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        outcome: Result<LeaseGrant, LeaseError>,
        context: &mut Context<Self>,
    ) {
        if let Some(mut unused) = self.leasing().parting.take() {
            if let Ok(lease) = outcome {
                unused.key = lease.key;
            }
            self.return_id(unused);
            return;
        }
        match outcome {
            Ok(lease) => {
                // Keep the refusal: if another worker id was refused, the reason still holds.
                self.reset_backoff();
                let key = lease.key.clone();
                let from_ms = lease.until_ms;
                if !snowflake.extend(lease) {
                    self.return_id(Unused { key, from_ms });
                }
            }
            Err(LeaseError::Lost) => {
                tracing::warn!(
                    target: TARGET,
                    sequence = self.issuer.key.sequence.as_str(),
                    worker = snowflake.worker(),
                    "the lease of a worker id was lost: another one is taken"
                );
                if !snowflake.lose() {
                    // There is nothing to give back.
                    let _lost = snowflake.close();
                }
            }
            Err(error) => self.not_leased(snowflake, error, None, context),
        }
    }

    /// Leases a worker id, after the store has answered that the sequence lives. If other callers
    /// were refused just before, refuses the waiters for the same reason.
    pub(crate) fn seek(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        purpose: Purpose,
        context: &mut Context<Self>,
    ) {
        if self.in_flight.is_some() {
            return;
        }
        if let Some(error) = self.refusal() {
            self.refuse_unserved(snowflake, &error, context);
            self.tell_loading();
            if purpose == Purpose::Anew {
                self.try_again_later(Duration::ZERO, context);
            }
            return;
        }
        if purpose == Purpose::First && snowflake.is_lost() {
            // The lost lease has ended meanwhile.
            let _lost = snowflake.close();
        }
        let is_held = snowflake.held().is_some();
        match purpose {
            // The lease has ended by the clock of this process, but perhaps not by the database's
            // clock.
            Purpose::First if is_held => self.renew(snowflake, context),
            Purpose::First if !self.has_looked() => self.look(snowflake, context),
            Purpose::Instead(wait) if self.shared.settings.worker.is_some() => {
                self.refuse_unserved(snowflake, &clock_behind(wait), context);
            }
            Purpose::First | Purpose::Instead(_) | Purpose::Anew => {
                self.lease(snowflake, purpose, context)
            }
        }
    }

    /// Asks the store whether the sequence lives.
    fn look(&mut self, snowflake: &Arc<SnowflakeIssuer>, context: &mut Context<Self>) {
        let (shared, name) = (Arc::clone(&self.shared), self.issuer.key.sequence.clone());
        let last_seen = self.issuer.memory.lock().last_seen();
        let looking = async move { shared.store.resolve(&name, last_seen).await };
        let snowflake = Arc::clone(snowflake);
        self.ask(
            (PendingWork::Lease, looking),
            context,
            move |actor, outcome, context| actor.looked(&snowflake, outcome, context),
        );
    }

    fn looked(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        outcome: Result<ReadCounter, StoreError>,
        context: &mut Context<Self>,
    ) {
        match outcome {
            Ok(found)
                if found
                    .known
                    .definition
                    .has_same_issuer(&self.issuer.definition()) =>
            {
                self.issuer.note_looked(found.known);
                self.enforce();
            }
            // The actor gives way in its next step.
            Ok(_) | Err(StoreError::NotFound | StoreError::Elsewhere(_)) => self.issuer.outdate(),
            // No worker id is leased without the answer that the sequence lives.
            Err(error) => {
                let told = self.caller_error(&error);
                self.refuse_for_now(snowflake, told, context);
            }
        }
    }

    /// Forgets why the last lease was refused, because the reason may be gone.
    pub(crate) fn forget_refusal(&mut self) {
        if let Some(leasing) = &mut self.leasing {
            leasing.refused = None;
        }
    }

    /// Returns whether the store has just answered that the sequence lives. The answer serves for
    /// one lease.
    fn has_looked(&self) -> bool {
        self.issuer.memory.lock().take_is_fresh()
    }

    fn lease(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        purpose: Purpose,
        context: &mut Context<Self>,
    ) {
        let wanted = self.wanted(snowflake.layout());
        let (shared, of) = (Arc::clone(&self.shared), self.issuer.store());
        let leasing = async move { shared.store.lease(&of, wanted).await };
        let snowflake = Arc::clone(snowflake);
        self.ask(
            (PendingWork::Lease, leasing),
            context,
            move |actor, outcome, context| match outcome {
                Ok(lease) => actor.leased(&snowflake, lease, context),
                Err(error) => actor.not_leased(&snowflake, error, Some(purpose), context),
            },
        );
    }

    fn wanted(&self, layout: &Layout) -> LeaseWanted {
        let (settings, hold) = (&self.shared.settings, self.hold());
        // Ids that are counted may begin ahead of the clock, if enough time is reserved.
        let ahead = match layout.high {
            High::Time => settings.clock_wait,
            High::Worker => hold / 2,
        };
        let ahead_ms = i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX);
        LeaseWanted {
            pool: WorkerPool::Sequence(self.issuer.key.sequence.clone()),
            bits: layout.worker,
            holder: Arc::clone(&settings.holder),
            ttl: hold,
            choice: settings
                .worker
                .map_or(WorkerChoice::Any, WorkerChoice::Exact),
            usable_by_ms: (!faults::is(Fault::NoReservedUntil))
                .then(|| clock::now_ms().saturating_add(ahead_ms)),
        }
    }

    fn leased(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        lease: LeaseGrant,
        context: &mut Context<Self>,
    ) {
        self.reset_backoff();
        self.forget_refusal();
        let is_unwanted = self.ending.is_some()
            || self.issuer.is_outdated()
            || self.issuer.memory.lock().is_retired;
        if is_unwanted {
            self.return_id(Unused::whole(lease));
            return;
        }
        if let Some(unused) = snowflake.close() {
            self.return_id(unused);
        }
        let worker = lease.key.worker;
        match snowflake.open(lease) {
            Ok(()) => {
                self.issuer.memory.lock().is_used = true;
                tracing::debug!(
                    target: TARGET,
                    sequence = self.issuer.key.sequence.as_str(),
                    worker,
                    "a worker id was leased"
                );
            }
            Err((refused, unused)) => {
                self.return_id(unused);
                let told = self.not_opened(snowflake.layout(), refused);
                self.refuse_for_now(snowflake, told, context);
            }
        }
    }

    fn not_opened(&self, layout: &Layout, refused: NotOpened) -> SequenceError {
        match refused {
            NotOpened::TimeEnds => self.time_ended(),
            NotOpened::NoTime { tick, .. } => clock_behind_until(layout.unix_ms_of(tick)),
            NotOpened::Open | NotOpened::Worker { .. } => {
                tracing::error!(
                    target: TARGET,
                    sequence = self.issuer.key.sequence.as_str(),
                    error = %refused,
                    "a worker id cannot be used"
                );
                SequenceError::Internal
            }
        }
    }

    /// Handles a lease that was refused. `purpose` is why it was asked for; `None` for a renewal.
    fn not_leased(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        error: LeaseError,
        purpose: Option<Purpose>,
        context: &mut Context<Self>,
    ) {
        let told = match (purpose, self.lease_refusal(error)) {
            // The present worker id can be used again before then.
            (Some(Purpose::Instead(wait)), SequenceError::ClockBehind { wait_ms }) => {
                clock_behind(wait.min(Duration::from_millis(wait_ms)))
            }
            (Some(Purpose::Instead(wait)), SequenceError::NoWorkerId { .. }) => clock_behind(wait),
            (_, told) => told,
        };
        self.refuse_for_now(snowflake, told, context);
        let is_kept = matches!(purpose, None | Some(Purpose::Anew));
        if is_kept && self.ending.is_none() {
            self.try_again_later(Duration::ZERO, context);
        }
    }

    /// Returns the last refusal, if it is recent enough to be given to other callers.
    fn refusal(&mut self) -> Option<SequenceError> {
        let refused = self.leasing().refused.as_ref();
        let recent = refused.filter(|(until, _)| Instant::now() < *until);
        recent.map(|(_, error)| error.clone())
    }

    /// Refuses the waiters that cannot be served. For a moment, other callers get the same refusal.
    fn refuse_for_now(
        &mut self,
        snowflake: &Arc<SnowflakeIssuer>,
        told: SequenceError,
        context: &mut Context<Self>,
    ) {
        self.log_refusal(&told);
        self.leasing().refused = Some((Instant::now() + REFUSAL_TTL, told.clone()));
        self.refuse_unserved(snowflake, &told, context);
        self.tell_loading();
    }

    fn log_refusal(&mut self, told: &SequenceError) {
        let earlier = self.leasing().refused.as_ref();
        let is_news = earlier.is_none_or(|(until, earlier)| {
            std::mem::discriminant(earlier) != std::mem::discriminant(told)
                || until.elapsed() > LOGGED_AGAIN
        });
        // A store that is away is logged by the code that finds this out.
        let is_its_own = matches!(
            told,
            SequenceError::ClockBehind { .. }
                | SequenceError::ClockAhead { .. }
                | SequenceError::NoWorkerId { .. }
                | SequenceError::NoSuchWorker { .. }
                | SequenceError::WorkerHeld { .. }
        );
        if is_news && is_its_own {
            tracing::warn!(
                target: TARGET,
                sequence = self.issuer.key.sequence.as_str(),
                reason = %told,
                "no worker id can be had for a time-ordered sequence"
            );
        }
    }

    fn lease_refusal(&self, error: LeaseError) -> SequenceError {
        match error {
            LeaseError::NoneFree { workers } => match self.shared.settings.worker {
                Some(worker) if worker >= workers => {
                    SequenceError::NoSuchWorker { worker, workers }
                }
                Some(_) | None => SequenceError::NoWorkerId { workers },
            },
            LeaseError::NoneUsable { from_ms } => clock_behind_until(from_ms),
            LeaseError::Held { worker } => SequenceError::WorkerHeld { worker },
            LeaseError::ClockAhead { by_ms } => SequenceError::ClockAhead { by_ms },
            LeaseError::Unavailable => SequenceError::StoreUnavailable,
            LeaseError::WentBack => SequenceError::StoreWentBack,
            LeaseError::Lost | LeaseError::Deadline | LeaseError::MayHaveHappened => {
                SequenceError::RefillTimeout
            }
            LeaseError::OtherWidth { .. }
            | LeaseError::TooManyPools { .. }
            | LeaseError::NotOfTheLease { .. } => {
                tracing::error!(
                    target: TARGET,
                    sequence = self.issuer.key.sequence.as_str(),
                    error = %error,
                    "no worker id can be leased"
                );
                SequenceError::Internal
            }
        }
    }

    /// Ends issuing, and gives the worker id back with its unused time.
    pub(crate) fn close_snowflake(&mut self) {
        let Some(unused) = self
            .issuer
            .snowflake()
            .and_then(|snowflake| snowflake.close())
        else {
            return;
        };
        if matches!(self.in_flight, Some(PendingWork::Renewal)) {
            // When the renewal ends, its worker id is given back.
            self.leasing().parting = Some(unused);
        } else {
            self.return_id(unused);
        }
    }

    /// Returns a future that ends when all worker ids on their way back have arrived.
    pub(crate) fn returned(&mut self) -> impl Future<Output = ()> + use<> {
        let leasing = self.leasing.as_mut();
        let returning = leasing.map(|leasing| std::mem::take(&mut leasing.returning));
        async move {
            // A worker id that was not given back rests until its lease ends.
            let _done = join_all(returning.unwrap_or_default()).await;
        }
    }

    fn return_id(&mut self, unused: Unused) {
        let shared = Arc::clone(&self.shared);
        let name = self.issuer.key.sequence.clone();
        let returning = self.shared.store.finish(async move {
            let Unused { key, from_ms } = unused;
            if let Err(error) = shared.store.give_back_lease(&key, Some(from_ms)).await {
                tracing::debug!(
                    target: TARGET,
                    sequence = name.as_str(),
                    worker = key.worker,
                    error = %error,
                    "a worker id was not given back: it rests until its lease ends"
                );
            }
        });
        let all = &mut self.leasing().returning;
        all.retain(|one| !one.is_finished());
        all.push(returning);
    }
}
