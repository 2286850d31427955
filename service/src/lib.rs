//! The program: what is spoken over HTTP, the configuration, the log, the commands, and the order in
//! which all of it starts and stops.
//!
//! It knows no SQL, and its HTTP layer does not know the store either. `main.rs` is the command
//! line; this library is what it and the tests are made of.
//!
//! Read first:
//!
//! - [`application`]: what is started in which order, and stopped in which.
//! - [`config`]: flags over environment over file over defaults.
//! - `http/urls.rs`: which path leads to which route.
//! - `http/hot.rs`: how a number in memory is answered before any routing.
//! - `http/problem.rs`: which status a refusal has.

pub mod application;
pub mod apply;
pub mod check_name;
pub mod command_failure;
pub mod commands;
pub mod config;
pub mod http;
#[cfg(feature = "otlp")]
mod otlp;
pub mod telemetry;
