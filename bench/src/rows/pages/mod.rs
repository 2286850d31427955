//! Measures what each kind of key does to the B+tree of a primary key: how many pages split and
//! merge, and how full pages are in the end. Also measures the size of a row and the speed of
//! inserts.

mod keys;
mod table;
mod writers;

use std::{cell::RefCell, time::Duration};

use odometer_tests::Backend;

use self::{
    keys::Kind,
    table::{Counts, Place},
    writers::Rows,
};
use crate::{
    pace::Pace,
    reading::Reading,
    row::{Row, Series, Unit},
    stage::Stage,
};

/// The rows of a table.
const N_ROWS: u64 = 1_000_000;
const N_ROWS_QUICK: u64 = 5_000;
/// The parts of a table. After each part, the server removes the deleted rows.
const N_PARTS: u64 = 10;
/// The number of rows is a multiple of this. Then it can be divided by parts, batches, and `fewer`.
const UNIT: u64 = 5_000;

/// How the rows of a table are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Condition {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    n_connections: usize,
    /// The rows of an INSERT. Each INSERT is a transaction.
    batch: u64,
    has_deletes: bool,
    /// The number of rows is divided by this.
    fewer: u64,
}

/// The conditions, in the order of the document's columns.
pub(crate) const CONDITIONS: [Condition; 4] = [
    Condition {
        name: "ordered",
        title: "in order",
        n_connections: 1,
        batch: 100,
        has_deletes: false,
        fewer: 1,
    },
    Condition {
        name: "single",
        title: "8 connections, single rows",
        n_connections: 8,
        batch: 1,
        has_deletes: false,
        fewer: 5,
    },
    Condition {
        name: "bulk",
        title: "4 connections, 100 rows each",
        n_connections: 4,
        batch: 100,
        has_deletes: false,
        fewer: 1,
    },
    Condition {
        name: "deletes",
        title: "in order, 30 % deleted",
        n_connections: 1,
        batch: 100,
        has_deletes: true,
        fewer: 1,
    },
];

pub(crate) const SERVERS: [(Backend, &str); 2] = [
    (Backend::MariaDb, "MariaDB"),
    (Backend::Postgres, "PostgreSQL"),
];

/// The names of the figures of a reading.
pub(crate) mod figure {
    pub(crate) const INSERTED: &str = "rows_inserted";
    pub(crate) const DELETED: &str = "rows_deleted";
    pub(crate) const FIRST_HALF: &str = "splits_first_half";
    pub(crate) const SECOND_HALF: &str = "splits_second_half";
    pub(crate) const MERGES: &str = "merges";
    pub(crate) const LEAF_PAGES: &str = "leaf_pages";
    pub(crate) const FILL: &str = "leaf_fill";
    pub(crate) const BYTES: &str = "bytes";
    pub(crate) const LOG_BYTES: &str = "log_bytes";
}

pub(crate) fn estimate(pace: Pace) -> Duration {
    let n_tables = u32::try_from(Kind::ALL.len() * CONDITIONS.len() * SERVERS.len());
    let table = pace.of(Duration::from_secs(6), Duration::from_millis(150));
    n_tables.unwrap_or(u32::MAX) * table + super::conditions::STARTS
}

/// Fills one table for each kind of key, condition and server.
pub(crate) async fn pages(stage: &Stage, pace: Pace) -> Vec<Row> {
    let n_rows = stage.n_rows.unwrap_or(pace.of(N_ROWS, N_ROWS_QUICK));
    let is_divided = n_rows > 0 && n_rows.is_multiple_of(UNIT);
    assert!(is_divided, "the size is to be a multiple of {UNIT}");
    let conditions = pace.of(&CONDITIONS[..], &CONDITIONS[3..]);
    let mut rows = Vec::new();
    for (backend, title) in SERVERS {
        let place = Place::start(backend, n_rows).await;
        for &condition in conditions {
            let mut series = Vec::new();
            for kind in Kind::ALL {
                let reading = fill(&place, kind, condition, n_rows / condition.fewer).await;
                series.push(Series::new(&kind.name(), vec![reading]));
            }
            let title = format!("rows inserted into {title}, {}", condition.title);
            let row = Row::new(&row_name(backend, condition), &title, Unit::RowsPerSecond);
            rows.push(row.series(series));
        }
    }
    rows
}

/// Returns the name of the row for a server and a condition.
pub(crate) fn row_name(backend: Backend, condition: Condition) -> String {
    format!("pages-{}-{}", backend.name(), condition.name)
}

/// Fills one table, in two halves.
async fn fill(place: &Place, kind: Kind, condition: Condition, n_rows: u64) -> Reading {
    place.clear(kind).await;
    let connections = place.connections(condition.n_connections).await;
    let rows = Rows::new(place.backend(), kind.keys(n_rows), condition);
    let rows = RefCell::new(rows);
    let mut took = Duration::ZERO;
    let mut halves = [Counts::default(); 2];
    let mut before = place.mark().await;
    for (half, counts) in (0..).zip(&mut halves) {
        for part in half * N_PARTS / 2..(half + 1) * N_PARTS / 2 {
            let until = n_rows * (part + 1) / N_PARTS;
            took += writers::send(&connections, &rows, until).await;
            if condition.has_deletes {
                place.clean().await;
            }
        }
        let after = place.mark().await;
        *counts = place.counts(&before, &after).await;
        before = after;
    }
    for connection in connections {
        connection.close().await.expect("a connection closes");
    }
    let n_deleted = rows.into_inner().n_deleted;
    let shape = place.shape().await;
    assert_eq!(
        shape.n_rows,
        (n_rows - n_deleted) as f64,
        "rows are missing"
    );
    let [first, second] = halves;
    assert!(first.splits > 0.0, "vacuous: no split was counted");
    let mut reading = Reading::of(n_rows as f64 / took.as_secs_f64());
    reading.n_requests = n_rows / condition.batch;
    reading
        .figure(figure::INSERTED, n_rows as f64)
        .figure(figure::DELETED, n_deleted as f64)
        .figure(figure::FIRST_HALF, first.splits)
        .figure(figure::SECOND_HALF, second.splits)
        .figure(figure::MERGES, first.merges + second.merges)
        .figure(figure::LEAF_PAGES, shape.leaf_pages)
        .figure(figure::FILL, shape.fill)
        .figure(figure::BYTES, shape.bytes)
        .figure(figure::LOG_BYTES, first.log_bytes + second.log_bytes)
}
