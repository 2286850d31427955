//! Holds everything that a process of Odometer has once.
//!
//! This crate owns the clock, the host name, the metrics, the targets of the log, the values that
//! the log never shows, and the faults that a test switches on. It knows no SQL and no actors, and
//! never counts anything itself.
//!
//! Read first:
//!
//! - `metrics/process.rs`: declares the metrics of the whole process, each with its help text.
//! - `metrics/mod.rs`: hands the metrics out, ready to be counted.
//! - `faults.rs`: lists the guards that a test can take out.
//! - `log.rs`: names the targets of the log and its spans.
//! - `log_throttle.rs`: limits how often a line of the log is repeated.

pub mod clock;
pub mod faults;
pub mod host;
pub mod log;
pub mod log_throttle;
pub mod metrics;
pub mod secret;
mod words;
