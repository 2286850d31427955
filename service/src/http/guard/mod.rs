//! Hands out what comes on a connection as actix should see it: one head at a time.
//!
//! actix has a deadline for the first head of a connection, and for nothing after that. Its time
//! passes while the process stands still, so it is off, and each socket is guarded here. The guard
//! notes what moves, and the tick of `edge` cuts connections that stood still for too long.
//!
//! This folder knows where a head ends, and nothing else of requests.

#[cfg(test)]
mod buffering_stream;
mod end_of_head;
mod guarded;
mod input;

pub(crate) use guarded::Guarded;
pub(crate) use input::max_unread;
