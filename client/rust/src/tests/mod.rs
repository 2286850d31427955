//! The tests of the library, each for a rule of the contract of a buffered client.
//!
//! No test needs a server: the service is a stub on a port of its own.

mod buffer;
mod client;
mod endpoints;
mod hooks;
mod leases;
mod of_process;
mod service;
mod size;
mod slices;
mod stampers;
mod stock;
mod stub;
mod tasks;
mod threads;
mod transport;

use std::time::{Duration, Instant};

/// How long a condition may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Waits until something is true.
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Draws the lowest number.
fn lowest(low: f64, _high: f64) -> f64 {
    low
}

/// Draws the highest number.
fn highest(_low: f64, high: f64) -> f64 {
    high
}
