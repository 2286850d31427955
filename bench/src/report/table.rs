//! Writes the table of a run in Markdown.

use super::units::{self, percent};
use crate::reading::Spread;
use crate::row::{Bound, Row, Series, Target, Unit};

/// The name of the first series in most rows.
const SUBJECT: &str = "Odometer";
const NOTHING: &str = "–";
const NOT_MEASURED: &str = "not measured";
/// The words for a rate whose server waited for a client that had no time left.
pub(crate) const BOUND_BY_CLIENT: &str = "bound by its client";

/// Returns a table of all rows. Each reference has a line, and so has a target of the subject
/// alone. Below the table are the notes, which the titles refer to by number.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = head(&[
        "What",
        SUBJECT,
        "CPU a request",
        "Busy",
        "Compared with",
        "Its figure",
        "Its CPU",
        "Its busy",
        "Ratio",
        "Wanted",
        "Met",
    ]);
    let notes = notes(rows);
    for line in rows.iter().flat_map(Line::of) {
        text.push_str(&line.whole(&notes));
    }
    text + &below(&notes)
}

/// Returns the notes, each with its number.
fn below(notes: &[&str]) -> String {
    let mut text = String::new();
    if !notes.is_empty() {
        text.push('\n');
    }
    for (at, note) in notes.iter().enumerate() {
        let mut letters = note.chars();
        let first: String = letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .collect();
        let rest = letters.as_str().trim_end_matches('.');
        text.push_str(&format!("{}. {first}{rest}.\n", at + 1));
    }
    text
}

/// Returns each note once. Several rows may have the same note.
fn notes<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    let rows = rows.into_iter();
    for note in rows.filter_map(|row| row.note.as_deref()) {
        if !found.contains(&note) {
            found.push(note);
        }
    }
    found
}

/// Returns a short table of chosen lines, each by the name of its row and of its reference. A line
/// that no row has is left out.
pub(crate) fn excerpt(rows: &[Row], chosen: &[(&str, &str)]) -> String {
    let mut text = head(&["What", SUBJECT, "Compared with", "Its figure", "Ratio"]);
    let lines: Vec<Line<'_>> = rows.iter().flat_map(Line::of).collect();
    for &(name, beside) in chosen {
        let is_chosen = |line: &&Line<'_>| line.row.name == name && line.beside == Some(beside);
        if let Some(line) = lines.iter().find(is_chosen) {
            text.push_str(&line.short());
        }
    }
    text
}

/// Returns how many requests failed in all series. Rows of costs are left out, because they use the
/// same requests.
pub(crate) fn n_failed(rows: &[Row]) -> u64 {
    let rates = rows.iter().filter(|row| !row.is_cost());
    let series = rates.flat_map(|row| &row.series);
    series.map(Series::n_failed).sum()
}

/// Returns what numbers cost, in words: a line for each reference that has a target.
pub(crate) fn costs(rows: &[Row]) -> String {
    let lines = rows.iter().filter(|row| row.is_cost()).flat_map(Line::of);
    lines.filter_map(|line| line.cost()).collect()
}

