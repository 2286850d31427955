//! Draws what one number costs, next to everything else that gives numbers.

use super::bars::{self, Bar};
use super::canvas::{Picture, picture};
use crate::{report::raw::Run, row::Unit};

const ROW: &str = "single-cost";
const TITLE: &str = "Processor time of the server for one number";

pub(crate) const FILE: &str = "speed-cost.svg";

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
                no_result: None,
            })
        })
        .collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let about = "microseconds of processor time a number, as the kernel counts it, median";
    let svg = picture(run, TITLE, |area| {
        bars::fill(area, &bars, about, Unit::Microseconds)
    })?;
    Ok(Some(Picture {
        file: FILE,
        title: "Processor time of a number of Odometer, Redis, PostgreSQL and MariaDB",
        svg,
    }))
}
