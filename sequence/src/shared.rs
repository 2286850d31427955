//! What the directory, its actors and its sweep share: the names in memory, and the way to actors.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use actix::ArbiterHandle;
use odometer_core::{
    definition::Definition, name::SequenceName, period::CounterKey, templates::Template,
};
use odometer_process::{clock, metrics::Metrics};
use odometer_store::{Contact, SeenCounter, StoreError, Stores};

use tokio::{
    sync::oneshot,
    time::{sleep_until, timeout},
};

use crate::{
    SequenceSettings,
    command::Command,
    error::SequenceError,
    history::Histories,
    index::Index,
    issuer::{ActorLink, Issuer},
    period_directory::{Admission, BETWEEN_TWO_LOOKS, Chosen, PeriodDirectory, Place},
    rate_limit::RateLimit,
    slow_refills::SlowRefills,
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::sequence::shared";

/// The longest between two looks of a caller who waits for a place whether the place is still of use;
/// one of those who wait looks for places more often.
const BETWEEN_TWO_CHECKS: Duration = Duration::from_millis(250);

/// Before an actor that was gone is asked for again.
pub(crate) const BETWEEN_TWO_ACTORS: Duration = Duration::from_millis(2);

/// What the directory, its actors and its sweep share.
pub(crate) struct Shared {
    pub(crate) store: Arc<Stores>,
    pub(crate) settings: SequenceSettings,
    pub(crate) metrics: Arc<Metrics>,
    /// By name: of a sequence that counts in periods, the head.
    pub(crate) issuers: papaya::HashMap<SequenceName, Arc<Issuer>>,
    /// Names that share the numbers of another sequence, by template, with that one's name.
    pub(crate) aliases: papaya::HashMap<SequenceName, SequenceName>,
    /// Counters that were unloaded.
    forgotten: papaya::HashMap<CounterKey, Forgotten>,
    /// Whether `forgotten` has reached its bound; from then on fresh issuers adopt nothing.
    has_forgotten_more: AtomicBool,
    pub(crate) n_live: AtomicUsize,
    pub(crate) n_waiters: AtomicUsize,
    /// Whether the names used most recently have their numbers.
    pub(crate) is_loaded: AtomicBool,
    pub(crate) is_draining: AtomicBool,
    /// No number leaves memory any more.
    pub(crate) is_drained: AtomicBool,
    /// Issuers with an actor, for the sweep.
    pub(crate) active: parking_lot::Mutex<Vec<Arc<Issuer>>>,
    /// For names like one that does not exist.
    pub(crate) searches: RateLimit,
    /// For those who watch.
    pub(crate) histories: Histories,
    pub(crate) index: Index,
    pub(crate) slow_refills: SlowRefills,
    pub(crate) arbiter: ArbiterHandle,
    #[cfg(feature = "sabotage")]
    n_refills: std::sync::atomic::AtomicU64,
}

/// What this process remembers of a name that it unloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgotten {
    /// Every number that it issued of the name lies below.
    pub(crate) all_below: i64,
    /// The counter as it last saw it.
    pub(crate) seen: SeenCounter,
}

/// The bound of remembered names was reached: whether one was here before is not known.
pub(crate) struct NotRemembered;

