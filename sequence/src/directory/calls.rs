//! Leads from a name to its issuer: by the warm path, or through an actor.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::Arbiter;
use futures_util::{StreamExt, stream};
use odometer_core::{
    block::Block,
    definition::{Definition, Kind},
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
    runway::Runway,
};
use odometer_process::{
    clock,
    faults::{self, Fault},
    metrics::{AbandonedCause, Metrics},
};
use odometer_store::{Contact, LIVE, SeenCounter, StoreError, Stores};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    Drained, Readiness, SequenceSettings,
    actor::command::Command,
    actor::queue::{Outcome, Waiter, Wants},
    directory::period_rule::PeriodRule,
    directory::shared::{BETWEEN_TWO_ACTORS, Shared},
    directory::warm_up,
    error::SequenceError,
    inspection::description::{Description, Page},
    issuer::issued::Issued,
    issuer::memory::Issuer,
    lifecycle::changes,
    lifecycle::sweep,
};

/// Bounds how many actors are drained at the same time.
const DRAINED_AT_ONCE: usize = 1000;

/// The front of this layer. Every call for a number comes here.
pub struct Directory {
    pub(crate) shared: Arc<Shared>,
    arbiter: Arbiter,
}

impl Directory {
    /// Starts the arbiter for the actors, with the sweep, the warm-up and the task that applies
    /// changes. Needs a running actix system.
    pub fn start(
        store: Arc<Stores>,
        settings: SequenceSettings,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let arbiter = Arbiter::new();
        let shared = Arc::new(Shared::new(store, settings, metrics, arbiter.handle()));
        arbiter.spawn(sweep::run(Arc::downgrade(&shared)));
        arbiter.spawn(warm_up::run(Arc::downgrade(&shared)));
        if let Some(following) = shared.store.news() {
            arbiter.spawn(changes::follow(following, Arc::downgrade(&shared)));
        }
        Arc::new(Self { shared, arbiter })
    }

    /// Returns for how long one call may wait for numbers, with all that it waits for before that.
    pub fn call_time(&self) -> Duration {
        self.shared.settings.refill_deadline
    }

    /// Takes `count` numbers in ascending ranges, in one range if `contiguous`. Waits for a refill
    /// if memory has too few, at most until `until`.
    ///
    /// # Errors
    /// The call gave no number. A cancelled call abandons only numbers that were already on their
    /// way to it.
    pub async fn take(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        (count, contiguous): (u64, bool),
        until: Instant,
    ) -> Result<Issued, SequenceError> {
        if let Some(issued) = self.take_warm(name, period, (count, contiguous)) {
            return Ok(issued);
        }
        let wants = match contiguous {
            true => Wants::Range,
            false => Wants::Numbers,
        };
        self.ask(name, period, (count, wants), until).await
    }

    fn take_warm(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        batch: (u64, bool),
    ) -> Option<Issued> {
        let mut pinned = self.pin();
        let taken = pinned.take_batch(name.as_str(), period.map(Period::as_str), batch)?;
        let shown = taken.shown();
        Some(Issued {
            key: shown.key.clone(),
            ranges: taken.numbers.as_slice().to_vec(),
            printer: shown.printer.cloned(),
        })
    }

    /// Reserves a block in the store, for a client that counts by itself. Waits for it, at most
    /// until `until`.
    ///
    /// # Errors
    /// The call gave no block.
    pub async fn reserve(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        size: u64,
        until: Instant,
    ) -> Result<Issued, SequenceError> {
        self.ask(name, period, (size, Wants::Block), until).await
    }

    /// Asks the actor that has the numbers, and waits at most until `until`.
    ///
    /// If the actor dies, or the issuer is unloaded meanwhile, the call looks the issuer up and
    /// asks again.
    async fn ask(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        (count, wants): (u64, Wants),
        until: Instant,
    ) -> Result<Issued, SequenceError> {
        let _turn = self.shared.admit_waiter()?;
        self.shared.metrics.cold_calls.increment(1);
        loop {
            let attempt = async {
                let issuer = self.issuer(name, period, until).await?;
                // Check this after the issuer is in the map. Then either the drain finds the issuer
                // there, or this check finds that the drain has begun.
                if self.shared.is_drained() {
                    return Err(SequenceError::Draining);
                }
                let (waiter, receiver) = Waiter::new(count, wants);
                self.shared.tell(&issuer, Command::Take(waiter));
                let mut waiting = PendingAnswer {
                    receiver,
                    metrics: &self.shared.metrics,
                };
                let left = until.saturating_duration_since(Instant::now());
                let outcome = match timeout(left, &mut waiting.receiver).await {
                    // Without an answer, the actor died, or the name is being unloaded.
                    Ok(answer) => answer.unwrap_or(Err(SequenceError::Elsewhere)),
                    Err(_) => Err(issuer.late((count, wants))),
                };
                if outcome.is_err() && faults::is(Fault::RefusedBurns) {
                    let _burnt = issuer.cursor().map(|cursor| cursor.take_batch(1, false));
                }
                outcome.map(|ranges| Issued {
                    key: issuer.key.clone(),
                    ranges,
                    printer: issuer.shared_printer(),
                })
            };
            match attempt.await {
                // The issuer leaves memory, as soon as no work of it is under way.
                Err(SequenceError::Elsewhere) if self.shared.is_drained() => {
                    return Err(SequenceError::Draining);
                }
                Err(SequenceError::Elsewhere) if Instant::now() >= until => {
                    return Err(SequenceError::RefillTimeout);
                }
                Err(SequenceError::Elsewhere) => tokio::time::sleep(BETWEEN_TWO_ACTORS).await,
                outcome => return outcome,
            }
        }
    }

