//! What a caller touches: one name's cursor, and what its actor must not forget.
//!
//! The cursor is all that a warm call needs. The rest is behind a lock that only
//! the actor, the sweep and the describing calls take, never across an await. A
//! new actor starts from here, so whatever has to outlive one is here.

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
    sizing::{self, Demand, Rates, Why},
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

/// Below every version of a definition.
const NO_VERSION: i64 = -1;
/// A prefetch that failed is tried again before this part of the reserve is used.
const RETRY_PART: f64 = 20.0;
/// And within this many seconds, whatever the reserve.
const LONGEST_RETRY_S: f64 = 5.0;
/// What is said of a block's size where there is none.
const NO_BLOCK: &str = "strict order keeps no block: each write is for the callers that wait";
/// The same of one that is time-ordered.
const TIME_RESERVED: &str = "time-ordered ids keep no block: time is reserved ahead, for `hold`";

/// One counter in memory.
pub(crate) struct Issuer {
    pub(crate) key: CounterKey,
    /// When its calendar period is.
    pub(crate) span: Option<PeriodSpan>,
    /// Where the numbers come from, if the sequence counts in periods and this is its head.
    periods: ArcSwapOption<PeriodDirectory>,
    /// Held by who decides which periods these are.
    learning: Mutex<()>,
    /// How its numbers are printed; nothing where just as they are.
    printer: ArcSwapOption<Printer>,
    pub(crate) cursor: Cursor,
    /// What issues instead of the cursor, where the sequence is time-ordered.
    snowflake: ArcSwapOption<SnowflakeIssuer>,
    /// Whether it is, which costs a caller less to look at.
    is_timed: AtomicBool,
    /// Numbers that the actor gave to waiters past the cursor.
    n_direct: AtomicU64,
    /// Numbers that left as whole blocks: issued, but no part of any rate.
    n_handed_over: AtomicU64,
    /// What the counter of issued numbers in the metrics has been told of.
    n_published: AtomicU64,
    n_slots_reused_published: AtomicU64,
    pub(crate) memory: Mutex<IssuerState>,
    pub(crate) terms: Terms,
    pub(crate) actor: Mutex<ActorLink>,
    /// Whether the sweep looks at it each second.
    pub(crate) is_active: AtomicBool,
}

/// The way to the actor of a name.
#[derive(Default)]
pub(crate) enum ActorLink {
    /// No actor runs; one is started when needed.
    #[default]
    Parked,
    Live(Recipient<Command>),
    /// The name was unloaded: whoever holds this issuer has to look it up again.
    Gone,
}

/// What outlives an actor.
pub(crate) struct IssuerState {
    /// As last seen in the store; `None` before the first reservation.
    pub(crate) known: Option<Resolved>,
    /// Nothing below it is issued.
    floor: i64,
    /// Whether the last change that is known of was the sequence's end, and that change's version.
    is_retired: bool,
    life_version: i64,
    /// Whether it is not known what a change forbids of this counter, or that it is all: what is
    /// held is given back, and so is what was reserved before that version of the definition.
    must_reload: bool,
    reload_version: i64,
    /// The version of the definition up to which the floor of this counter is known.
    floor_version: i64,
    /// The definition that numbers are printed by.
    printed: Option<Arc<Definition>>,
    /// Blocks whose fate is open, ascending.
    pub(crate) held: Vec<JournalRow>,
    /// Blocks that did not fit into the cursor, ascending and above all in it.
    pub(crate) spare: VecDeque<Block>,
    rates: Rates,
    n_sampled: u64,
    sampled_at: Instant,
    used_at: Instant,
    /// Whether returned blocks are looked for.
    pub(crate) adopts: bool,
    /// Every number that was issued or is held by this process lies below it.
    pub(crate) all_below: i64,
    /// The previous block's size, when its reservation met two or more conflicts.
    double_of: Option<u64>,
    last_refill: Option<LastRefill>,
    /// For tests: whether the first reservation was made to fail.
    pub(crate) failed_once: bool,
}

/// What was issued since the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub(crate) n_issued: u64,
    /// When that was.
    pub(crate) since: Instant,
}

