//! What is measured: a file for each matter, a function for each entry.

mod batches;
mod databases;
mod drivers;
mod forms;
mod single;
mod strict;

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

/// How long two database servers take to start.
const STARTS: Duration = Duration::from_secs(8);

/// All, in the order of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        name: "single",
        is_quick: true,
        estimate: |pace| {
            pace.estimate(single::n_contenders(pace)) + pace.of(STARTS, Duration::ZERO)
        },
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
        name: "batches",
        is_quick: false,
        estimate: |pace| pace.estimate(batches::N_CONTENDERS),
        measure: |stage, pace| Box::pin(batches::batches(stage, pace)),
    },
    Entry {
        name: "text",
        is_quick: false,
        estimate: |pace| pace.estimate(2),
        measure: |stage, pace| Box::pin(forms::text(stage, pace)),
    },
    Entry {
        name: "calendar",
        is_quick: false,
        estimate: |pace| pace.estimate(2),
        measure: |stage, pace| Box::pin(forms::calendar(stage, pace)),
    },
    Entry {
        name: "workers",
        is_quick: false,
        estimate: |pace| pace.estimate(3),
        measure: |stage, pace| Box::pin(forms::workers(stage, pace)),
    },
    Entry {
        name: "databases",
        is_quick: false,
        estimate: |pace| pace.estimate(3) + STARTS,
        measure: |stage, pace| Box::pin(databases::databases(stage, pace)),
    },
    Entry {
        name: "strict",
        is_quick: false,
        estimate: |pace| pace.estimate(6) + STARTS,
        measure: |stage, pace| Box::pin(strict::strict(stage, pace)),
    },
    Entry {
        name: "drivers",
        is_quick: false,
        estimate: |pace| pace.estimate(6) + STARTS,
        measure: |stage, pace| Box::pin(drivers::drivers(stage, pace)),
    },
];
