//! Remembers what this replica knows of a counter's window and of its lease, and whether Redis or
//! the row counts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{
    block::Block,
    sizing::{Demand, Rates},
};
use odometer_process::faults::{self, Fault};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::scripts::WindowState;
use crate::{error::StoreError, outcome::Resolved, rows::counter::LEASE_MS};

/// A lease ends this much earlier here than in the database, because the two clocks may run at
/// different speeds.
const MARGIN: Duration = Duration::from_millis(100);
/// The age at which a lease in use is renewed, before it ends.
const RENEWED_AFTER: Duration = Duration::from_millis(250);
/// The shortest time for which the row counts after Redis failed.
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// The longest time for which the row counts after Redis failed.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// If Redis does not fail for this long after the row's time is over, the next failure counts as
/// the first.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
/// The time between two tries to raise a ceiling ahead of time.
const BETWEEN_EXTENSIONS: Duration = Duration::from_millis(50);
/// The additional time to wait after a try that found the row above the ceiling.
const AFTER_CONFLICT: Duration = Duration::from_millis(500);
/// The time within which the replica that raised a ceiling in the row raises it in Redis.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

/// A window in which this replica may step.
#[derive(Clone, Debug)]
pub(crate) struct OpenWindow {
    pub(crate) number: i64,
    /// The window's first number.
    pub(crate) base: i64,
    /// How many numbers of the window were used when it was last seen.
    pub(crate) used: u64,
    /// How many numbers lie below the window's ceiling, as last seen.
    pub(crate) cap: u64,
    /// The sequence and its row as they were when this replica looked.
    pub(crate) known: Resolved,
    /// The rate that is stored with the counter.
    pub(crate) rate: Option<f64>,
    /// The number of the connection to Redis on which the window was seen.
    pub(crate) generation: u64,
}

impl OpenWindow {
    /// Returns the first number above the window's range. While the window is open, this is the
    /// row's high-water mark.
    pub(crate) fn ceiling(&self) -> Result<i64, StoreError> {
        self.at(self.cap)
    }

    fn at(&self, offset: u64) -> Result<i64, StoreError> {
        i64::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_mul(self.known.definition.step))
            .and_then(|length| self.base.checked_add(length))
            .ok_or_else(|| StoreError::Broken("a window reaches above 2^63 - 1".to_owned()))
    }

    /// Returns the `count` numbers that a step took, if `used` numbers of the window were used
    /// after it.
    pub(crate) fn taken(&self, used: u64, count: u64) -> Result<Block, StoreError> {
        let broken = || StoreError::Broken("Redis counted what is not in the window".to_owned());
        let first = self.at(used.checked_sub(count).ok_or_else(broken)?)?;
        let step = self.known.definition.step;
        let block = Block::new(first, count, step).map_err(|_| broken())?;
        if block.end() > self.known.definition.end() {
            return Err(broken());
        }
        Ok(block)
    }

    /// Returns how many numbers below the ceiling are not used yet.
    pub(crate) fn rest(&self) -> u64 {
        self.cap.saturating_sub(self.used)
    }

    /// Returns the window as Redis had it, as far as this replica knows.
    pub(crate) fn state(&self) -> WindowState {
        WindowState {
            window: self.number,
            base: self.base,
            used: self.used,
            cap: self.cap,
            is_ours: true,
        }
    }

    /// Returns how many numbers of the sequence are in no window yet.
    pub(crate) fn left_in_row(&self) -> Result<u64, StoreError> {
        Ok(self.known.definition.left(self.ceiling()?))
    }
}

/// What this replica knows of one counter.
#[derive(Default)]
pub(crate) struct WindowEntry {
    memory: Mutex<WindowMemory>,
    /// Held by the task that raises the ceiling ahead of time.
    extending: Arc<AsyncMutex<()>>,
    /// Held by the task that renews the lease.
    leasing: Arc<AsyncMutex<()>>,
}

#[derive(Default)]
struct WindowMemory {
    window: Option<OpenWindow>,
    /// Grows with each change that this replica hears of, so that nothing read before the change is
    /// kept.
    n_changes: u64,
    /// How many recoveries had been seen when this entry was last used.
    n_recoveries: u64,
    /// The last window that was used here, and the definition's version then.
    last: Option<(i64, i64)>,
    /// The window whose lease was taken, and when that lease was asked for.
    lease: Option<(i64, Instant)>,
    demand: Option<Demand>,
    used_at: Option<Instant>,
    extended_at: Option<Instant>,
    /// A window and its ceiling in the row, as a count, if Redis may not know that ceiling yet.
    owed: Option<(i64, u64)>,
    /// A window, its ceiling, and since when the row is known to be above that ceiling.
    conflict: Option<(i64, i64, Instant)>,
    /// A window whose ceiling no longer rises in Redis. Only the rest below the ceiling can be
    /// used.
    given_up: Option<i64>,
    /// The time until which the row counts.
    fallen_until: Option<Instant>,
    fell_at: Option<Instant>,
    pause: Duration,
    /// Whether the row was seen without an open window and without a lease since Redis failed.
    row_is_free: bool,
}

