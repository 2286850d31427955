//! The tests of Odometer: the real program as processes, on real databases.
//!
//! `support` starts servers and programs; the other folders hold the promises,
//! one test a sentence.

// Futures that open a connection nest deeper than the compiler looks by default.
#![recursion_limit = "256"]

mod clients;
mod contract;
mod deployment;
mod documents;
mod guarantees;
mod operation;
mod page;
mod source;

pub(crate) use odometer_tests as support;
