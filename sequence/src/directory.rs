//! From a name to its issuer: the warm path, and the way to the actors.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use actix::Arbiter;
use futures_util::{StreamExt, stream};
use odometer_core::{
    block::Block,
    definition::{Definition, Kind},
    format::Printer,
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
    Drained, Readiness, SequenceSettings, changes,
    command::{Command, Outcome, ReplySender},
    description::{Description, Page},
    error::SequenceError,
    issued::{Issued, IssuedBy},
    issuer::{ActorLink, Issuer},
    period_directory::PeriodDirectory,
    shared::{BETWEEN_TWO_ACTORS, Shared},
    sweep, warm_up,
};

/// Actors that are drained at once.
const DRAINED_AT_ONCE: usize = 1000;

/// The front of this layer: every call for a number comes here.
pub struct Directory {
    pub(crate) shared: Arc<Shared>,
    arbiter: Arbiter,
}

impl Directory {
    /// Starts the sweep and an arbiter for the actors; needs a running actix system.
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

    /// One number from memory, or `None` where there is none: no await, no lock, no mailbox, no
    /// allocation, where the sequence counts without periods.
    #[inline]
    pub fn take_warm<R>(
        &self,
        name: &str,
        period: Option<&str>,
        reply: impl FnOnce(IssuedBy<'_>, i64) -> R,
    ) -> Option<R> {
        let take = |issuer: &Arc<Issuer>| {
            let Some(taken) = issuer.cursor.take() else {
                return issuer.is_timed().then(|| self.stamp(issuer)).flatten();
            };
            if taken.low_water {
                self.shared.tell(issuer, Command::LowWater);
            }
            Some(taken.value)
        };
        self.warm(name, period, take, reply)
    }

    /// A batch from memory, or `None` where memory does not have all of it.
    pub fn take_batch_warm<R>(
        &self,
        name: &str,
        period: Option<&str>,
        (count, contiguous): (u64, bool),
        reply: impl FnOnce(IssuedBy<'_>, &[Block]) -> R,
    ) -> Option<R> {
        let take = |issuer: &Arc<Issuer>| {
            let Some(taken) = issuer.cursor.take_batch(count, contiguous) else {
                let stamp = || self.stamp_batch(issuer, count, contiguous);
                let stamped = issuer.is_timed().then(stamp).flatten();
                return stamped.map(Ranges::Stamped);
            };
            if taken.low_water {
                self.shared.tell(issuer, Command::LowWater);
            }
            Some(Ranges::Counted(taken.ranges))
        };
        self.warm(name, period, take, |shown, ranges| match ranges {
            Ranges::Counted(ranges) => reply(shown, ranges.as_slice()),
            Ranges::Stamped(ranges) => reply(shown, &ranges),
        })
    }

    /// The next id of a time-ordered sequence. Kept apart, so that block sequences pay nothing for it.
    #[inline(never)]
    fn stamp(&self, issuer: &Arc<Issuer>) -> Option<i64> {
        let taken = issuer.with_timed(|snowflake| snowflake.take().ok())?;
        if taken.is_due {
            self.shared.tell(issuer, Command::LowWater);
        }
        Some(taken.ids)
    }

    #[inline(never)]
    fn stamp_batch(
        &self,
        issuer: &Arc<Issuer>,
        count: u64,
        contiguous: bool,
    ) -> Option<Vec<Block>> {
        let taken = issuer.with_timed(|snowflake| snowflake.take_batch(count, contiguous).ok())?;
        if taken.is_due {
            self.shared.tell(issuer, Command::LowWater);
        }
        Some(taken.ids)
    }

    /// Takes from the issuer that has the numbers, as far as it is in memory.
    #[inline]
    /// How a sequence prints its numbers, if it is in memory; within, `None` where just as they are.
    pub fn printer(&self, name: &str, period: Option<&str>) -> Option<Option<Arc<Printer>>> {
        let counts = |issuer: &Arc<Issuer>| issuer.periods().is_none().then_some(());
        self.warm(name, period, counts, |shown, ()| shown.printer.cloned())
    }

    fn warm<T, R>(
        &self,
        name: &str,
        period: Option<&str>,
        take: impl Fn(&Arc<Issuer>) -> Option<T>,
        reply: impl FnOnce(IssuedBy<'_>, T) -> R,
    ) -> Option<R> {
        let issuers = self.shared.issuers.pin();
        let head = match issuers.get(name) {
            Some(head) => head,
            None => issuers.get(self.shared.aliases.pin().get(name)?)?,
        };
        if period.is_none()
            && let Some(taken) = take(head)
        {
            return Some(head.show(|shown| reply(shown, taken)));
        }
        let periods = head.periods()?;
        let now_ms = clock::now_ms();
        let member = match period {
            None => periods.present(now_ms)?,
            Some(period) => periods.named(period, now_ms)?,
        };
        let taken = take(&member)?;
        Some(member.show(|shown| reply(shown, taken)))
    }

    /// `count` numbers in ascending ranges, one range where `contiguous`; waits for a refill where
    /// memory has none.
    ///
    /// # Errors
    /// No number was given. Cancelling burns nothing that was not on its way already.
    pub async fn take(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        count: u64,
        contiguous: bool,
    ) -> Result<Issued, SequenceError> {
        let asked = period.map(Period::as_str);
        let batch = (count, contiguous);
        let warm = self.take_batch_warm(name.as_str(), asked, batch, |shown, ranges| Issued {
            key: shown.key.clone(),
            ranges: ranges.to_vec(),
            printer: shown.printer.cloned(),
        });
        if let Some(issued) = warm {
            return Ok(issued);
        }
        self.ask(name, period, |answer| Command::Take {
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
    pub async fn reserve(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        size: u64,
    ) -> Result<Issued, SequenceError> {
        self.ask(name, period, |answer| Command::HandOver { size, answer })
            .await
    }

    /// Asks the actor that has the numbers and waits, at most `refill_deadline`.
    ///
    /// An actor that died or was unloaded meanwhile is asked for anew.
    async fn ask(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        command: impl Fn(ReplySender) -> Command,
    ) -> Result<Issued, SequenceError> {
        let _turn = self.shared.admit_waiter()?;
        self.shared.metrics.cold_calls.increment(1);
        let until = Instant::now() + self.shared.settings.refill_deadline;
        loop {
            let issuer = match self.issuer(name, period, until).await {
                Ok(issuer) => issuer,
                Err(SequenceError::Elsewhere) if self.shared.is_drained() => {
                    return Err(SequenceError::Draining);
                }
                Err(SequenceError::Elsewhere) if Instant::now() < until => {
                    tokio::time::sleep(BETWEEN_TWO_ACTORS).await;
                    continue;
                }
                Err(SequenceError::Elsewhere) => return Err(SequenceError::RefillTimeout),
                Err(error) => return Err(error),
            };
            // Asked after the issuer was made, so that none is made unseen by the drain.
            if self.shared.is_drained() {
                return Err(SequenceError::Draining);
            }
            let (answer, receiver) = ReplySender::channel();
            self.shared.tell(&issuer, command(answer));
            let mut waiting = PendingAnswer {
                receiver,
                metrics: &self.shared.metrics,
            };
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, &mut waiting.receiver).await {
                // Only now it is known that the numbers are another issuer's.
                Ok(Ok(Err(SequenceError::Elsewhere))) if Instant::now() < until => {}
                Ok(Ok(Err(SequenceError::Elsewhere))) => return Err(SequenceError::RefillTimeout),
                Ok(Ok(outcome)) => {
                    if outcome.is_err() && faults::is(Fault::RefusedBurns) {
                        let _burnt = issuer.cursor.take_batch(1, false);
                    }
                    return outcome.map(|ranges| Issued {
                        key: issuer.key.clone(),
                        ranges,
                        printer: issuer.printer(),
                    });
                }
                Ok(Err(_actor_gone)) if Instant::now() < until => {
                    // It died, or the name is just being unloaded.
                    tokio::time::sleep(BETWEEN_TWO_ACTORS).await;
                }
                Ok(Err(_)) | Err(_) => return Err(SequenceError::RefillTimeout),
            }
        }
    }

    /// The issuer that a call for numbers is for.
    async fn issuer(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        until: Instant,
    ) -> Result<Arc<Issuer>, SequenceError> {
        let shared = &self.shared;
        let alias = match shared.issuers.pin().contains_key(name) {
            true => None,
            false => shared.aliases.pin().get(name).cloned(),
        };
        let head = shared.issuer(alias.as_ref().unwrap_or(name))?;
        let periods = match (head.periods(), period) {
            (Some(periods), _) => periods,
            // Where it turns out to have periods, its actor says so.
            (None, None) => return Ok(head),
            (None, Some(_)) => shared.periods(&head, until).await?,
        };
        let chosen = periods.choose(period, clock::now_ms())?;
        shared.member_in_time(&head, &periods, chosen, until).await
    }

    /// All that is known of a sequence, and of its counter in the period that is asked for, or in
    /// the present one; from memory alone where the store does not answer.
    ///
    /// # Errors
    /// There is no such sequence, it has no such period, or neither store nor memory can tell.
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
        let key = asked_for(name, period, &listed.definition)?;
        let issuer = self.shared.find(&key);
        let mut state = issuer.as_deref().map(Issuer::state).unwrap_or_default();
        let has_counter = key.period.is_none() == (listed.definition.period == PeriodKind::None);
        let seen = match key.period.shown() {
            None => seen.filter(|_| has_counter),
            Some(_) => self.seen(&key).await?,
        };
        let serving = self.shared.store.serving(&key, &listed.definition);
        state.period = key.period;
        if listed.definition.kind == Kind::Snowflake {
            let runway = Runway::of(&listed.definition, 0, state.rate, clock::now_ms());
            state.runway = Some(runway);
        } else if has_counter {
            // What nobody has used begins at its start.
            let next_value = seen.map_or(listed.definition.start, |seen| seen.next_value);
            state.high_water_mark = Some(next_value);
            let runway = Runway::of(&listed.definition, next_value, state.rate, clock::now_ms());
            state.runway = Some(runway);
        } else {
            state.high_water_mark = None;
            state.runway = None;
        }
        Ok(Description {
            name: name.clone(),
            version: listed.version,
            definition: listed.definition,
            is_retired: Some(listed.state != LIVE),
            state,
            serving,
            blocks: self.shared.store.blocks(name).await.unwrap_or_default(),
        })
    }

    async fn seen(&self, key: &CounterKey) -> Result<Option<SeenCounter>, SequenceError> {
        let found = self.shared.store.look_up(key).await;
        let (_listed, seen) = found.map_err(|error| SequenceError::of_counter(key, error))?;
        Ok(seen)
    }

    /// What memory knows of a sequence, of which the store says nothing now.
    pub(crate) fn remembered(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
    ) -> Option<Description> {
        let head = self.shared.issuers.pin().get(name).cloned()?;
        let (known, is_retired) = {
            let memory = head.memory.lock();
            (memory.known.clone(), memory.is_retired())
        };
        let definition = head.definition_by(known.as_ref())?;
        let key = asked_for(name, period, &definition).ok()?;
        let issuer = self.shared.find(&key);
        let mut state = issuer.as_deref().map(Issuer::state).unwrap_or_default();
        let serving = self.shared.store.serving(&key, &definition);
        state.high_water_mark = None;
        state.period = key.period;
        Some(Description {
            name: name.clone(),
            version: known.map_or(0, |known| known.definition_version),
            definition,
            // Whether it lives is not known: it may have been retired elsewhere.
            is_retired: is_retired.then_some(true),
            state,
            serving,
            blocks: Vec::new(),
        })
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
        if faults::is(Fault::SilentDrain) {
            return;
        }
        self.shared.is_draining.store(true, Ordering::Release);
    }

    /// Stops every actor and gives back what was not issued.
    ///
    /// What is not in the journal after `time_limit` stays reserved and unissued, and counts as
    /// abandoned.
    pub async fn drain(&self, time_limit: Duration) -> Drained {
        let until = Instant::now() + time_limit;
        self.begin_drain();
        self.shared.is_drained.store(true, Ordering::Release);
        let issuers = self.shared.all_issuers();
        let returned = stream::iter(issuers)
            .map(|issuer| self.drain_one(issuer))
            .buffer_unordered(DRAINED_AT_ONCE)
            .fold(0_u64, |sum, n_numbers| async move {
                sum.saturating_add(n_numbers)
            });
        let returned = timeout(time_limit, returned).await;
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
            self.shared.tell(&issuer, Command::Drain { answer });
            match waiting.await {
                Ok(n_returned) => return n_returned,
                Err(_) if matches!(&*issuer.actor.lock(), ActorLink::Gone) => return 0,
                Err(_) => tokio::time::sleep(BETWEEN_TWO_ACTORS).await,
            }
        }
    }

    /// Numbers in memory, over all names.
    pub fn n_remaining(&self) -> u64 {
        let issuers = self.shared.all_issuers();
        issuers
            .iter()
            .fold(0, |sum, issuer| sum.saturating_add(issuer.remaining()))
    }

    /// The most reservations that were under way at once since the start.
    pub fn peak_reservations_in_flight(&self) -> usize {
        self.shared.store.peak_reservations_in_flight()
    }

    /// Tells the metrics what only the cursors know; called before each scrape.
    pub fn publish_metrics(&self) {
        let is_ready = matches!(self.readiness(), Readiness::Ready);
        let ready = &self.shared.metrics.ready;
        ready.set(f64::from(u8::from(is_ready)));
        self.shared.publish_metrics();
    }
}

/// Numbers of one batch, as memory had them.
enum Ranges {
    Counted(odometer_core::cursor::Ranges),
    Stamped(Vec<Block>),
}

/// The counter that a question is about: of a calendar that of the present, where no period is
/// named; of keys none then.
pub(crate) fn asked_for(
    name: &SequenceName,
    period: Option<&Period>,
    definition: &Arc<Definition>,
) -> Result<CounterKey, SequenceError> {
    let periods = PeriodDirectory::of(definition);
    let period = match (period, periods) {
        (None, None) => Period::none(),
        (None, Some(periods)) => periods.now(clock::now_ms()).unwrap_or_else(Period::none),
        (Some(period), Some(periods)) => {
            periods.check(period)?;
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

/// A caller's end of the way to its actor: what arrives after the caller has gone is counted.
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
