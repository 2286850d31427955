//! What is measured: a file for each matter, a function for each entry.

mod core;
mod cosid;
mod footprint;
mod single;

use std::{pin::Pin, time::Duration};

use crate::{pace::Pace, row::Row, stage::Stage};

/// What `--row` names: rows that are measured together.
pub(crate) struct Entry {
    /// Short, of small letters, digits and hyphens.
    pub(crate) name: &'static str,
    /// Whether `--quick` measures it.
    pub(crate) is_quick: bool,
    /// How long it takes, about.
    pub(crate) estimate: fn(Pace) -> Duration,
    pub(crate) measure: Measure,
}

type Measure = for<'a> fn(&'a Stage, Pace) -> Pin<Box<dyn Future<Output = Vec<Row>> + 'a>>;

/// All, in the order of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        name: "single",
        is_quick: true,
        estimate: |pace| pace.estimate(2),
        measure: |stage, pace| Box::pin(single::single(stage, pace)),
    },
    Entry {
        name: "connections",
        is_quick: false,
        estimate: |pace| pace.estimate(6),
        measure: |stage, pace| Box::pin(single::connections(stage, pace)),
    },
    Entry {
        name: "pipelined",
        is_quick: true,
        estimate: |pace| pace.estimate(2),
        measure: |stage, pace| Box::pin(single::pipelined(stage, pace)),
    },
    Entry {
        name: "core",
        is_quick: false,
        estimate: core::estimate,
        measure: |stage, pace| Box::pin(core::core(stage, pace)),
    },
    Entry {
        name: "memory",
        is_quick: false,
        estimate: footprint::memory_estimate,
        measure: |stage, pace| Box::pin(footprint::memory(stage, pace)),
    },
    Entry {
        name: "start",
        is_quick: false,
        estimate: footprint::start_estimate,
        measure: |stage, pace| Box::pin(footprint::start(stage, pace)),
    },
    Entry {
        name: "binary",
        is_quick: true,
        estimate: |_| Duration::from_secs(1),
        measure: |stage, pace| Box::pin(footprint::binary(stage, pace)),
    },
];
