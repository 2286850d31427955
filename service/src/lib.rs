//! Odometer: a service that hands out numbers that never repeat.
//!
//! Three layers, one direction: `http` → `sequence` → `store`. The binary is
//! `main.rs`; this library is what it and the tests are made of.

pub mod application;
pub mod apply;
pub mod check_name;
mod clock;
pub mod config;
mod host;
pub mod http;
pub mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod sabotage;
mod seldom;
pub mod sequence;
pub mod store;
pub mod telemetry;
