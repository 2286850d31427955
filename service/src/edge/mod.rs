//! Guards connections, below any protocol: how many there may be, and how long each may keep the
//! service waiting.
//!
//! A connection notes what moves on it, and a tick in each worker cuts connections that stood still
//! for too long. A request reads no clock for this and sets no timer.
//!
//! A connection by TLS has its place from the start, so a handshake that is not done in time is cut
//! by the same tick.
//!
//! This folder owns the connections of all listeners, and their handshakes. It never knows what the
//! bytes mean, nor which calls there are.
//!
//! Read first:
//!
//! - `opening.rs`: gives a new connection its place.
//! - `watch.rs`: watches the connections of one worker.
//! - `progress.rs`: says when a connection stood still for too long.
//! - `handshake.rs`: carries out handshakes, a few at a time.

#![warn(clippy::indexing_slicing)]

mod bounds;
mod connection;
mod descriptors;
mod handshake;
mod opening;
mod progress;
mod tls_socket;
mod watch;
mod worker_count;
mod worker_ticks;

pub(crate) use bounds::{ConnectionBounds, IdleLimit};
pub(crate) use connection::Connection;
pub(crate) use descriptors::raise_descriptor_limit;
pub(crate) use opening::{Opened, Opening, Stopping};
pub(crate) use progress::{Answering, Body, ConnectionProgress, Cut};
pub(crate) use watch::{Watch, WatchedPlace};
pub(crate) use worker_count::worker_count;
pub use worker_ticks::WorkerTicks;
