//! From a name to its issuer: the warm path, and the way to the actors.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use actix::{Actor, Arbiter, ArbiterHandle, Handler, Message, dev::ToEnvelope};
use futures_util::{StreamExt, stream};
use odometer_core::{block::Block, definition::DefinitionChange, name::SequenceName};
use tokio::{sync::oneshot, time::timeout};

use super::{
    Drained, Readiness, SequenceSettings,
    actor::SequenceActor,
    description::{Condition, Defined, Description, Page},
    error::SequenceError,
    issuer::{Issuer, Link},
    messages::{Answer, Drain, HandOver, LowWater, Redefined, Take},
    sweep,
};
use crate::{
    metrics::{AbandonedCause, Metrics},
    store::{Contact, Seen, Store, StoreError},
};

/// Actors that are drained at once.
const DRAINED_AT_ONCE: usize = 1000;

/// Before an actor that was gone is asked for anew.
const BETWEEN_TWO_ACTORS: Duration = Duration::from_millis(2);

/// The front of this layer: every call for a number comes here.
pub struct Directory {
    pub(super) shared: Arc<Shared>,
    arbiter: Arbiter,
}

/// What the directory, its actors and its sweep share.
pub(super) struct Shared {
    pub(super) store: Arc<Store>,
    pub(super) settings: SequenceSettings,
    pub(super) metrics: Arc<Metrics>,
    pub(super) issuers: papaya::HashMap<SequenceName, Arc<Issuer>>,
    /// Names that were unloaded.
    forgotten: papaya::HashMap<SequenceName, Forgotten>,
    /// Whether `forgotten` has reached its bound; from then on fresh issuers adopt nothing.
    has_forgotten_more: AtomicBool,
    n_live: AtomicUsize,
    n_waiters: AtomicUsize,
    is_draining: AtomicBool,
    /// No number leaves memory any more.
    is_drained: AtomicBool,
    /// Issuers with an actor, for the sweep.
    pub(super) active: parking_lot::Mutex<Vec<Arc<Issuer>>>,
    arbiter: ArbiterHandle,
    #[cfg(feature = "sabotage")]
    n_refills: std::sync::atomic::AtomicU64,
}

/// What this process remembers of a name that it unloaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forgotten {
    /// Every number that it issued of the name lies below.
    pub(super) all_below: i64,
    /// The counter as it last saw it.
    pub(super) seen: Seen,
}

/// The bound of remembered names was reached: whether one was here before is not known.
pub(super) struct NotRemembered;

impl Directory {
    /// Starts the sweep and an arbiter for the actors; needs a running actix system.
    pub fn start(
        store: Arc<Store>,
        settings: SequenceSettings,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let arbiter = Arbiter::new();
        let shared = Arc::new(Shared {
            store,
            settings,
            metrics,
            issuers: papaya::HashMap::new(),
            forgotten: papaya::HashMap::new(),
            has_forgotten_more: AtomicBool::new(false),
            n_live: AtomicUsize::new(0),
            n_waiters: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            active: parking_lot::Mutex::new(Vec::new()),
            arbiter: arbiter.handle(),
            #[cfg(feature = "sabotage")]
            n_refills: std::sync::atomic::AtomicU64::new(0),
        });
        arbiter.spawn(sweep::run(Arc::downgrade(&shared)));
        Arc::new(Self { shared, arbiter })
    }

    /// One number from memory, or `None` where there is none: no await, no lock, no allocation.
    #[inline]
    pub fn take_warm(&self, name: &str) -> Option<i64> {
        let issuers = self.shared.issuers.pin();
        let issuer = issuers.get(name)?;
        let taken = issuer.cursor.take()?;
        if taken.low_water {
            self.shared.tell(issuer, LowWater);
        }
        Some(taken.value)
    }

    /// One number; waits for a refill where memory has none.
    ///
    /// # Errors
    /// No number was given. Cancelling burns nothing that was not on its way already.
    pub async fn take(&self, name: &SequenceName) -> Result<i64, SequenceError> {
        if let Some(value) = self.take_warm(name.as_str()) {
            return Ok(value);
        }
        let ranges = self.take_cold(name, 1, false).await?;
        ranges
            .first()
            .map(Block::first)
            .ok_or(SequenceError::Internal)
    }

