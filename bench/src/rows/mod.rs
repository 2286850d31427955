//! Lists what is measured: a file for each subject, and a function for each entry.

mod access;
mod away;
mod batches;
mod birth;
mod client;
mod conditions;
mod core;
mod cosid;
mod crowd;
mod databases;
mod drivers;
mod footprint;
mod forms;
mod hostile;
mod in_process;
mod leases;
pub(crate) mod pages;
mod resp;
mod single;
mod slow;
mod snowflake;
mod steady;
mod stores;
mod strict;

use std::{pin::Pin, time::Duration};

use conditions::STARTS;

use crate::{pace::Pace, row::Row, stage::Stage};

/// An entry that `--row` names: rows that are measured together.
pub(crate) struct Entry {
    /// A short name of small letters, digits and hyphens.
    pub(crate) name: &'static str,
    /// A few words about what the entry measures. `--list` prints them.
    pub(crate) title: &'static str,
    /// Whether `--quick` measures the entry.
    pub(crate) is_quick: bool,
    /// Returns about how long the entry takes.
    pub(crate) estimate: fn(Pace) -> Duration,
    pub(crate) measure: Measure,
}

type Measure = for<'a> fn(&'a Stage, Pace) -> Pin<Box<dyn Future<Output = Vec<Row>> + 'a>>;

pub(crate) use cosid::version as cosid_version;

/// Checks that the references of all targets were measured. Only CosId may be missing.
///
/// # Panics
/// If another reference is missing.
pub(crate) fn check(rows: &[Row]) {
    for row in rows {
        let mut unknown = row.missing().filter(|name| *name != cosid::NAME);
        assert_eq!(
            unknown.next(),
            None,
            "a reference of {} was not measured",
            row.name
        );
    }
}

/// Entries that no whole run measures, because each one has a document of its own. `--row` and
/// `--quick` measure them.
pub(crate) const STUDIES: &[Entry] = &[Entry {
    name: "pages",
    title: "pages of a primary key that split, by kind of key",
    is_quick: true,
    estimate: pages::estimate,
    measure: |stage, pace| Box::pin(pages::pages(stage, pace)),
}];

