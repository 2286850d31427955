//! Guards connections, below HTTP: how many there may be, and how long each may keep the service
//! waiting.
//!
//! actix has a deadline for the first head of a connection, and for nothing after that. Its time
//! passes while the process stands still, so it is off, and each socket is guarded here. The guard
//! notes what moves, and a tick in each worker cuts connections that stood still for too long. A
//! request reads no clock for this and sets no timer.
//!
//! A connection by TLS has its place from the start, so a handshake that is not done in time is cut
//! by the same tick.
//!
//! This layer knows nothing of requests. It sees bytes that come and go.

mod bounds;
#[cfg(test)]
mod buffering_stream;
mod connection;
mod descriptors;
mod end_of_head;
mod guarded;
mod handshake;
mod input;
mod progress;
mod tls_socket;
mod watch;

pub(crate) use bounds::ConnectionBounds;
pub(crate) use connection::Connection;
pub(crate) use descriptors::raise_descriptor_limit;
pub(crate) use guarded::Guarded;
pub(crate) use handshake::{HandshakeEnd, Handshakes};
pub(crate) use progress::{Answering, Body, ConnectionProgress};
pub(crate) use watch::Watch;
