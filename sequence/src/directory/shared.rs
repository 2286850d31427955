//! Holds what the directory, its actors and its sweep share: above all the names in memory.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use actix::ArbiterHandle;
use odometer_core::{name::SequenceName, period::CounterKey, templates::Template};
use odometer_process::{clock, metrics::Metrics};
use odometer_store::{Contact, SeenCounter, Stores};

use tokio::time::sleep_until;

use crate::{
    SequenceSettings,
    actor::command::Command,
    actor::slow_refills::SlowRefills,
    directory::names::Names,
    directory::period_directory::{BETWEEN_TWO_LOOKS, PeriodDirectory, PeriodPermit},
    directory::period_rule::Chosen,
    directory::rate_limit::RateLimit,
    directory::resolving::Questions,
    error::SequenceError,
    inspection::history::Histories,
    inspection::index::Index,
    issuer::memory::{ActorLink, Issuer},
    issuer::ownership::Ownership,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::sequence::shared";

/// Bounds the pause between two checks of a caller that waits for a permit for its period. One of
/// the waiting callers checks more often, because it searches for issuers that should leave.
const BETWEEN_TWO_CHECKS: Duration = Duration::from_millis(250);

/// The pause before a caller asks again after an actor was gone.
pub(crate) const BETWEEN_TWO_ACTORS: Duration = Duration::from_millis(2);

/// What the directory, its actors and its sweep share.
pub(crate) struct Shared {
    pub(crate) store: Arc<Stores>,
    pub(crate) settings: SequenceSettings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) names: Names,
    /// Names that share the numbers of another sequence by a template, with the name of that
    /// sequence.
    pub(crate) aliases: papaya::HashMap<SequenceName, SequenceName>,
    /// What is remembered of counters that were unloaded.
    forgotten: papaya::HashMap<CounterKey, Forgotten>,
    /// Whether `forgotten` has reached its bound. From then on, an issuer of an unknown counter
    /// adopts nothing.
    has_forgotten_more: AtomicBool,
    pub(crate) n_live: AtomicUsize,
    pub(crate) n_waiters: AtomicUsize,
    /// Whether the warm-up is over: the names used most recently have numbers, or its time has
    /// passed.
    pub(crate) is_loaded: AtomicBool,
    pub(crate) is_draining: AtomicBool,
    /// Whether no number leaves memory any more.
    pub(crate) is_drained: AtomicBool,
    /// Issuers with an actor, for the sweep.
    pub(crate) active: parking_lot::Mutex<Vec<Arc<Issuer>>>,
    /// Limits the searches for names that are similar to a wrong one.
    pub(crate) searches: RateLimit,
    /// The last minutes of each counter in use.
    pub(crate) histories: Histories,
    pub(crate) index: Index,
    /// What the store is asked about names that are not in memory.
    pub(crate) questions: Questions,
    pub(crate) slow_refills: SlowRefills,
    pub(crate) arbiter: ArbiterHandle,
    #[cfg(feature = "sabotage")]
    n_refills: std::sync::atomic::AtomicU64,
}