    /// Returns the issuer that has the numbers for a call.
    async fn issuer(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        until: Instant,
    ) -> Result<Arc<Issuer>, SequenceError> {
        let shared = &self.shared;
        let left = until.saturating_duration_since(Instant::now());
        let head = match timeout(left, shared.resolve(name, period)).await {
            Ok(head) => head?,
            Err(_) => return Err(SequenceError::RefillTimeout),
        };
        let Some(periods) = head.periods() else {
            return match period {
                None => Ok(head),
                Some(_) => Err(SequenceError::NoPeriods { name: name.clone() }),
            };
        };
        let chosen = periods.choose(period, clock::now_ms())?;
        shared
            .wait_for_period_issuer(&head, periods, chosen, until)
            .await
    }

    /// Describes a sequence, with its counter in the requested period or in the present one.
    /// Answers from memory alone if the store does not answer.
    ///
    /// # Errors
    /// The sequence does not exist, it has no such period, or neither store nor memory knows it.
    pub async fn describe(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
    ) -> Result<Description, SequenceError> {
        let whole = CounterKey::whole(name.clone());
        let (listed, seen) = match self.shared.store.look_up(&whole).await {
            Ok(found) => found,
            Err(error @ (StoreError::Unavailable | StoreError::Deadline)) => {
                let told = SequenceError::from_store(name, error);
                return self.remembered(name, period).ok_or(told);
            }
            Err(error) => return Err(SequenceError::from_store(name, error)),
        };
        let definition = listed.definition;
        let key = asked_for(name, period, &definition)?;
        let seen = match key.period.shown() {
            None => seen,
            Some(_) => self.seen(&key).await?,
        };
        let mut state = self.shared.status_of(&key);
        let has_counter = key.period.is_none() == (definition.period == PeriodKind::None);
        // A counter that was never reserved from begins at `start`.
        let next_value = seen.map_or(definition.start, |seen| seen.next_value);
        let is_counted = has_counter && definition.kind == Kind::Block;
        state.high_water_mark = is_counted.then_some(next_value);
        let runway = || Runway::of(&definition, next_value, state.rate, clock::now_ms());
        state.runway = has_counter.then(runway);
        Ok(Description {
            name: name.clone(),
            version: listed.version,
            is_retired: Some(listed.state != LIVE),
            state,
            serving: self.shared.store.serving(&key, &definition),
            definition,
            blocks: self.shared.store.blocks(name).await.unwrap_or_default(),
        })
    }

    /// Reads a counter; `None` if it was never reserved from.
    pub(crate) async fn seen(
        &self,
        key: &CounterKey,
    ) -> Result<Option<SeenCounter>, SequenceError> {
        let found = self.shared.store.look_up(key).await;
        let (_listed, seen) = found.map_err(|error| SequenceError::of_counter(key, error))?;
        Ok(seen)
    }

    /// Returns what memory knows of a sequence, for the time when the store does not answer.
    fn remembered(&self, name: &SequenceName, period: Option<&Period>) -> Option<Description> {
        let head = self.shared.names.look(name)?;
        let definition = head.definition();
        let key = asked_for(name, period, &definition).ok()?;
        let mut state = self.shared.status_of(&key);
        state.high_water_mark = None;
        let serving = self.shared.store.serving(&key, &definition);
        let memory = head.memory.lock();
        let known = memory.known.as_ref();
        Some(Description {
            name: name.clone(),
            version: known.map_or(0, |known| known.definition_version),
            // Memory does not know whether the sequence lives: another replica may have retired it.
            is_retired: memory.is_retired.then_some(true),
            state,
            serving,
            definition,
            blocks: Vec::new(),
        })
    }

    /// Returns a page of the definitions whose names begin with `prefix` and come after `after`.
    /// Names are in byte order.
    ///
    /// # Errors
    /// The store did not answer, or failed.
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

