//! Writes what `docs/which-kind.md` shows: how pages of a primary key split, by kind of key.

use std::path::Path;

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

/// Returns the section of the document: where and how the study was measured, tables, and pictures.
pub(crate) fn section(run: &Run, drawn: &[Picture]) -> String {
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
    for (backend, server) in SERVERS {
        text.push_str(&format!("**{server}**\n\n{}\n", summary(run, backend)));
    }
    text.push_str(&format!(
        "Every figure of every table: [table.md](../{}).\n",
        run.kept(Path::new("")).join("table.md").display()
    ));
    text
}

/// Returns a short table of what one server did with each kind of key.
fn summary(run: &Run, backend: Backend) -> String {
    let mut columns = vec![
        "Key".to_owned(),
        "Splits a 1,000 rows, first half".to_owned(),
        "Second half".to_owned(),
    ];
    let full = |condition: Condition| format!("Leaf pages full: {}", condition.title);
    columns.extend(CONDITIONS.map(full));
    let rest = [
        "Merges a 1,000 rows, with deletes",
        "Table and index a row",
        "Log a row",
        "Rows a second, compared with the first",
    ];
    columns.extend(rest.map(str::to_owned));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut text = head(&columns);
    let rows = CONDITIONS.map(|condition| row(run, backend, condition));
    let [Some(ordered), _, _, Some(deletes)] = rows else {
        return text;
    };
    for (at, series) in ordered.series.iter().enumerate() {
        let (Some(reading), Some([first, second])) = (series.readings.first(), splits(series))
        else {
            continue;
        };
        let n_rows = of(reading, figure::INSERTED);
        let mut cells = vec![series.name.clone(), count(first), count(second)];
        cells.extend(rows.iter().map(|row| {
            let series = row.and_then(|row| row.series.get(at));
            series.and_then(fill).map_or("–".to_owned(), units::percent)
        }));
        let merges = deletes.series.get(at).and_then(merges);
        cells.push(merges.map_or("–".to_owned(), count));
        cells.push(bytes(of(reading, figure::BYTES) / n_rows));
        cells.push(bytes(of(reading, figure::LOG_BYTES) / n_rows));
        cells.push(compared_with_the_first(ordered, reading));
        text.push_str(&line(&cells));
    }
    text
}

/// Returns one table for each server and condition that was measured.
pub(crate) fn tables(run: &Run) -> String {
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

/// Returns the row of a server and a condition.
pub(crate) fn row(run: &Run, backend: Backend, condition: Condition) -> Option<&Row> {
    let name = row_name(backend, condition);
    run.rows.iter().find(|row| row.name == name)
}

/// Returns the splits for each 1,000 rows, of the first half and of the second half.
pub(crate) fn splits(series: &Series) -> Option<[f64; 2]> {
    let reading = series.readings.first()?;
    let n_rows = reading.figures.get(figure::INSERTED)? / 2.0;
    let a_thousand = |name| Some(reading.figures.get(name)? / n_rows * PER);
    Some([
        a_thousand(figure::FIRST_HALF)?,
        a_thousand(figure::SECOND_HALF)?,
    ])
}

/// Returns the merges for each 1,000 inserted rows.
fn merges(series: &Series) -> Option<f64> {
    let reading = series.readings.first()?;
    Some(reading.figures.get(figure::MERGES)? / reading.figures.get(figure::INSERTED)? * PER)
}

/// Returns the part of the leaf pages that is in use at the end.
pub(crate) fn fill(series: &Series) -> Option<f64> {
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
        "Compared with the first",
    ]);
    for series in &row.series {
        if let (Some(reading), Some([first, second])) = (series.readings.first(), splits(series)) {
            let n_rows = of(reading, figure::INSERTED);
            let n_left = n_rows - of(reading, figure::DELETED);
            text.push_str(&line(&[
                series.name.clone(),
                count(first),
                count(second),
                count(merges(series).unwrap_or(f64::NAN)),
                units::percent(of(reading, figure::FILL)),
                bytes(of(reading, figure::BYTES) / n_left),
                bytes(of(reading, figure::LOG_BYTES) / n_rows),
                units::value(reading.value, row.unit),
                compared_with_the_first(row, reading),
            ]));
        }
    }
    text
}

fn compared_with_the_first(row: &Row, reading: &Reading) -> String {
    let first = row.subject().readings.first();
    let ratio = first.map_or(f64::NAN, |first| reading.value / first.value);
    format!("{ratio:.2}")
}

fn count(value: f64) -> String {
    units::value(value, Unit::Count)
}

fn bytes(value: f64) -> String {
    units::value(value, Unit::Bytes)
}

fn of(reading: &Reading, name: &str) -> f64 {
    reading.figures.get(name).copied().unwrap_or(f64::NAN)
}

/// Returns rows from which the document and pictures can be made: 1,000 rows, two kinds of key.
#[cfg(test)]
pub(crate) fn example_rows() -> Vec<Row> {
    let reading = |fill: f64| {
        Reading::of(1_000.0)
            .figure(figure::INSERTED, 1_000.0)
            .figure(figure::DELETED, 0.0)
            .figure(figure::FIRST_HALF, 2.0)
            .figure(figure::SECOND_HALF, 1.0)
            .figure(figure::MERGES, 0.0)
            .figure(figure::LEAF_PAGES, 4.0)
            .figure(figure::FILL, fill)
            .figure(figure::BYTES, 200_000.0)
            .figure(figure::LOG_BYTES, 300_000.0)
    };
    let series = vec![
        Series::new("AUTO_INCREMENT, identity", vec![reading(0.92)]),
        Series::new("high worker, 3 workers", vec![reading(0.81)]),
    ];
    let of = |(backend, title): (Backend, &str)| {
        CONDITIONS.map(|condition| {
            Row::new(&row_name(backend, condition), title, Unit::RowsPerSecond)
                .series(series.clone())
        })
    };
    SERVERS.into_iter().flat_map(of).collect()
}
