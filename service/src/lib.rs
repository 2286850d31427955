//! Odometer: a service that hands out numbers that never repeat.
//!
//! Three layers, one direction: `http` → `sequence` → `store`. The binary is
//! `main.rs`; this library is what it and the tests are made of.

pub mod application;
pub mod apply;
pub mod check_name;
pub mod config;
pub mod http;
#[cfg(feature = "otlp")]
mod otlp;
pub mod telemetry;