/// How the last refill went.
#[derive(Clone, Copy)]
struct LastRefill {
    at: SystemTime,
    size: u64,
    why: Option<Why>,
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
            is_timed: AtomicBool::new(false),
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
                all_below: 0,
                double_of: None,
                last_refill: None,
                failed_once: false,
            }),
            terms: Terms::default(),
            actor: Mutex::new(ActorLink::Parked),
            is_active: AtomicBool::new(false),
        }
    }

    /// The issuer of one period. `like` is one of the same sequence that was in use before.
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

    /// What a reply shows beside a number of it.
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

    /// How its sequence is defined, as far as memory knows.
    pub(crate) fn definition(&self) -> Option<Arc<Definition>> {
        self.definition_by(self.memory.lock().known.as_ref())
    }

    /// The same, for whoever has looked at what memory knows.
    pub(crate) fn definition_by(&self, known: Option<&Resolved>) -> Option<Arc<Definition>> {
        match known {
            Some(known) => Some(Arc::clone(&known.definition)),
            None => self.periods().map(|periods| periods.definition()),
        }
    }

    /// What issues its ids, if it is known to be time-ordered.
    pub(crate) fn snowflake(&self) -> Option<Arc<SnowflakeIssuer>> {
        self.snowflake.load_full()
    }

    /// Whether it is known to be time-ordered. Whoever comes too early asks its actor.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed.load(Ordering::Relaxed)
    }

    /// As [`Issuer::timed`], for the warm path.
    #[inline]
    pub(crate) fn with_timed<R>(
        &self,
        work: impl FnOnce(&SnowflakeIssuer) -> Option<R>,
    ) -> Option<R> {
        work(self.snowflake.load().as_ref()?)
    }

    /// Learns that it is time-ordered. Ids that were issued are counted on.
    pub(crate) fn learn_layout(&self, layout: &Layout) {
        if self.snowflake.load().is_none() {
            self.snowflake
                .store(Some(Arc::new(SnowflakeIssuer::new(layout))));
        }
        self.is_timed.store(true, Ordering::Relaxed);
    }

    /// The sequence is another one than it was: what it issued stays counted.
    pub(crate) fn forget_layout(&self) {
        self.is_timed.store(false, Ordering::Relaxed);
        if let Some(snowflake) = self.snowflake.swap(None) {
            self.add_direct(snowflake.n_issued());
        }
    }

    /// Learns how its sequence is defined; whether it is the head of periods from now on.
    ///
    /// Those of other periods than before, which only a recovery can bring about, are on their own.
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

    /// Prints from now on as the definition says; before a number of it can be seen.
    pub(crate) fn print_as(&self, definition: &Definition) {
        let format = Format::of(definition)
            .ok()
            .filter(|format| !format.is_plain());
        let printer = format.map(|format| Arc::new(format.printer(&self.key.period)));
        self.printer.store(printer);
    }

    /// Prints as its definition says that is known now; before a number of it can be seen.
    pub(crate) fn catch_up(&self, memory: &mut IssuerState) {
        let Some(known) = &memory.known else {
            return;
        };
        let is_same = |printed: &Arc<Definition>| Arc::ptr_eq(printed, &known.definition);
        if !memory.printed.as_ref().is_some_and(is_same) {
            self.print_as(&known.definition);
            memory.printed = Some(Arc::clone(&known.definition));
        }
    }

    /// Notes a change, however late it arrives; from then on the floor of this counter holds.
    pub(crate) fn note_changed(&self, changed: &Changed, floor: i64) {
        let mut memory = self.memory.lock();
        memory.note_changed(changed, floor);
        self.catch_up(&mut memory);
        if let (true, Some(definition)) = (self.key.period.is_none(), &changed.definition) {
            drop(memory);
            self.learn(definition);
        }
    }

    /// Notes that all that was reserved before a version of the definition has to be given back.
    pub(crate) fn note_forbidden(&self, version: i64) {
        let mut memory = self.memory.lock();
        memory.must_reload = true;
        memory.reload_version = memory.reload_version.max(version);
    }

    /// Notes the floor of this counter as it was after the change.
    pub(crate) fn note_floor(&self, changed: &Changed, floor: i64) {
        self.note_changed(changed, floor);
        let mut memory = self.memory.lock();
        memory.floor_version = memory.floor_version.max(changed.version);
    }

    /// Whether the change may have touched the floor of this counter unseen. What else is known of
    /// the sequence may be newer than that.
    pub(crate) fn may_be_touched_by(&self, changed: &Changed) -> bool {
        self.memory.lock().floor_version < changed.version
    }

    /// Whether what is held has to be given back, asked once.
    pub(crate) fn take_must_reload(&self) -> bool {
        std::mem::take(&mut self.memory.lock().must_reload)
    }

    /// Somebody asked for what could not be given.
    pub(crate) fn note_asked(&self) {
        self.memory.lock().used_at = Instant::now();
    }

    /// Whether it is on its way out of memory.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(&*self.actor.lock(), ActorLink::Gone)
    }

    /// Whether its period has not begun.
    pub(crate) fn is_ahead(&self) -> bool {
        self.span.is_some_and(|span| clock::now_ms() < span.from_ms)
    }

    /// Whether its period is over.
    pub(crate) fn is_over(&self) -> bool {
        self.span
            .is_some_and(|span| clock::now_ms() >= span.until_ms)
    }

    /// Numbers issued one by one or in batches since this name was loaded.
    pub(crate) fn n_issued(&self) -> u64 {
        let n_stamped = self.with_timed(|snowflake| Some(snowflake.n_issued()));
        self.cursor
            .issued()
            .saturating_add(self.n_direct.load(Ordering::Relaxed))
            .saturating_add(n_stamped.unwrap_or(0))
    }

    /// What the metrics have not been told of yet; each number is told once.
    pub(crate) fn take_unpublished(&self) -> u64 {
        let n_now = self
            .n_issued()
            .saturating_add(self.n_handed_over.load(Ordering::Relaxed));
        let n_told = self.n_published.fetch_max(n_now, Ordering::Relaxed);
        n_now.saturating_sub(n_told)
    }

    /// Numbers lost to reused slots that the metrics have not been told of yet.
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

    /// Numbers in memory.
    pub(crate) fn remaining(&self) -> u64 {
        let memory = self.memory.lock();
        let spare = memory.spare.iter().map(Block::count).sum();
        self.cursor.remaining().saturating_add(spare)
    }

    /// What a refill should bring, for callers that wait for `waited_for` numbers.
    pub(crate) fn demand(&self, waited_for: u64) -> Demand {
        let n_issued = self.n_issued();
        let memory = self.memory.lock();
        Demand {
            rates: memory.rates,
            this_second: memory.this_second(n_issued),
            waited_for,
            double_of: memory.double_of,
            seconds_left: self.seconds_left(),
        }
    }

    /// Whether it keeps no block, because its numbers ascend over all replicas.
    pub(crate) fn is_strict(&self) -> bool {
        self.memory.lock().is_strict()
    }

    /// For how long its calendar period still needs numbers.
    fn seconds_left(&self) -> Option<f64> {
        self.span.map(|span| span.seconds_left(clock::now_ms()))
    }

    /// How few numbers may be left before the next block is reserved.
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

    /// Whether the next block should be reserved now: little is left, and none is there yet.
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

    /// How long a prefetch that failed may wait for its next try: the longer the reserve lasts,
    /// the less it is to be in the way of others when the store is back.
    pub(crate) fn time_limit(&self) -> Duration {
        let reserve = match self.snowflake() {
            Some(snowflake) => Some(snowflake.left().as_secs_f64()),
            None => {
                let remaining = self.remaining();
                self.memory.lock().rates.reserve_seconds(remaining)
            }
        };
        let seconds = (reserve.unwrap_or(0.0) / RETRY_PART).min(LONGEST_RETRY_S);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Numbers left, as far as is known, for callers who share a write; none if the order is strict:
    /// then what a write can have is known to the store alone.
    pub(crate) fn left_to_share(&self) -> u64 {
        let memory = self.memory.lock();
        let known = memory.known.as_ref().filter(|_| !memory.is_strict());
        known.map_or(0, |known| known.definition.left(known.seen.next_value))
    }

    /// Notes a reservation whose block leaves as a whole.
    pub(crate) fn note_handed_over(&self, reserved: &Reserved) {
        self.note_known(reserved.known.clone(), reserved.stored_rate);
    }

    /// Notes a write of a sequence with strict order.
    pub(crate) fn note_added(&self, reserved: &Reserved) {
        self.note_known(reserved.known.clone(), reserved.stored_rate);
        let mut memory = self.memory.lock();
        memory.all_below = memory.all_below.max(reserved.block.end());
    }

    /// Notes what the store said of the counter and its sequence.
    pub(crate) fn note_known(&self, known: Resolved, stored_rate: Option<f64>) {
        let mut memory = self.memory.lock();
        memory.know(known, stored_rate);
        memory.used_at = Instant::now();
        self.catch_up(&mut memory);
    }

    /// Samples the rate; how many numbers were issued since the last sample.
    pub(crate) fn sample(&self, now: Instant) -> Sampled {
        let n_issued = self.n_issued();
        let is_ahead = self.is_ahead();
        let mut memory = self.memory.lock();
        let is_used = n_issued > memory.n_sampled;
        if is_ahead && !is_used {
            // The rate of the period before is still the best guess.
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

    /// Numbers a second, averaged over five minutes.
    pub(crate) fn rate(&self) -> f64 {
        self.memory.lock().rates.average()
    }

    /// How long what is in memory lasts at the present rate.
    pub(crate) fn reserve_seconds(&self) -> Option<f64> {
        let remaining = self.remaining();
        self.reserve_of(&self.memory.lock(), remaining)
    }

    fn reserve_of(&self, memory: &IssuerState, remaining: u64) -> Option<f64> {
        match self.snowflake() {
            // Of one whose lease has ended it is nobody's reserve: it may rest.
            Some(snowflake) => snowflake
                .is_serving()
                .then(|| snowflake.left().as_secs_f64()),
            // Of nothing in memory nobody asks how long it lasts.
            None if memory.is_strict() => None,
            None => memory.rates.reserve_seconds(remaining),
        }
    }

    /// Whether its last block was as large as what is left of its range allows.
    pub(crate) fn has_its_share_of_what_is_left(&self) -> bool {
        let refill = self.memory.lock().last_refill;
        refill.is_some_and(|refill| refill.why == Some(Why::Left))
    }

    /// How long nothing was issued, as of the last sample.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.memory.lock().used_at)
    }

    /// Whether the store has ever been asked with success.
    pub(crate) fn is_known(&self) -> bool {
        self.memory.lock().known.is_some()
    }

    /// The store that it lives in; empty before the store was asked with success.
    pub(crate) fn store(&self) -> String {
        let memory = self.memory.lock();
        let known = memory.known.as_ref();
        known.map_or_else(String::new, |known| known.definition.store.clone())
    }

    /// How it stands, as far as memory knows.
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
    /// Notes what a reservation brought, but for the block itself.
    pub(crate) fn note_reserved(&mut self, reserved: &Reserved) {
        self.know(reserved.known.clone(), reserved.stored_rate);
        self.adopts = reserved.more_to_adopt;
        self.all_below = self.all_below.max(reserved.block.end());
        self.double_of = (reserved.n_conflicts >= 2).then_some(reserved.block.count());
        // Few, and of a name that rests they are all it has: no room for more is kept.
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
            // What is fetched ahead of its period goes by the one before.
            self.rates = Rates::resume(rate.max(self.rates.average()));
        }
        self.must_reload |= known.definition_version < self.reload_version;
        if stored_rate.is_some() {
            // Its row was read with the definition.
            self.floor_version = self.floor_version.max(known.definition_version);
        }
        let newer = self
            .known
            .take()
            .filter(|newer| newer.definition_version > known.definition_version);
        if let Some(newer) = newer {
            // A change arrived while the reservation was under way; the counter has moved since.
            known.definition = newer.definition;
            known.definition_version = newer.definition_version;
            known.trusted = false;
        }
        self.floor = self.floor.max(known.floor);
        if known.definition_version > self.life_version {
            // Who could reserve has seen it alive.
            self.is_retired = false;
        }
        self.known = Some(known);
    }

    pub(crate) fn is_strict(&self) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| known.definition.order == Order::Strict)
    }

    /// Whether a block forbidden by a change came, or may have: of a period it is not known here.
    pub(crate) fn forbids(&self, block: Block) -> bool {
        self.is_retired || self.must_reload || block.first() < self.floor
    }

    /// Nothing below it is issued any more.
    pub(crate) fn floor(&self) -> i64 {
        self.floor
    }

    /// Whether the sequence is retired, as far as it is known here.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired
    }

    /// Notes a change, however late it arrives; from then on its floor holds.
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
            // The counter's version was raised with it: read before the next write.
            known.trusted = false;
        }
    }

    /// A database is another one than before: what it said of definition and life is read again, if
    /// it is of the store in which the sequence lives. What was seen of the counter, and the floor,
    /// hold on. Whether blocks of it are held, which then have to go.
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

    /// Numbers a second since the last sample, which for a parked name may be a minute ago.
    fn this_second(&self, n_issued: u64) -> u64 {
        let n_since = n_issued.saturating_sub(self.n_sampled);
        n_since / self.sampled_at.elapsed().as_secs().max(1)
    }

    /// The block that `left` is the rest of.
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
