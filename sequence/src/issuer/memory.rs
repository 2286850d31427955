//! Holds the memory of one counter: what issues its numbers, and everything that outlives its
//! actor.
//!
//! A warm call needs only the issuer's kind. All other state is behind a lock that no warm call
//! takes and that is never held across an await. A new actor starts from the state here, so
//! everything that must outlive an actor is kept here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use actix::Recipient;
use arc_swap::{ArcSwapOption, Guard};
use odometer_core::{
    block::Block,
    cursor::Cursor,
    definition::{Definition, Kind, Order},
    format::{Format, Printer},
    name::SequenceName,
    period::{CounterKey, PeriodKind, PeriodSpan},
    sizing::{self, Demand, Rates},
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{Changed, ReadCounter, Reserved, Resolved};
use parking_lot::Mutex;

use crate::{
    actor::command::Command,
    directory::period_directory::PeriodDirectory,
    issuer::snowflake_issuer::SnowflakeIssuer,
    issuer::state::{IssuerState, Sampled},
    issuer::terms::Terms,
};

/// Bounds the pause after a failed prefetch: one part in this many of the time for which the
/// numbers in memory last.
const RETRY_PART: f64 = 20.0;
/// Bounds the pause after a failed prefetch in seconds, however long the numbers in memory last.
const MAX_RETRY_S: f64 = 5.0;

/// The memory of one counter.
pub(crate) struct Issuer {
    pub(crate) key: CounterKey,
    /// When its calendar period begins and ends; `None` without a calendar period, as for most.
    span: Option<Box<PeriodSpan>>,
    pub(crate) kind: IssuerKind,
    /// How numbers are printed; `None` for plain numbers.
    printer: ArcSwapOption<Printer>,
    /// Whether there is a printer. Plain numbers need no look at `printer`.
    prints: AtomicBool,
    /// Numbers that were issued neither by the cursor nor as ids by time. Most of them went
    /// straight from a new block to waiters.
    n_direct: AtomicU64,
    /// Numbers that left as whole blocks. They are issued, but count for no rate.
    n_handed_over: AtomicU64,
    /// How many issued numbers the metrics count already.
    n_published: AtomicU64,
    pub(crate) memory: Mutex<IssuerState>,
    pub(crate) terms: Terms,
    pub(crate) actor: Mutex<ActorLink>,
    /// Whether the sweep samples this issuer each second.
    pub(crate) is_active: AtomicBool,
    /// Whether the sequence needs another issuer by now. This one then leaves memory.
    is_outdated: AtomicBool,
}

/// What issues the numbers of one counter. The definition decides this before the first number.
#[expect(
    clippy::large_enum_variant,
    reason = "most issuers have a cursor, and a warm call reads it without an indirection"
)]
pub(crate) enum IssuerKind {
    /// Issues the numbers of blocks that are reserved ahead of need.
    Block(Cursor),
    /// Keeps nothing: each write is for the callers that wait, so that numbers ascend over all
    /// replicas.
    Strict,
    /// Issues ids by time.
    Snowflake(Arc<SnowflakeIssuer>),
    /// Issues nothing, and leads to the issuers of the sequence's periods.
    Periods(Box<PeriodDirectory>),
}

impl IssuerKind {
    /// Makes what issues the numbers of one counter of a sequence.
    fn of_counter(definition: &Definition) -> Self {
        match (definition.kind, definition.order) {
            (Kind::Snowflake, _) => {
                let layout = definition.layout.unwrap_or_default();
                Self::Snowflake(Arc::new(SnowflakeIssuer::new(&layout)))
            }
            (Kind::Block, Order::Strict) => Self::Strict,
            (Kind::Block, Order::Relaxed) => Self::Block(Cursor::new()),
        }
    }

    /// Makes what a name leads to. Returns `None` if the calendar of its periods cannot be used.
    fn of_name(definition: &Arc<Definition>, live_periods: usize) -> Option<Self> {
        let has_periods = definition.period != PeriodKind::None;
        if !has_periods || faults::is(Fault::RefusalBelieved) {
            return Some(Self::of_counter(definition));
        }
        let periods = PeriodDirectory::of(definition, live_periods)?;
        Some(Self::Periods(Box::new(periods)))
    }
}

