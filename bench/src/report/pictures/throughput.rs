//! One number at a time, beside everything else that gives numbers.

use plotters::prelude::*;

use super::{Area, Drawn, FAINT, FONT, GRID, Picture, REFERENCE, SUBJECT, TEXT, picture};
use crate::{
    report::{raw::Run, units},
    row::Unit,
};

const ROW: &str = "single";
const TITLE: &str = "Numbers a second, one in each request";

pub(super) const FILE: &str = "speed-throughput.svg";

pub(super) fn draw(run: &Run) -> Result<Option<Picture>, String> {
    let Some(row) = run.rows.iter().find(|row| row.name == ROW) else {
        return Ok(None);
    };
    let bars: Vec<(&str, f64)> = row
        .series
        .iter()
        .filter_map(|series| Some((series.name.as_str(), series.value()?.median)))
        .collect();
    if bars.is_empty() {
        return Ok(None);
    }
    let svg = picture(run, TITLE, |area| fill(area, &bars))?;
    Ok(Some(Picture {
        file: FILE,
        title: "Throughput of Odometer beside a constant body, Redis, PostgreSQL and MariaDB",
        is_main: true,
        svg,
    }))
}

/// The first on top. The end of a range that is cut into segments is one of them.
fn fill(area: &Area<'_>, bars: &[(&str, f64)]) -> Drawn {
    let n_bars = bars.len();
    let longest = bars.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let show = |value: f64| units::value(value, Unit::NumbersPerSecond);
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(46)
        .y_label_area_size(236)
        .build_cartesian_2d(0.0..longest * 1.12, (0..n_bars - 1).into_segmented())?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style((FONT, 14).into_font().color(&TEXT))
        .x_desc("numbers a second, median")
        .x_label_formatter(&|value| show(*value))
        .y_labels(n_bars)
        .y_label_formatter(&|place| match place {
            SegmentValue::CenterOf(at) if *at < n_bars => bars[n_bars - 1 - at].0.to_owned(),
            SegmentValue::CenterOf(_) | SegmentValue::Exact(_) | SegmentValue::Last => {
                String::new()
            }
        })
        .draw()?;
    chart.draw_series(bars.iter().enumerate().map(|(at, (_, value))| {
        let place = n_bars - 1 - at;
        let corners = [
            (0.0, SegmentValue::Exact(place)),
            (*value, SegmentValue::Exact(place + 1)),
        ];
        let color = if at == 0 { SUBJECT } else { REFERENCE };
        let mut bar = Rectangle::new(corners, color.filled());
        bar.set_margin(5, 5, 0, 0);
        bar
    }))?;
    chart.draw_series(bars.iter().enumerate().map(|(at, (_, value))| {
        let end = (*value, SegmentValue::CenterOf(n_bars - 1 - at));
        let style = (FONT, 14).into_font().color(&TEXT);
        EmptyElement::at(end) + Text::new(show(*value), (6, -7), style)
    }))?;
    Ok(())
}
