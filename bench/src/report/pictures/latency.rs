//! Draws how long calls take while the database is slow or away, next to calls with a healthy
//! database.

use std::ops::Range;

use plotters::{
    coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    element::DashedPathElement,
    prelude::*,
};

use super::canvas::{AWAY, Area, Drawn, FAINT, FONT, GRID, Picture, SLOW, TEXT, picture};
use crate::{
    reading::{Latency, Spread},
    report::{raw::Run, units},
    row::{Series, Unit},
};

const TITLE: &str = "Latency by percentile, whatever the database does";
/// The rows, the disturbance of their first contender, and the colour. The second contender of the
/// same row is the same program with a healthy database.
const ROWS: [(&str, &str, RGBColor); 2] = [
    ("slow-100", "database 100 ms slow", SLOW),
    ("away", "database away", AWAY),
];

/// A place on the axis of percentiles, its label, and how the percentile is read.
type Percentile = (f64, &'static str, fn(&Latency) -> f64);
/// The percentiles that are drawn. Each further nine takes the same width.
const PERCENTILES: [Percentile; 7] = [
    (0.301, "p50", |latency| latency.p50),
    (0.602, "p75", |latency| latency.p75),
    (1.0, "p90", |latency| latency.p90),
    (1.301, "p95", |latency| latency.p95),
    (2.0, "p99", |latency| latency.p99),
    (3.0, "p99.9", |latency| latency.p99_9),
    (4.0, "p99.99", |latency| latency.p99_99),
];

/// The fewest calls that must have been slower than a percentile, so that it is drawn.
const MIN_BEYOND: f64 = 10.0;

struct Curve {
    name: String,
    color: RGBColor,
    is_healthy: bool,
    points: Vec<(f64, f64)>,
}

pub(crate) const FILE: &str = "speed-latency.svg";

pub(crate) fn draw(run: &Run) -> Result<Option<Picture>, String> {
    let mut curves = Vec::new();
    for (name, disturbance, color) in ROWS {
        let row = run.rows.iter().find(|row| row.name == name);
        let series = row.into_iter().flat_map(|row| row.series.iter().take(2));
        for (at, series) in series.enumerate() {
            let is_healthy = at > 0;
            let name = if is_healthy {
                format!("healthy, in turn with “{disturbance}”")
            } else {
                disturbance.to_owned()
            };
            curves.extend(points(series).map(|points| Curve {
                name,
                color,
                is_healthy,
                points,
            }));
        }
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let svg = picture(run, TITLE, |area| fill(area, &curves))?;
    Ok(Some(Picture {
        file: FILE,
        title: "Latency by percentile with the database healthy, slow and away",
        svg,
    }))
}

/// Returns the median of each percentile over all readings. A value is at least 1, because the axis
/// is logarithmic. Percentiles that rest on too few calls are left out.
fn points(series: &Series) -> Option<Vec<(f64, f64)>> {
    let n_calls = series.readings.iter().map(|it| it.n_requests).min()?;
    // With each nine, a tenth of the calls are left.
    let n_beyond = |place: f64| n_calls as f64 * 10_f64.powf(-place);
    let seen: Vec<Latency> = series
        .readings
        .iter()
        .filter_map(|reading| reading.latency)
        .collect();
    PERCENTILES
        .iter()
        .filter(|(place, ..)| n_beyond(*place) >= MIN_BEYOND)
        .map(|(place, _, read)| Some((*place, Spread::of(seen.iter().map(read))?.median.max(1.0))))
        .collect()
}

fn fill(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    let values = || {
        curves
            .iter()
            .flat_map(|curve| &curve.points)
            .map(|(_, value)| *value)
    };
    let lowest = decade(values().fold(f64::MAX, f64::min), f64::floor);
    let highest = decade(values().fold(1.0, f64::max), f64::ceil).max(lowest * 10.0);
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(Nines, (lowest..highest).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style((FONT, 14).into_font().color(&TEXT))
        .x_desc("percentile of all calls")
        .y_desc("time of a call, logarithmic")
        .y_label_formatter(&|value| units::value(*value, Unit::Microseconds))
        .draw()?;
    for curve in curves {
        let (color, points) = (curve.color, curve.points.iter().copied());
        if curve.is_healthy {
            let style = color.mix(0.6).stroke_width(2);
            let line = DashedLineSeries::new(points, 6, 5, style);
            let drawn = chart.draw_series(line)?.label(&curve.name);
            drawn.legend(move |(x, y)| {
                DashedPathElement::new([(x, y), (x + 22, y)], 6, 5, color.mix(0.6).stroke_width(2))
            });
        } else {
            let line = LineSeries::new(points, color.stroke_width(2)).point_size(3);
            let drawn = chart.draw_series(line)?.label(&curve.name);
            drawn.legend(move |(x, y)| {
                PathElement::new([(x, y), (x + 22, y)], color.stroke_width(2))
            });
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .legend_area_size(30)
        .background_style(WHITE)
        .border_style(GRID)
        .label_font((FONT, 14).into_font().color(&TEXT))
        .draw()?;
    Ok(())
}

/// Returns the next power of ten in the direction of `round`.
fn decade(value: f64, round: fn(f64) -> f64) -> f64 {
    10_f64.powf(round(value.log10()))
}

/// The axis of percentiles, with a mark at each percentile.
struct Nines;

impl Ranged for Nines {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        let part = (value - start) / (end - start);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        PERCENTILES.iter().map(|(place, ..)| *place).collect()
    }

    fn range(&self) -> Range<f64> {
        0.2..4.1
    }
}

impl ValueFormatter<f64> for Nines {
    fn format(place: &f64) -> String {
        let known = PERCENTILES.iter().find(|(at, ..)| at == place);
        known.map_or(String::new(), |(_, name, _)| (*name).to_owned())
    }
}