    /// `count` numbers in ascending ranges; one range where `contiguous`.
    ///
    /// # Errors
    /// No number was given.
    pub async fn take_batch(
        &self,
        name: &SequenceName,
        count: u64,
        contiguous: bool,
    ) -> Result<Vec<Block>, SequenceError> {
        if let Some(ranges) = self.take_batch_warm(name.as_str(), count, contiguous) {
            return Ok(ranges);
        }
        self.take_cold(name, count, contiguous).await
    }

    /// A batch from memory, or `None` where memory does not have all of it.
    pub fn take_batch_warm(&self, name: &str, count: u64, contiguous: bool) -> Option<Vec<Block>> {
        let issuers = self.shared.issuers.pin();
        let issuer = issuers.get(name)?;
        let taken = issuer.cursor.take_batch(count, contiguous)?;
        if taken.low_water {
            self.shared.tell(issuer, LowWater);
        }
        Some(taken.ranges.as_slice().to_vec())
    }

    async fn take_cold(
        &self,
        name: &SequenceName,
        count: u64,
        contiguous: bool,
    ) -> Result<Vec<Block>, SequenceError> {
        self.ask(name, |answer| Take {
            count,
            contiguous,
            answer,
        })
        .await
    }

    /// A block for a client that counts by itself, straight from the store.
    ///
    /// # Errors
    /// No block was given.
    pub async fn reserve(&self, name: &SequenceName, size: u64) -> Result<Block, SequenceError> {
        let ranges = self.ask(name, |answer| HandOver { size, answer }).await?;
        ranges.first().copied().ok_or(SequenceError::Internal)
    }

