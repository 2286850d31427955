//! Draws how full leaf pages are in the end, by kind of key and by what was done.

use plotters::style::RGBColor;

use super::canvas::{FAINT, Picture, REFERENCE, SLOW, SUBJECT, TALL, picture_of};
use super::panels::{self, Legend, Panel};
use crate::{
    report::{raw::Run, study, units},
    rows::pages::{CONDITIONS, SERVERS},
};

pub(crate) const FILE: &str = "which-kind-fill.svg";

const TITLE: &str = "How full leaf pages are in the end";
const COLORS: [RGBColor; 4] = [SUBJECT, FAINT, REFERENCE, SLOW];

const LEGEND: Legend = Legend {
    about: "part of the leaf pages in use",
    show: units::percent,
    values: &[
        (CONDITIONS[0].title, COLORS[0]),
        (CONDITIONS[1].title, COLORS[1]),
        (CONDITIONS[2].title, COLORS[2]),
        (CONDITIONS[3].title, COLORS[3]),
    ],
};

pub(crate) fn draw(run: &Run) -> Result<Option<Picture>, String> {
    let mut all = Vec::new();
    for (backend, title) in SERVERS {
        let mut bars: Vec<(String, Vec<f64>)> = Vec::new();
        for condition in CONDITIONS {
            let Some(row) = study::row(run, backend, condition) else {
                return Ok(None);
            };
            for (at, series) in row.series.iter().enumerate() {
                if bars.len() == at {
                    bars.push((series.name.clone(), Vec::new()));
                }
                bars[at].1.extend(study::fill(series));
            }
        }
        all.push(Panel { title, bars });
    }
    let svg = picture_of(TALL, run, TITLE, |area| panels::fill(area, &all, &LEGEND))?;
    Ok(Some(Picture {
        file: FILE,
        title: "The part of leaf pages that is in use, by kind of key",
        svg,
    }))
}
