//! Holds the memory of one counter: its cursor, and everything that outlives its actor.
//!
//! A warm call needs only the cursor. All other state is behind a lock that no warm call takes and
//! that is never held across an await. A new actor starts from the state here, so everything that
//! must outlive an actor is kept here.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use actix::Recipient;
use arc_swap::ArcSwapOption;
use odometer_core::{
    block::Block,
    cursor::Cursor,
    definition::{Definition, Order},
    format::{Format, Printer},
    period::CounterKey,
    runway::Runway,
    sizing::{self, Demand, Rates, SizeReason},
    snowflake::Layout,
};
use odometer_process::{
    clock,
    faults::{self, Fault},
};
use odometer_store::{Changed, JournalRow, Reserved, Resolved, Source};
use parking_lot::Mutex;

use crate::{
    command::Command,
    description::{BlockState, CounterStatus},
    issued::IssuedBy,
    period_directory::{PeriodDirectory, PeriodSpan},
    snowflake_issuer::SnowflakeIssuer,
    terms::Terms,
};

/// Lies below every version of a definition.
const NO_VERSION: i64 = -1;
/// Bounds the pause after a failed prefetch: one part in this many of the time for which the
/// numbers in memory last.
const RETRY_PART: f64 = 20.0;
/// Bounds the pause after a failed prefetch in seconds, however long the numbers in memory last.
const MAX_RETRY_S: f64 = 5.0;
/// Explains in descriptions why a sequence with strict order has no block size.
const NO_BLOCK: &str = "strict order keeps no block: each write is for the callers that wait";
/// Explains in descriptions why a time-ordered sequence has no block size.
const TIME_RESERVED: &str = "time-ordered ids keep no block: time is reserved ahead, for `hold`";

/// The memory of one counter.
pub(crate) struct Issuer {
    pub(crate) key: CounterKey,
    /// When its calendar period begins and ends; `None` without a calendar period.
    pub(crate) span: Option<PeriodSpan>,
    /// The issuers of the periods, if this is the issuer under the name of a sequence with periods.
    periods: ArcSwapOption<PeriodDirectory>,
    /// Lets one thread at a time decide which periods the sequence has.
    learning: Mutex<()>,
    /// How numbers are printed; `None` for plain numbers.
    printer: ArcSwapOption<Printer>,
    pub(crate) cursor: Cursor,
    /// Issues ids instead of the cursor, if the sequence is time-ordered.
    snowflake: ArcSwapOption<SnowflakeIssuer>,
    /// Whether the sequence is time-ordered. A caller reads this faster than `snowflake`.
    is_snowflake: AtomicBool,
    /// Numbers that were issued neither by the cursor nor by the present `snowflake`. Most of them
    /// went straight from a new block to waiters.
    n_direct: AtomicU64,
    /// Numbers that left as whole blocks. They are issued, but count for no rate.
    n_handed_over: AtomicU64,
    /// How many issued numbers the metrics count already.
    n_published: AtomicU64,
    n_slots_reused_published: AtomicU64,
    pub(crate) memory: Mutex<IssuerState>,
    pub(crate) terms: Terms,
    pub(crate) actor: Mutex<ActorLink>,
    /// Whether the sweep samples this issuer each second.
    pub(crate) is_active: AtomicBool,
}

/// The way from an issuer to its actor.
#[derive(Default)]
pub(crate) enum ActorLink {
    /// No actor runs. The next command starts one.
    #[default]
    Parked,
    Live(Recipient<Command>),
    /// The issuer has left memory. A caller that still holds it must look the name up again.
    Gone,
}

/// The state that outlives an actor.
pub(crate) struct IssuerState {
    /// Definition and counter as last seen in the store; `None` before the store first gave them.
    pub(crate) known: Option<Resolved>,
    /// The floor: no number below the floor is issued.
    floor: i64,
    /// Whether the last known change left the sequence retired. `life_version` is the version of
    /// that change.
    is_retired: bool,
    life_version: i64,
    /// Whether all held numbers must be given back, because memory does not know which of them a
    /// change forbids. Blocks reserved before version `reload_version` of the definition must be
    /// given back, too.
    must_reload: bool,
    reload_version: i64,
    /// The last version of the definition at which the floor of this counter is known.
    floor_version: i64,
    /// The definition by which `printer` prints.
    printed: Option<Arc<Definition>>,
    /// The journal rows of blocks whose fate is open, in the order in which they were reserved.
    pub(crate) held: Vec<JournalRow>,
    /// Blocks that did not fit into the cursor, in the order in which they will be issued.
    pub(crate) spare: VecDeque<Block>,
    rates: Rates,
    n_sampled: u64,
    sampled_at: Instant,
    used_at: Instant,
    /// Whether the next refill looks for returned blocks to adopt.
    pub(crate) adopts: bool,
    /// A bound above every number that this process issued or holds.
    pub(crate) issued_below: i64,
    /// The size of the previous block, if its reservation met two or more conflicts.
    conflicted_size: Option<u64>,
    last_refill: Option<LastRefill>,
    /// Whether the first reservation was made to fail, for tests.
    pub(crate) failed_once: bool,
}

