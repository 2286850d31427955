//! The numbers of one sequence in one process, who waits for them, and the one refill in flight.
//!
//! Most callers take from the *front*, a cursor, without a lock. Everything else is behind one
//! lock, which is never held during a call, and under which no code of the program runs. What must
//! follow comes back as an [`After`].

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use odometer_core::{
    block::Block,
    cursor::{Cursor, TakenNumber},
};

use crate::{
    after::After,
    backoff,
    buffer::{self, Item, Run},
    definition::Definition,
    error::Error,
    flight::Flight,
    fork,
    hooks::DropCause,
    numbers::Numbers,
    of_process::Renew,
    random::Uniform,
    waiter::{Outcome, Waiter},
};

/// A refill that nobody waits for ends after so many failures. The next take starts another one.
const MAX_ATTEMPTS_FOR_NOBODY: u32 = 10;

/// All state of a sequence.
pub(crate) struct Stock {
    front: Cursor,
    /// What the sequence is, once that is known.
    definition: ArcSwapOption<Definition>,
    /// Whether the program may reserve blocks, as far as is known.
    may_reserve: AtomicBool,
    settings: StockSettings,
    state: Mutex<StockState>,
}

/// What a stock was made with.
#[derive(Clone, Copy)]
pub(crate) struct StockSettings {
    pub(crate) initial_size: u64,
    pub(crate) max_age: Option<Duration>,
    pub(crate) uniform: Uniform,
}

/// What is behind the lock.
struct StockState {
    numbers: Numbers,
    /// Callers who want one number, in the order of arrival.
    line: VecDeque<Standing>,
    warming: Vec<WarmStart>,
    flight: Option<Arc<Flight>>,
    n_failures: u32,
    not_before: Option<Instant>,
    last_error: Option<Arc<Error>>,
    /// The [count of changes](fork::n_changes) at the last forget.
    n_changes: u64,
}

/// A caller who stands in line for a number.
struct Standing {
    waiter: Arc<Waiter>,
    came: Instant,
}

/// A caller who waits until enough numbers are in memory.
struct WarmStart {
    waiter: Arc<Waiter>,
    target: u64,
}

/// Numbers for one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceGrant {
    pub(crate) numbers: Block,
    /// The [count of changes](fork::n_changes) by then.
    pub(crate) n_changes: u64,
}

/// How much is in memory, and how fast it is taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Readings {
    pub(crate) left: u64,
    pub(crate) rate: f64,
}

impl Stock {
    pub(crate) fn new(settings: StockSettings, known: Option<Definition>) -> Self {
        let has_age = settings.max_age.is_some();
        Self {
            front: Cursor::new(),
            definition: ArcSwapOption::from_pointee(known),
            may_reserve: AtomicBool::new(true),
            settings,
            state: Mutex::new(StockState {
                numbers: Numbers::new(settings.initial_size, has_age),
                line: VecDeque::new(),
                warming: Vec::new(),
                flight: None,
                n_failures: 0,
                not_before: None,
                last_error: None,
                n_changes: 0,
            }),
        }
    }

    pub(crate) fn definition(&self) -> Option<Definition> {
        self.definition.load().as_deref().copied()
    }

    /// Returns whether each number must be a call. False while that is not known.
    pub(crate) fn is_unbuffered(&self) -> bool {
        self.definition().is_some_and(|it| !it.is_buffered)
    }

    /// Returns whether the program may reserve blocks, as far as is known.
    pub(crate) fn may_reserve(&self) -> bool {
        self.may_reserve.load(Ordering::Relaxed)
    }

    pub(crate) fn note_no_right_to_reserve(&self) {
        self.may_reserve.store(false, Ordering::Relaxed);
    }

    /// Takes a number without a lock. If it is the last one of a piece, the caller must call
    /// [`end_piece`](Self::end_piece).
    #[inline]
    pub(crate) fn take_in_front(&self) -> Option<TakenNumber> {
        self.front.take()
    }

    /// Moves more numbers to the front, and starts a refill if it is time.
    pub(crate) fn end_piece(&self, now: Instant) -> After {
        let (mut state, mut after) = self.enter(now);
        self.go_on(&mut state, &mut after, now);
        after
    }

    /// Takes a number, if one is in memory, and starts a refill if it is time.
    pub(crate) fn take(&self, now: Instant) -> (Option<Item>, After) {
        let (mut state, mut after) = self.enter(now);
        let item = state.numbers.take(&self.front, now);
        self.go_on(&mut state, &mut after, now);
        (item, after)
    }

