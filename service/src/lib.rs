//! The program: HTTP, the protocol of Redis, the page, the configuration, the log, the commands,
//! start and stop.
//!
//! This crate owns the contract with callers and operators. It knows no SQL, and its folders `http`,
//! `resp` and `calls` never know the store. `main.rs` only calls this library.
//!
//! Read first:
//!
//! - `application.rs`: starts the parts in order, and stops them in reverse.
//! - `config/mod.rs`: reads flags over environment over file over defaults.
//! - `http/urls.rs`: maps each path to its route.
//! - `http/hot.rs`: answers a number from memory before any routing.
//! - `calls/problem.rs`: gives each refusal its code.

pub mod access;
pub mod application;
pub mod calls;
pub mod command_line;
pub mod commands;
pub mod config;
pub mod edge;
pub mod http;
mod listeners;
#[cfg(feature = "otlp")]
mod otlp;
mod remote;
pub mod resp;
pub mod telemetry;