/// The numbers that were issued since the previous sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub(crate) n_issued: u64,
    /// When the previous sample was taken.
    pub(crate) since: Instant,
}

/// The result of the last refill.
#[derive(Clone, Copy)]
struct LastRefill {
    at: SystemTime,
    size: u64,
    why: Option<SizeReason>,
}

impl Issuer {
    pub(crate) fn new(key: CounterKey) -> Self {
        let now = Instant::now();
        Self {
            key,
            span: None,
            periods: ArcSwapOption::empty(),
            learning: Mutex::new(()),
            printer: ArcSwapOption::empty(),
            cursor: Cursor::new(),
            snowflake: ArcSwapOption::empty(),
            is_snowflake: AtomicBool::new(false),
            n_direct: AtomicU64::new(0),
            n_handed_over: AtomicU64::new(0),
            n_published: AtomicU64::new(0),
            n_slots_reused_published: AtomicU64::new(0),
            memory: Mutex::new(IssuerState {
                known: None,
                floor: 0,
                is_retired: false,
                life_version: 0,
                must_reload: false,
                reload_version: NO_VERSION,
                floor_version: NO_VERSION,
                printed: None,
                held: Vec::new(),
                spare: VecDeque::new(),
                rates: Rates::new(),
                n_sampled: 0,
                sampled_at: now,
                used_at: now,
                adopts: true,
                issued_below: 0,
                conflicted_size: None,
                last_refill: None,
                failed_once: false,
            }),
            terms: Terms::default(),
            actor: Mutex::new(ActorLink::Parked),
            is_active: AtomicBool::new(false),
        }
    }

    /// Creates the issuer of one period. `like` is an issuer of the same sequence: the new issuer
    /// starts with its rate.
    pub(crate) fn of_period(
        key: CounterKey,
        span: Option<PeriodSpan>,
        like: Option<&Self>,
    ) -> Self {
        let issuer = Self {
            span,
            ..Self::new(key)
        };
        if let Some(like) = like {
            let average = like.memory.lock().rates.average();
            issuer.memory.lock().rates = Rates::resume(average);
        }
        issuer
    }