/// The way from an issuer to its actor.
#[derive(Default)]
pub(crate) enum ActorLink {
    /// No actor runs. The next command starts one.
    #[default]
    Idle,
    Live(Recipient<Command>),
    /// The name was parked. A caller that still holds the issuer must look the name up again.
    Parked,
    /// The issuer has left memory. A caller that still holds it must look the name up again.
    Gone,
}

impl Issuer {
    /// Makes the issuer of a name from what the store has of it. Returns `None` if the calendar of
    /// its periods cannot be used. About `live_periods` of them may be in memory.
    pub(crate) fn of_name(
        name: SequenceName,
        found: ReadCounter,
        live_periods: usize,
    ) -> Option<Self> {
        let definition = Arc::clone(&found.known.definition);
        let kind = IssuerKind::of_name(&definition, live_periods)?;
        let mut state = IssuerState::new(definition);
        state.note_read(found.known, found.rate);
        Some(Self::new(CounterKey::whole(name), None, kind, state))
    }

    /// Makes the issuer of a name that goes on with this state.
    pub(crate) fn resume(key: CounterKey, state: IssuerState) -> Self {
        let kind = IssuerKind::of_counter(&state.definition);
        Self::new(key, None, kind, state)
    }

    /// Makes the issuer of one period. `like` is an issuer of the same sequence: the new issuer
    /// starts with its rate.
    pub(crate) fn of_period(
        key: CounterKey,
        span: Option<PeriodSpan>,
        definition: Arc<Definition>,
        like: Option<&Self>,
    ) -> Self {
        let kind = IssuerKind::of_counter(&definition);
        let mut state = IssuerState::new(definition);
        if let Some(like) = like {
            state.rates = Rates::resume(like.rate());
        }
        Self::new(key, span, kind, state)
    }

    #[cfg(test)]
    pub(crate) fn for_tests(key: CounterKey) -> Self {
        Self::resume(key, IssuerState::new(Arc::default()))
    }

    /// Returns a block of a counter that no database knows.
    #[cfg(test)]
    pub(crate) fn block_for_tests(
        key: CounterKey,
        block: Block,
        metrics: Arc<odometer_process::metrics::Metrics>,
    ) -> odometer_store::Unpublished {
        let known = Resolved {
            seen: odometer_store::SeenCounter {
                next_value: block.end(),
                version: 1,
            },
            trusted: true,
            ..Resolved::default()
        };
        let reserved = Reserved {
            key,
            id: Default::default(),
            block,
            adopted: false,
            known,
            stored_rate: None,
            n_conflicts: 0,
            source: Default::default(),
            why: None,
            reserved_at: 0,
            recovered_at: None,
            more_to_adopt: false,
        };
        odometer_store::Unpublished::for_tests(reserved, metrics)
    }

    fn new(
        key: CounterKey,
        span: Option<PeriodSpan>,
        kind: IssuerKind,
        state: IssuerState,
    ) -> Self {
        let definition = Arc::clone(&state.definition);
        let issuer = Self {
            key,
            span: span.map(Box::new),
            kind,
            printer: ArcSwapOption::empty(),
            prints: AtomicBool::new(false),
            n_direct: AtomicU64::new(0),
            n_handed_over: AtomicU64::new(0),
            n_published: AtomicU64::new(0),
            memory: Mutex::new(state),
            terms: Terms::default(),
            actor: Mutex::default(),
            is_active: AtomicBool::new(false),
            is_outdated: AtomicBool::new(false),
        };
        issuer.print_as(&definition);
        issuer
    }

    /// Returns how numbers are printed now; `None` for plain numbers.
    #[inline]
    pub(crate) fn printer(&self) -> Option<Guard<Option<Arc<Printer>>>> {
        let prints = self.prints.load(Ordering::Acquire);
        prints.then(|| self.printer.load())
    }

    /// Returns the same for a caller who keeps it.
    pub(crate) fn shared_printer(&self) -> Option<Arc<Printer>> {
        self.printer.load_full()
    }

