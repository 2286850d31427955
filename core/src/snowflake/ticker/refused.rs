//! What a ticker is told of the clock, and why it issues nothing.

use thiserror::Error;

/// What the clock says, and how far ids may run ahead of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The tick of now.
    pub tick: u64,
    /// So many ticks after now an id may lie, and the first one of a batch.
    pub ahead: u64,
    /// So many ticks after now the last id of a batch may lie, or as many as `ahead`, if that is
    /// more.
    pub batch_ahead: u64,
}

/// Why no id is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// No worker id is there.
    #[error("the ticker is closed")]
    Closed,
    /// The time that is reserved is used up: more must be reserved.
    #[error("the time reserved is used up")]
    Limit,
    /// The clock was set back, or the ids of this moment are used up.
    #[error("the next id lies {ticks} ticks further ahead of the clock than it may")]
    Ahead {
        /// When the clock has gone on so far, the ids can be issued: 1 or more.
        ticks: u64,
    },
    /// The layout has no bits for this time.
    #[error("the time bits of the layout have ended")]
    TimeEnds,
    /// More ids than one batch can have, from where the counter stands.
    #[error("a batch has at most {most} ids here")]
    TooMany {
        /// The most it can have: 1 or more.
        most: u64,
    },
}

/// Why a ticker was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotOpened {
    /// It is open already.
    #[error("the ticker is open already")]
    Open,
    /// The layout has fewer worker ids.
    #[error("the layout has {workers} worker ids from 0 on, and {worker} is none")]
    Worker {
        /// The one asked for.
        worker: u32,
        /// How many there are.
        workers: u32,
    },
    /// Nothing that is reserved lies in the future.
    #[error("the time reserved ends with tick {until_tick}, and it is tick {tick}")]
    NoTime {
        /// The first that could be issued.
        tick: u64,
        /// The first that is not reserved.
        until_tick: u64,
    },
    /// The layout has no bits for this time.
    #[error("the time bits of the layout have ended")]
    TimeEnds,
}