/// All entries of a whole run, in the order of the table.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry {
        name: "single",
        title: "one number over HTTP, 64 connections",
        is_quick: true,
        estimate: |pace| {
            pace.estimate(single::n_contenders(pace)) + pace.of(STARTS, Duration::ZERO)
        },
        measure: |stage, pace| Box::pin(single::single(stage, pace)),
    },
    Entry {
        name: "connections",
        title: "one number over 1, 8 and 256 connections",
        is_quick: false,
        estimate: |pace| pace.estimate(6),
        measure: |stage, pace| Box::pin(single::connections(stage, pace)),
    },
    Entry {
        name: "pipelined",
        title: "one number, 16 requests sent at once",
        is_quick: true,
        estimate: |pace| pace.estimate(3),
        measure: |stage, pace| Box::pin(single::pipelined(stage, pace)),
    },
    Entry {
        name: "resp",
        title: "numbers by INCR and INCRBY, compared with Redis",
        is_quick: true,
        estimate: |pace| pace.estimate(resp::n_contenders(pace)),
        measure: |stage, pace| Box::pin(resp::resp(stage, pace)),
    },
    Entry {
        name: "batches",
        title: "1 to 10,000 numbers a request, with and without the list of ids",
        is_quick: true,
        estimate: |pace| pace.estimate(batches::n_contenders(pace)),
        measure: |stage, pace| Box::pin(batches::batches(stage, pace)),
    },
    Entry {
        name: "text",
        title: "one number as plain text",
        is_quick: false,
        estimate: |pace| pace.estimate(2),
        measure: |stage, pace| Box::pin(forms::text(stage, pace)),
    },
    Entry {
        name: "calendar",
        title: "a sequence that counts by day and has a format",
        is_quick: false,
        estimate: |pace| pace.estimate(2),
        measure: |stage, pace| Box::pin(forms::calendar(stage, pace)),
    },
    Entry {
        name: "time-ordered",
        title: "a time-ordered id of either layout",
        is_quick: true,
        estimate: |pace| pace.estimate(3),
        measure: |stage, pace| Box::pin(forms::time_ordered(stage, pace)),
    },
    Entry {
        name: "workers",
        title: "one worker and two",
        is_quick: false,
        estimate: |pace| pace.estimate(3),
        measure: |stage, pace| Box::pin(forms::workers(stage, pace)),
    },
    Entry {
        name: "databases",
        title: "each database behind it",
        is_quick: false,
        estimate: |pace| pace.estimate(3) + STARTS,
        measure: |stage, pace| Box::pin(databases::databases(stage, pace)),
    },
    Entry {
        name: "strict",
        title: "strict order on both database servers",
        is_quick: false,
        estimate: |pace| pace.estimate(6) + STARTS,
        measure: |stage, pace| Box::pin(strict::strict(stage, pace)),
    },
    Entry {
        name: "redis",
        title: "strict order through Redis",
        is_quick: false,
        estimate: stores::redis_estimate,
        measure: |stage, pace| Box::pin(stores::redis(stage, pace)),
    },
    Entry {
        name: "striped",
        title: "databases that share a sequence, compared with one",
        is_quick: false,
        estimate: stores::striped_estimate,
        measure: |stage, pace| Box::pin(stores::striped(stage, pace)),
    },
    Entry {
        name: "leases",
        title: "numbers and time-ordered ids while worker ids are leased",
        is_quick: true,
        estimate: leases::estimate,
        measure: |stage, pace| Box::pin(leases::leases(stage, pace)),
    },
    Entry {
        name: "access",
        title: "one number of callers who show a token, compared with no roles",
        is_quick: true,
        estimate: |pace| pace.estimate(3),
        measure: |stage, pace| Box::pin(access::access(stage, pace)),
    },
    Entry {
        name: "drivers",
        title: "SeaORM compared with bare sqlx",
        is_quick: false,
        estimate: |pace| pace.estimate(6) + STARTS,
        measure: |stage, pace| Box::pin(drivers::drivers(stage, pace)),
    },
    Entry {
        name: "slow",
        title: "warm calls while each reply of the database is late",
        is_quick: false,
        estimate: slow::estimate,
        measure: |stage, pace| Box::pin(slow::slow(stage, pace)),
    },
    Entry {
        name: "away",
        title: "warm calls while the database is away for a minute",
        is_quick: false,
        estimate: away::estimate,
        measure: |stage, pace| Box::pin(away::away(stage, pace)),
    },
    Entry {
        name: "hostile",
        title: "warm calls next to connections that never end a request",
        is_quick: true,
        estimate: hostile::estimate,
        measure: |stage, pace| Box::pin(hostile::hostile(stage, pace)),
    },
    Entry {
        name: "crowd",
        title: "32 replicas that share one name",
        is_quick: false,
        estimate: crowd::estimate,
        measure: |stage, pace| Box::pin(crowd::crowd(stage, pace)),
    },
    Entry {
        name: "birth",
        title: "first use of names never seen",
        is_quick: true,
        estimate: birth::estimate,
        measure: |stage, pace| Box::pin(birth::birth(stage, pace)),
    },
    Entry {
        name: "names",
        title: "100,000 names in turn, compared with one",
        is_quick: false,
        estimate: birth::estimate_of_names,
        measure: |stage, pace| Box::pin(birth::names(stage, pace)),
    },
    Entry {
        name: "steady",
        title: "how often a sequence writes to its store, computed",
        is_quick: true,
        estimate: |_| Duration::from_secs(1),
        measure: |_, _| Box::pin(async { steady::steady() }),
    },
    Entry {
        name: "core",
        title: "numbers taken in process, compared with `fetch_add` and CosId",
        is_quick: false,
        estimate: core::estimate,
        measure: |stage, pace| Box::pin(core::core(stage, pace)),
    },
    Entry {
        name: "client",
        title: "numbers from the client library, compared with `fetch_add` and CosId",
        is_quick: false,
        estimate: client::estimate,
        measure: |stage, pace| Box::pin(client::client(stage, pace)),
    },
    Entry {
        name: "snowflake",
        title: "time-ordered ids in process, compared with `fetch_add`",
        is_quick: true,
        estimate: snowflake::estimate,
        measure: |stage, pace| Box::pin(snowflake::snowflake(stage, pace)),
    },
    Entry {
        name: "memory",
        title: "bytes a name, parked and live",
        is_quick: false,
        estimate: footprint::memory_estimate,
        measure: |stage, pace| Box::pin(footprint::memory(stage, pace)),
    },
    Entry {
        name: "start",
        title: "from start to the first number",
        is_quick: false,
        estimate: footprint::start_estimate,
        measure: |stage, pace| Box::pin(footprint::start(stage, pace)),
    },
    Entry {
        name: "binary",
        title: "size of the program",
        is_quick: true,
        estimate: |_| Duration::from_secs(1),
        measure: |stage, pace| Box::pin(footprint::binary(stage, pace)),
    },
];
