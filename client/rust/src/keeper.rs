//! Keeps the lease of a worker id in one process, and makes ids as long as it lasts.
//!
//! ```text
//! no lease ──lease──▶ open ──due, or its time used up──▶ renewed ──lost──▶ closed, no lease
//!                       │ the program ends, or drops the stamper
//!                       ▼
//!                     closed, then given back from its first unused tick on
//! ```
//!
//! One thread makes the calls, one after the other. A caller who takes an id never waits for it.
//!
//! Two checks keep an id from being made twice. The ticker makes only ids of the time that was
//! reserved with the lease. This check alone is enough, however long a thread is held up. The
//! second check: nothing is made after the lease has ended by our own clock, because from then on
//! another program may have the worker id.

use std::{
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use odometer_core::snowflake::{High, Layout, Moment, NotOpened, Refused, Ticker};

use crate::{
    backoff, boot_clock,
    error::Error,
    lease::{Lease, LeaseCalls, StamperPlan, nanos},
    log::TARGET,
    of_process::Renew,
    sabotage,
    waiter::{Outcome, Waiter},
};

/// How many ticks ahead of the clock an id may be. The counter goes on from tick to tick, so the
/// next tick may be needed although few ids of the present tick were made.
const AHEAD: u64 = 1;
/// How long after a lease or a renewal callers can call for the next one. If the clock is ahead,
/// each id that is refused calls, and a renewal costs the service a write.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// How often a lease is given back, if the call fails. If none succeeds, the id rests.
const MAX_RETURNS: u32 = 3;

/// The lease of one stamper in one process.
pub(crate) struct Keeper {
    plan: Arc<StamperPlan>,
    ticker: Ticker,
    /// When the lease is not used any more, by the boot clock; 0 without a lease. `due` is when it
    /// is renewed.
    ends: AtomicU64,
    due: AtomicU64,
    /// Whether a caller has already called the thread.
    is_called: AtomicBool,
    /// Whether a caller found the reserved time used up, so that a renewal may bring more.
    is_short: AtomicBool,
    state: Mutex<KeeperState>,
    changed: Condvar,
}

#[derive(Default)]
struct KeeperState {
    is_started: bool,
    is_closing: bool,
    lease: Option<Lease>,
    /// From when on nothing was stamped (Unix ms), once the keeper is closing.
    unused_from_ms: i64,
    n_failures: u32,
    /// After a failure, the next call is not made before this time, by the boot clock.
    not_before: u64,
    /// No caller can call for a renewal before this time, by the boot clock.
    calls_from: u64,
    last_error: Option<Arc<Error>>,
    n_forgets: u64,
    /// Callers who wait for the first lease, or for the end of the thread.
    waiting: Vec<Arc<Waiter>>,
}

/// The thread of a keeper, until it ends, however it ends.
struct KeeperThread<'a>(&'a Keeper);

/// What the thread does next.
enum KeeperTask {
    Lease,
    Renew(Lease),
    /// Gives back what is left, and ends.
    End(Option<(Lease, i64)>),
}

