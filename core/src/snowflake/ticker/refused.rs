//! Defines what a ticker needs to know about the clock, and why it issues nothing.

use thiserror::Error;

/// The present tick, and how far ids may run ahead of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The present tick.
    pub tick: u64,
    /// The number of ticks after the present one in which an id, or the first id of a batch, may
    /// lie.
    pub ahead: u64,
    /// The number of ticks after the present one in which the last id of a batch may lie. If
    /// `ahead` is higher, `ahead` counts.
    pub batch_ahead: u64,
}

/// Says why no id is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ticker has no worker id.
    Closed,
    /// The reserved time is used up, and more must be reserved.
    Limit,
    /// The clock was set back, or the ids of the present ticks are used up.
    Ahead {
        /// The number of ticks that the clock must go on before the ids can be issued: 1 or more.
        ticks: u64,
    },
    /// The layout has no bits for this time.
    TimeEnds,
    /// A batch cannot have that many ids from the present counter on.
    TooMany {
        /// The most ids that a batch can have here: 1 or more.
        most: u64,
    },
}

/// Says why a ticker was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotOpened {
    /// The ticker is open already.
    #[error("the ticker is open already")]
    Open,
    /// The layout does not have this worker id.
    #[error("the layout has {workers} worker ids from 0 on, and {worker} is none")]
    Worker {
        /// The worker id that was asked for.
        worker: u32,
        /// The number of worker ids that the layout has.
        workers: u32,
    },
    /// No reserved tick is left.
    #[error("the time reserved ends with tick {until_tick}, and it is tick {tick}")]
    NoTime {
        /// The first tick that could be issued.
        tick: u64,
        /// The first tick that is not reserved.
        until_tick: u64,
    },
    /// The layout has no bits for this time.
    #[error("the time bits of the layout have ended")]
    TimeEnds,
}
