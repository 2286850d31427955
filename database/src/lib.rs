//! Runs one statement on one server within its bounds, and says whether it certainly did not
//! commit.
//!
//! This crate owns connections, their pools and poolers, and the meaning of a server's error codes.
//! It knows no sequences, no tables, no migrations and no names of metrics: its monitor asks for
//! them through a trait.
//!
//! Read first:
//!
//! - `connection.rs`: runs a statement and limits how long its caller waits.
//! - `failure.rs`: tells *certainly not committed* from *may have committed*.
//! - `monitor.rs`: notices that the server is away, and that it is back.
//! - `session.rs`: sends statements, also through a pooler.
//! - `target.rs`: reads a URL.

pub mod backoff;
pub mod bounds;
pub mod code;
pub mod complaint;
pub mod connection;
pub mod database_clock;
pub mod failure;
pub mod file_lock;
pub mod file_mark;
pub mod fitness;
pub mod label;
pub mod monitor;
pub mod pool;
pub mod probe;
pub mod retry;
pub mod reused_pool;
pub mod route;
pub mod server_mark;
pub mod session;
pub mod settings;
pub mod start_error;
mod stranger;
pub mod target;
pub mod tasks;
pub mod tls;
