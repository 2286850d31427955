//! A replica from the balancer's view: whether it is ready, and how many uses it has.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, task::JoinHandle};

use super::{Unanswered, Wire, locked};
use crate::raw;

/// How often the balancer asks a replica whether it is ready.
const PROBE_PERIOD: Duration = Duration::from_millis(400);
/// How many probes in a row must fail before the balancer sends nothing more to a replica.
const FAILURE_THRESHOLD: u32 = 2;
/// How long one probe may take.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// A replica from the balancer's view.
pub(super) struct Replica {
    address: String,
    is_ready: AtomicBool,
    n_sent: AtomicU64,
    n_uses: AtomicUsize,
    /// Connections that nobody uses now. The connection that waited longest is the first.
    idle: Mutex<VecDeque<Wire>>,
    probing: Mutex<Option<JoinHandle<()>>>,
}

impl Replica {
    /// Makes the replica at `address` and starts to probe it.
    pub(super) fn probed(address: &str) -> Arc<Self> {
        let replica = Arc::new(Self {
            address: address.to_owned(),
            is_ready: AtomicBool::new(false),
            n_sent: AtomicU64::new(0),
            n_uses: AtomicUsize::new(0),
            idle: Mutex::default(),
            probing: Mutex::default(),
        });
        let probed = Arc::clone(&replica);
        *locked(&replica.probing) = Some(tokio::spawn(async move { probed.probe().await }));
        replica
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the replica was ready at the last probe.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::SeqCst)
    }

    /// Returns the number of connections to the replica, and of requests that are about to open
    /// one.
    pub(super) fn n_uses(&self) -> usize {
        self.n_uses.load(Ordering::SeqCst)
    }

    /// Returns how many requests were sent to the replica.
    pub(super) fn n_sent(&self) -> u64 {
        self.n_sent.load(Ordering::SeqCst)
    }

    pub(super) fn count_sent(&self) {
        self.n_sent.fetch_add(1, Ordering::SeqCst);
    }

    /// Keeps an idle connection for the next request, unless the replica is out of use.
    pub(super) fn keep(&self, wire: Wire) {
        let mut idle = locked(&self.idle);
        if self.is_ready() {
            idle.push_back(wire);
        }
    }

    /// Stops the probes and takes the replica out of use.
    pub(super) fn end(&self) {
        if let Some(probing) = locked(&self.probing).take() {
            probing.abort();
        }
        self.take_out();
    }

    /// Asks the replica again and again whether it is ready.
    async fn probe(&self) {
        let mut turn = tokio::time::interval(PROBE_PERIOD);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut n_failed = 0;
        loop {
            turn.tick().await;
            let says = tokio::time::timeout(PROBE_LIMIT, self.says_ready()).await;
            if says.is_ok_and(|says| says == Some(true)) {
                n_failed = 0;
                self.is_ready.store(true, Ordering::SeqCst);
                continue;
            }
            n_failed += 1;
            if n_failed >= FAILURE_THRESHOLD {
                self.take_out();
            }
        }
    }

    /// Asks the replica whether it is ready. Returns `None` if the replica gives no reply.
    async fn says_ready(&self) -> Option<bool> {
        let mut wire = Wire::over(TcpStream::connect(&self.address).await.ok()?, None);
        let request = raw::request("GET", b"/readyz", "", b"");
        wire.send(&request).await?;
        let reply = wire.message().await?;
        Some(reply.starts_with(b"HTTP/1.1 200 "))
    }

    fn take_out(&self) {
        let mut idle = locked(&self.idle);
        self.is_ready.store(false, Ordering::SeqCst);
        idle.clear();
    }

    fn kept(&self) -> Option<Wire> {
        let mut idle = locked(&self.idle);
        std::iter::from_fn(|| idle.pop_front()).find(Wire::can_be_used)
    }
}

/// A replica that a caller uses, or is about to use.
pub(super) struct Use(Arc<Replica>);

impl Use {
    pub(super) fn of(replica: Arc<Replica>) -> Self {
        replica.n_uses.fetch_add(1, Ordering::SeqCst);
        Self(replica)
    }

    pub(super) fn replica(&self) -> &Arc<Replica> {
        &self.0
    }

    /// Returns an idle connection if one is kept, else a new one.
    pub(super) async fn connection(self) -> Result<Wire, Unanswered> {
        if let Some(wire) = self.0.kept() {
            return Ok(wire);
        }
        match TcpStream::connect(&self.0.address).await {
            Ok(stream) => Ok(Wire::over(stream, Some(self))),
            Err(error) => {
                let why = format!("{}: {error}", self.0.address);
                Err(Unanswered::NotConnected(why))
            }
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.n_uses.fetch_sub(1, Ordering::SeqCst);
    }
}
