//! One line of the table: a subject beside its references.

use serde::{Deserialize, Serialize};

use crate::{
    load::http::BUSY,
    reading::{Reading, Spread},
};

/// The part of a core below which a server was not what bounded the rate.
const FULLY_BUSY: f64 = 0.95;

/// What was measured of one thing, in rounds of which each has one reading of each series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Short, of small letters, digits and hyphens.
    pub(crate) name: String,
    /// What a reader of the table reads.
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// The subject first, then what it is measured against.
    pub(crate) series: Vec<Series>,
    pub(crate) targets: Vec<Target>,
    /// What must be known beside the figures, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// What an outage looked like from one replica, where the row has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) timeline: Vec<Moment>,
}

/// One look at a replica while it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Seconds since the first look.
    pub(crate) at_s: f64,
    /// Numbers that the replica holds in memory.
    pub(crate) remaining: f64,
    /// Whether `remaining` was not seen, but is the one before less what was issued since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_computed: bool,
    /// Numbers that it has issued a second since the look before.
    pub(crate) issued_per_s: f64,
    pub(crate) database: Presence,
}

/// Whether the database could be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Presence {
    Up,
    Away,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) readings: Vec<Reading>,
}

/// What the values of a row are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    RequestsPerSecond,
    NumbersPerSecond,
    NamesPerSecond,
    RowsPerSecond,
    Microseconds,
    Milliseconds,
    Seconds,
    Bytes,
    /// A plain number; the title says of what.
    Count,
}

/// What a row is to reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    /// The name of a reference, whose value the subject's is divided by; `None` for the subject's
    /// own value.
    pub(crate) against: Option<String>,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl Row {
    pub(crate) fn new(name: &str, title: &str, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            unit,
            series: Vec::new(),
            targets: Vec::new(),
            note: None,
            timeline: Vec::new(),
        }
    }

    pub(crate) fn series(mut self, series: Vec<Series>) -> Self {
        let is_rate = matches!(
            self.unit,
            Unit::RequestsPerSecond | Unit::NumbersPerSecond | Unit::NamesPerSecond
        );
        for series in series.iter().filter(|_| is_rate) {
            if let Some(busy) = series.busy().filter(|busy| *busy < FULLY_BUSY) {
                let (name, percent) = (&series.name, busy * 100.0);
                self = self.note(format!(
                    "{name} kept its core busy for {percent:.0} % of the time only."
                ));
            }
        }
        self.series = series;
        self
    }

    /// A bound of the subject's value divided by that of `reference`.
    pub(crate) fn target(mut self, reference: &str, bound: Bound) -> Self {
        self.targets.push(Target {
            against: Some(reference.to_owned()),
            bound,
        });
        self
    }

    /// A bound of the subject's value.
    pub(crate) fn limit(mut self, bound: Bound) -> Self {
        self.targets.push(Target {
            against: None,
            bound,
        });
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        let note = note.into();
        self.note = Some(match self.note {
            Some(earlier) => format!("{earlier} {note}"),
            None => note,
        });
        self
    }

    /// What the table is about; there is one in each row.
    pub(crate) fn subject(&self) -> &Series {
        &self.series[0]
    }

    pub(crate) fn references(&self) -> &[Series] {
        &self.series[1..]
    }

    /// The subject's value divided by that of `reference`, of each round.
    pub(crate) fn ratio(&self, reference: &Series) -> Option<Spread> {
        let pairs = self.subject().readings.iter().zip(&reference.readings);
        Spread::of(pairs.map(|(subject, reference)| subject.value / reference.value))
    }

    /// What `target` looks at: its median.
    pub(crate) fn reached(&self, target: &Target) -> Option<f64> {
        match &target.against {
            None => Some(self.subject().value()?.median),
            Some(name) => Some(self.ratio(self.named(name)?)?.median),
        }
    }

    /// Whether `target` is met by calls none of which failed: those that fail may be the quicker
    /// ones, and a reference that breaks down is easily outrun.
    pub(crate) fn holds(&self, target: &Target) -> bool {
        let reference = target.against.as_deref().and_then(|name| self.named(name));
        let mut looked_at = std::iter::once(self.subject()).chain(reference);
        looked_at.all(|series| series.n_failed() == 0)
            && self
                .reached(target)
                .is_some_and(|value| value.is_finite() && target.bound.holds(value))
    }

    fn named(&self, name: &str) -> Option<&Series> {
        self.references().iter().find(|series| series.name == name)
    }

    /// What targets name, but was not measured.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &str> {
        let names = self.targets.iter().filter_map(|it| it.against.as_deref());
        names.filter(|name| self.named(name).is_none())
    }
}

impl Series {
    pub(crate) fn new(name: &str, readings: Vec<Reading>) -> Self {
        Self {
            name: name.to_owned(),
            readings,
        }
    }

    pub(crate) fn value(&self) -> Option<Spread> {
        Spread::of(self.readings.iter().map(|reading| reading.value))
    }

    /// How many cores its server kept busy, where that was measured.
    fn busy(&self) -> Option<f64> {
        let figures = self
            .readings
            .iter()
            .map(|reading| reading.figures.get(BUSY).copied());
        Some(Spread::of(figures.collect::<Option<Vec<f64>>>()?)?.median)
    }

    pub(crate) fn cpu_us(&self) -> Option<Spread> {
        Spread::of(self.readings.iter().filter_map(|reading| reading.cpu_us))
    }

    pub(crate) fn n_failed(&self) -> u64 {
        self.readings.iter().map(|reading| reading.n_failed).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a row of one round meets a bound that 100 beside 50 does.
    fn holds(subject: Reading, reference: Reading) -> bool {
        let row = Row::new("one", "one", Unit::RequestsPerSecond)
            .series(vec![
                Series::new("Odometer", vec![subject]),
                Series::new("other", vec![reference]),
            ])
            .target("other", Bound::AtLeast(1.5));
        row.holds(&row.targets[0])
    }

    #[test]
    fn what_fails_meets_no_target() {
        let failing = |value| Reading {
            n_failed: 1,
            ..Reading::of(value)
        };
        assert!(holds(Reading::of(100.0), Reading::of(50.0)));
        assert!(!holds(failing(100.0), Reading::of(50.0)));
        assert!(!holds(Reading::of(100.0), failing(50.0)));
        assert!(!holds(Reading::of(100.0), Reading::of(0.0)));
        assert!(!holds(Reading::of(f64::NAN), Reading::of(50.0)));
    }

    #[test]
    fn a_target_beside_nothing_is_missing() {
        let row = Row::new("one", "one", Unit::RequestsPerSecond)
            .series(vec![Series::new("Odometer", vec![Reading::of(1.0)])])
            .target("other", Bound::AtLeast(1.0))
            .limit(Bound::AtLeast(1.0));
        assert_eq!(row.missing().collect::<Vec<_>>(), ["other"]);
        assert!(!row.holds(&row.targets[0]));
    }
}
