//! Describes one row of the table: a subject next to its references.

use serde::{Deserialize, Serialize};

use crate::reading::{Busy, Reading, Spread};

/// If the server's core is less busy than this, the server did not bound its rate.
pub(crate) const MIN_BUSY_SERVER: f64 = 0.90;
/// If the client's core is at least this busy, the client bounds the rate of a server that is not
/// busy.
pub(crate) const MIN_BUSY_CLIENT: f64 = 0.95;

/// The end of the names of rows that are about costs.
const COST: &str = "-cost";

/// The measurements of one thing. Each round has one reading of each series.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// A short name of small letters, digits and hyphens.
    pub(crate) name: String,
    /// The text that readers of the table see.
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// The series of the subject first, then the series of the references.
    pub(crate) series: Vec<Series>,
    pub(crate) targets: Vec<Target>,
    /// Facts that readers must know with the figures, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// The course of an outage, seen from one replica, if the row has an outage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) timeline: Vec<Moment>,
}

/// One look at a replica during the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Seconds since the first look.
    pub(crate) at_s: f64,
    /// The numbers that the replica holds in memory.
    pub(crate) remaining: f64,
    /// Whether `remaining` is computed: the last value, less what was issued since then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_computed: bool,
    /// The numbers that the replica issued a second since the last look.
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

/// The meaning of the values of a row.
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
    /// A plain number. The title says what is counted.
    Count,
}

impl Unit {
    /// Returns whether a busier server has a higher value.
    pub(crate) fn is_rate(self) -> bool {
        matches!(
            self,
            Self::RequestsPerSecond
                | Self::NumbersPerSecond
                | Self::NamesPerSecond
                | Self::RowsPerSecond
        )
    }
}

