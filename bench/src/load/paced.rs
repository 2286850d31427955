//! Calls at times that were fixed before: who is answered late does not ask later.
//!
//! A call's time runs from the moment it was meant to be sent, so a pause of the server is seen by
//! all who would have called meanwhile, not only by those who wait already.

use std::time::{Duration, Instant};

use odometer_tests::raw::Connection;
use tokio::{sync::mpsc, task::JoinHandle};

use super::N_CONNECTIONS;
use crate::reading::{Latency, Reading};

/// Longer than any call that still counts as answered. The calls are plain bytes on plain
/// connections: what the caller itself takes is part of each time, and would hide the server's.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that are used in turn, one call on each at a time.
pub(crate) struct Paced {
    /// `host:port`, one a connection; several may be the same.
    pub(crate) addresses: Vec<String>,
    pub(crate) path: String,
    pub(crate) calls_per_s: f64,
    pub(crate) waiting: Waiting,
    pub(crate) turn: Turn,
}

/// Whose turn a call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// One connection after the other.
    InOrder,
    /// Anyone's, as callers come to replicas: in order, replicas that start together would use up
    /// their blocks in the same moment for ever.
    AtRandom,
}

/// How it is waited for the next moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    /// On a core of its own, to the microsecond.
    Busy,
    /// By a timer that strikes each millisecond, so that the core is free for others.
    Asleep,
}

/// What came of calls.
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

    /// # Panics
    /// Without any call.
    pub(crate) fn latency(&self) -> Latency {
        Latency::of(self.micros.clone())
    }

    /// The value is the 99th percentile in microseconds.
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
    /// 64 connections to one server at `address`.
    pub(crate) fn new(address: &str, path: &str, calls_per_s: f64) -> Self {
        Self {
            addresses: vec![address.to_owned(); N_CONNECTIONS],
            path: path.to_owned(),
            calls_per_s,
            waiting: Waiting::Busy,
            turn: Turn::InOrder,
        }
    }

    /// Calls for `length`; the value is the 99th percentile in microseconds.
    pub(crate) async fn run(&self, length: Duration) -> Reading {
        self.calls(length).await.reading()
    }

    /// Calls for `length`.
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
                Turn::InOrder => usize::try_from(n_calls).expect("few calls") % senders.len(),
                Turn::AtRandom => rand::random_range(0..senders.len()),
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
            Waiting::Asleep => tokio::time::sleep_until(due.into()).await,
            Waiting::Busy => {
                while Instant::now() < due {
                    // Meanwhile the others of this thread go on.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// A connection that calls at each time it is sent.
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
            let reply = tokio::time::timeout(PATIENCE, exchanged)
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