    /// Returns the cursor, if the issuer keeps blocks.
    #[inline]
    pub(crate) fn cursor(&self) -> Option<&Cursor> {
        match &self.kind {
            IssuerKind::Block(cursor) => Some(cursor),
            IssuerKind::Strict | IssuerKind::Snowflake(_) | IssuerKind::Periods(_) => None,
        }
    }

    /// Returns the blocks in the cursor, in the order in which they will be issued.
    pub(crate) fn rest(&self) -> Vec<Block> {
        self.cursor().map(Cursor::rest).unwrap_or_default()
    }

    /// Returns all blocks in memory, in the order in which they will be issued.
    pub(crate) fn blocks(&self, memory: &IssuerState) -> Vec<Block> {
        let mut blocks = self.rest();
        blocks.extend(&memory.spare);
        blocks
    }

    /// Returns what issues ids by time, if the sequence is time-ordered.
    #[inline]
    pub(crate) fn snowflake(&self) -> Option<&Arc<SnowflakeIssuer>> {
        match &self.kind {
            IssuerKind::Snowflake(snowflake) => Some(snowflake),
            IssuerKind::Block(_) | IssuerKind::Strict | IssuerKind::Periods(_) => None,
        }
    }

    /// Returns the way to the issuers of the periods, if the sequence counts in periods.
    #[inline]
    pub(crate) fn periods(&self) -> Option<&PeriodDirectory> {
        match &self.kind {
            IssuerKind::Periods(periods) => Some(periods),
            IssuerKind::Block(_) | IssuerKind::Strict | IssuerKind::Snowflake(_) => None,
        }
    }