impl WindowMemory {
    fn forget_window(&mut self) {
        self.n_changes = self.n_changes.wrapping_add(1);
        self.window = None;
        self.row_is_free = false;
    }
}

impl WindowEntry {
    pub(crate) fn window(&self) -> Option<OpenWindow> {
        self.memory.lock().window.clone()
    }

    /// Returns the count of changes, for [`WindowEntry::keep`]. Read it before you read the row.
    pub(crate) fn n_changes(&self) -> u64 {
        self.memory.lock().n_changes
    }

    /// Keeps a window that was found or opened, unless something changed since `n_changes` was
    /// read.
    pub(crate) fn keep(&self, window: &OpenWindow, n_changes: u64) {
        let mut memory = self.memory.lock();
        memory.last = Some((window.number, window.known.definition_version));
        memory.fallen_until = None;
        memory.row_is_free = false;
        if memory.n_changes == n_changes {
            memory.window = Some(window.clone());
        }
    }

    /// Notes what a step or a raised ceiling said of a window.
    pub(crate) fn note(&self, number: i64, used: u64, cap: u64) {
        let mut memory = self.memory.lock();
        memory.used_at = Some(Instant::now());
        if let Some(window) = memory
            .window
            .as_mut()
            .filter(|known| known.number == number)
        {
            window.used = window.used.max(used);
            window.cap = window.cap.max(cap);
            window.rate = None;
            if let Ok(ceiling) = window.ceiling() {
                let seen = &mut window.known.seen;
                seen.next_value = seen.next_value.max(ceiling);
            }
        }
    }

    /// Forgets a lost window, and returns what was known of it here.
    pub(crate) fn lose(&self, number: i64) -> Option<OpenWindow> {
        let mut memory = self.memory.lock();
        memory.lease = None;
        memory.window.take_if(|known| known.number == number)
    }

    /// Forgets the window after a change, so that the row is read before the next step.
    pub(crate) fn forget(&self) {
        self.memory.lock().forget_window();
    }

    /// Forgets the window if this process has seen a recovery since the entry was last used. A
    /// window from before a recovery is not valid any more.
    pub(crate) fn forget_before(&self, n_recoveries: u64) {
        let mut memory = self.memory.lock();
        if memory.n_recoveries >= n_recoveries {
            return;
        }
        memory.n_recoveries = n_recoveries;
        if !faults::is(Fault::RecoveryKeepsMemory) {
            memory.forget_window();
        }
    }

    /// Returns the last window that was used here, and the definition's version then. This window
    /// has been in Redis.
    pub(crate) fn last(&self) -> Option<(i64, i64)> {
        self.memory.lock().last
    }

    /// Returns the demand of the present caller, or else the last one that a caller gave. A higher
    /// stored rate replaces the measured rates.
    pub(crate) fn demand(&self, told: Option<Demand>, stored: Option<f64>) -> Demand {
        let mut memory = self.memory.lock();
        if told.is_some() {
            memory.demand = told;
        }
        let mut demand = told.or(memory.demand).unwrap_or_default();
        if let Some(stored) = stored.filter(|stored| *stored > demand.rates.average()) {
            demand.rates = Rates::resume(stored);
        }
        demand
    }

    /// Returns for how many seconds the numbers below the ceiling last. Returns `None` if the
    /// counter was not used within `used_within`.
    pub(crate) fn seconds_left(&self, used_within: Duration) -> Option<f64> {
        let memory = self.memory.lock();
        memory.used_at.filter(|at| at.elapsed() <= used_within)?;
        let rest = memory.window.as_ref()?.rest();
        memory.demand?.rates.reserve_seconds(rest)
    }

    /// Returns the window in use, its ceiling, and for how many seconds the numbers below the
    /// ceiling last.
    pub(crate) fn shown(&self) -> Option<(i64, Option<i64>, Option<f64>)> {
        let memory = self.memory.lock();
        let window = memory.window.as_ref()?;
        let rates = memory.demand.map(|demand| demand.rates);
        let lasts = rates.and_then(|rates| rates.reserve_seconds(window.rest()));
        Some((window.number, window.ceiling().ok(), lasts))
    }

    /// Says whether a lease of the window is valid now.
    pub(crate) fn is_leased(&self, number: i64) -> bool {
        let longest = Duration::from_millis(u64::from(LEASE_MS)).saturating_sub(MARGIN);
        self.lease_age(number).is_some_and(|age| age < longest)
    }

