//! What `docs/which-kind.md` shows: how pages of a primary key split, by kind of key.

use odometer_tests::Backend;

use super::{
    pictures::Picture,
    raw::Run,
    table::{head, line},
    units,
};
use crate::{
    reading::Reading,
    row::{Row, Series, Unit},
    rows::pages::{CONDITIONS, Condition, SERVERS, figure, row_name},
};

const PER: f64 = 1_000.0;

/// The section of the document: where and how it was measured, tables, pictures.
pub(super) fn section(run: &Run, drawn: &[Picture]) -> String {
    let machine = &run.machine;
    let servers = SERVERS.map(|(_, name)| {
        let version = machine.versions.get(name).map_or("", String::as_str);
        format!("{name} {version}").trim_end().to_owned()
    });
    let mut text = format!(
        "Measured on {} by `{}` in {} min on {} ({} cores), {}, {}.\n",
        run.date(),
        run.command,
        run.took_s.div_ceil(60),
        machine.cpu,
        machine.n_cores,
        servers.join(", "),
        run.sources(),
    );
    text.push_str(&format!(
        "{} rows went into each table.\n\n",
        units::value(n_rows(run), Unit::Count)
    ));
    for picture in drawn {
        text.push_str(&format!("![{}]({})\n\n", picture.title, picture.file));
    }
    text + &tables(run)
}

/// One for each server and condition that was measured.
pub(super) fn tables(run: &Run) -> String {
    let mut tables = Vec::new();
    for (backend, server) in SERVERS {
        for condition in CONDITIONS {
            if let Some(row) = row(run, backend, condition) {
                tables.push(format!(
                    "**{server}, {}**\n\n{}",
                    condition.title,
                    table(row)
                ));
            }
        }
    }
    tables.join("\n")
}

/// The row of a server and condition.
pub(super) fn row(run: &Run, backend: Backend, condition: Condition) -> Option<&Row> {
    let name = row_name(backend, condition);
    run.rows.iter().find(|row| row.name == name)
}

/// Splits for each 1,000 rows of the first and of the second half.
pub(super) fn splits(series: &Series) -> Option<[f64; 2]> {
    let reading = series.readings.first()?;
    let n_rows = reading.figures.get(figure::INSERTED)? / 2.0;
    let a_thousand = |name| Some(reading.figures.get(name)? / n_rows * PER);
    Some([
        a_thousand(figure::FIRST_HALF)?,
        a_thousand(figure::SECOND_HALF)?,
    ])
}

/// The part of the leaf pages that is in use at the end.
pub(super) fn fill(series: &Series) -> Option<f64> {
    series.readings.first()?.figures.get(figure::FILL).copied()
}

fn n_rows(run: &Run) -> f64 {
    let first = run.rows.first().and_then(|row| row.series.first());
    let reading = first.and_then(|series| series.readings.first());
    reading.map_or(0.0, |reading| of(reading, figure::INSERTED))
}

fn table(row: &Row) -> String {
    let mut text = head(&[
        "Key",
        "Splits a 1,000 rows, first half",
        "Second half",
        "Merges a 1,000 rows",
        "Leaf pages full",
        "Table and index a row",
        "Log a row",
        "Rows a second",
        "Beside the first",
    ]);
    for series in &row.series {
        if let (Some(reading), Some([first, second])) = (series.readings.first(), splits(series)) {
            let n_rows = of(reading, figure::INSERTED);
            let n_left = n_rows - of(reading, figure::DELETED);
            let bytes = |name, n| units::value(of(reading, name) / n, Unit::Bytes);
            text.push_str(&line(&[
                series.name.clone(),
                units::value(first, Unit::Count),
                units::value(second, Unit::Count),
                units::value(of(reading, figure::MERGES) / n_rows * PER, Unit::Count),
                percent(of(reading, figure::FILL)),
                bytes(figure::BYTES, n_left),
                bytes(figure::LOG_BYTES, n_rows),
                units::value(reading.value, row.unit),
                format!("{:.2}", reading.value / row.subject().readings[0].value),
            ]));
        }
    }
    text
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn of(reading: &Reading, name: &str) -> f64 {
    reading.figures.get(name).copied().unwrap_or(f64::NAN)
}
