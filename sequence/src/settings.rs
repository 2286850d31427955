//! What the sequences are run by.

use std::{sync::Arc, time::Duration};

use odometer_core::templates::Templates;

/// What the sequences are run by. Every bound of this layer is here.
#[derive(Clone, Debug)]
pub struct SequenceSettings {
    /// What a name never seen gets.
    pub templates: Templates,
    /// Callers that may wait for refills at once, over all names.
    pub waiters: usize,
    /// Names in memory at once.
    pub live_sequences: usize,
    /// Periods of one sequence in memory at once.
    pub live_periods: usize,
    /// How long a caller waits for a refill.
    pub refill_deadline: Duration,
    /// Between two attempts of a prefetch, at most.
    pub backoff_max: Duration,
    /// Idle for this long, an actor is stopped while its block is kept.
    pub park_after: Duration,
    /// Idle for this long, the rest of the block is returned and the name forgotten.
    pub unload_after: Duration,
    /// What this replica is called where worker ids are leased: the same after a restart.
    pub holder: Arc<str>,
    /// The worker id of all time-ordered sequences here, if it is not to be any that is free.
    pub worker: Option<u32>,
    /// How long a clock that was set back is waited for.
    pub clock_wait: Duration,
    /// A refill that takes so long is logged.
    pub slow_refill: Duration,
}