    /// Says whether the lease should be renewed.
    pub(crate) fn lease_is_old(&self, number: i64) -> bool {
        self.lease_age(number)
            .is_none_or(|age| age >= RENEWED_AFTER)
    }

    fn lease_age(&self, number: i64) -> Option<Duration> {
        let lease = self.memory.lock().lease;
        lease
            .filter(|(leased, _)| *leased == number)
            .map(|(_, asked_at)| asked_at.elapsed())
    }

    /// Notes a lease that was taken by a statement that was not sent before `asked_at`.
    pub(crate) fn note_lease(&self, number: i64, asked_at: Instant) {
        let mut memory = self.memory.lock();
        let is_older = |(leased, at): (i64, Instant)| leased == number && at > asked_at;
        if !memory.lease.is_some_and(is_older) {
            memory.lease = Some((number, asked_at));
        }
    }

    /// Lets the row count from now on, for a time that doubles with each failure that follows soon.
    pub(crate) fn fall(&self) {
        let mut memory = self.memory.lock();
        let now = Instant::now();
        let recurs = memory
            .fell_at
            .is_some_and(|at| at.elapsed() < FORGIVEN_AFTER + memory.pause);
        memory.pause = if recurs {
            (memory.pause * 2).min(PAUSE_MAX)
        } else {
            PAUSE_MIN
        };
        memory.fell_at = Some(now);
        memory.fallen_until = Some(now + memory.pause);
        memory.window = None;
        memory.lease = None;
        memory.row_is_free = false;
    }

    /// Says whether the row counts.
    pub(crate) fn has_fallen(&self) -> Fallen {
        match self.memory.lock().fallen_until {
            None => Fallen::No,
            Some(until) if Instant::now() < until => Fallen::Yes,
            Some(_) => Fallen::MayReturn,
        }
    }

    /// Lets Redis count again, because another replica went back to Redis.
    pub(crate) fn follow(&self) {
        let mut memory = self.memory.lock();
        memory.fallen_until = None;
        memory.row_is_free = false;
    }

    pub(crate) fn row_is_free(&self) -> bool {
        self.memory.lock().row_is_free
    }

    pub(crate) fn set_row_is_free(&self, is_free: bool) {
        self.memory.lock().row_is_free = is_free;
    }

    /// Returns a permit to raise the ceiling ahead of time. Only one task has it.
    pub(crate) fn extension_permit(&self) -> Option<TaskPermit> {
        let is_soon = |at: Instant| at.elapsed() < BETWEEN_EXTENSIONS;
        if self.memory.lock().extended_at.is_some_and(is_soon) {
            return None;
        }
        let turn = Arc::clone(&self.extending).try_lock_owned().ok()?;
        self.memory.lock().extended_at = Some(Instant::now());
        Some(turn)
    }

    /// Notes that the row has this ceiling of the window, and that Redis does not know it yet.
    pub(crate) fn owe(&self, number: i64, cap: u64) {
        self.memory.lock().owed = Some((number, cap));
    }

    /// Returns the ceiling that the row has, if it is above `cap`, the ceiling that Redis has.
    pub(crate) fn owed(&self, number: i64, cap: u64) -> Option<u64> {
        let owed = self.memory.lock().owed;
        owed.filter(|(of, owed)| *of == number && *owed > cap)
            .map(|(_, owed)| owed)
    }

    /// Notes that the row is above the window's ceiling.
    ///
    /// If Redis does not follow within [`FOLLOWS_WITHIN`], the replica that raised the row has
    /// died. The window is then given up, and the next one is opened while the database is there.
    pub(crate) fn note_conflict(&self, number: i64, ceiling: i64) {
        let mut memory = self.memory.lock();
        memory.extended_at = Some(Instant::now() + AFTER_CONFLICT);
        let is_same = |(of, at, _): &(i64, i64, Instant)| *of == number && *at == ceiling;
        match memory.conflict.filter(is_same) {
            Some((.., since)) if since.elapsed() >= FOLLOWS_WITHIN => {
                memory.given_up = Some(number);
                memory.window.take_if(|known| known.number == number);
            }
            Some(_) => {}
            None => memory.conflict = Some((number, ceiling, Instant::now())),
        }
    }

    /// Says whether the window was given up, because nobody raises its ceiling in Redis any more.
    pub(crate) fn has_given_up(&self, number: i64) -> bool {
        self.memory.lock().given_up == Some(number)
    }

    /// Returns a permit to renew the lease. Only one task has it.
    pub(crate) fn lease_permit(&self) -> Option<TaskPermit> {
        Arc::clone(&self.leasing).try_lock_owned().ok()
    }
}