    /// Calls `reply` with what a reply shows besides the number.
    pub(crate) fn show<R>(&self, reply: impl FnOnce(IssuedBy<'_>) -> R) -> R {
        let printer = self.printer.load();
        reply(IssuedBy {
            key: &self.key,
            printer: printer.as_ref(),
        })
    }

    pub(crate) fn printer(&self) -> Option<Arc<Printer>> {
        self.printer.load_full()
    }

    pub(crate) fn periods(&self) -> Option<Arc<PeriodDirectory>> {
        self.periods.load_full()
    }

    /// Returns the definition of the sequence, if memory knows it.
    pub(crate) fn definition(&self) -> Option<Arc<Definition>> {
        self.definition_by(self.memory.lock().known.as_ref())
    }

    /// Returns the definition in `known`. If there is none, returns the definition of the period
    /// directory. Takes no lock, so a caller that holds the memory lock may call this.
    pub(crate) fn definition_by(&self, known: Option<&Resolved>) -> Option<Arc<Definition>> {
        match known {
            Some(known) => Some(Arc::clone(&known.definition)),
            None => self.periods().map(|periods| periods.definition()),
        }
    }

    /// Returns what issues the ids, if the sequence is known to be time-ordered.
    pub(crate) fn snowflake(&self) -> Option<Arc<SnowflakeIssuer>> {
        self.snowflake.load_full()
    }

    /// Returns whether the sequence is known to be time-ordered. A caller that reads `false` too
    /// early goes to the actor.
    #[inline]
    pub(crate) fn is_snowflake(&self) -> bool {
        self.is_snowflake.load(Ordering::Relaxed)
    }

    /// Calls `work` with what [`Issuer::snowflake`] would return, without counting a reference. For
    /// the warm path.
    #[inline]
    pub(crate) fn with_snowflake<R>(
        &self,
        work: impl FnOnce(&SnowflakeIssuer) -> Option<R>,
    ) -> Option<R> {
        work(self.snowflake.load().as_ref()?)
    }

    /// Learns that the sequence is time-ordered. An existing count of issued ids goes on.
    pub(crate) fn learn_layout(&self, layout: &Layout) {
        if self.snowflake.load().is_none() {
            self.snowflake
                .store(Some(Arc::new(SnowflakeIssuer::new(layout))));
        }
        self.is_snowflake.store(true, Ordering::Relaxed);
    }

    /// Forgets that the sequence was time-ordered. Its issued ids stay in the count.
    pub(crate) fn forget_layout(&self) {
        self.is_snowflake.store(false, Ordering::Relaxed);
        if let Some(snowflake) = self.snowflake.swap(None) {
            self.add_direct(snowflake.n_issued());
        }
    }

    /// Learns the definition of the sequence. Returns whether this issuer now leads to the issuers
    /// of periods.
    ///
    /// If a recovery has changed the periods, the former issuers are not reached from here any
    /// more.
    pub(crate) fn learn(&self, definition: &Arc<Definition>) -> bool {
        let _alone = self.learning.lock();
        let earlier = self.periods();
        if let Some(earlier) = earlier.filter(|earlier| earlier.fit(definition)) {
            earlier.redefine(definition);
            return true;
        }
        let periods = self
            .key
            .period
            .is_none()
            .then(|| PeriodDirectory::of(definition));
        let periods = periods.flatten().map(Arc::new);
        let is_head = periods.is_some();
        self.periods.store(periods);
        is_head
    }

    /// Prints numbers by this definition from now on. Call this before any caller can see a number
    /// of the definition.
    pub(crate) fn print_as(&self, definition: &Definition) {
        let format = Format::of(definition)
            .ok()
            .filter(|format| !format.is_plain());
        let printer = format.map(|format| Arc::new(format.printer(&self.key.period)));
        self.printer.store(printer);
    }

    /// Prints numbers by the definition that is known now. Call this before any caller can see a
    /// number of that definition.
    pub(crate) fn update_printer(&self, memory: &mut IssuerState) {
        let Some(known) = &memory.known else {
            return;
        };
        let is_same = |printed: &Arc<Definition>| Arc::ptr_eq(printed, &known.definition);
        if !memory.printed.as_ref().is_some_and(is_same) {
            self.print_as(&known.definition);
            memory.printed = Some(Arc::clone(&known.definition));
        }
    }

    /// Notes a change, even if a later change is known already. From then on the floor holds for
    /// this counter.
    pub(crate) fn note_changed(&self, changed: &Changed, floor: i64) {
        let mut memory = self.memory.lock();
        memory.note_changed(changed, floor);
        self.update_printer(&mut memory);
        if let (true, Some(definition)) = (self.key.period.is_none(), &changed.definition) {
            drop(memory);
            self.learn(definition);
        }
    }

    /// Notes that all numbers reserved before this version of the definition must be given back.
    pub(crate) fn note_forbidden(&self, version: i64) {
        let mut memory = self.memory.lock();
        memory.must_reload = true;
        memory.reload_version = memory.reload_version.max(version);
    }

    /// Notes a change, and the floor that this counter had after the change.
    pub(crate) fn note_floor(&self, changed: &Changed, floor: i64) {
        self.note_changed(changed, floor);
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

    /// Returns whether the issuer is leaving memory, or has left it.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(&*self.actor.lock(), ActorLink::Gone)
    }

    /// Returns whether its period has not begun.
    pub(crate) fn is_ahead(&self) -> bool {
        self.span.is_some_and(|span| clock::now_ms() < span.from_ms)
    }

    /// Returns whether its period is over.
    pub(crate) fn is_over(&self) -> bool {
        self.span
            .is_some_and(|span| clock::now_ms() >= span.until_ms)
    }

    /// Returns how many numbers were issued one by one or in batches since the name was loaded.
    pub(crate) fn n_issued(&self) -> u64 {
        let n_stamped = self.with_snowflake(|snowflake| Some(snowflake.n_issued()));
        self.cursor
            .issued()
            .saturating_add(self.n_direct.load(Ordering::Relaxed))
            .saturating_add(n_stamped.unwrap_or(0))
    }

    /// Returns how many issued numbers the metrics do not count yet. Each number is returned once.
    pub(crate) fn take_unpublished(&self) -> u64 {
        let n_now = self
            .n_issued()
            .saturating_add(self.n_handed_over.load(Ordering::Relaxed));
        let n_told = self.n_published.fetch_max(n_now, Ordering::Relaxed);
        n_now.saturating_sub(n_told)
    }

    /// Returns how many numbers were lost to reused slots and are not in the metrics yet.
    pub(crate) fn take_unpublished_reuse(&self) -> u64 {
        let n_now = self.cursor.abandoned();
        let n_told = self
            .n_slots_reused_published
            .fetch_max(n_now, Ordering::Relaxed);
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
        self.cursor.remaining().saturating_add(spare)
    }

    /// Returns what a refill should bring, for callers that wait for `waited_for` numbers.
    pub(crate) fn demand(&self, waited_for: u64) -> Demand {
        let n_issued = self.n_issued();
        let memory = self.memory.lock();
        Demand {
            rates: memory.rates,
            this_second: memory.this_second(n_issued),
            waited_for,
            conflicted_size: memory.conflicted_size,
            seconds_left: self.seconds_left(),
        }
    }

    /// Returns whether the sequence has strict order. Its numbers ascend over all replicas, so no
    /// block is kept.
    pub(crate) fn is_strict(&self) -> bool {
        self.memory.lock().is_strict()
    }

    /// Returns for how many seconds its calendar period still needs numbers.
    fn seconds_left(&self) -> Option<f64> {
        self.span.map(|span| span.seconds_left(clock::now_ms()))
    }

    /// Returns the low-water mark: how few numbers may be left before the next block is reserved.
    pub(crate) fn low_water(&self) -> u64 {
        let n_issued = self.n_issued();
        let memory = self.memory.lock();
        let this_second = memory.this_second(n_issued);
        let keeps_blocks = memory.known.as_ref().filter(|_| !memory.is_strict());
        keeps_blocks.map_or(0, |known| {
            sizing::low_water(
                &known.definition.block,
                &memory.rates,
                this_second,
                self.seconds_left(),
            )
        })
    }

    /// Returns whether to prefetch now: few numbers are left, and the next block is not in memory.
    /// For a time-ordered sequence, returns whether its lease needs renewal.
    pub(crate) fn wants_prefetch(&self) -> bool {
        if let Some(snowflake) = self.snowflake() {
            return snowflake.needs_renewal();
        }
        let low_water = self.low_water();
        !faults::is(Fault::NoPrefetch)
            && self.memory.lock().spare.is_empty()
            && low_water > 0
            && self.cursor.rest().len() <= 1
            && self.cursor.remaining() <= low_water
    }

    /// Returns how long a failed prefetch may wait for its next try. The longer the numbers in
    /// memory last, the longer the wait: other names go first when the store is back.
    pub(crate) fn time_limit(&self) -> Duration {
        let reserve = match self.snowflake() {
            Some(snowflake) => Some(snowflake.left().as_secs_f64()),
            None => {
                let remaining = self.remaining();
                self.memory.lock().rates.reserve_seconds(remaining)
            }
        };
        let seconds = (reserve.unwrap_or(0.0) / RETRY_PART).min(MAX_RETRY_S);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Returns how many numbers are left, as far as memory knows, for callers that share a write.
    /// Returns 0 if the order is strict, because then only the store knows how many are left.
    pub(crate) fn left_to_share(&self) -> u64 {
        let memory = self.memory.lock();
        let known = memory.known.as_ref().filter(|_| !memory.is_strict());
        known.map_or(0, |known| known.definition.left(known.seen.next_value))
    }

    /// Notes a reservation whose block is handed over as a whole.
    pub(crate) fn note_handed_over(&self, reserved: &Reserved) {
        self.note_known(reserved.known.clone(), reserved.stored_rate);
    }

    /// Notes a write for a sequence with strict order.
    pub(crate) fn note_added(&self, reserved: &Reserved) {
        self.note_known(reserved.known.clone(), reserved.stored_rate);
        let mut memory = self.memory.lock();
        memory.issued_below = memory.issued_below.max(reserved.block.end());
    }

    /// Notes the definition and the counter that the store returned.
    pub(crate) fn note_known(&self, known: Resolved, stored_rate: Option<f64>) {
        let mut memory = self.memory.lock();
        memory.know(known, stored_rate);
        memory.used_at = Instant::now();
        self.update_printer(&mut memory);
    }

    /// Samples the rate. Returns how many numbers were issued since the previous sample.
    pub(crate) fn sample(&self, now: Instant) -> Sampled {
        let n_issued = self.n_issued();
        let is_ahead = self.is_ahead();
        let mut memory = self.memory.lock();
        let is_used = n_issued > memory.n_sampled;
        if is_ahead && !is_used {
            // The rate of the period before is still the best estimate.
            let since = std::mem::replace(&mut memory.sampled_at, now);
            return Sampled { n_issued: 0, since };
        }
        let n_since = n_issued.saturating_sub(memory.n_sampled);
        let since = std::mem::replace(&mut memory.sampled_at, now);
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

    /// Returns for how many seconds the numbers in memory last at the present rate. For a
    /// time-ordered sequence, returns for how long ids can be issued without the store.
    pub(crate) fn reserve_seconds(&self) -> Option<f64> {
        let remaining = self.remaining();
        self.reserve_of(&self.memory.lock(), remaining)
    }

    fn reserve_of(&self, memory: &IssuerState, remaining: u64) -> Option<f64> {
        match self.snowflake() {
            // A name whose lease has ended may be at rest, so nothing is measured here.
            Some(snowflake) => snowflake
                .is_serving()
                .then(|| snowflake.left().as_secs_f64()),
            // With strict order, memory is always empty.
            None if memory.is_strict() => None,
            None => memory.rates.reserve_seconds(remaining),
        }
    }

    /// Returns whether the numbers left of the range limited the size of the last block.
    pub(crate) fn has_its_share_of_what_is_left(&self) -> bool {
        let refill = self.memory.lock().last_refill;
        refill.is_some_and(|refill| refill.why == Some(SizeReason::Left))
    }

    /// Returns for how long the name was not used, as of the last sample.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.memory.lock().used_at)
    }

    /// Returns whether the store has ever returned definition and counter.
    pub(crate) fn is_known(&self) -> bool {
        self.memory.lock().known.is_some()
    }

    /// Returns the store that the sequence lives in. The name is empty until the store has returned
    /// the definition.
    pub(crate) fn store(&self) -> String {
        let memory = self.memory.lock();
        let known = memory.known.as_ref();
        known.map_or_else(String::new, |known| known.definition.store.clone())
    }

    /// Returns the status of the counter, as far as memory knows it.
    pub(crate) fn state(&self) -> CounterStatus {
        let memory = self.memory.lock();
        let mut rest = self.cursor.rest();
        rest.extend(memory.spare.iter().copied());
        let remaining = rest.iter().map(Block::count).sum();
        let mut blocks = rest.iter().map(|left| memory.block_of(left));
        let is_strict = memory.is_strict();
        let snowflake = self.snowflake();
        let counted = memory.known.as_ref().filter(|_| snowflake.is_none());
        let reserve_seconds = self.reserve_of(&memory, remaining);
        let why = match &snowflake {
            Some(_) => Some(TIME_RESERVED.to_owned()),
            None if is_strict => Some(NO_BLOCK.to_owned()),
            None => memory.last_refill.map(|refill| refill.describe()),
        };
        CounterStatus {
            period: self.key.period.clone(),
            high_water_mark: counted.map(|known| known.seen.next_value),
            block: blocks.next(),
            next_block: blocks.next(),
            rate: memory.rates.average(),
            lease: snowflake.as_deref().and_then(SnowflakeIssuer::state),
            reserve_seconds,
            last_refill: memory.last_refill.map(|refill| refill.at),
            why,
            runway: memory.known.as_ref().map(|known| {
                let rate = memory.rates.average();
                let next_value = known.seen.next_value;
                Runway::of(&known.definition, next_value, rate, clock::now_ms())
            }),
        }
    }
}

impl IssuerState {
    /// Notes everything that a reservation brought, but does not add the numbers to memory.
    pub(crate) fn note_reserved(&mut self, reserved: &Reserved) {
        self.know(reserved.known.clone(), reserved.stored_rate);
        self.adopts = reserved.more_to_adopt;
        self.issued_below = self.issued_below.max(reserved.block.end());
        self.conflicted_size = (reserved.n_conflicts >= 2).then_some(reserved.block.count());
        // A name has few rows, and a name at rest has nothing else: keep no spare capacity.
        self.held.reserve_exact(1);
        self.held.push(reserved.row());
        self.last_refill = Some(LastRefill {
            at: SystemTime::now(),
            size: reserved.block.count(),
            why: reserved.why,
        });
        self.used_at = Instant::now();
    }

    fn know(&mut self, mut known: Resolved, stored_rate: Option<f64>) {
        if let (None, Some(rate)) = (&self.known, stored_rate) {
            // A counter that is filled before its period begins already has the rate of the period
            // before.
            self.rates = Rates::resume(rate.max(self.rates.average()));
        }
        self.must_reload |= known.definition_version < self.reload_version;
        if stored_rate.is_some() {
            // The row of the counter was read together with the definition.
            self.floor_version = self.floor_version.max(known.definition_version);
        }
        let newer = self
            .known
            .take()
            .filter(|newer| newer.definition_version > known.definition_version);
        if let Some(newer) = newer {
            // A change arrived while the reservation was under way, so the counter has moved since.
            known.definition = newer.definition;
            known.definition_version = newer.definition_version;
            known.trusted = false;
        }
        self.floor = self.floor.max(known.floor);
        if known.definition_version > self.life_version {
            // The store returned the sequence as live after the last known change.
            self.is_retired = false;
        }
        self.known = Some(known);
    }

    pub(crate) fn is_strict(&self) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.definition.order == Order::Strict)
    }