/// What this process remembers of a counter that it unloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgotten {
    /// A bound above every number that this process issued of the counter.
    pub(crate) issued_below: i64,
    /// The counter as this process last saw it.
    pub(crate) seen: SeenCounter,
}

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
            names: Names::default(),
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
            questions: Questions::default(),
            arbiter,
            #[cfg(feature = "sabotage")]
            n_refills: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Returns the issuer of a period. Creates the issuer if there is none and a permit is free.
    pub(crate) fn member(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        periods: &PeriodDirectory,
        chosen: Chosen,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if let Some(issuer) = periods.member(chosen.period.as_str()) {
            return Ok(issuer);
        }
        let permit = periods.try_permit().ok_or_else(too_many_periods)?;
        self.admit_period_issuer(head, periods, chosen, permit)
    }

    /// Returns the issuer of a period. Unlike [`Shared::member`], waits for a permit while other
    /// issuers leave.
    ///
    /// However many callers wait, one of them searches for the issuers that should leave.
    pub(crate) async fn wait_for_period_issuer(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        periods: &PeriodDirectory,
        chosen: Chosen,
        until: Instant,
    ) -> Result<Arc<Issuer>, SequenceError> {
        if let Some(issuer) = periods.member(chosen.period.as_str()) {
            return Ok(issuer);
        }
        let mut permit = pin!(periods.next_permit());
        let (mut next_looker, mut looker) = (pin!(periods.looker.lock()), None);
        loop {
            let pause = if looker.is_some() {
                self.send_away(periods.look_again());
                BETWEEN_TWO_LOOKS
            } else {
                BETWEEN_TWO_CHECKS.mul_f64(rand::random_range(0.5..1.0))
            };
            let check = until.min(Instant::now() + pause);
            tokio::select! {
                // A permit that is free is taken at once.
                biased;
                permit = &mut permit => {
                    let permit = permit.ok_or(SequenceError::Elsewhere)?;
                    return self.admit_period_issuer(head, periods, chosen, permit);
                }
                next = &mut next_looker, if looker.is_none() => looker = Some(next),
                () = sleep_until(check.into()) => {}
            }
            if let Some(issuer) = periods.member(chosen.period.as_str()) {
                return Ok(issuer);
            }
            // While the store is away, no issuer can leave, because it cannot give its numbers
            // back. A new issuer would get no numbers.
            if self.store.contact_of(&periods.definition().store) != Contact::Up {
                return Err(SequenceError::StoreUnavailable);
            }
            if Instant::now() >= until {
                self.metrics.waiters_refused.increment(1);
                return Err(too_many_periods());
            }
        }
    }

    fn admit_period_issuer(
        self: &Arc<Self>,
        head: &Arc<Issuer>,
        periods: &PeriodDirectory,
        chosen: Chosen,
        permit: PeriodPermit,
    ) -> Result<Arc<Issuer>, SequenceError> {
        self.check_room(0)?;
        let key = CounterKey {
            sequence: head.key.sequence.clone(),
            period: chosen.period.clone(),
        };
        let like = periods.present(clock::now_ms());
        let admitted = periods.admit(&chosen.period, permit, |definition| {
            self.n_live.fetch_add(1, Ordering::Relaxed);
            let (span, like) = (chosen.span, like.as_deref());
            Arc::new(Issuer::of_period(key, span, definition, like))
        });
        let (issuer, leaving) = admitted.ok_or(SequenceError::Elsewhere)?;
        self.send_away(leaving);
        Ok(issuer)
    }

    /// Sends issuers out of memory. An issuer stays if callers wait for it.
    fn send_away(self: &Arc<Self>, leaving: Vec<Arc<Issuer>>) {
        for issuer in leaving {
            self.tell(&issuer, Command::Unload);
        }
    }

    /// Returns whether a name without a sequence shares the numbers of another sequence. If so, the
    /// alias is remembered.
    pub(crate) fn share(&self, name: &SequenceName) -> bool {
        let Some(Template::Share(target)) = self.settings.templates.of(name) else {
            return false;
        };
        let aliases = self.aliases.pin();
        if aliases.len() >= self.settings.live_sequences {
            // Each alias that is in use comes back with its next call.
            aliases.clear();
        }
        aliases.insert(name.clone(), target);
        true
    }

    /// Returns every issuer in memory, with the issuers of all periods, but without parked names.
    pub(crate) fn all_issuers(&self) -> Vec<Arc<Issuer>> {
        let heads = self.names.in_use();
        let period_issuers: Vec<Arc<Issuer>> = heads
            .iter()
            .filter_map(|head| head.periods())
            .flat_map(PeriodDirectory::period_issuers)
            .collect();
        heads.into_iter().chain(period_issuers).collect()
    }

    /// Calls `visit` with every issuer in memory, to read it. For a parked name, this is an issuer
    /// that is made for the reader. A name that is woken meanwhile may be left out.
    pub(crate) fn for_each_issuer(&self, mut visit: impl FnMut(&Issuer)) {
        for issuer in self.all_issuers() {
            // Nobody parks the name or removes the issuer while its link is held.
            let link = issuer.actor.lock();
            if matches!(&*link, ActorLink::Idle | ActorLink::Live(_)) || issuer.periods().is_some()
            {
                visit(&issuer);
            }
        }
        self.names.for_each_parked(visit);
    }

    /// Parks a name on behalf of the owner of its issuer. Returns false if the name cannot be
    /// parked now.
    pub(crate) fn park(&self, issuer: &Ownership) -> bool {
        // A drain looks for parked names after it has begun.
        let is_parked = self.names.park(issuer, || !self.is_drained());
        // A name that was never reserved from must not take the label of a name that was.
        if is_parked && issuer.is_used() {
            self.publish_counts(issuer);
        }
        is_parked
    }

    /// Returns the issuer of a counter, for a reader, if the counter is in memory.
    pub(crate) fn find(&self, key: &CounterKey) -> Option<Arc<Issuer>> {
        let head = self.names.look(&key.sequence)?;
        match key.period.shown() {
            None => Some(head),
            Some(period) => head.periods()?.member(period),
        }
    }

    /// Adds an issuer, once, to the list that the sweep samples each second.
    pub(crate) fn enter_active(&self, issuer: &Arc<Issuer>) {
        if !issuer.is_active.swap(true, Ordering::AcqRel) {
            self.active.lock().push(Arc::clone(issuer));
        }
    }

    /// Returns whether no number leaves memory any more.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Removes an unloaded issuer from memory. Remembers the number below which this process issued
    /// or held all numbers of the counter.
    pub(crate) fn forget(&self, issuer: &Issuer) {
        self.remember(issuer);
        self.publish_issuer(issuer);
        // The counter is remembered before it can be loaded again.
        let is_gone = if issuer.key.period.is_none() {
            if issuer.is_used() || issuer.periods().is_some() {
                self.metrics.sequence(issuer.key.sequence.as_str()).clear();
            }
            self.names.remove(issuer)
        } else {
            if let Some(head) = self.names.look(&issuer.key.sequence)
                && let Some(periods) = head.periods()
            {
                periods.dismiss(issuer);
            }
            // The issuer of a period was counted in `n_live` when it was created.
            true
        };
        if is_gone {
            self.n_live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a sequence with periods out of memory. It was idle, or needs another issuer by now.
    /// The issuers of its periods give back what they have.
    pub(crate) fn dismiss_periods(self: &Arc<Self>, head: &Arc<Issuer>) {
        let Some(periods) = head.periods() else {
            return;
        };
        periods.close();
        *head.actor.lock() = ActorLink::Gone;
        let period_issuers = periods.period_issuers();
        for issuer in &period_issuers {
            // They leave even if work is under way: nobody finds them from now on.
            issuer.outdate();
        }
        self.send_away(period_issuers);
        self.forget(head);
    }

    /// Remembers a counter, if the store has ever returned it.
    fn remember(&self, issuer: &Issuer) {
        let memory = issuer.memory.lock();
        let Some(known) = &memory.known else {
            return;
        };
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
        let issued_below = earlier.map_or(0, |earlier| earlier.issued_below);
        let now = Forgotten {
            issued_below: memory.issued_below.max(issued_below),
            seen: known.seen,
        };
        forgotten.insert(issuer.key.clone(), now);
    }

    /// Returns what is remembered of a counter that was unloaded.
    pub(crate) fn forgotten(&self, key: &CounterKey) -> Option<Forgotten> {
        self.forgotten.pin().get(key).copied()
    }

    /// Returns a bound above every number that this process issued of a counter of which this is
    /// remembered. Returns `None` if the counter may have been in memory and is not remembered.
    pub(crate) fn issued_below(&self, remembered: Option<Forgotten>) -> Option<i64> {
        let is_unknown = remembered.is_none() && self.has_forgotten_more.load(Ordering::Acquire);
        (!is_unknown).then(|| remembered.map_or(0, |earlier| earlier.issued_below))
    }

    pub(crate) fn has_reserve(&self) -> bool {
        let has_time = |issuer: &Arc<Issuer>| {
            issuer
                .snowflake()
                .is_some_and(|snowflake| !snowflake.left().is_zero())
        };
        let has_numbers = |issuer: &Arc<Issuer>| {
            // While its link is held, no name is being parked.
            let _link = issuer.actor.lock();
            issuer.remaining() > 0 || has_time(issuer)
        };
        let in_use = || self.all_issuers().iter().any(has_numbers);
        // The only name with numbers may be parked or woken meanwhile.
        in_use() || self.names.has_parked_numbers() || in_use()
    }

    pub(crate) fn admit_waiter(self: &Arc<Self>) -> Result<WaiterCount, SequenceError> {
        let n_before = self.n_waiters.fetch_add(1, Ordering::Relaxed);
        let turn = WaiterCount(Arc::clone(self));
        if n_before >= self.settings.waiters {
            self.metrics.waiters_refused.increment(1);
            return Err(SequenceError::Overloaded {
                what: "limits.waiters",
            });
        }
        Ok(turn)
    }

    /// Panics at every fifth call, for tests of actors that die.
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

/// Returns the refusal for a sequence that has as many periods in memory as it may have.
fn too_many_periods() -> SequenceError {
    SequenceError::Overloaded {
        what: "limits.live_periods",
    }
}

/// Counts one waiter under `limits.waiters` until the value is dropped.
pub(crate) struct WaiterCount(Arc<Shared>);

impl Drop for WaiterCount {
    fn drop(&mut self) {
        self.0.n_waiters.fetch_sub(1, Ordering::Relaxed);
    }
}
