//! Who issues: the directory of names, what a caller touches, and the actor behind it.
//!
//! This layer owns every block in memory. It knows neither HTTP nor SQL: `http`
//! calls [`Directory`], and the actors call `store`.

mod actor;
mod apart;
pub mod audit;
mod changes;
pub mod description;
mod directory;
pub mod error;
pub mod explain;
pub mod face;
mod history;
mod holding;
mod index;
mod issuer;
mod leasing;
mod lifecycle;
mod live;
mod loading;
mod mailbox;
mod messages;
mod near;
mod ownership;
mod periods;
mod publish;
mod queue;
mod shared;
mod slow;
mod stamping;
pub mod stamps;
mod strict;
mod sweep;
mod timed;
pub mod workers;

use std::{sync::Arc, time::Duration};

use odometer_core::templates::Templates;

pub use directory::Directory;

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

/// Whether calls should be sent to this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The names used most recently are on their way into memory.
    Loading,
    Draining,
    /// The database has not answered since the start, or is away and nothing is left in memory.
    NoContact,
    WrongSchema,
}

/// What became of the numbers in memory when the actors were drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Given back to the store.
    pub returned: u64,
    /// Could not be given back: gaps.
    pub abandoned: u64,
}
