//! Runs callers that each send the next call when the answer to the last one is there. The calls
//! may differ from each other.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use odometer_tests::Client;

use crate::reading::{Latency, Reading};

/// Calls on one connection for each of `clients` until `next_path` returns `None`. The value is the
/// number of successful calls a second.
///
/// # Panics
/// If there is no path at all.
pub(crate) async fn ask(clients: &[Client], next_path: impl FnMut() -> Option<String>) -> Reading {
    let next_path = RefCell::new(next_path);
    let started = Instant::now();
    let connections = clients.iter().map(async |client| {
        let (mut micros, mut n_failed) = (Vec::new(), 0_u64);
        loop {
            // The borrow ends before the wait.
            let path = next_path.borrow_mut()();
            let Some(path) = path else {
                return (micros, n_failed);
            };
            let asked = Instant::now();
            let reply = client.post(&path).await;
            let is_given = reply.is_ok_and(|reply| reply.status == 200);
            n_failed += u64::from(!is_given);
            micros.push(asked.elapsed().as_secs_f64() * 1e6);
        }
    });
    let seen = join_all(connections).await;
    let took = started.elapsed();
    let n_failed = seen.iter().map(|(_, n_failed)| n_failed).sum();
    let micros: Vec<f64> = seen.into_iter().flat_map(|(micros, _)| micros).collect();
    let n_requests = micros.len() as u64;
    Reading {
        latency: Some(Latency::of(micros)),
        n_requests,
        n_failed,
        ..Reading::of((n_requests - n_failed) as f64 / took.as_secs_f64())
    }
}

/// Opens clients for `n_connections` connections to one server. A client with one call at a time
/// keeps one connection.
pub(crate) fn connections(url: &str, n_connections: usize) -> Vec<Client> {
    (0..n_connections).map(|_| Client::new(url)).collect()
}

/// Returns the same path again and again for `length`.
pub(crate) fn for_a_while(path: &str, length: Duration) -> impl FnMut() -> Option<String> {
    let until = Instant::now() + length;
    let path = path.to_owned();
    move || (Instant::now() < until).then(|| path.clone())
}