    /// Asks the actor of `name` and waits, at most `refill_deadline`.
    ///
    /// An actor that died or was unloaded meanwhile is asked for anew.
    async fn ask<M, F>(&self, name: &SequenceName, message: F) -> Result<Vec<Block>, SequenceError>
    where
        M: Message<Result = ()> + Send + 'static,
        F: Fn(Answer) -> M,
        SequenceActor: Handler<M>,
        <SequenceActor as Actor>::Context: ToEnvelope<SequenceActor, M>,
    {
        let _place = self.shared.admit_waiter()?;
        let until = Instant::now() + self.shared.settings.refill_deadline;
        loop {
            let issuer = self.shared.issuer(name)?;
            // Asked after the issuer was made, so that none is made unseen by the drain.
            if self.shared.is_drained() {
                return Err(SequenceError::Draining);
            }
            let (answer, receiver) = oneshot::channel();
            self.shared.tell(&issuer, message(answer));
            let mut waiting = Waiting {
                receiver,
                metrics: &self.shared.metrics,
            };
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, &mut waiting.receiver).await {
                Ok(Ok(outcome)) => return outcome,
                Ok(Err(_actor_gone)) if Instant::now() < until => {
                    // It died, or the name is just being unloaded.
                    tokio::time::sleep(BETWEEN_TWO_ACTORS).await;
                }
                Ok(Err(_)) | Err(_) => return Err(SequenceError::RefillTimeout),
            }
        }
    }

    /// Creates or changes a sequence; here it holds at once.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn define(
        &self,
        name: &SequenceName,
        change: &DefinitionChange,
        condition: Condition,
    ) -> Result<Defined, SequenceError> {
        let template = Arc::clone(&self.shared.settings.template);
        let (defined, _seen) = self
            .shared
            .store
            .define(name, change, template, condition)
            .await
            .map_err(|error| SequenceError::from_store(name, error))?;
        let issuer = self.shared.issuers.pin().get(name).cloned();
        if let Some(issuer) = issuer {
            let redefined = Redefined {
                definition: Arc::clone(&defined.definition),
                version: defined.version,
            };
            self.shared.tell(&issuer, redefined);
        }
        Ok(defined)
    }

    /// All that is known of a sequence; from memory alone where the store does not answer.
    ///
    /// # Errors
    /// There is no such sequence, or neither store nor memory can tell.
    pub async fn describe(&self, name: &SequenceName) -> Result<Description, SequenceError> {
        let issuer = self.shared.issuers.pin().get(name).cloned();
        let mut state = issuer.as_deref().map(Issuer::state).unwrap_or_default();
        match self.shared.store.look_up(name).await {
            Ok((listed, seen)) => {
                if let Some(seen) = seen {
                    state.high_water_mark = Some(seen.next_value);
                    state.runway = Some(listed.definition.left(seen.next_value));
                }
                let blocks = self.shared.store.blocks(name).await.unwrap_or_default();
                Ok(Description {
                    name: name.clone(),
                    version: listed.version,
                    definition: listed.definition,
                    state,
                    blocks,
                })
            }
            Err(error @ (StoreError::Unavailable | StoreError::Deadline)) => {
                let known = issuer.and_then(|issuer| issuer.memory.lock().known.clone());
                let known = known.ok_or_else(|| SequenceError::from_store(name, error))?;
                state.high_water_mark = None;
                Ok(Description {
                    name: name.clone(),
                    version: known.definition_version,
                    definition: known.definition,
                    state,
                    blocks: Vec::new(),
                })
            }
            Err(error) => Err(SequenceError::from_store(name, error)),
        }
    }

    /// A page of definitions, names in byte order, those after `after`.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn list(&self, prefix: &str, after: &str, limit: u64) -> Result<Page, SequenceError> {
        let page = self.shared.store.list(prefix, after, limit).await;
        page.map_err(|error| {
            if matches!(error, StoreError::Unavailable | StoreError::Deadline) {
                SequenceError::StoreUnavailable
            } else {
                SequenceError::Internal
            }
        })
    }

    /// Whether calls should be sent here.
    pub fn readiness(&self) -> Readiness {
        if self.shared.is_draining.load(Ordering::Acquire) {
            return Readiness::Draining;
        }
        match self.shared.store.contact() {
            Contact::Up => Readiness::Ready,
            Contact::None => Readiness::NoContact,
            Contact::WrongSchema => Readiness::WrongSchema,
            Contact::Lost if self.shared.has_reserve() => Readiness::Ready,
            Contact::Lost => Readiness::NoContact,
        }
    }

    /// Whether this replica is on its way out, so that connections should not be kept.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining.load(Ordering::Relaxed)
    }

    /// Not ready from now on; numbers are still issued.
    pub fn begin_drain(&self) {
        self.shared.is_draining.store(true, Ordering::Release);
    }

    /// Stops every actor and gives back what was not issued.
    ///
    /// What is not in the journal after `patience` stays reserved and unissued, and counts as
    /// abandoned.
    pub async fn drain(&self, patience: Duration) -> Drained {
        let until = Instant::now() + patience;
        self.begin_drain();
        self.shared.is_drained.store(true, Ordering::Release);
        let issuers: Vec<Arc<Issuer>> = self.shared.issuers.pin().values().cloned().collect();
        let returned = stream::iter(issuers)
            .map(|issuer| self.drain_one(issuer))
            .buffer_unordered(DRAINED_AT_ONCE)
            .fold(0_u64, |sum, n_numbers| async move {
                sum.saturating_add(n_numbers)
            });
        let returned = timeout(patience, returned).await;
        let left = until.saturating_duration_since(Instant::now());
        let _in_time = timeout(left, self.shared.store.flush_journal()).await;
        // Actors that did not end hold their numbers still.
        let abandoned = self
            .shared
            .store
            .n_numbers_returning()
            .saturating_add(self.n_remaining());
        self.shared
            .metrics
            .abandoned(AbandonedCause::Shutdown)
            .increment(abandoned);
        self.arbiter.stop();
        Drained {
            returned: returned.unwrap_or(0).saturating_sub(abandoned),
            abandoned,
        }
    }

    /// Asks until an actor has drained it: one that stops or dies meanwhile drops the question.
    async fn drain_one(&self, issuer: Arc<Issuer>) -> u64 {
        loop {
            let (answer, waiting) = oneshot::channel();
            self.shared.tell(&issuer, Drain { answer });
            match waiting.await {
                Ok(n_returned) => return n_returned,
                Err(_) if matches!(&*issuer.actor.lock(), Link::Gone) => return 0,
                Err(_) => tokio::time::sleep(BETWEEN_TWO_ACTORS).await,
            }
        }
    }

    /// Numbers in memory, over all names.
    pub fn n_remaining(&self) -> u64 {
        let issuers = self.shared.issuers.pin();
        issuers
            .values()
            .fold(0, |sum, issuer| sum.saturating_add(issuer.remaining()))
    }

    /// The most reservations that were under way at once since the start.
    pub fn peak_reservations_in_flight(&self) -> usize {
        self.shared.store.peak_reservations_in_flight()
    }

    /// Tells the metrics what only the cursors know; called before each scrape.
    pub fn publish_metrics(&self) {
        self.shared.publish_metrics();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.arbiter.stop();
    }
}