    /// Takes an unbroken range, if memory has one. If not, the rest of a block stays.
    pub(crate) fn take_range(&self, count: u64, now: Instant) -> (Option<Block>, After) {
        let (mut state, mut after) = self.enter(now);
        let mut range = None;
        if state.line.is_empty() {
            range = state.numbers.take_range(&self.front, count, now);
        }
        if range.is_some() {
            self.go_on(&mut state, &mut after, now);
        }
        (range, after)
    }

    /// Takes some numbers for one thread, and starts a refill if it is time.
    pub(crate) fn take_slice(&self, now: Instant) -> (Option<SliceGrant>, After) {
        let (mut state, mut after) = self.enter(now);
        let numbers = state.numbers.take_slice(&self.front, now);
        let n_changes = fork::n_changes();
        self.go_on(&mut state, &mut after, now);
        let grant = numbers.map(|numbers| SliceGrant { numbers, n_changes });
        (grant, after)
    }

    /// Takes back what is left of a slice, unless it was told to forget since.
    pub(crate) fn give_back(&self, rest: SliceGrant, now: Instant) -> After {
        let (mut state, mut after) = self.enter(now);
        if rest.n_changes >= state.n_changes {
            state.numbers.give_back(rest.numbers, now);
            self.serve(&mut state, &mut after, now);
        } else {
            after.drop_numbers(rest.numbers.count(), DropCause::Forget);
        }
        after
    }

    /// Takes a number, or lets the caller stand in line, which is `None`. The outcome is
    /// [`Ready`](Outcome::Ready) if each number must be a call.
    pub(crate) fn take_or_wait(
        &self,
        waiter: &Arc<Waiter>,
        now: Instant,
    ) -> (Option<Outcome>, After) {
        let (mut state, mut after) = self.enter(now);
        if self.is_unbuffered() {
            return (Some(Outcome::Ready), after);
        }
        let mut item = None;
        if state.line.is_empty() {
            item = state.numbers.take(&self.front, now);
        }
        if item.is_none() {
            state.line.push_back(Standing {
                waiter: Arc::clone(waiter),
                came: now,
            });
            state.hurry();
        }
        self.go_on(&mut state, &mut after, now);
        (item.map(Outcome::Number), after)
    }

    /// Settles the waiter when so many numbers are in memory, or if there is no buffer.
    pub(crate) fn warm(&self, waiter: &Arc<Waiter>, target: u64, now: Instant) -> After {
        let (mut state, mut after) = self.enter(now);
        state.warming.push(WarmStart {
            waiter: Arc::clone(waiter),
            target,
        });
        if self.definition().is_some() {
            self.serve(&mut state, &mut after, now);
        }
        state.hurry();
        self.go_on(&mut state, &mut after, now);
        after
    }

    /// Takes a caller who gives up out of the line. Returns false if the caller is settled already.
    ///
    /// The refill goes on.
    pub(crate) fn withdraw(&self, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.lock();
        if !waiter.give_up() {
            return false;
        }
        let line = &mut state.line;
        line.retain(|other| !Arc::ptr_eq(&other.waiter, waiter));
        let warming = &mut state.warming;
        warming.retain(|other| !Arc::ptr_eq(&other.waiter, waiter));
        true
    }

    /// Drops all numbers, and those of the refill in flight. Callers who wait get new ones.
    pub(crate) fn forget(&self, now: Instant) -> After {
        let (mut state, mut after) = self.enter(now);
        after.drop_numbers(state.numbers.clear(&self.front), DropCause::Forget);
        // Under the lock, so that each slice was taken before or after it.
        state.n_changes = fork::note_forgotten();
        state.flight = None;
        if state.is_awaited() {
            self.go_on(&mut state, &mut after, now);
        }
        after
    }

    pub(crate) fn readings(&self, now: Instant) -> (Readings, After) {
        let (mut state, after) = self.enter(now);
        let left = state.numbers.left(&self.front);
        let rate = state.numbers.size.rate.per_second(now);
        (Readings { left, rate }, after)
    }

    /// Notes how a call of a caller without a buffer ended. If there is a buffer, what counts are
    /// its refills.
    pub(crate) fn note_call(&self, failure: Option<&Error>) {
        if self.is_unbuffered() {
            self.lock().last_error = failure.cloned().map(Arc::new);
        }
    }

