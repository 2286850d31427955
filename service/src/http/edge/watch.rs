//! One worker's connections, and the tick that looks at them once a second.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use actix_web::rt;
use odometer_process::{
    faults::{self, Fault},
    metrics::ConnectionsMetrics,
};
use tokio::time::{MissedTickBehavior, interval};

use super::bounds::ConnectionBounds;
use super::guarded::Guarded;
use super::progress::{ConnectionProgress, Cut, Deadlines};

/// How often connections are looked at.
const TICK: Duration = Duration::from_secs(1);

/// One worker's connections.
pub(crate) struct Watch {
    deadlines: Deadlines,
    /// Bytes that a head may have, or a chunked body with all around it.
    unread: usize,
    /// Connections that this worker may have.
    limit: usize,
    is_off: bool,
    now: Cell<u32>,
    is_crowded: Cell<bool>,
    connections: RefCell<Vec<Rc<ConnectionProgress>>>,
    metrics: ConnectionsMetrics,
}

impl Watch {
    pub(crate) fn new(bounds: &ConnectionBounds, metrics: ConnectionsMetrics) -> Self {
        let is_off = faults::is(Fault::NoConnectionGuard);
        Self {
            deadlines: Deadlines::of(bounds),
            unread: bounds.unread(),
            limit: bounds.connections,
            is_off,
            now: Cell::new(0),
            is_crowded: Cell::new(false),
            connections: RefCell::default(),
            metrics,
        }
    }

    /// Starts the tick of this thread, which ends when the last connection and the worker have.
    ///
    /// At each tick, `at_tick` is called, and says whether the service is stopping.
    pub(crate) fn start(
        bounds: &ConnectionBounds,
        metrics: ConnectionsMetrics,
        at_tick: impl Fn() -> bool + 'static,
    ) -> Rc<Self> {
        let watch = Rc::new(Self::new(bounds, metrics));
        rt::spawn(keep_ticking(Rc::downgrade(&watch), at_tick));
        watch
    }

    /// Takes a new connection under guard.
    pub(crate) fn guard<T>(self: &Rc<Self>, io: T) -> Guarded<T> {
        let progress = Rc::new(ConnectionProgress::new(self.now.get()));
        self.connections.borrow_mut().push(Rc::clone(&progress));
        self.metrics.open.increment(1.0);
        Guarded::new(io, progress, Rc::clone(self))
    }

    /// Whether nearly all connections are taken, so that each reply should end its own.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.get()
    }

    pub(crate) fn now(&self) -> u32 {
        self.now.get()
    }

    pub(crate) fn unread(&self) -> usize {
        self.unread
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off
    }

    pub(crate) fn note_closed(&self) {
        self.metrics.open.decrement(1.0);
    }

    pub(crate) fn count(&self, cut: Cut) {
        match cut {
            Cut::Request => self.metrics.cut_request.increment(1),
            Cut::Reply => self.metrics.cut_reply.increment(1),
            Cut::Crowded => self.metrics.cut_crowded.increment(1),
            // The end that every connection has which nobody uses.
            Cut::Idle => {}
        }
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
            if let Some(cut) = progress.verdict(&self.deadlines, now, is_draining) {
                self.count(cut);
                progress.end(cut);
            }
        }
        let n_open = connections.len();
        self.is_crowded.set(n_open * 20 >= self.limit * 19);
        let n_kept = self.limit * 9 / 10;
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

/// Those `n` connections of which it has been so longest, for a tick at least; fewer where it is so
/// of fewer.
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
    // A worker that was held up gives its connections the time that it took from them.
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
