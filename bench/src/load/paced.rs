//! Makes calls at fixed times. A late answer does not delay later calls.
//!
//! The time of a call begins at the moment at which the call was due. So a pause of the server
//! affects all calls that were due during the pause, not only the calls that wait already.

use std::time::{Duration, Instant};

use odometer_tests::raw::Connection;
use tokio::{sync::mpsc, task::JoinHandle};

use super::N_CONNECTIONS;
use crate::reading::{Latency, Reading};

/// The longest time that a call may take and still count as answered. The calls are plain bytes on
/// plain connections. The caller's own time is part of each measured time, and would hide the time
/// of the server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections that make the calls. Each connection has one call at a time.
pub(crate) struct Paced {
    /// The server of each connection, as `host:port`. Several connections may have the same server.
    pub(crate) addresses: Vec<String>,
    pub(crate) path: String,
    pub(crate) calls_per_s: f64,
    pub(crate) waiting: PacingMode,
    pub(crate) turn: ConnectionOrder,
}

/// How a call's connection is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionOrder {
    /// The connections follow in their order.
    InOrder,
    /// Each call uses a random connection, as callers come to replicas. With connections in order,
    /// replicas that start together would use up their blocks at the same moments for ever.
    AtRandom,
}

/// How the loop waits until the next call is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacingMode {
    /// By polling on a core of its own, to the microsecond.
    Busy,
    /// By a timer with a resolution of a millisecond, so that the core is free for others.
    Asleep,
}

/// The outcome of calls.
#[derive(Default)]
pub(crate) struct Seen {
    micros: Vec<f64>,
    n_failed: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.n_failed += other.n_failed;
    }

    /// Returns the percentiles of the calls.
    ///
    /// # Panics
    /// If there was no call.
    pub(crate) fn latency(&self) -> Latency {
        Latency::of(self.micros.clone())
    }

    /// Returns a reading. Its value is the 99th percentile in microseconds.
    pub(crate) fn reading(self) -> Reading {
        let n_requests = self.micros.len() as u64;
        let latency = Latency::of(self.micros);
        Reading {
            latency: Some(latency),
            n_requests,
            n_failed: self.n_failed,
            ..Reading::of(latency.p99)
        }
    }
}

impl Paced {
    /// Makes calls on 64 connections to one server at `address`.
    pub(crate) fn new(address: &str, path: &str, calls_per_s: f64) -> Self {
        Self {
            addresses: vec![address.to_owned(); N_CONNECTIONS],
            path: path.to_owned(),
            calls_per_s,
            waiting: PacingMode::Busy,
            turn: ConnectionOrder::InOrder,
        }
    }

    /// Makes calls for `length`. The value is the 99th percentile in microseconds.
    pub(crate) async fn run(&self, length: Duration) -> Reading {
        self.calls(length).await.reading()
    }

    /// Makes calls for `length`.
    pub(crate) async fn calls(&self, length: Duration) -> Seen {
        let (mut senders, mut connections) = (Vec::new(), Vec::new());
        for address in &self.addresses {
            let open = Connection::open(address).await;
            let (sender, calling) = connection(open, address.clone(), &self.path);
            senders.push(sender);
            connections.push(calling);
        }
        let started = Instant::now();
        let mut n_calls = 0_u64;
        loop {
            let due = Duration::from_secs_f64(n_calls as f64 / self.calls_per_s);
            if due >= length {
                break;
            }
            self.wait_until(started + due).await;
            let turn = match self.turn {
                ConnectionOrder::InOrder => {
                    usize::try_from(n_calls).expect("few calls") % senders.len()
                }
                ConnectionOrder::AtRandom => rand::random_range(0..senders.len()),
            };
            let sent = senders[turn].send(started + due);
            sent.expect("a connection takes calls until there are no more");
            n_calls += 1;
        }
        drop(senders);
        let mut all = Seen::default();
        for connection in connections {
            all.add(connection.await.expect("no panic"));
        }
        all
    }

    async fn wait_until(&self, due: Instant) {
        match self.waiting {
            PacingMode::Asleep => tokio::time::sleep_until(due.into()).await,
            PacingMode::Busy => {
                while Instant::now() < due {
                    // The other tasks of this thread run in the meantime.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// Starts a task for one connection. The task makes a call for each due time that it receives.
fn connection(
    mut open: Connection,
    address: String,
    path: &str,
) -> (mpsc::UnboundedSender<Instant>, JoinHandle<Seen>) {
    let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (sender, mut calls) = mpsc::unbounded_channel::<Instant>();
    let calling = tokio::spawn(async move {
        let mut seen = Seen::default();
        while let Some(due) = calls.recv().await {
            let exchanged = open.try_exchange(request.as_bytes());
            let reply = tokio::time::timeout(CALL_TIMEOUT, exchanged)
                .await
                .ok()
                .flatten();
            seen.micros.push(due.elapsed().as_secs_f64() * 1e6);
            seen.n_failed += u64::from(reply.as_ref().is_none_or(|reply| reply.status != 200));
            if reply.is_none() {
                open = Connection::open(&address).await;
            }
        }
        seen
    });
    (sender, calling)
}
