//! Defines the settings of this layer.

use std::{sync::Arc, time::Duration};

use odometer_core::templates::Templates;

/// The settings of this layer, with each of its bounds.
#[derive(Clone, Debug)]
pub struct SequenceSettings {
    /// The templates for names that have no sequence yet.
    pub templates: Templates,
    /// The most callers that may wait for refills at the same time, over all names.
    pub waiters: usize,
    /// The most names in memory at the same time.
    pub live_sequences: usize,
    /// The most periods of one sequence in memory at the same time.
    pub live_periods: usize,
    /// How long a caller waits for a refill.
    pub refill_deadline: Duration,
    /// The longest pause between two attempts of a prefetch, while the numbers in memory do not
    /// allow a longer one.
    pub backoff_max: Duration,
    /// After this idle time an actor is stopped, and its block stays in memory.
    pub park_after: Duration,
    /// After this idle time the rest of the block is returned, and the name is forgotten.
    pub unload_after: Duration,
    /// The name under which this replica leases worker ids. It is the same after a restart.
    pub holder: Arc<str>,
    /// The worker id that this replica uses for every time-ordered sequence; `None` for any free
    /// one.
    pub worker: Option<u32>,
    /// How long the clock may be behind before another worker id is leased instead of waiting.
    pub clock_wait: Duration,
    /// A refill that takes this long, or longer, is logged.
    pub slow_refill: Duration,
}
