//! Calls at times that were fixed before: who is answered late does not ask later.
//!
//! A call's time runs from the moment it was meant to be sent, so a pause of the server is seen by
//! all who would have called meanwhile, not only by those who wait already.

use std::time::{Duration, Instant};

use odometer_tests::Client;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::reading::{Latency, Reading};

/// Longer than any call that still counts as answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections that are used in turn, one call on each at a time.
pub(crate) struct Paced {
    /// One a connection; several may lead to one server.
    pub(crate) clients: Vec<Client>,
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

/// What one connection saw.
#[derive(Default)]
struct Seen {
    micros: Vec<f64>,
    n_failed: u64,
}

impl Paced {
    /// 64 connections to one server.
    pub(crate) fn new(url: &str, path: &str, calls_per_s: f64) -> Self {
        Self {
            // A client keeps one connection where it has one call at a time.
            clients: (0..64).map(|_| Client::new(url)).collect(),
            path: path.to_owned(),
            calls_per_s,
            waiting: Waiting::Busy,
            turn: Turn::InOrder,
        }
    }

    /// Calls for `length`; the value is the 99th percentile in microseconds.
    pub(crate) async fn run(&self, length: Duration) -> Reading {
        let (senders, connections): (Vec<_>, Vec<_>) = self
            .clients
            .iter()
            .map(|client| connection(client.clone(), self.path.clone()))
            .unzip();
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
            let seen = connection.await.expect("no panic");
            all.micros.extend(seen.micros);
            all.n_failed += seen.n_failed;
        }
        let latency = Latency::of(all.micros);
        Reading {
            latency: Some(latency),
            n_requests: n_calls,
            n_failed: all.n_failed,
            ..Reading::of(latency.p99)
        }
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
fn connection(client: Client, path: String) -> (mpsc::UnboundedSender<Instant>, JoinHandle<Seen>) {
    let (sender, mut calls) = mpsc::unbounded_channel::<Instant>();
    let calling = tokio::spawn(async move {
        let mut seen = Seen::default();
        while let Some(due) = calls.recv().await {
            let reply = tokio::time::timeout(PATIENCE, client.post(&path)).await;
            let is_given = matches!(reply, Ok(Ok(reply)) if reply.status == 200);
            seen.n_failed += u64::from(!is_given);
            seen.micros.push(due.elapsed().as_secs_f64() * 1e6);
        }
        seen
    });
    (sender, calling)
}
