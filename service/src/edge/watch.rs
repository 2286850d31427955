//! Watches one worker's connections, with a tick once a second.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use actix_web::rt;
use odometer_process::{
    faults::{self, Fault},
    metrics::ListenerMetrics,
};
use tokio::time::{MissedTickBehavior, interval};

use super::bounds::ConnectionBounds;
use super::progress::{ConnectionProgress, Cut};

/// The time between two looks at the connections.
const TICK: Duration = Duration::from_secs(1);

/// The connections of one worker.
pub(crate) struct Watch {
    bounds: ConnectionBounds,
    /// Whether a test took the guard out.
    pub(crate) is_off: bool,
    now: Cell<u32>,
    is_crowded: Cell<bool>,
    is_stopping: Cell<bool>,
    connections: RefCell<Vec<Rc<ConnectionProgress>>>,
    metrics: ListenerMetrics,
}

impl Watch {
    pub(crate) fn new(bounds: &ConnectionBounds, metrics: ListenerMetrics) -> Self {
        let is_off = faults::is(Fault::NoConnectionGuard);
        Self {
            bounds: *bounds,
            is_off,
            now: Cell::new(0),
            is_crowded: Cell::new(false),
            is_stopping: Cell::new(false),
            connections: RefCell::default(),
            metrics,
        }
    }

    /// Starts the tick of this thread, which ends when the last connection and the worker have
    /// ended.
    ///
    /// Each tick calls `at_tick`, which returns whether the service is stopping.
    pub(crate) fn start(
        bounds: &ConnectionBounds,
        metrics: ListenerMetrics,
        at_tick: impl Fn() -> bool + 'static,
    ) -> Rc<Self> {
        let watch = Rc::new(Self::new(bounds, metrics));
        rt::spawn(keep_ticking(Rc::downgrade(&watch), at_tick));
        watch
    }

    /// Gives a new connection its place. From now on the tick watches it. A connection that comes
    /// after the stop ends as the idle ones did.
    pub(crate) fn admit(self: &Rc<Self>) -> WatchedPlace {
        let progress = Rc::new(ConnectionProgress::new(self.now.get()));
        if self.is_stopping() {
            progress.end(Cut::Idle);
        }
        self.connections.borrow_mut().push(Rc::clone(&progress));
        self.metrics.open.increment(1.0);
        WatchedPlace {
            progress,
            watch: Rc::clone(self),
        }
    }

    /// Returns the most bytes that are read of a request before it is answered.
    #[inline]
    pub(crate) fn unread(&self) -> usize {
        self.bounds.unread
    }

    /// Returns whether nearly all connections are taken, so that each reply should end its
    /// connection.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.get()
    }

    /// Ends the connections that are idle. The others should end after their present answer.
    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
        for progress in self.connections.borrow().iter() {
            if progress.idle_since().is_some() {
                progress.end(Cut::Idle);
            }
        }
    }

    /// Returns whether the server stops, so that a connection should end after its present answer.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    pub(crate) fn count(&self, cut: Cut) {
        match cut {
            Cut::Request => self.metrics.cut_request.increment(1),
            Cut::Reply => self.metrics.cut_reply.increment(1),
            Cut::Crowded => self.metrics.cut_crowded.increment(1),
            // Every connection that is no longer used ends in this way.
            Cut::Idle => {}
        }
    }

    pub(crate) fn count_failed_handshake(&self) {
        self.metrics.handshakes_failed.increment(1);
    }

    pub(crate) fn tick(&self, is_draining: bool) {
        let now = self.now.get().wrapping_add(1);
        self.now.set(now);
        let mut connections = self.connections.borrow_mut();
        connections.retain(|progress| !progress.is_closed());
        if self.is_off {
            return;
        }
        for progress in connections.iter() {
            if let Some(cut) = progress.verdict(&self.bounds, now, is_draining) {
                self.count(cut);
                progress.end(cut);
            }
        }
        let n_open = connections.len();
        let limit = self.bounds.connections;
        self.is_crowded.set(n_open * 20 >= limit * 19);
        let n_kept = limit * 9 / 10;
        if n_open > n_kept {
            let idle = longest(
                &connections,
                now,
                n_open - n_kept,
                ConnectionProgress::idle_since,
            );
            for progress in &idle {
                progress.end(Cut::Crowded);
            }
            let n_more = n_open - n_kept - idle.len();
            for progress in longest(&connections, now, n_more, ConnectionProgress::asking_since) {
                self.count(Cut::Request);
                progress.end(Cut::Request);
            }
        }
    }
}

/// The place of one connection among those of its worker, until this value is dropped.
pub(crate) struct WatchedPlace {
    pub(crate) progress: Rc<ConnectionProgress>,
    pub(crate) watch: Rc<Watch>,
}

impl WatchedPlace {
    /// Gives the connection as much time as a new one has.
    pub(super) fn restart(&self) {
        self.progress.restart(self.watch.now());
    }

    pub(super) fn count(&self, cut: Cut) {
        self.watch.count(cut);
    }

    /// Runs `work` until it is done, or until the place is cut.
    pub(crate) async fn uncut<T>(&self, work: impl Future<Output = T>) -> Result<T, Cut> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if let Some(cut) = self.progress.cut() {
                return Poll::Ready(Err(cut));
            }
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                self.progress.park(context);
            }
            done.map(Ok)
        })
        .await
    }
}

impl Drop for WatchedPlace {
    fn drop(&mut self) {
        self.progress.close();
        self.watch.metrics.open.decrement(1.0);
    }
}

/// Returns the `n` connections for which the tick that `since` returns is the longest ago.
///
/// A connection counts only if that tick is at least one tick ago. So the result may have fewer
/// connections.
fn longest(
    connections: &[Rc<ConnectionProgress>],
    now: u32,
    n: usize,
    since: impl Fn(&ConnectionProgress) -> Option<u32>,
) -> Vec<&ConnectionProgress> {
    let mut found: Vec<(u32, &ConnectionProgress)> = connections
        .iter()
        .filter_map(|progress| {
            let ticks = now.wrapping_sub(since(progress)?);
            (ticks > 0).then_some((ticks, progress.as_ref()))
        })
        .collect();
    found.sort_unstable_by_key(|(ticks, _)| std::cmp::Reverse(*ticks));
    found.truncate(n);
    found.into_iter().map(|(_, progress)| progress).collect()
}

async fn keep_ticking(watch: Weak<Watch>, at_tick: impl Fn() -> bool) {
    let mut period = interval(TICK);
    // If the worker was held up, the next ticks are late as well. So connections do not lose the
    // time that the worker lost.
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    period.tick().await;
    loop {
        period.tick().await;
        let Some(watch) = watch.upgrade() else {
            return;
        };
        watch.tick(at_tick());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_connections_that_are_idle_and_those_that_come_later() {
        let second = Duration::from_secs(1);
        let bounds = ConnectionBounds {
            head: second,
            request: second,
            reply: second,
            unread: 1,
            connections: 2,
        };
        let watch = Rc::new(Watch::new(&bounds, ListenerMetrics::uncounted()));
        let (idle, asking) = (watch.admit(), watch.admit());
        asking.progress.note_read(1, 0);
        assert!(!watch.is_stopping());
        watch.stop();
        assert!(watch.is_stopping());
        assert_eq!(idle.progress.cut(), Some(Cut::Idle));
        assert_eq!(asking.progress.cut(), None);
        let late = watch.admit();
        assert_eq!(late.progress.cut(), Some(Cut::Idle));
    }
}