    /// Returns the last failure of a call for numbers, if none has succeeded since.
    pub(crate) fn last_error(&self) -> Option<Arc<Error>> {
        self.lock().last_error.clone()
    }

    /// Returns how long a new flight waits, because the one before it failed.
    pub(crate) fn first_pause(&self, flight: &Arc<Flight>, now: Instant) -> Duration {
        let state = self.lock();
        if !state.is_present(flight) {
            return Duration::ZERO;
        }
        if state.is_awaited() {
            state.hurry();
        }
        let not_before = state.not_before.unwrap_or(now);
        not_before.saturating_duration_since(now)
    }

    /// Returns how many numbers a flight asks for. `None` ends the flight.
    pub(crate) fn wanted(&self, flight: &Arc<Flight>, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        if !state.is_present(flight) {
            return None;
        }
        state.numbers.note_front(&self.front, now);
        if !self.is_needed(&mut state, now) {
            state.flight = None;
            return None;
        }
        let targets = state.warming.iter().map(|warm| warm.target);
        let left = state.numbers.left(&self.front);
        let missing = targets.max().unwrap_or(0).saturating_sub(left);
        let n_waiting = u64::try_from(state.line.len()).unwrap_or(u64::MAX);
        let size = state.numbers.size.next_size(now);
        Some(size.max(n_waiting).max(missing).max(1))
    }

    /// Adds what a flight got, for which it asked at `began` first.
    pub(crate) fn deliver(
        &self,
        flight: &Arc<Flight>,
        runs: Vec<Run>,
        began: Instant,
        now: Instant,
    ) -> After {
        let (mut state, mut after) = self.enter(now);
        if state.is_present(flight) {
            let took = now.saturating_duration_since(began);
            state.numbers.add(runs);
            state.numbers.size.note_refill(took);
            self.succeed(&mut state, &mut after, now);
        } else {
            after.drop_numbers(buffer::count(&runs), DropCause::Forget);
        }
        after
    }

    /// Notes what the sequence is, and the numbers that had to be taken to learn it.
    pub(crate) fn learn(
        &self,
        flight: &Arc<Flight>,
        definition: Definition,
        runs: Vec<Run>,
        now: Instant,
    ) -> After {
        let (mut state, mut after) = self.enter(now);
        // What is known stays, but that no number may be fetched ahead.
        if self.definition().is_none() || !definition.is_buffered {
            self.definition.store(Some(Arc::new(definition)));
        }
        if !state.is_present(flight) {
            after.drop_numbers(buffer::count(&runs), DropCause::Late);
            if !definition.is_buffered {
                // The present flight has nothing to do any more, so it serves nobody.
                self.serve(&mut state, &mut after, now);
            }
            return after;
        }
        let asked = runs.first().map(|run| run.born);
        state.numbers.add(runs);
        if !definition.is_buffered {
            // The numbers are for callers who came before the numbers were asked for. Later, a
            // higher one may have been given elsewhere, or another period may have begun.
            let is_in_time = |came: Instant| asked.is_some_and(|asked| came <= asked);
            let line = state.line.iter();
            let n_in_time = line.take_while(|it| is_in_time(it.came)).count();
            let late = state.line.split_off(n_in_time);
            self.serve(&mut state, &mut after, now);
            after.drop_numbers(state.numbers.clear(&self.front), DropCause::Late);
            state.line = late;
        }
        self.succeed(&mut state, &mut after, now);
        after
    }

    /// Notes a failed attempt. Returns how long to wait for the next one; `None` ends the flight.
    pub(crate) fn fail(
        &self,
        flight: &Arc<Flight>,
        error: &Error,
        is_sole: bool,
        now: Instant,
    ) -> (Option<Duration>, After) {
        let mut after = After::default();
        let mut state = self.lock();
        if !state.is_present(flight) {
            return (None, after);
        }
        state.n_failures = state.n_failures.saturating_add(1);
        state.last_error = Some(Arc::new(error.clone()));
        let retry_after = error.retry_after().filter(|_| is_sole);
        let pause = backoff::pause(state.n_failures, retry_after, self.settings.uniform);
        state.not_before = now.checked_add(pause);
        if !error.is_retryable() {
            state.fail_callers(error, &mut after);
        } else if state.is_awaited() || !state.n_failures.is_multiple_of(MAX_ATTEMPTS_FOR_NOBODY) {
            return (Some(pause), after);
        }
        state.flight = None;
        (None, after)
    }

