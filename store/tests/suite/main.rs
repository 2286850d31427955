//! The suite of the store: each of its operations at the face of the crate, on each database, once
//! undisturbed, once with a conflict, once with an outcome that nobody hears of, and once on a
//! database that went back.

// Futures that open a connection nest deeper than the compiler looks by default.
#![recursion_limit = "256"]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod adopt;
mod births;
mod change;
mod command;
mod create;
mod disarm;
mod fence;
mod lease;
mod lease_reach;
mod limit;
mod members;
mod recover;
mod reserve;
mod restart;
mod rise;
mod since;
mod stage;
mod statements;

use odometer_tests::{
    for_each_backend_in_process as for_each_backend, for_each_server_in_process as for_each_server,
};
