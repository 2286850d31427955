//! Draws how many numbers a replica holds in memory while its database is away.

use plotters::prelude::*;

use super::canvas::{AWAY, Area, Drawn, FAINT, FONT, GRID, Picture, SUBJECT, TEXT, picture};
use crate::{
    reading::Spread,
    report::{raw::Run, units},
    row::{Moment, Presence, Unit},
};

pub(crate) const FILE: &str = "speed-outage.svg";

pub(crate) fn draw(run: &Run) -> Result<Option<Picture>, String> {
    let Some(row) = run.rows.iter().find(|row| row.timeline.len() > 1) else {
        return Ok(None);
    };
    let rates = row
        .timeline
        .iter()
        .skip(1)
        .map(|moment| moment.issued_per_s);
    let rate = Spread::of(rates).map_or(0.0, |rate| rate.median);
    let title = format!(
        "Numbers in memory during an outage, {} issued",
        units::value(rate, Unit::NumbersPerSecond)
    );
    let mut timeline = row.timeline.clone();
    let first_s = timeline[0].at_s;
    for moment in &mut timeline {
        moment.at_s -= first_s;
    }
    let svg = picture(run, &title, |area| fill(area, &timeline))?;
    Ok(Some(Picture {
        file: FILE,
        title: "Numbers in memory of a replica before, while and after its database is away",
        svg,
    }))
}

fn fill(area: &Area<'_>, timeline: &[Moment]) -> Drawn {
    let last = timeline.last().map_or(1.0, |moment| moment.at_s);
    let most = timeline
        .iter()
        .map(|moment| moment.remaining)
        .fold(1.0, f64::max)
        * 1.15;
    let mut chart = ChartBuilder::on(area)
        .x_label_area_size(46)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..last, 0.0..most)?;
    chart.draw_series(
        absences(timeline)
            .into_iter()
            .map(|(from, to)| Rectangle::new([(from, 0.0), (to, most)], AWAY.mix(0.12).filled())),
    )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .label_style((FONT, 14).into_font().color(&TEXT))
        .x_desc("seconds")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_desc("numbers in memory (pale: computed)")
        .y_label_formatter(&|value| units::value(*value, Unit::Count))
        .draw()?;
    // Each line connects one moment with the next.
    chart.draw_series(timeline.windows(2).map(|pair| {
        let points: Vec<_> = pair.iter().map(|it| (it.at_s, it.remaining)).collect();
        let strength = if pair[1].is_computed { 0.35 } else { 1.0 };
        PathElement::new(points, SUBJECT.mix(strength).stroke_width(2))
    }))?;
    let style = (FONT, 14).into_font().color(&AWAY);
    chart.draw_series(absences(timeline).into_iter().map(|(from, _)| {
        EmptyElement::at((from, most)) + Text::new("database away", (8, 8), style.clone())
    }))?;
    Ok(())
}

/// Returns the times from which to which the database was away.
fn absences(timeline: &[Moment]) -> Vec<(f64, f64)> {
    let mut found: Vec<(f64, f64)> = Vec::new();
    let mut before = Presence::Up;
    for moment in timeline {
        match (before, moment.database) {
            (Presence::Up, Presence::Away) => found.push((moment.at_s, moment.at_s)),
            (Presence::Away, _) => {
                if let Some(absence) = found.last_mut() {
                    absence.1 = moment.at_s;
                }
            }
            (Presence::Up, Presence::Up) => {}
        }
        before = moment.database;
    }
    found
}