/// A bound that a row must meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    /// The name of a reference. The subject's value is divided by the reference's value. If this is
    /// `None`, the bound is for the subject's own value.
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
        self.series = series;
        self
    }

    /// Returns a row with the cost of a number: processor time of the server for each number. The
    /// row has the same readings, of the subject and of the references in `against`. Each request
    /// of all of them gives `n_each` numbers.
    ///
    /// The time is user and system time of all processes of the server during the measurement, as
    /// the kernel counts it. It is divided by the numbers that were given. The note stays the same.
    pub(crate) fn cost(&self, title: &str, n_each: u32, against: &[&str]) -> Self {
        let is_compared = |series: &&Series| against.contains(&series.name.as_str());
        let references = self.references().iter().filter(is_compared);
        let costs = std::iter::once(self.subject()).chain(references);
        let costs = costs.map(|series| series.cost(n_each)).collect();
        Self {
            note: self.note.clone(),
            ..Self::new(&format!("{}{COST}", self.name), title, Unit::Microseconds).series(costs)
        }
    }

    /// Returns whether the row is about the cost of a number.
    pub(crate) fn is_cost(&self) -> bool {
        self.name.ends_with(COST)
    }

    /// Adds a bound of the subject's value divided by the value of `reference`.
    pub(crate) fn target(mut self, reference: &str, bound: Bound) -> Self {
        self.targets.push(Target {
            against: Some(reference.to_owned()),
            bound,
        });
        self
    }

    /// Adds a bound of the subject's value.
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

    /// Returns the series that the row is about.
    pub(crate) fn subject(&self) -> &Series {
        &self.series[0]
    }

    pub(crate) fn references(&self) -> &[Series] {
        &self.series[1..]
    }

    /// Returns the subject's value divided by the value of `reference`, over all rounds.
    pub(crate) fn ratio(&self, reference: &Series) -> Option<Spread> {
        let pairs = self.subject().readings.iter().zip(&reference.readings);
        Spread::of(pairs.map(|(subject, reference)| subject.value / reference.value))
    }

    /// Returns whether a client bounded the rate of the subject or of `reference`. If so, neither
    /// the rates nor their ratio say anything about the servers. Without records of busy cores,
    /// this is `false`.
    pub(crate) fn is_bound_by_client(&self, reference: Option<&Series>) -> bool {
        let mut both = std::iter::once(self.subject()).chain(reference);
        self.unit.is_rate() && both.any(Series::is_bound_by_client)
    }

    /// Returns the median of the figure that `target` bounds.
    pub(crate) fn reached(&self, target: &Target) -> Option<f64> {
        match &target.against {
            None => Some(self.subject().value()?.median),
            Some(name) => Some(self.ratio(self.named(name)?)?.median),
        }
    }

    /// Returns whether `target` is met and no call failed. Failing calls may be the faster ones,
    /// and a reference that breaks down is easy to outrun. A rate that a client bounds meets no
    /// target.
    pub(crate) fn holds(&self, target: &Target) -> bool {
        let reference = target.against.as_deref().and_then(|name| self.named(name));
        let mut looked_at = std::iter::once(self.subject()).chain(reference);
        looked_at.all(|series| series.n_failed() == 0)
            && !self.is_bound_by_client(reference)
            && self
                .reached(target)
                .is_some_and(|value| value.is_finite() && target.bound.holds(value))
    }

    fn named(&self, name: &str) -> Option<&Series> {
        self.references().iter().find(|series| series.name == name)
    }

    /// Returns the names of references that have a target but were not measured.
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

    /// Returns how busy both sides were, each as the median of all readings. Returns `None` if this
    /// was not recorded.
    pub(crate) fn busy(&self) -> Option<Busy> {
        let busy = self.readings.iter().map(|reading| reading.busy);
        let busy = busy.collect::<Option<Vec<Busy>>>()?;
        let median = |shares: Vec<f64>| Some(Spread::of(shares)?.median);
        let clients = busy.iter().map(|busy| busy.client);
        Some(Busy {
            server: median(busy.iter().map(|busy| busy.server).collect())?,
            client: clients.collect::<Option<Vec<f64>>>().and_then(median),
        })
    }

    /// Returns whether the server waited for a client that had no time left.
    pub(crate) fn is_bound_by_client(&self) -> bool {
        self.busy().is_some_and(|busy| {
            let is_client_busy = busy.client.is_some_and(|share| share >= MIN_BUSY_CLIENT);
            busy.server < MIN_BUSY_SERVER && is_client_busy
        })
    }

    /// Returns the same readings, with the cost of a number as their value.
    fn cost(&self, n_each: u32) -> Self {
        let readings = self.readings.iter().map(|reading| Reading {
            value: reading.cpu_us.unwrap_or(f64::NAN) / f64::from(n_each),
            busy: reading.busy,
            n_requests: reading.n_requests,
            n_failed: reading.n_failed,
            ..Reading::default()
        });
        Self::new(&self.name, readings.collect())
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

    /// Returns whether a row of one round meets a bound of 1.5. The values 100 and 50 would meet
    /// it.
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

    fn busy(value: f64, server: f64, client: f64) -> Reading {
        let client = Some(client);
        Reading {
            busy: Some(Busy { server, client }),
            ..Reading::of(value)
        }
    }

    #[test]
    fn a_rate_that_a_client_bounds_meets_no_target() {
        let (full, idle) = (busy(100.0, 0.99, 0.80), busy(50.0, 0.70, 0.99));
        assert!(!holds(full.clone(), idle.clone()));
        assert!(!holds(busy(100.0, 0.89, 0.95), busy(50.0, 0.99, 0.80)));
        // In these cases both sides are busy, or neither side is, or nothing was recorded.
        assert!(holds(full.clone(), busy(50.0, 0.90, 0.99)));
        assert!(holds(full.clone(), busy(50.0, 0.70, 0.94)));
        assert!(holds(full.clone(), Reading::of(50.0)));
        let rates = vec![Series::new("a", vec![full]), Series::new("b", vec![idle])];
        let row = Row::new("one", "one", Unit::RequestsPerSecond).series(rates);
        assert!(row.is_bound_by_client(Some(&row.series[1])));
        assert!(!row.is_bound_by_client(None));
        // The cost of a number is no rate.
        let cost = row.cost("cost", 1, &["b"]);
        assert!(!cost.is_bound_by_client(Some(&cost.series[1])));
    }

    #[test]
    fn a_number_of_many_costs_its_part_of_the_request() {
        let reading = |cpu_us| Reading {
            cpu_us: Some(cpu_us),
            n_failed: 1,
            ..Reading::of(9.0)
        };
        let row = Row::new("one", "one", Unit::NumbersPerSecond).series(vec![
            Series::new("Odometer", vec![reading(200.0)]),
            Series::new("left out", vec![reading(1.0)]),
            Series::new("other", vec![reading(100.0)]),
        ]);
        let cost = row.cost("cost", 100, &["other"]);
        assert!(cost.is_cost() && !row.is_cost());
        let values = cost
            .series
            .iter()
            .map(|it| (it.name.as_str(), it.readings[0].value));
        assert_eq!(
            values.collect::<Vec<_>>(),
            [("Odometer", 2.0), ("other", 1.0)]
        );
        assert_eq!(cost.subject().n_failed(), 1);
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
