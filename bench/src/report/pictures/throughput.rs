//! Draws how many numbers a second are given one at a time, next to everything else that gives
//! numbers.

use super::bars::{self, Bar};
use super::canvas::{Picture, picture};
use crate::{
    report::{raw::Run, table::BOUND_BY_CLIENT},
    row::Unit,
};

const ROW: &str = "single";
const TITLE: &str = "Numbers a second, one in each request";

pub(crate) const FILE: &str = "speed-throughput.svg";

pub(crate) fn draw(run: &Run) -> Result<Option<Picture>, String> {
    let Some(row) = run.rows.iter().find(|row| row.name == ROW) else {
        return Ok(None);
    };
    let series = row.series.iter();
    let bars: Vec<Bar<'_>> = series
        .filter_map(|series| {
            Some(Bar {
                name: &series.name,
                value: series.value()?.median,
                no_result: series.is_bound_by_client().then_some(BOUND_BY_CLIENT),
            })
        })
        .collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let svg = picture(run, TITLE, |area| {
        bars::fill(
            area,
            &bars,
            "numbers a second, median",
            Unit::NumbersPerSecond,
        )
    })?;
    Ok(Some(Picture {
        file: FILE,
        title: "Throughput of Odometer next to a constant body, Redis, PostgreSQL and MariaDB",
        svg,
    }))
}