/// One line of the table.
struct Line<'a> {
    row: &'a Row,
    /// The name of the reference.
    beside: Option<&'a str>,
    /// The reference. It is `None` with a name in `beside` if the reference was not measured.
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
                beside: None,
                reference: None,
                targets: alone,
            });
        }
        found.extend(row.references().iter().map(|reference| Self {
            row,
            beside: Some(&reference.name),
            reference: Some(reference),
            targets: about(Some(&reference.name)),
        }));
        found.extend(row.missing().map(|name| Self {
            row,
            beside: Some(name),
            reference: None,
            targets: about(Some(name)),
        }));
        found
    }

    fn whole(&self, notes: &[&str]) -> String {
        line(&[
            self.title(notes),
            figure(self.row.subject(), self.row.unit),
            cpu(self.row.subject()),
            self.busy(self.row.subject()),
            self.beside.unwrap_or(NOTHING).to_owned(),
            self.reference
                .map_or(NOTHING.to_owned(), |series| figure(series, self.row.unit)),
            self.reference.map_or(NOTHING.to_owned(), cpu),
            self.reference
                .map_or(NOTHING.to_owned(), |series| self.busy(series)),
            self.ratio(),
            self.wanted(),
            self.met().to_owned(),
        ])
    }

    fn short(&self) -> String {
        let median = |series: &Series| {
            let spread = series.value();
            let value = spread.map(|spread| units::value(spread.median, self.row.unit));
            value.unwrap_or_else(|| NOTHING.to_owned()) + &failed(series)
        };
        line(&[
            self.title(&[]),
            median(self.row.subject()),
            self.beside.unwrap_or(NOTHING).to_owned(),
            self.reference.map_or(NOTHING.to_owned(), median),
            self.ratio(),
        ])
    }

    /// Returns whether a number costs more or less than a number of the reference. If the rounds
    /// disagree, the two are level. Returns `None` if the line has no target.
    fn cost(&self) -> Option<String> {
        self.targets.first()?;
        let reference = self.reference?;
        let ratio = self.row.ratio(reference)?;
        let figure = |series: &Series| Some(units::value(series.value()?.median, self.row.unit));
        let place = if ratio.min > 1.0 {
            "**behind**".to_owned()
        } else if ratio.max < 1.0 {
            "ahead".to_owned()
        } else {
            format!("level with {}", reference.name)
        };
        Some(format!(
            "- {}: Odometer {}, {} {}. Odometer is {place}, at {} times the cost.\n",
            self.row.title,
            figure(self.row.subject())?,
            reference.name,
            figure(reference)?,
            units::ratio(Spread::of([ratio.median])?, &[]),
        ))
    }

    /// Returns the title, with the number of the note.
    fn title(&self, notes: &[&str]) -> String {
        let own = self.row.note.as_deref();
        let note = own.and_then(|note| notes.iter().position(|other| *other == note));
        let mark = note.map_or(String::new(), |at| format!(" ({})", at + 1));
        match self.row.subject().name.as_str() {
            SUBJECT => format!("{}{mark}", self.row.title),
            other => format!("{} ({other}){mark}", self.row.title),
        }
    }

    /// Returns how busy the core of the server and the core of the client were. Says whether the
    /// rate is therefore no result.
    fn busy(&self, series: &Series) -> String {
        let Some(busy) = series.busy() else {
            return NOTHING.to_owned();
        };
        let client = busy.client.map(|share| format!(" / {}", percent(share)));
        let is_no_result = self.row.unit.is_rate() && series.is_bound_by_client();
        let mark = if is_no_result {
            format!(", **{BOUND_BY_CLIENT}**")
        } else {
            String::new()
        };
        format!(
            "{}{}{mark}",
            percent(busy.server),
            client.unwrap_or_default()
        )
    }

    /// Returns the ratio. If a client bounded one of the two rates, there is no ratio.
    fn ratio(&self) -> String {
        if self.reference.is_some() && self.is_bound_by_client() {
            return format!("{NOTHING} ({BOUND_BY_CLIENT})");
        }
        let ratio = self.reference.and_then(|series| self.row.ratio(series));
        let bounds: Vec<Bound> = self.targets.iter().map(|target| target.bound).collect();
        ratio.map_or(NOTHING.to_owned(), |ratio| units::ratio(ratio, &bounds))
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

    fn is_bound_by_client(&self) -> bool {
        self.row.is_bound_by_client(self.reference)
    }

    fn met(&self) -> &'static str {
        match self.targets.as_slice() {
            [] => NOTHING,
            _ if self.is_bound_by_client() => BOUND_BY_CLIENT,
            _ if self.beside.is_some() && self.reference.is_none() => NOT_MEASURED,
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

/// Returns the head of a table.
pub(crate) fn head(columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
    let below = "|---".repeat(columns.len());
    format!("{}{below}|\n", line(&columns))
}

/// Returns one line of a table. In cells, a `/` replaces `|`, which would end the cell.
pub(crate) fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "/")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Busy, Reading};

    fn series(name: &str, values: &[f64]) -> Series {
        Series::new(name, values.iter().copied().map(Reading::of).collect())
    }

    #[test]
    fn each_reference_has_a_line_and_what_is_wanted_says_whether_it_is_met() {
        let mut odometer = series(SUBJECT, &[95_000.0, 90_000.0, 99_000.0]);
        odometer.readings[0].cpu_us = Some(6.25);
        let other = series("other", &[100_000.0, 100_000.0, 100_000.0]);
        let mut failing = series("a|b", &[50_000.0]);
        failing.readings[0].n_failed = 3;
        let compared = Row::new("one", "compared", Unit::RequestsPerSecond)
            .series(vec![odometer, other, failing])
            .target("other", Bound::AtLeast(0.96))
            .target("absent", Bound::AtLeast(1.25))
            .note("a note");
        let alone = Row::new("two", "alone", Unit::Bytes)
            .series(vec![series("core", &[500.0])])
            .limit(Bound::AtMost(512.0))
            .note("a note");
        let rows = [compared, alone];
        let text = table(&rows);
        let expected = [
            "| compared (1) | 95 k/s (90–99) | 6.25 µs | – | other | 100 k/s | – | – | 0.950 (0.900–0.990) | ≥ 0.96 | **no** |",
            "| compared (1) | 95 k/s (90–99) | 6.25 µs | – | a/b | 50 k/s, **3 failed** | – | – | 1.900 | – | – |",
            "| compared (1) | 95 k/s (90–99) | 6.25 µs | – | absent | – | – | – | – | ≥ 1.25 | not measured |",
            "| alone (core) (1) | 500 B | – | – | – | – | – | – | – | ≤ 512 B | yes |",
            "",
            "1. A note.",
        ];
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), expected);
        assert_eq!(n_failed(&rows), 3);
        let short = excerpt(
            &rows,
            &[("one", "absent"), ("one", "other"), ("two", "other")],
        );
        let expected = [
            "| compared | 95 k/s | absent | – | – |",
            "| compared | 95 k/s | other | 100 k/s | 0.950 (0.900–0.990) |",
        ];
        assert_eq!(short.lines().skip(2).collect::<Vec<_>>(), expected);
    }

    /// Returns a series with one reading, which is this busy.
    fn busy(name: &str, value: f64, server: f64, client: f64) -> Series {
        let client = Some(client);
        let reading = Reading {
            cpu_us: Some(server * 10.0),
            busy: Some(Busy { server, client }),
            ..Reading::of(value)
        };
        Series::new(name, vec![reading])
    }

    #[test]
    fn a_rate_that_its_client_bounds_has_no_ratio() {
        let row = Row::new("one", "compared", Unit::RequestsPerSecond)
            .series(vec![
                busy(SUBJECT, 90.0, 0.996, 0.8),
                busy("bound", 60.0, 0.7, 0.99),
                busy("idle", 45.0, 0.5, 0.5),
            ])
            .target("bound", Bound::AtLeast(1.05));
        let cost = row.cost("cost", 1, &["bound", "idle"]);
        let cost = cost.target("bound", Bound::AtMost(0.95));
        let rows = [row, cost];
        let text = table(&rows);
        let expected = [
            "| compared | 90/s | 9.96 µs | 100 % / 80 % | bound | 60/s | 7 µs | 70 % / 99 %, **bound by its client** | – (bound by its client) | ≥ 1.05 | bound by its client |",
            "| compared | 90/s | 9.96 µs | 100 % / 80 % | idle | 45/s | 5 µs | 50 % / 50 % | 2.000 | – | – |",
            "| cost | 9.96 µs | – | 100 % / 80 % | bound | 7 µs | – | 70 % / 99 % | 1.423 | ≤ 0.95 | **no** |",
            "| cost | 9.96 µs | – | 100 % / 80 % | idle | 5 µs | – | 50 % / 50 % | 1.992 | – | – |",
        ];
        assert_eq!(text.lines().skip(2).collect::<Vec<_>>(), expected);
        assert!(excerpt(&rows, &[("one", "bound")]).contains("| 60/s | – (bound by its client) |"));
        let said = "- cost: Odometer 9.96 µs, bound 7 µs. Odometer is **behind**, at 1.423 times the cost.\n";
        assert_eq!(costs(&rows), said);
    }

    #[test]
    fn a_cost_is_ahead_or_behind_only_if_all_rounds_agree() {
        let place = |values: &[f64]| {
            let row = Row::new("one-cost", "cost", Unit::Microseconds)
                .series(vec![series(SUBJECT, values), series("other", &[4.0; 3])])
                .target("other", Bound::AtMost(0.95));
            let said = costs(&[row]);
            let (_, place) = said.split_once("Odometer is ").expect("it says so");
            place
                .split_once(", at")
                .expect("it gives the ratio")
                .0
                .to_owned()
        };
        assert_eq!(place(&[3.7, 3.8, 3.9]), "ahead");
        assert_eq!(place(&[4.1, 4.2, 4.3]), "**behind**");
        for values in [[3.7, 3.9, 4.1], [3.9, 4.1, 4.2], [3.8, 3.9, 4.0]] {
            assert_eq!(place(&values), "level with other");
        }
    }
}
