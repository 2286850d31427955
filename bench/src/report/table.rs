//! The table, in Markdown.

use super::units;
use crate::row::{Row, Series, Target, Unit};

/// What the first series of most rows is called.
const SUBJECT: &str = "Odometer";
const NOTHING: &str = "–";

/// All rows, a line for each reference and one for what is wanted of the subject alone; below
/// them what must be known beside the figures.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = head(&[
        "What",
        SUBJECT,
        "CPU a request",
        "Beside it",
        "Its figure",
        "Its CPU",
        "Ratio",
        "Wanted",
        "Met",
    ]);
    for line in rows.iter().flat_map(Line::of) {
        text.push_str(&line.whole());
    }
    let mut notes = rows
        .iter()
        .filter_map(|row| Some((row, row.note.as_ref()?)));
    if let Some(first) = notes.next() {
        text.push('\n');
        for (row, note) in std::iter::once(first).chain(notes) {
            text.push_str(&format!("- {}: {note}\n", row.title));
        }
    }
    text
}

/// The rows of which something is wanted, in short.
pub(super) fn targets(rows: &[Row]) -> String {
    let mut text = head(&[
        "What",
        SUBJECT,
        "Beside it",
        "Its figure",
        "Ratio",
        "Wanted",
        "Met",
    ]);
    for line in rows.iter().flat_map(Line::of) {
        if !line.targets.is_empty() {
            text.push_str(&line.short());
        }
    }
    text
}

/// Requests of any series that failed.
pub(crate) fn n_failed(rows: &[Row]) -> u64 {
    let series = rows.iter().flat_map(|row| &row.series);
    series.map(Series::n_failed).sum()
}

/// One line of the table.
struct Line<'a> {
    row: &'a Row,
    reference: Option<&'a Series>,
    targets: Vec<&'a Target>,
}

impl<'a> Line<'a> {
    fn of(row: &'a Row) -> Vec<Self> {
        let about = |name: Option<&str>| -> Vec<&Target> {
            let targets = row.targets.iter();
            targets
                .filter(|target| target.against.as_deref() == name)
                .collect()
        };
        let alone = about(None);
        let mut found: Vec<Self> = Vec::new();
        if row.references().is_empty() || !alone.is_empty() {
            found.push(Self {
                row,
                reference: None,
                targets: alone,
            });
        }
        found.extend(row.references().iter().map(|reference| Self {
            row,
            reference: Some(reference),
            targets: about(Some(&reference.name)),
        }));
        found
    }

    fn whole(&self) -> String {
        let name = self.reference.map(|series| series.name.clone());
        let ratio = self.reference.and_then(|series| self.row.ratio(series));
        line(&[
            self.title(),
            figure(self.row.subject(), self.row.unit),
            cpu(self.row.subject()),
            name.unwrap_or_else(|| NOTHING.to_owned()),
            self.reference
                .map_or(NOTHING.to_owned(), |series| figure(series, self.row.unit)),
            self.reference.map_or(NOTHING.to_owned(), cpu),
            ratio.map_or(NOTHING.to_owned(), units::ratio),
            self.wanted(),
            self.met().to_owned(),
        ])
    }

    fn short(&self) -> String {
        let reference = self.reference;
        let ratio = reference.and_then(|series| self.row.ratio(series));
        let median = |series: &Series| {
            let spread = series.value();
            let value = spread.map(|spread| units::value(spread.median, self.row.unit));
            value.unwrap_or_else(|| NOTHING.to_owned()) + &failed(series)
        };
        line(&[
            self.title(),
            median(self.row.subject()),
            reference.map_or(NOTHING.to_owned(), |series| series.name.clone()),
            reference.map_or(NOTHING.to_owned(), median),
            ratio.map_or(NOTHING.to_owned(), units::ratio),
            self.wanted(),
            self.met().to_owned(),
        ])
    }

    fn title(&self) -> String {
        match self.row.subject().name.as_str() {
            SUBJECT => self.row.title.clone(),
            other => format!("{} ({other})", self.row.title),
        }
    }

    fn wanted(&self) -> String {
        let bounds: Vec<String> = self
            .targets
            .iter()
            .map(|target| {
                let unit = target.against.is_none().then_some(self.row.unit);
                units::bound(target.bound, unit)
            })
            .collect();
        if bounds.is_empty() {
            return NOTHING.to_owned();
        }
        bounds.join(", ")
    }

    fn met(&self) -> &'static str {
        match self.targets.as_slice() {
            [] => NOTHING,
            targets if targets.iter().all(|target| self.row.holds(target)) => "yes",
            _ => "**no**",
        }
    }
}

fn figure(series: &Series, unit: Unit) -> String {
    let spread = series.value().map(|spread| units::spread(spread, unit));
    spread.unwrap_or_else(|| NOTHING.to_owned()) + &failed(series)
}

fn failed(series: &Series) -> String {
    match series.n_failed() {
        0 => String::new(),
        n_failed => format!(", **{n_failed} failed**"),
    }
}

fn cpu(series: &Series) -> String {
    let cpu = series.cpu_us().map(|cpu| cpu.median);
    cpu.map_or(NOTHING.to_owned(), |micros| {
        units::value(micros, Unit::Microseconds)
    })
}

/// The head of a table.
fn head(columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
    let below = "|---".repeat(columns.len());
    format!("{}{below}|\n", line(&columns))
}

/// One line; a bar would end a cell.
fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "/")).collect();
    format!("| {} |\n", cells.join(" | "))
}