    /// Returns whether the sequence has strict order. Its numbers ascend over all replicas, so no
    /// block is kept.
    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.kind, IssuerKind::Strict)
    }

    /// Returns the definition of the sequence, as far as memory knows it.
    pub(crate) fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.memory.lock().definition)
    }

    /// Prints numbers by this definition from now on. Call this before any caller can see a number
    /// of the definition.
    fn print_as(&self, definition: &Definition) {
        let format = Format::of(definition)
            .ok()
            .filter(|format| !format.is_plain());
        let printer = format.map(|format| Arc::new(format.printer(&self.key.period)));
        let prints = printer.is_some();
        self.printer.store(printer);
        self.prints.store(prints, Ordering::Release);
    }

    /// Prints numbers by the definition that is known now. Call this before any caller can see a
    /// number of that definition.
    pub(crate) fn update_printer(&self, memory: &mut IssuerState) {
        let Some(known) = &memory.known else {
            return;
        };
        if !Arc::ptr_eq(&memory.definition, &known.definition) {
            self.print_as(&known.definition);
            memory.definition = Arc::clone(&known.definition);
        }
    }

    /// Notes a change, even if a later change is known already. From then on the floor holds for
    /// this counter. Returns false if the sequence needs another issuer by now.
    pub(crate) fn note_changed(&self, changed: &Changed, floor: i64) -> bool {
        let mut memory = self.memory.lock();
        let fits = memory.note_changed(changed, floor);
        self.update_printer(&mut memory);
        match &self.kind {
            _ if !fits => self.outdate(),
            IssuerKind::Periods(periods) => periods.redefine(&memory.definition),
            IssuerKind::Block(_) | IssuerKind::Strict | IssuerKind::Snowflake(_) => {}
        }
        fits
    }

    /// Notes that the sequence needs another issuer by now.
    pub(crate) fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Returns whether the sequence needs another issuer by now.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Acquire)
    }

    /// Notes that all numbers reserved before this version of the definition must be given back.
    pub(crate) fn note_forbidden(&self, version: i64) {
        let mut memory = self.memory.lock();
        memory.read_at = None;
        memory.must_reload = true;
        memory.reload_version = memory.reload_version.max(version);
    }

    /// Notes a change, and the floor that this counter had after the change.
    pub(crate) fn note_floor(&self, changed: &Changed, floor: i64) {
        // The caller has noted the change, and knows whether the issuer fits.
        let _fits = self.note_changed(changed, floor);
        let mut memory = self.memory.lock();
        memory.floor_version = memory.floor_version.max(changed.version);
    }

    /// Returns whether the change may have raised the floor of this counter without being noticed
    /// here. Only the version of the floor decides this: the definition in memory may be newer.
    pub(crate) fn may_be_touched_by(&self, changed: &Changed) -> bool {
        self.memory.lock().floor_version < changed.version
    }

    /// Returns whether all held numbers must be given back, and resets the mark.
    pub(crate) fn take_must_reload(&self) -> bool {
        std::mem::take(&mut self.memory.lock().must_reload)
    }

    /// Notes a use of the name by a caller who got no number.
    pub(crate) fn note_asked(&self) {
        self.memory.lock().used_at = Instant::now();
    }

    /// Returns whether an actor runs.
    pub(crate) fn has_actor(&self) -> bool {
        matches!(&*self.actor.lock(), ActorLink::Live(actor) if actor.connected())
    }

    /// Returns whether the issuer has left memory or is leaving it, or its name was parked.
    pub(crate) fn has_left(&self) -> bool {
        matches!(&*self.actor.lock(), ActorLink::Gone | ActorLink::Parked)
    }

    /// Returns the term of the last owner, if the issuer is in memory and has no actor. An actor
    /// that is started later begins a later term.
    pub(crate) fn term_without_actor(&self) -> Option<u64> {
        // Actors are started under this lock, so none is started between the two looks.
        let link = self.actor.lock();
        matches!(&*link, ActorLink::Idle).then(|| self.terms.current())
    }

    /// Returns whether the name can be parked. The issuer of a period, of ids by time or of strict
    /// order stays without an actor instead.
    pub(crate) fn can_be_parked(&self) -> bool {
        self.cursor().is_some() && self.key.period.is_none() && self.is_known()
    }

    /// Returns when its calendar period begins and ends, if it has one.
    pub(crate) fn span(&self) -> Option<PeriodSpan> {
        self.span.as_deref().copied()
    }

    /// Returns whether its period has not begun.
    pub(crate) fn is_ahead(&self) -> bool {
        self.span()
            .is_some_and(|span| clock::now_ms() < span.from_ms)
    }

    /// Returns whether its period is over.
    pub(crate) fn is_over(&self) -> bool {
        self.span()
            .is_some_and(|span| clock::now_ms() >= span.until_ms)
    }

    /// Returns how many numbers were issued one by one or in batches since the name was loaded.
    pub(crate) fn n_issued(&self) -> u64 {
        let by_kind = match &self.kind {
            IssuerKind::Block(cursor) => cursor.issued(),
            IssuerKind::Snowflake(snowflake) => snowflake.n_issued(),
            IssuerKind::Strict | IssuerKind::Periods(_) => 0,
        };
        by_kind.saturating_add(self.n_direct.load(Ordering::Relaxed))
    }

    /// Returns how many issued numbers the metrics do not count yet. Each number is returned once.
    pub(crate) fn take_unpublished(&self) -> u64 {
        let n_now = self
            .n_issued()
            .saturating_add(self.n_handed_over.load(Ordering::Relaxed));
        let n_told = self.n_published.fetch_max(n_now, Ordering::Relaxed);
        n_now.saturating_sub(n_told)
    }

    pub(crate) fn add_direct(&self, count: u64) {
        self.n_direct.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_handed_over(&self, count: u64) {
        self.n_handed_over.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns how many numbers are in memory.
    pub(crate) fn remaining(&self) -> u64 {
        let memory = self.memory.lock();
        let spare = memory.spare.iter().map(Block::count).sum();
        let in_cursor = self.cursor().map_or(0, Cursor::remaining);
        in_cursor.saturating_add(spare)
    }

    /// Returns what a refill should bring, for callers that wait for `waited_for` numbers.
    pub(crate) fn demand(&self, waited_for: u64) -> Demand {
        let n_issued = self.n_issued();
        let memory = self.memory.lock();
        Demand {
            rates: memory.rates,
            this_second: memory.this_second(n_issued),
            waited_for,
            conflicted_size: memory
                .last_refill
                .filter(|refill| refill.met_conflicts)
                .map(|refill| refill.size),
            seconds_left: self.seconds_left(),
        }
    }

    /// Returns for how many seconds its calendar period still needs numbers. Then they start again.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        self.span().map(|span| span.seconds_left(clock::now_ms()))
    }

    /// Returns the low-water mark: how few numbers may be left before the next block is reserved.
    pub(crate) fn low_water(&self) -> u64 {
        if self.cursor().is_none() {
            return 0;
        }
        let n_issued = self.n_issued();
        let memory = self.memory.lock();
        let this_second = memory.this_second(n_issued);
        sizing::low_water(
            &memory.definition.block,
            &memory.rates,
            this_second,
            self.seconds_left(),
        )
    }

    /// Returns whether to prefetch now: few numbers are left, and the next block is not in memory.
    /// For a time-ordered sequence, returns whether its lease needs renewal.
    pub(crate) fn wants_prefetch(&self) -> bool {
        let cursor = match &self.kind {
            IssuerKind::Block(cursor) => cursor,
            IssuerKind::Snowflake(snowflake) => return snowflake.needs_renewal(),
            IssuerKind::Strict | IssuerKind::Periods(_) => return false,
        };
        let low_water = self.low_water();
        !faults::is(Fault::NoPrefetch)
            && self.memory.lock().spare.is_empty()
            && low_water > 0
            && cursor.rest().len() <= 1
            && cursor.remaining() <= low_water
    }

    /// Returns how long a failed prefetch may wait for its next try. The longer the numbers in
    /// memory last, the longer the wait: other names go first when the store is back.
    pub(crate) fn time_limit(&self) -> Duration {
        let reserve = self.reserve_seconds().unwrap_or(0.0);
        let seconds = (reserve / RETRY_PART).min(MAX_RETRY_S);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns how many numbers are left, as far as memory knows, for callers that share a write.
    /// Returns 0 if the order is strict, because then only the store knows how many are left.
    pub(crate) fn left_to_share(&self) -> u64 {
        let memory = self.memory.lock();
        let known = memory.known.as_ref().filter(|_| !self.is_strict());
        known.map_or(0, |known| known.definition.left(known.seen.next_value))
    }

    /// Notes a write whose block is shared out at once. Ranges that are handed over do not bound
    /// adoption.
    pub(crate) fn note_shared_out(&self, reserved: &Reserved) {
        let mut memory = self.memory.lock();
        memory.know(reserved.known.clone(), reserved.stored_rate);
        if self.is_strict() {
            memory.issued_below = memory.issued_below.max(reserved.block.end());
        }
        memory.used_at = Instant::now();
        self.update_printer(&mut memory);
    }

    /// Notes what the store answered to the question whether the sequence lives.
    pub(crate) fn note_looked(&self, known: Resolved) {
        let mut memory = self.memory.lock();
        memory.note_read(known, None);
        memory.used_at = Instant::now();
        self.update_printer(&mut memory);
    }

    /// Samples the rate. Returns how many numbers were issued since the previous sample.
    pub(crate) fn sample(&self, now: Instant) -> Sampled {
        let n_issued = self.n_issued();
        let mut memory = self.memory.lock();
        let since = std::mem::replace(&mut memory.sampled_at, now);
        let n_since = n_issued.saturating_sub(memory.n_sampled);
        if n_since == 0 && self.is_ahead() {
            // The rate of the period before is still the best estimate.
            return Sampled { n_issued: 0, since };
        }
        let seconds = now.saturating_duration_since(since);
        memory.rates.sample(n_since, seconds.as_secs_f64());
        memory.n_sampled = n_issued;
        if n_since > 0 {
            memory.used_at = now;
        }
        Sampled {
            n_issued: n_since,
            since,
        }
    }

    /// Returns the five-minute average, in numbers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.memory.lock().rates.average()
    }

    /// Returns for how long the name was not used, as of the last sample.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.memory.lock().used_at)
    }

    /// Returns whether a number was reserved, or a worker id was leased.
    pub(crate) fn is_used(&self) -> bool {
        self.memory.lock().is_used
    }

    /// Returns whether the store has ever returned the counter.
    pub(crate) fn is_known(&self) -> bool {
        self.memory.lock().known.is_some()
    }

    /// Returns the store that the sequence lives in.
    pub(crate) fn store(&self) -> String {
        self.memory.lock().definition.store.clone()
    }
}