    /// Ends a flight, however it ended, so that the next one can start.
    pub(crate) fn end(&self, flight: &Arc<Flight>, error: Option<&Error>) -> After {
        let mut after = After::default();
        let mut state = self.lock();
        if state.is_present(flight) {
            state.flight = None;
            if let Some(error) = error {
                state.fail_callers(error, &mut after);
            }
        }
        after
    }

    /// Takes the lock, and brings what is behind it up to date.
    fn enter(&self, now: Instant) -> (MutexGuard<'_, StockState>, After) {
        let mut after = After::default();
        let mut state = self.lock();
        if let Some(max_age) = self.settings.max_age
            && let Some(oldest) = now.checked_sub(max_age)
        {
            after.drop_numbers(state.numbers.drop_older(oldest), DropCause::MaxAge);
        }
        state.numbers.note_front(&self.front, now);
        after.drop_numbers(self.front.take_abandoned(), DropCause::Late);
        (state, after)
    }

    /// Fills the front, and prepares a refill if it is time.
    fn go_on(&self, state: &mut StockState, after: &mut After, now: Instant) {
        state.numbers.fill_front(&self.front);
        if state.flight.is_none() && self.is_needed(state, now) {
            let flight = Arc::new(Flight::default());
            state.flight = Some(Arc::clone(&flight));
            after.flight = Some(flight);
        }
    }

    fn is_needed(&self, state: &mut StockState, now: Instant) -> bool {
        match self.definition() {
            None => true,
            Some(definition) if !definition.is_buffered => false,
            Some(_) => {
                state.is_awaited()
                    || !state.numbers.size.has_refilled
                    || state.numbers.is_low(&self.front, now)
            }
        }
    }

    fn succeed(&self, state: &mut StockState, after: &mut After, now: Instant) {
        state.n_failures = 0;
        state.not_before = None;
        state.last_error = None;
        self.serve(state, after, now);
        state.numbers.fill_front(&self.front);
    }

    /// Gives numbers to those who wait, in their order.
    fn serve(&self, state: &mut StockState, after: &mut After, now: Instant) {
        let is_unbuffered = self.is_unbuffered();
        while !state.line.is_empty() {
            let outcome = match state.numbers.take(&self.front, now) {
                Some(item) => Outcome::Number(item),
                None if is_unbuffered => Outcome::Ready,
                None => break,
            };
            if let Some(Standing { waiter, .. }) = state.line.pop_front() {
                waiter.settle(outcome);
                after.wake(waiter);
            }
        }
        let left = state.numbers.left(&self.front);
        for warm in mem::take(&mut state.warming) {
            if is_unbuffered || left >= warm.target {
                warm.waiter.settle(Outcome::Ready);
                after.wake(warm.waiter);
            } else {
                state.warming.push(warm);
            }
        }
    }

    /// Does something while the lock is held.
    #[cfg(test)]
    pub(crate) fn while_locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let _held = self.lock();
        work()
    }

    fn lock(&self) -> MutexGuard<'_, StockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Renew for Stock {
    /// Starts with nothing but what the sequence is. The numbers are no gaps, because the parent
    /// still has them.
    fn renewed(&self) -> Self {
        Self::new(self.settings, self.definition())
    }
}

impl StockState {
    fn is_present(&self, flight: &Arc<Flight>) -> bool {
        let present = self.flight.as_ref();
        present.is_some_and(|present| Arc::ptr_eq(present, flight))
    }

    fn is_awaited(&self) -> bool {
        !self.line.is_empty() || !self.warming.is_empty()
    }

    /// Ends the first pause of a flight after a refusal. A caller who waits has a reason to ask
    /// again: the cause may be gone.
    fn hurry(&self) {
        let last = self.last_error.as_ref();
        if last.is_some_and(|last| !last.is_retryable())
            && let Some(flight) = &self.flight
        {
            flight.hurry();
        }
    }

    fn fail_callers(&mut self, error: &Error, after: &mut After) {
        let line = mem::take(&mut self.line).into_iter().map(|it| it.waiter);
        let warming = mem::take(&mut self.warming).into_iter();
        for waiter in line.chain(warming.map(|warm| warm.waiter)) {
            waiter.settle(Outcome::Failed(error.clone()));
            after.wake(waiter);
        }
    }
}