impl Shared {
    /// The issuer of a name, made where there is none.
    fn issuer(&self, name: &SequenceName) -> Result<Arc<Issuer>, SequenceError> {
        let issuers = self.issuers.pin();
        if let Some(issuer) = issuers.get(name) {
            return Ok(Arc::clone(issuer));
        }
        if self.n_live.load(Ordering::Relaxed) >= self.settings.live_sequences {
            return Err(SequenceError::Overloaded {
                what: "limits.live_sequences",
            });
        }
        let fresh = Arc::new(Issuer::new(name.clone()));
        match issuers.try_insert(name.clone(), Arc::clone(&fresh)) {
            Ok(_) => {
                self.n_live.fetch_add(1, Ordering::Relaxed);
                Ok(fresh)
            }
            Err(taken) => Ok(Arc::clone(taken.current)),
        }
    }

    /// Sends a message to the actor of `issuer`, starting one where none runs.
    ///
    /// To an unloaded issuer nothing is sent: the message is dropped, and with
    /// it the way to answer, by which the sender knows.
    pub(super) fn tell<M>(self: &Arc<Self>, issuer: &Arc<Issuer>, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        SequenceActor: Handler<M>,
        <SequenceActor as Actor>::Context: ToEnvelope<SequenceActor, M>,
    {
        let mut link = issuer.actor.lock();
        match &*link {
            Link::Gone => {}
            Link::Live(address) if address.connected() => address.do_send(message),
            Link::Live(_) | Link::Parked => {
                if matches!(&*link, Link::Live(_)) {
                    self.metrics.actor_restarts.increment(1);
                    tracing::error!(
                        sequence = issuer.name.as_str(),
                        "an actor died and is started anew"
                    );
                }
                let actor = SequenceActor::new(Arc::clone(issuer), Arc::clone(self));
                let address = SequenceActor::start_in_arbiter(&self.arbiter, |_| actor);
                address.do_send(message);
                *link = Link::Live(address);
                drop(link);
                self.enter_active(issuer);
            }
        }
    }

    /// Lets the sweep look at it each second, once.
    pub(super) fn enter_active(&self, issuer: &Arc<Issuer>) {
        if !issuer.is_active.swap(true, Ordering::AcqRel) {
            self.active.lock().push(Arc::clone(issuer));
        }
    }

    /// Whether no number leaves memory any more.
    pub(super) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Takes an unloaded issuer out, remembering below which number it issued or held all.
    pub(super) fn forget(&self, issuer: &Issuer) {
        if issuer.is_known() {
            self.remember(issuer);
        }
        self.publish_issuer(issuer);
        // The name is remembered before it can be loaded again.
        if self.issuers.pin().remove(&issuer.name).is_some() {
            self.n_live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn remember(&self, issuer: &Issuer) {
        let forgotten = self.forgotten.pin();
        let earlier = forgotten.get(&issuer.name).copied();
        if earlier.is_none() && forgotten.len() >= self.settings.live_sequences {
            if !self.has_forgotten_more.swap(true, Ordering::AcqRel) {
                tracing::warn!(
                    "as many unloaded names are remembered as limits.live_sequences allows: \
                     returned blocks are left to other replicas"
                );
            }
            return;
        }
        let memory = issuer.memory.lock();
        if let Some(known) = &memory.known {
            let all_below = earlier.map_or(0, |earlier| earlier.all_below);
            let now = Forgotten {
                all_below: memory.all_below.max(all_below),
                seen: known.seen,
            };
            forgotten.insert(issuer.name.clone(), now);
        }
    }

    /// What is remembered of a name that was unloaded, if it was.
    pub(super) fn forgotten(
        &self,
        name: &SequenceName,
    ) -> Result<Option<Forgotten>, NotRemembered> {
        let known = self.forgotten.pin().get(name).copied();
        if known.is_none() && self.has_forgotten_more.load(Ordering::Acquire) {
            return Err(NotRemembered);
        }
        Ok(known)
    }

    fn has_reserve(&self) -> bool {
        let issuers = self.issuers.pin();
        issuers.values().any(|issuer| issuer.cursor.remaining() > 0)
    }

    fn admit_waiter(self: &Arc<Self>) -> Result<Place, SequenceError> {
        let n_before = self.n_waiters.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(self));
        if n_before >= self.settings.waiters {
            self.metrics.waiters_refused.increment(1);
            return Err(SequenceError::Overloaded {
                what: "limits.waiters",
            });
        }
        Ok(place)
    }

    /// For tests: an actor that dies at every fifth of these points.
    #[cfg(feature = "sabotage")]
    #[expect(clippy::panic, reason = "the fault that the test asks for")]
    pub(super) fn panic_now_and_then(&self) {
        let n_before = self.n_refills.fetch_add(1, Ordering::Relaxed);
        if n_before % 5 == 4 {
            panic!("an actor dies, as was asked for");
        }
    }

    #[cfg(not(feature = "sabotage"))]
    pub(super) fn panic_now_and_then(&self) {}

    fn publish_metrics(&self) {
        let mut shortest_reserve = f64::INFINITY;
        let mut shortest_runway = f64::INFINITY;
        let issuers = self.issuers.pin();
        for issuer in issuers.values() {
            let state = self.publish_issuer(issuer);
            if let Some(seconds) = state.reserve_seconds {
                shortest_reserve = shortest_reserve.min(seconds);
            }
            if let Some(runway) = state.runway {
                shortest_runway = shortest_runway.min(to_float(runway));
            }
        }
        let metrics = &self.metrics;
        metrics.shortest_reserve_seconds.set(shortest_reserve);
        metrics.shortest_runway.set(shortest_runway);
        let n_live = u64::try_from(self.n_live.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        metrics.live_sequences.set(to_float(n_live));
        let n_waiters = u64::try_from(self.n_waiters.load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        metrics.waiters.set(to_float(n_waiters));
        let n_rows = u64::try_from(self.store.n_journal_rows_queued()).unwrap_or(u64::MAX);
        metrics.journal_queue.set(to_float(n_rows));
    }

    fn publish_issuer(&self, issuer: &Issuer) -> super::description::State {
        let state = issuer.state();
        // A name that was never reserved from takes no label from one that was.
        if !issuer.is_known() {
            return state;
        }
        let metrics = self.metrics.sequence(issuer.name.as_str());
        metrics.issued.increment(issuer.take_unpublished());
        self.metrics
            .abandoned(AbandonedCause::SlotReused)
            .increment(issuer.take_unpublished_reuse());
        let (size, remaining) = state
            .block
            .map_or((0, 0), |block| (block.size, block.remaining));
        metrics.block_size.set(to_float(size));
        metrics.block_remaining.set(to_float(remaining));
        if size > 0 {
            metrics
                .block_utilization
                .set(1.0 - to_float(remaining) / to_float(size));
        }
        if let Some(seconds) = state.reserve_seconds {
            metrics.reserve_seconds.set(seconds);
        }
        if let (Some(runway), true) = (state.runway, state.rate > 0.0) {
            metrics.runway_seconds.set(to_float(runway) / state.rate);
        }
        state
    }
}

/// A caller's end of the way to its actor: what arrives after the caller has gone is counted.
struct Waiting<'a> {
    receiver: oneshot::Receiver<Result<Vec<Block>, SequenceError>>,
    metrics: &'a Metrics,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(unwanted)) = self.receiver.try_recv() {
            let n_numbers = unwanted.iter().map(Block::count).sum();
            self.metrics
                .abandoned(AbandonedCause::CallerGone)
                .increment(n_numbers);
        }
    }
}

/// A waiter's place under the bound.
struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.n_waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Numbers above 2^53 lose digits, which a gauge does not show anyway.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(super) fn to_float(count: u64) -> f64 {
    count as f64
}