    /// Returns whether calls should be sent to this replica. If it has lost its database, this looks
    /// at what memory has of all sequences.
    pub fn readiness(&self) -> Readiness {
        let has_lost = self.shared.store.contact() == Contact::Lost;
        let taken = self.takes_calls();
        if taken == Readiness::Ready && has_lost && !self.shared.has_reserve() {
            return Readiness::NoContact;
        }
        taken
    }

    /// Returns whether this replica takes calls that are sent to it. While its database is lost, each
    /// call finds out what is left of its own sequence.
    pub fn takes_calls(&self) -> Readiness {
        if self.shared.is_draining.load(Ordering::Acquire) {
            return Readiness::Draining;
        }
        match self.shared.store.contact() {
            Contact::Up if !self.shared.is_loaded.load(Ordering::Acquire) => Readiness::Loading,
            Contact::Up | Contact::Lost => Readiness::Ready,
            Contact::None => Readiness::NoContact,
            Contact::WrongSchema => Readiness::WrongSchema,
        }
    }

    /// Returns whether this replica is stopping. Replies then close their connections.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining.load(Ordering::Relaxed)
    }

    /// Reports "not ready" from now on. Numbers are still issued.
    pub fn begin_drain(&self) {
        if faults::is(Fault::SilentDrain) {
            return;
        }
        self.shared.is_draining.store(true, Ordering::Release);
    }

    /// Stops every actor and returns the numbers that were not issued.
    ///
    /// Rows that are not in the journal after `time_limit` are a gap: their numbers stay reserved,
    /// are never issued, and count as abandoned.
    pub async fn drain(&self, time_limit: Duration) -> Drained {
        let until = Instant::now() + time_limit;
        self.begin_drain();
        self.shared.is_drained.store(true, Ordering::Release);
        // No name is parked any more.
        self.shared.names.wake_all();
        let returned = stream::iter(self.shared.all_issuers())
            .map(|issuer| self.drain_one(issuer))
            .buffer_unordered(DRAINED_AT_ONCE)
            .fold(0_u64, |sum, n_numbers| async move {
                sum.saturating_add(n_numbers)
            });
        let returned = timeout(time_limit, returned).await;
        let left = until.saturating_duration_since(Instant::now());
        let _in_time = timeout(left, self.shared.store.flush_journal()).await;
        // Actors that did not end still hold their numbers.
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

    /// Drains the actor of an issuer. Returns how many numbers were returned.
    async fn drain_one(&self, issuer: Arc<Issuer>) -> u64 {
        if issuer.periods().is_some() {
            return 0;
        }
        let drain = |answer| Command::Drain { answer };
        let drained = self.shared.tell_until_answered(&issuer, drain, || false);
        drained.await.unwrap_or(0)
    }

    /// Returns how many numbers are in memory, over all names.
    pub fn n_remaining(&self) -> u64 {
        let mut n_remaining: u64 = 0;
        self.shared.for_each_issuer(|issuer| {
            n_remaining = n_remaining.saturating_add(issuer.remaining());
        });
        n_remaining
    }

    /// Returns the most reservations that one database had under way at the same time since the
    /// start.
    pub fn peak_reservations_in_flight(&self) -> usize {
        self.shared.store.peak_reservations_in_flight()
    }

    /// Publishes the metrics that only the cursors know. Call this before each scrape.
    pub fn publish_metrics(&self) {
        let is_ready = matches!(self.readiness(), Readiness::Ready);
        let ready = &self.shared.metrics.ready;
        ready.set(f64::from(u8::from(is_ready)));
        self.shared.publish_metrics();
    }
}

/// Returns the counter that a question is about.
///
/// Without `period`, returns the counter of the present calendar period. If callers name keys,
/// returns the counter without a period.
pub(crate) fn asked_for(
    name: &SequenceName,
    period: Option<&Period>,
    definition: &Definition,
) -> Result<CounterKey, SequenceError> {
    let period = match (period, PeriodRule::of(definition)) {
        (None, rule) => {
            let present = rule.and_then(|rule| rule.at(clock::now_ms()));
            present.map_or_else(Period::none, |present| present.period)
        }
        (Some(period), Some(rule)) => {
            rule.check(period)?;
            period.clone()
        }
        (Some(_), None) => return Err(SequenceError::NoPeriods { name: name.clone() }),
    };
    Ok(CounterKey {
        sequence: name.clone(),
        period,
    })
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.arbiter.stop();
    }
}

/// The receiving end of a caller's answer. If numbers arrive for a caller who has gone, they are
/// counted as abandoned.
struct PendingAnswer<'a> {
    receiver: oneshot::Receiver<Outcome>,
    metrics: &'a Metrics,
}

impl Drop for PendingAnswer<'_> {
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
