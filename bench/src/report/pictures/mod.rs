//! Draws pictures of a run, one file each. They are SVG files that need no other file.

mod bars;
mod canvas;
mod cost;
mod fills;
mod latency;
mod outage;
mod panels;
mod splits;
mod throughput;

pub(crate) use canvas::Picture;

use super::raw::Run;
#[cfg(test)]
use crate::row::Row;

/// The files of all possible pictures of the rows, in `docs`.
pub(crate) const FILES: [&str; 4] = [cost::FILE, throughput::FILE, latency::FILE, outage::FILE];

/// The files of all possible pictures of the study, in `docs`.
pub(crate) const FILES_OF_STUDY: [&str; 2] = [splits::FILE, fills::FILE];

/// Draws every picture that has rows in the run.
///
/// # Errors
/// A sentence, if the figures cannot be drawn.
pub(crate) fn draw(run: &Run) -> Result<Vec<Picture>, String> {
    let drawn = [
        cost::draw(run),
        throughput::draw(run),
        latency::draw(run),
        outage::draw(run),
    ];
    drawn.into_iter().filter_map(Result::transpose).collect()
}

/// Draws the pictures of a study.
///
/// # Errors
/// A sentence, if the figures cannot be drawn.
pub(crate) fn draw_study(run: &Run) -> Result<Vec<Picture>, String> {
    let drawn = [splits::draw(run), fills::draw(run)];
    drawn.into_iter().filter_map(Result::transpose).collect()
}

/// Returns rows from which every picture can be made.
#[cfg(test)]
pub(crate) fn example_rows() -> Vec<Row> {
    use crate::{
        reading::{Busy, Latency, Reading},
        row::{Bound, Moment, Presence, Series, Unit},
    };
    let series = |name: &str, value: f64, p99: f64| {
        let latency = Latency::of(
            (1..=10_000)
                .map(|at| p99 * f64::from(at) / 9_900.0)
                .collect(),
        );
        let mut reading = Reading::of(value).figure("refills", 3.0);
        (reading.cpu_us, reading.latency) = (Some(6.1), Some(latency));
        reading.n_requests = 300_000;
        let client = Some(0.97);
        let server = if name.starts_with("Redis") { 0.7 } else { 0.98 };
        reading.busy = Some(Busy { server, client });
        Series::new(name, vec![reading])
    };
    let references = [
        ("Odometer", 158_976.0),
        ("actix-web, constant body", 165_600.0),
        ("Redis INCR", 121_000.0),
        ("PostgreSQL nextval, cache 1", 61_000.0),
        ("PostgreSQL nextval, cache 1000", 64_500.0),
        ("MariaDB NEXTVAL", 48_000.0),
        ("sequence table on PostgreSQL", 1_450.0),
        ("sequence table on MariaDB", 980.0),
    ];
    let single = references.map(|(name, value)| series(name, value, 700.0));
    let single = Row::new(
        "single",
        "one number, 64 connections",
        Unit::RequestsPerSecond,
    )
    .series(single.into())
    .target("actix-web, constant body", Bound::AtLeast(0.95))
    .note("example");
    let title = "processor time of one number, 64 connections";
    let against = ["actix-web, constant body", "Redis INCR"];
    let cost = single.cost(title, 1, &against);
    let cost = cost.target("Redis INCR", Bound::AtMost(0.95));
    let disturbed = |name: &str, title: &str, p99: f64| {
        let both = vec![
            series("Odometer", p99, p99),
            series("healthy", 600.0, 600.0),
        ];
        let row = Row::new(name, title, Unit::Microseconds).series(both);
        row.target("healthy", Bound::AtMost(1.1))
    };
    let slow = disturbed("slow-100", "p99, the database 100 ms slow", 640.0);
    let mut away = disturbed("away", "p99, the database away for 60 s", 610.0);
    away.timeline = (0..90_u32)
        .map(|second| {
            let is_away = (15..75).contains(&second);
            let refilled = if second < 75 { 0.0 } else { 500_000.0 };
            Moment {
                at_s: f64::from(second),
                remaining: 4_500_000.0 + refilled - 5_000.0 * f64::from(second),
                is_computed: second == 16,
                issued_per_s: 5_000.0,
                database: if is_away {
                    Presence::Away
                } else {
                    Presence::Up
                },
            }
        })
        .collect();
    vec![cost, single, slow, away]
}