impl Keeper {
    pub(crate) fn new(plan: Arc<StamperPlan>) -> Self {
        Self {
            ticker: Ticker::new(&plan.layout),
            plan,
            ends: AtomicU64::new(0),
            due: AtomicU64::new(0),
            is_called: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Makes the next id. Never waits, and makes no call.
    #[inline]
    pub(crate) fn take(self: &Arc<Self>) -> Result<i64, Error> {
        let now = boot_clock::now();
        if now >= self.ends.load(Ordering::Acquire) && !sabotage::are_ends_unchecked() {
            return Err(self.no_lease());
        }
        if now >= self.due.load(Ordering::Relaxed) {
            self.call_thread();
        }
        let layout = self.ticker.layout();
        let tick = match layout.high {
            // Counted ids do not look at the clock.
            High::Worker => 0,
            High::Time => {
                let now_ms = unix_ms();
                layout
                    .tick_at(now_ms)
                    .ok_or_else(|| before_epoch(layout, now_ms))?
            }
        };
        let moment = Moment {
            tick,
            ahead: AHEAD,
            batch_ahead: AHEAD,
        };
        let taken = self.ticker.take(|| moment);
        taken.map_err(|refused| self.refused(refused))
    }

    /// Returns the worker id of the ids that are made now.
    pub(crate) fn worker(&self) -> Option<u32> {
        self.ticker.worker()
    }

    /// Has the waiter settled when ids can be made, or when no lease can be had.
    pub(crate) fn wait_for_lease(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        // The thread opens the ticker under this lock.
        if self.ticker.is_open() {
            waiter.settle(Outcome::Ready);
            return;
        }
        state.waiting.push(Arc::clone(waiter));
        drop(state);
        self.call_thread();
    }

    /// Returns why no id can be made, and lets the thread see to it.
    #[cold]
    pub(crate) fn no_lease(self: &Arc<Self>) -> Error {
        self.call_thread();
        Error::NoLease {
            pool: self.plan.pool.clone(),
            last: self.lock().last_error.clone(),
        }
    }

    /// Stops at once, and has the rest of the lease given back. Then the waiter is settled.
    pub(crate) fn close(&self, waiter: &Arc<Waiter>) {
        let mut state = self.lock();
        if !mem::replace(&mut state.is_closing, true) {
            let unused_ms = self.stop().map(|tick| self.plan.layout.unix_ms_of(tick));
            if let Some(lease) = &state.lease {
                let until_ms = lease.until_ms.max(lease.from_ms);
                // If the first unused tick is not known, all of the time counts as used.
                let unused_ms = unused_ms.unwrap_or(until_ms);
                state.unused_from_ms = unused_ms.clamp(lease.from_ms, until_ms);
            }
        }
        if state.is_started {
            state.waiting.push(Arc::clone(waiter));
            self.changed.notify_one();
        } else {
            waiter.settle(Outcome::Ready);
        }
    }

    /// Drops the lease without giving it back, because a copy of this process may have it, too.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        state.n_forgets += 1;
        state.lease = None;
        state.not_before = 0;
        let _forgotten = self.stop();
        self.changed.notify_one();
    }

    /// Makes no id any more. Returns the first tick that has no id, if that is known.
    fn stop(&self) -> Option<u64> {
        self.ends.store(0, Ordering::Release);
        self.ticker.close().map(|closed| closed.first_unused_tick)
    }

    #[cold]
    fn refused(self: &Arc<Self>, refused: Refused) -> Error {
        match refused {
            Refused::Closed => self.no_lease(),
            Refused::Limit | Refused::TooMany { .. } => {
                self.is_short.store(true, Ordering::Release);
                self.call_thread();
                Error::PastReservedTime
            }
            Refused::Ahead { ticks } => {
                let unit_ms = self.plan.layout.unit.ms().unsigned_abs();
                Error::ClockBehind {
                    wait: Duration::from_millis(ticks.saturating_mul(unit_ms)),
                }
            }
            Refused::TimeEnds => Error::TimeEnds,
        }
    }

    /// Lets the thread look at once what is to be done, and starts it if there is none.
    #[cold]
    fn call_thread(self: &Arc<Self>) {
        if self.is_called.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.lock();
        self.changed.notify_one();
        if state.is_closing || mem::replace(&mut state.is_started, true) {
            return;
        }
        let keeper = Arc::clone(self);
        let shared = &self.plan.shared;
        let started = shared.engine.with(|engine| {
            let calls = LeaseCalls {
                engine: Arc::clone(engine),
                plan: Arc::clone(&self.plan),
            };
            engine.threads.start(Box::new(move || keeper.keep(&calls)))
        });
        if let Err(error) = started {
            state.is_started = false;
            state.last_error = Some(Arc::new(error));
            self.is_called.store(false, Ordering::Release);
        }
    }

    /// Leases, renews and gives back, until the keeper is closed.
    fn keep(&self, calls: &LeaseCalls) {
        let _thread = KeeperThread(self);
        loop {
            let (task, n_forgets) = self.next_task();
            match task {
                KeeperTask::Lease => {
                    let outcome = calls.lease();
                    self.note(n_forgets, outcome);
                }
                KeeperTask::Renew(lease) => {
                    let outcome = calls.renew(&lease);
                    self.note(n_forgets, outcome);
                }
                KeeperTask::End(rest) => {
                    if let Some((lease, unused_from_ms)) = rest {
                        self.give_back(calls, &lease, unused_from_ms);
                    }
                    return;
                }
            }
        }
    }

    /// Waits until there is something to do. Also returns how many times the keeper had to forget.
    fn next_task(&self) -> (KeeperTask, u64) {
        let mut state = self.lock();
        loop {
            let now = boot_clock::now();
            // In a pause the mark of a call stays, so that further callers do not wake the thread.
            let calls_from = state.not_before.max(state.calls_from);
            let is_heard = now >= calls_from && self.is_called.swap(false, Ordering::AcqRel);
            let is_short = is_heard && self.is_short.swap(false, Ordering::AcqRel);
            let due = self.due.load(Ordering::Relaxed);
            let task = match &state.lease {
                lease if state.is_closing => {
                    let rest = lease.clone().map(|lease| (lease, state.unused_from_ms));
                    Some(KeeperTask::End(rest))
                }
                _ if now < state.not_before => None,
                None => Some(KeeperTask::Lease),
                Some(lease) if is_short || now >= due => Some(KeeperTask::Renew(lease.clone())),
                Some(_) => None,
            };
            if let Some(task) = task {
                return (task, state.n_forgets);
            }
            let next = if now < state.not_before {
                state.not_before
            } else if now < calls_from {
                due.min(calls_from)
            } else {
                due
            };
            let wait = Duration::from_nanos(next.saturating_sub(now));
            let waited = self.changed.wait_timeout(state, wait);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes how a call for a lease or a renewal ended.
    fn note(&self, n_forgets: u64, outcome: Result<Lease, Error>) {
        let mut state = self.lock();
        if state.n_forgets != n_forgets {
            // A copy of this process may have got the same reply.
            return;
        }
        let told = match outcome {
            Ok(lease) if state.is_closing => {
                if state.lease.is_none() {
                    // Nothing was stamped under it.
                    state.unused_from_ms = lease.from_ms;
                }
                state.lease = Some(lease);
                None
            }
            Ok(lease) => Some(self.go_on(&mut state, lease)),
            Err(error) => {
                if let Some(worker) = self.lose(&mut state, &error) {
                    // Who reads the log is code of the program, which may take an id.
                    drop(state);
                    tracing::warn!(
                        target: TARGET,
                        pool = self.plan.pool.as_str(),
                        worker,
                        "the lease of a worker id was lost: another one is leased"
                    );
                    return;
                }
                self.fail(&mut state, &error).then_some(Err(error))
            }
        };
        let Some(told) = told else {
            return;
        };
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        for waiter in waiting {
            waiter.settle(match &told {
                Ok(()) => Outcome::Ready,
                Err(error) => Outcome::Failed(error.clone()),
            });
            waiter.wake();
        }
    }

    /// Makes ids under a lease from now on.
    ///
    /// # Errors
    /// Why it has no time for ids now. The next renewal tries again.
    fn go_on(&self, state: &mut KeeperState, lease: Lease) -> Result<(), Error> {
        let now = boot_clock::now();
        state.n_failures = 0;
        state.not_before = 0;
        state.calls_from = now.saturating_add(nanos(RENEWAL_PAUSE));
        let used = self.use_time(&lease);
        self.due.store(lease.due, Ordering::Relaxed);
        // Who called during the call has what came. Who needs more calls again.
        self.is_short.store(false, Ordering::Release);
        self.is_called.store(false, Ordering::Release);
        if used.is_ok() {
            self.ends.store(lease.ends, Ordering::Release);
        }
        state.lease = Some(lease);
        state.last_error = used.as_ref().err().cloned().map(Arc::new);
        used
    }

    /// Opens the ticker for the whole ticks of a lease, or lets it go on.
    fn use_time(&self, lease: &Lease) -> Result<(), Error> {
        let layout = &self.plan.layout;
        let (from_tick, until_tick) = if sabotage::is_time_unchecked() {
            (0, layout.end_tick())
        } else {
            layout.whole_ticks(lease.from_ms, lease.until_ms)
        };
        if self.ticker.extend(lease.worker, until_tick) {
            return Ok(());
        }
        let now_tick = layout.tick_at(unix_ms()).unwrap_or(0);
        let opened = self
            .ticker
            .open(lease.worker, from_tick, until_tick, now_tick);
        opened.map_err(|refused| match refused {
            NotOpened::NoTime { .. } => Error::PastReservedTime,
            NotOpened::TimeEnds => Error::TimeEnds,
            NotOpened::Open | NotOpened::Worker { .. } => {
                Error::setting(format!("the worker id cannot be used: {refused}"))
            }
        })
    }

    /// Makes no id any more, if the lease was lost. Returns its worker id then.
    fn lose(&self, state: &mut KeeperState, error: &Error) -> Option<u32> {
        if error.code() != "lease_lost" || sabotage::is_time_unchecked() {
            return None;
        }
        let lease = state.lease.take()?;
        let _lost = self.stop();
        state.last_error = Some(Arc::new(error.clone()));
        Some(lease.worker)
    }

    /// Notes a failed call. Returns whether those who wait for the first lease must be told.
    fn fail(&self, state: &mut KeeperState, error: &Error) -> bool {
        state.last_error = Some(Arc::new(error.clone()));
        state.n_failures = state.n_failures.saturating_add(1);
        let shared = &self.plan.shared;
        let is_sole = shared
            .engine
            .with(|engine| engine.service.endpoints.is_sole());
        let retry_after = error.retry_after().filter(|_| is_sole);
        let uniform = shared.settings.uniform;
        let pause = backoff::pause(state.n_failures, retry_after, uniform);
        state.not_before = boot_clock::now().saturating_add(nanos(pause));
        !error.is_retryable()
    }

    fn give_back(&self, calls: &LeaseCalls, lease: &Lease, unused_from_ms: i64) {
        for n_failures in 1..=MAX_RETURNS {
            let Err(error) = calls.give_back(lease, unused_from_ms) else {
                return;
            };
            tracing::debug!(
                target: TARGET,
                pool = self.plan.pool.as_str(),
                worker = lease.worker,
                %error,
                "a worker id was not given back"
            );
            if !error.is_retryable() {
                return;
            }
            let uniform = self.plan.shared.settings.uniform;
            thread::sleep(backoff::pause(n_failures, None, uniform));
        }
    }

    fn lock(&self) -> MutexGuard<'_, KeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeeperThread<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_started = false;
        self.0.is_called.store(false, Ordering::Release);
        // Who waits for a lease calls again. Who waits for the end has it now.
        let waiting = if state.is_closing {
            mem::take(&mut state.waiting)
        } else {
            Vec::new()
        };
        drop(state);
        for waiter in waiting {
            waiter.settle(Outcome::Ready);
            waiter.wake();
        }
    }
}

impl Renew for Keeper {
    /// Has no lease: the parent has it, and gives it back.
    fn renewed(&self) -> Self {
        Self::new(Arc::clone(&self.plan))
    }
}

/// Returns the time in milliseconds since the Unix epoch, and 0 before the epoch.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

fn before_epoch(layout: &Layout, now_ms: i64) -> Error {
    let wait_ms = layout.epoch_ms.saturating_sub(now_ms);
    Error::ClockBehind {
        wait: Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0)),
    }
}
