//! Draws how often pages split, by kind of key: in the first half of the rows and in the second
//! half.

use super::canvas::{Picture, REFERENCE, SUBJECT, picture};
use super::panels::{self, Legend, Panel};
use crate::{
    report::{raw::Run, study, units},
    row::Unit,
    rows::pages::{CONDITIONS, SERVERS},
};

pub(crate) const FILE: &str = "which-kind-splits.svg";

const TITLE: &str = "Page splits for each 1,000 rows inserted over one connection";

const LEGEND: Legend = Legend {
    about: "splits a 1,000 rows",
    show: |value| units::value(value, Unit::Count),
    values: &[("first half", REFERENCE), ("second half", SUBJECT)],
};

pub(crate) fn draw(run: &Run) -> Result<Option<Picture>, String> {
    let mut all = Vec::new();
    for (backend, title) in SERVERS {
        let Some(row) = study::row(run, backend, CONDITIONS[0]) else {
            return Ok(None);
        };
        let bars = row.series.iter().filter_map(|series| {
            let splits = study::splits(series)?;
            Some((series.name.clone(), splits.to_vec()))
        });
        all.push(Panel {
            title,
            bars: bars.collect(),
        });
    }
    let svg = picture(run, TITLE, |area| panels::fill(area, &all, &LEGEND))?;
    Ok(Some(Picture {
        file: FILE,
        title: "Page splits by kind of key, in the first and in the second half of the rows",
        svg,
    }))
}