impl Shared {
    pub(crate) fn new(
        store: Arc<Stores>,
        settings: SequenceSettings,
        metrics: Arc<Metrics>,
        arbiter: ArbiterHandle,
    ) -> Self {
        Self {
            slow_refills: SlowRefills::new(settings.slow_refill),
            store,
            settings,
            metrics,
            issuers: papaya::HashMap::new(),
            aliases: papaya::HashMap::new(),
            forgotten: papaya::HashMap::new(),
            has_forgotten_more: AtomicBool::new(false),
            n_live: AtomicUsize::new(0),
            n_waiters: AtomicUsize::new(0),
            is_loaded: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            active: parking_lot::Mutex::new(Vec::new()),
            searches: RateLimit::new(),
            histories: Histories::default(),
            index: Index::default(),
            arbiter,
            #[cfg(feature = "sabotage")]
            n_refills: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The issuer of a name, made where there is none.
    pub(crate) fn issuer(&self, name: &SequenceName) -> Result<Arc<Issuer>, SequenceError> {
        let issuers = self.issuers.pin();
        if let Some(issuer) = issuers.get(name) {
            return Ok(Arc::clone(issuer));
        }
        if self.n_live.load(Ordering::Relaxed) >= self.settings.live_sequences {
            return Err(SequenceError::Overloaded {
                what: "limits.live_sequences",
            });
        }
        let fresh = Arc::new(Issuer::new(CounterKey::whole(name.clone())));
        match issuers.try_insert(name.clone(), Arc::clone(&fresh)) {
            Ok(_) => {
                self.n_live.fetch_add(1, Ordering::Relaxed);
                Ok(fresh)
            }
            Err(taken) => Ok(Arc::clone(taken.current)),
        }
    }

    /// The issuer of a period, made where there is none, if there is a place for it now.
    pub(crate) fn member(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        periods: &PeriodDirectory,
        chosen: Chosen,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if let Some(issuer) = periods.member(chosen.period.as_str()) {
            return Ok(issuer);
        }
        let place = periods.free_place(self.settings.live_periods);
        let place = place.ok_or_else(no_place)?;
        self.admit_member(head, periods, chosen, place)
    }

    /// The same for a caller, who waits for a place while others leave. However many wait, one of them
    /// looks who should leave.
    pub(crate) async fn member_in_time(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        periods: &PeriodDirectory,
        chosen: Chosen,
        until: Instant,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if let Some(issuer) = periods.member(chosen.period.as_str()) {
            return Ok(issuer);
        }
        let limit = self.settings.live_periods;
        if let Some(place) = periods.free_place(limit) {
            return self.admit_member(head, periods, chosen, place);
        }
        let mut place = pin!(periods.next_place(limit));
        let (mut next_looker, mut looker) = (pin!(periods.next_looker()), None);
        loop {
            let pause = if looker.is_some() {
                self.send_away(periods.look_again(limit));
                BETWEEN_TWO_LOOKS
            } else {
                BETWEEN_TWO_CHECKS.mul_f64(rand::random_range(0.5..1.0))
            };
            let check = until.min(Instant::now() + pause);
            tokio::select! {
                biased;
                place = &mut place => {
                    let place = place.map_err(|_| no_place())?;
                    return self.admit_member(head, periods, chosen, place);
                }
                next = &mut next_looker, if looker.is_none() => looker = Some(next),
                () = sleep_until(check.into()) => {}
            }
            if let Some(issuer) = periods.member(chosen.period.as_str()) {
                return Ok(issuer);
            }
            // Nobody leaves who cannot give back, and who comes would get nothing.
            if self.store.contact_of(&periods.definition().store) != Contact::Up {
                return Err(SequenceError::StoreUnavailable);
            }
            if Instant::now() >= until {
                self.metrics.waiters_refused.increment(1);
                return Err(no_place());
            }
        }
    }

    fn admit_member(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        periods: &PeriodDirectory,
        chosen: Chosen,
        place: Place,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if self.n_live.load(Ordering::Relaxed) >= self.settings.live_sequences {
            return Err(SequenceError::Overloaded {
                what: "limits.live_sequences",
            });
        }
        let key = CounterKey {
            sequence: head.key.sequence.clone(),
            period: chosen.period.clone(),
        };
        let like = periods.present(clock::now_ms());
        let limit = self.settings.live_periods;
        let admitted = periods.admit(&chosen.period, (limit, place), || {
            self.n_live.fetch_add(1, Ordering::Relaxed);
            let issuer = Issuer::of_period(key, chosen.span, like.as_deref());
            issuer.print_as(&periods.definition());
            Arc::new(issuer)
        });
        match admitted {
            Admission::In(issuer, leaving) => {
                self.send_away(leaving);
                Ok(issuer)
            }
            Admission::Closed => Err(SequenceError::Elsewhere),
        }
    }

    /// Sends issuers out of memory, as far as nobody waits for them.
    fn send_away(self: &Arc<Self>, leaving: Vec<Arc<Issuer>>) {
        for issuer in leaving {
            self.tell(&issuer, Command::Unload);
        }
    }

    /// Whether a name that no sequence has shares the numbers of another one; remembered if it does.
    pub(crate) fn share(&self, name: &SequenceName) -> bool {
        let Some(Template::Share(target)) = self.settings.templates.of(name) else {
            return false;
        };
        let aliases = self.aliases.pin();
        if aliases.len() >= self.settings.live_sequences {
            // Each that is still in use comes in again with its next call.
            aliases.clear();
        }
        aliases.insert(name.clone(), target);
        // What stood for it while that was not known leads nowhere.
        if let Some(stranger) = self.issuers.pin().remove(name) {
            *stranger.actor.lock() = ActorLink::Gone;
            self.n_live.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }

    /// Every issuer in memory, heads and those of their periods.
    pub(crate) fn all_issuers(&self) -> Vec<Arc<Issuer>> {
        let heads: Vec<Arc<Issuer>> = self.issuers.pin().values().cloned().collect();
        let members: Vec<Arc<Issuer>> = heads
            .iter()
            .filter_map(|head| head.periods())
            .flat_map(|periods| periods.members())
            .collect();
        heads.into_iter().chain(members).collect()
    }

    /// The head of the sequence that an issuer is of.
    pub(crate) fn head_of(&self, issuer: &Issuer) -> Option<Arc<Issuer>> {
        self.issuers.pin().get(&issuer.key.sequence).cloned()
    }

    /// The issuer of a counter, if it is in memory.
    pub(crate) fn find(&self, key: &CounterKey) -> Option<Arc<Issuer>> {
        let head = self.issuers.pin().get(&key.sequence).cloned()?;
        match key.period.shown() {
            None => Some(head),
            Some(period) => head.periods()?.member(period),
        }
    }

    /// The periods of a sequence of which nothing is known here yet.
    pub(crate) async fn periods(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        until: Instant,
    ) -> Result<Arc<PeriodDirectory>, SequenceError> {
        let (answer, waiting) = oneshot::channel();
        self.tell(head, Command::Learn { answer });
        let left = until.saturating_duration_since(Instant::now());
        let definition = match timeout(left, waiting).await {
            Ok(Ok(definition)) => definition?,
            // Its actor died, or the name is just being unloaded.
            Ok(Err(_)) => return Err(SequenceError::Elsewhere),
            Err(_) => return Err(SequenceError::RefillTimeout),
        };
        head.learn(&definition);
        head.periods().ok_or_else(|| SequenceError::NoPeriods {
            name: head.key.sequence.clone(),
        })
    }

    /// How a sequence is defined, or would be if it were born now.
    pub(crate) async fn definition(
        &self,
        name: &SequenceName,
    ) -> Result<Arc<Definition>, SequenceError> {
        match self.store.look_up(&CounterKey::whole(name.clone())).await {
            Ok((listed, _seen)) => Ok(listed.definition),
            Err(StoreError::NotFound) if self.share(name) => Err(SequenceError::Elsewhere),
            Err(error @ StoreError::NotFound) => {
                let created_with = self.settings.templates.created_with(name);
                created_with.ok_or_else(|| SequenceError::from_store(name, error))
            }
            Err(error) => Err(SequenceError::from_store(name, error)),
        }
    }

    /// Lets the sweep look at it each second, once.
    pub(crate) fn enter_active(&self, issuer: &Arc<Issuer>) {
        if !issuer.is_active.swap(true, Ordering::AcqRel) {
            self.active.lock().push(Arc::clone(issuer));
        }
    }

    /// Whether no number leaves memory any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Takes an unloaded issuer out, remembering below which number it issued or held all.
    pub(crate) fn forget(&self, issuer: &Issuer) {
        if issuer.is_known() {
            self.remember(issuer);
        }
        self.publish_issuer(issuer);
        // It is remembered before it can be loaded again.
        let is_gone = if issuer.key.period.is_none() {
            if issuer.is_known() {
                self.metrics.sequence(issuer.key.sequence.as_str()).clear();
            }
            let is_this =
                |_: &SequenceName, found: &Arc<Issuer>| std::ptr::eq(&raw const **found, issuer);
            let issuers = self.issuers.pin();
            let removed = issuers.remove_if(&issuer.key.sequence, is_this);
            matches!(removed, Ok(Some(_)))
        } else {
            if let Some(periods) = self.head_of(issuer).and_then(|head| head.periods()) {
                periods.dismiss(issuer);
            }
            // It counted when it was made.
            true
        };
        if is_gone {
            self.n_live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn remember(&self, issuer: &Issuer) {
        let forgotten = self.forgotten.pin();
        let earlier = forgotten.get(&issuer.key).copied();
        if earlier.is_none() && forgotten.len() >= self.settings.live_sequences {
            if !self.has_forgotten_more.swap(true, Ordering::AcqRel) {
                tracing::warn!(
                    target: TARGET,
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
            forgotten.insert(issuer.key.clone(), now);
        }
    }

    /// What is remembered of a name that was unloaded, if it was.
    pub(crate) fn forgotten(&self, key: &CounterKey) -> Result<Option<Forgotten>, NotRemembered> {
        let known = self.forgotten.pin().get(key).copied();
        if known.is_none() && self.has_forgotten_more.load(Ordering::Acquire) {
            return Err(NotRemembered);
        }
        Ok(known)
    }

    pub(crate) fn has_reserve(&self) -> bool {
        let all = self.all_issuers();
        let has_time = |issuer: &Arc<Issuer>| {
            issuer
                .snowflake()
                .is_some_and(|snowflake| !snowflake.left().is_zero())
        };
        all.iter()
            .any(|issuer| issuer.cursor.remaining() > 0 || has_time(issuer))
    }

    pub(crate) fn admit_waiter(self: &Arc<Self>) -> Result<Turn, SequenceError> {
        let n_before = self.n_waiters.fetch_add(1, Ordering::Relaxed);
        let turn = Turn(Arc::clone(self));
        if n_before >= self.settings.waiters {
            self.metrics.waiters_refused.increment(1);
            return Err(SequenceError::Overloaded {
                what: "limits.waiters",
            });
        }
        Ok(turn)
    }

    /// For tests: an actor that dies at every fifth of these points.
    #[cfg(feature = "sabotage")]
    #[expect(clippy::panic, reason = "the fault that the test asks for")]
    pub(crate) fn panic_now_and_then(&self) {
        let n_before = self.n_refills.fetch_add(1, Ordering::Relaxed);
        if n_before % 5 == 4 {
            panic!("an actor dies, as was asked for");
        }
    }

    #[cfg(not(feature = "sabotage"))]
    pub(crate) fn panic_now_and_then(&self) {}
}

/// Of a sequence that has as many periods in memory as it may.
fn no_place() -> SequenceError {
    SequenceError::Overloaded {
        what: "limits.live_periods",
    }
}

/// A waiter under the bound.
pub(crate) struct Turn(Arc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.n_waiters.fetch_sub(1, Ordering::Relaxed);
    }
}