/// Whether Redis or the row counts, after Redis failed not long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallen {
    /// Redis counts.
    No,
    /// The row counts.
    Yes,
    /// The row counts until Redis answers.
    MayReturn,
}

/// A permit for something that only one task does at a time. Dropping it gives it back.
pub(crate) type TaskPermit = OwnedMutexGuard<()>;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::definition::Definition;

    use super::*;
    use crate::SeenCounter;

    fn window(number: i64) -> OpenWindow {
        OpenWindow {
            number,
            base: 101,
            used: 4,
            cap: 10,
            known: Resolved {
                definition: Arc::new(Definition {
                    step: 5,
                    max: 1000,
                    ..Definition::default()
                }),
                definition_version: 7,
                seen: SeenCounter {
                    next_value: 151,
                    version: 3,
                },
                revision: 2,
                floor: 1,
                trusted: true,
            },
            rate: Some(1.0),
            generation: 1,
        }
    }

    #[test]
    fn a_window_of_the_time_before_a_recovery_is_forgotten() {
        let counter = WindowEntry::default();
        counter.keep(&window(1), counter.n_changes());
        counter.forget_before(0);
        assert!(counter.window().is_some());
        let before = counter.n_changes();
        counter.forget_before(1);
        assert!(counter.window().is_none());
        // A window that was read before the recovery is not kept either.
        counter.keep(&window(1), before);
        assert!(counter.window().is_none());
        counter.keep(&window(2), counter.n_changes());
        counter.forget_before(1);
        assert!(counter.window().is_some());
    }

    #[test]
    fn numbers_lie_between_base_and_ceiling() {
        let window = window(1);
        assert_eq!(window.ceiling().unwrap(), 151);
        assert_eq!((window.rest(), window.left_in_row().unwrap()), (6, 170));
        let taken = window.taken(7, 3).unwrap();
        assert_eq!((taken.first(), taken.last(), taken.end()), (121, 131, 136));
        // No step of this window can have given these answers.
        assert!(window.taken(2, 3).is_err());
        assert!(window.taken(200, 3).is_err());
        assert!(window.taken(u64::MAX, 3).is_err());
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let counter = WindowEntry::default();
        let n_changes = counter.n_changes();
        counter.keep(&window(1), n_changes);
        assert!(counter.window().is_some());
        let n_changes = counter.n_changes();
        counter.forget();
        assert!(counter.window().is_none());
        counter.keep(&window(2), n_changes);
        assert!(counter.window().is_none());
        // The window was in Redis all the same.
        assert_eq!(counter.last(), Some((2, 7)));
    }

    #[test]
    fn only_a_step_of_the_same_window_is_noted() {
        let counter = WindowEntry::default();
        counter.keep(&window(2), counter.n_changes());
        counter.note(1, 9, 90);
        assert_eq!(counter.window().unwrap().used, 4);
        counter.note(2, 9, 20);
        // An answer that a later one overtook.
        counter.note(2, 8, 10);
        let known = counter.window().unwrap();
        assert_eq!((known.used, known.cap), (9, 20));
        assert_eq!(known.known.seen.next_value, 201);
        assert!(counter.lose(1).is_none());
        assert_eq!(counter.lose(2).map(|lost| lost.rest()), Some(11));
        assert!(counter.lose(2).is_none());
    }

    #[test]
    fn a_lease_counts_from_before_it_was_asked_for_and_for_its_window_only() {
        let counter = WindowEntry::default();
        let now = Instant::now();
        assert!(!counter.is_leased(1));
        let long_ago = now
            .checked_sub(Duration::from_millis(u64::from(LEASE_MS)))
            .unwrap();
        counter.note_lease(1, long_ago);
        assert!(!counter.is_leased(1));
        counter.note_lease(1, now);
        assert!(counter.is_leased(1) && !counter.is_leased(2));
        // A renewal that a later one overtook.
        counter.note_lease(1, long_ago);
        assert!(counter.is_leased(1));
        counter.lose(9);
        assert!(!counter.is_leased(1));
    }

    #[test]
    fn who_falls_again_and_again_stays_longer_with_the_row() {
        let counter = WindowEntry::default();
        assert_eq!(counter.has_fallen(), Fallen::No);
        for expected in [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000] {
            counter.fall();
            assert_eq!(counter.memory.lock().pause, Duration::from_millis(expected));
            assert_eq!(counter.has_fallen(), Fallen::Yes);
        }
        counter.follow();
        assert_eq!(counter.has_fallen(), Fallen::No);
    }

    #[test]
    fn one_task_at_a_time_raises_a_ceiling() {
        let counter = Arc::new(WindowEntry::default());
        let turn = counter.lease_permit().unwrap();
        assert!(counter.lease_permit().is_none());
        drop(turn);
        assert!(counter.lease_permit().is_some());
    }
}
