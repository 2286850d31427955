//! Callers each of whom asks again as soon as it has its answer, for what differs from call to
//! call.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use odometer_tests::Client;

use crate::reading::{Latency, Reading};

/// Calls on one connection for each of `clients` until `next_path` has no more; the value is calls
/// that were answered, a second.
///
/// # Panics
/// Where there was no path at all.
pub(crate) async fn ask(clients: &[Client], next_path: impl FnMut() -> Option<String>) -> Reading {
    let next_path = RefCell::new(next_path);
    let started = Instant::now();
    let connections = clients.iter().map(async |client| {
        let (mut micros, mut n_failed) = (Vec::new(), 0_u64);
        loop {
            // Not borrowed while it is waited.
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

/// So many connections to one server: a client keeps one where it has one call at a time.
pub(crate) fn connections(url: &str, n_connections: usize) -> Vec<Client> {
    (0..n_connections).map(|_| Client::new(url)).collect()
}

/// The same path for so long.
pub(crate) fn for_a_while(path: &str, length: Duration) -> impl FnMut() -> Option<String> {
    let until = Instant::now() + length;
    let path = path.to_owned();
    move || (Instant::now() < until).then(|| path.clone())
}
