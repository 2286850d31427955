//! What a client was made with. It never changes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ureq::config::Config;

use crate::{random::Uniform, threads::Spawn, token::TokenSource};

/// The settings of one client.
pub(crate) struct Settings {
    /// The addresses of the replicas, one or more.
    pub(crate) endpoints: Vec<Arc<str>>,
    /// How calls are made.
    pub(crate) http: Config,
    pub(crate) token: TokenSource,
    /// How long a caller waits who finds nothing in memory.
    pub(crate) deadline: Duration,
    /// How long one call may take.
    pub(crate) refill_timeout: Duration,
    /// Numbers that were asked for longer ago are dropped.
    pub(crate) max_age: Option<Duration>,
    /// How many numbers the first refill asks for.
    pub(crate) initial_size: u64,
    /// How long the lease of a worker id lasts.
    pub(crate) lease_ttl: Duration,
    pub(crate) uniform: Uniform,
    pub(crate) spawn: Spawn,
}

impl Settings {
    /// Returns when a caller gives up who comes now.
    pub(crate) fn until(&self) -> Instant {
        Instant::now() + self.deadline
    }
}