    /// Returns whether a change forbids the block, or may forbid it. Of a period, memory may not
    /// know what the change forbids.
    pub(crate) fn forbids(&self, block: Block) -> bool {
        self.is_retired || self.must_reload || block.first() < self.floor
    }

    /// Returns the floor: no number below it is issued any more.
    pub(crate) fn floor(&self) -> i64 {
        self.floor
    }

    /// Returns whether the sequence is retired, as far as memory knows.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// Notes a change, even if a later change is known already. From then on its floor holds.
    fn note_changed(&mut self, changed: &Changed, floor: i64) {
        self.floor = self.floor.max(floor);
        if changed.version >= self.life_version {
            self.life_version = changed.version;
            self.is_retired = !changed.is_live;
        }
        if let Some(known) = &mut self.known
            && known.definition_version < changed.version
        {
            if let Some(definition) = &changed.definition {
                known.definition = Arc::clone(definition);
                known.definition_version = changed.version;
            }
            // The change raised the version of the counter, too: read the counter before the next
            // write.
            known.trusted = false;
        }
    }

    /// Makes the next reservation read definition and life again, because a database was recovered.
    /// Does this only if the sequence lives in the store of the database, or if blocks of the
    /// database are held.
    ///
    /// What was seen of the counter stays, and so does the floor. Returns whether blocks of the
    /// database are held, which must then leave memory.
    pub(crate) fn distrust(&mut self, source: Source, is_of: impl Fn(&str) -> bool) -> bool {
        let lives_there = |known: &Resolved| is_of(&known.definition.store);
        let holds_any = self.held.iter().any(|row| row.source == source)
            && !faults::is(Fault::RecoveryKeepsMemory);
        if !holds_any && !self.known.as_ref().is_none_or(lives_there) {
            return false;
        }
        self.must_reload |= holds_any;
        self.is_retired = false;
        self.life_version = NO_VERSION;
        self.reload_version = NO_VERSION;
        self.floor_version = NO_VERSION;
        if let Some(known) = &mut self.known {
            known.trusted = false;
            known.definition_version = NO_VERSION;
        }
        holds_any
    }

    /// Returns the numbers a second since the last sample. For a parked name, that sample may be a
    /// minute old.
    fn this_second(&self, n_issued: u64) -> u64 {
        let n_since = n_issued.saturating_sub(self.n_sampled);
        n_since / self.sampled_at.elapsed().as_secs().max(1)
    }

    /// Returns the block that `left` is the rest of.
    fn block_of(&self, left: &Block) -> BlockState {
        let whole = self
            .held
            .iter()
            .map(|row| row.block)
            .find(|block| block.contains(left.first()))
            .unwrap_or(*left);
        BlockState {
            first: whole.first(),
            last: whole.last(),
            remaining: left.count(),
            size: whole.count(),
        }
    }
}

impl LastRefill {
    fn describe(self) -> String {
        match self.why {
            Some(why) => format!("{} numbers: {why}", self.size),
            None => format!(
                "{} numbers: adopted, another replica had returned them",
                self.size
            ),
        }
    }
}
