//! From a name to its issuer: the warm path, and the way to the actors.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::{Actor, Arbiter, Handler, Message, dev::ToEnvelope};
use futures_util::{StreamExt, stream};
use odometer_core::{block::Block, name::SequenceName, period::CounterKey, runway::Runway};
use tokio::{sync::oneshot, time::timeout};

use super::{
    Drained, Readiness, SequenceSettings,
    actor::SequenceActor,
    changes,
    description::{Description, Page},
    error::SequenceError,
    issuer::{Issuer, Link},
    loading,
    messages::{Answer, Drain, HandOver, LowWater, Take},
    shared::Shared,
    sweep,
};
use crate::{
    metrics::{AbandonedCause, Metrics},
    store::{Contact, LIVE, Store, StoreError},
};

/// Actors that are drained at once.
const DRAINED_AT_ONCE: usize = 1000;

/// Before an actor that was gone is asked for anew.
pub(super) const BETWEEN_TWO_ACTORS: Duration = Duration::from_millis(2);

/// The front of this layer: every call for a number comes here.
pub struct Directory {
    pub(super) shared: Arc<Shared>,
    arbiter: Arbiter,
}

impl Directory {
    /// Starts the sweep and an arbiter for the actors; needs a running actix system.
    pub fn start(
        store: Arc<Store>,
        settings: SequenceSettings,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let arbiter = Arbiter::new();
        let shared = Arc::new(Shared::new(store, settings, metrics, arbiter.handle()));
        arbiter.spawn(sweep::run(Arc::downgrade(&shared)));
        arbiter.spawn(loading::run(Arc::downgrade(&shared)));
        if let Some(news) = shared.store.news() {
            arbiter.spawn(changes::follow(news, Arc::downgrade(&shared)));
        }
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

    /// All that is known of a sequence; from memory alone where the store does not answer.
    ///
    /// # Errors
    /// There is no such sequence, or neither store nor memory can tell.
    pub async fn describe(&self, name: &SequenceName) -> Result<Description, SequenceError> {
        let issuer = self.shared.issuers.pin().get(name).cloned();
        let mut state = issuer.as_deref().map(Issuer::state).unwrap_or_default();
        let key = CounterKey::whole(name.clone());
        match self.shared.store.look_up(&key).await {
            Ok((listed, seen)) => {
                if let Some(seen) = seen {
                    state.high_water_mark = Some(seen.next_value);
                    let runway = Runway::of(&listed.definition, seen.next_value, state.rate);
                    state.runway = Some(runway);
                }
                let blocks = self.shared.store.blocks(name).await.unwrap_or_default();
                Ok(Description {
                    name: name.clone(),
                    version: listed.version,
                    definition: listed.definition,
                    is_retired: Some(listed.state != LIVE),
                    state,
                    blocks,
                })
            }
            Err(error @ (StoreError::Unavailable | StoreError::Deadline)) => {
                let (known, is_retired) = issuer.map_or((None, false), |issuer| {
                    let memory = issuer.memory.lock();
                    (memory.known.clone(), memory.is_retired())
                });
                let known = known.ok_or_else(|| SequenceError::from_store(name, error))?;
                state.high_water_mark = None;
                Ok(Description {
                    name: name.clone(),
                    version: known.definition_version,
                    definition: known.definition,
                    // Whether it lives is not known: it may have been retired elsewhere.
                    is_retired: is_retired.then_some(true),
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
            Contact::Up if self.shared.is_loaded.load(Ordering::Acquire) => Readiness::Ready,
            Contact::Up => Readiness::Loading,
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
