//! One line of the table: a subject beside its references.

use serde::{Deserialize, Serialize};

use crate::reading::{Busy, Reading, Spread};

/// A server that is less busy than this did not bound its rate.
pub(crate) const MIN_BUSY_SERVER: f64 = 0.90;
/// A client that is at least so busy bounds the rate of a server that is not busy.
pub(crate) const MIN_BUSY_CLIENT: f64 = 0.95;

/// How the names of rows end that are about what a number costs.
const COST: &str = "-cost";

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

impl Unit {
    /// Whether a busy server has more of it.
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
        self.series = series;
        self
    }

    /// What a number costs: processor time of the server a number, where each request of all brings
    /// `n_each`; of the same readings, of the subject and of the references in `against`.
    ///
    /// The time is what the kernel counts for all processes of the server, user and system, during
    /// the measurement, divided by the numbers that were given. What must be known beside the
    /// figures is the same.
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

    /// Whether it is about what a number costs.
    pub(crate) fn is_cost(&self) -> bool {
        self.name.ends_with(COST)
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

    /// Whether a client bounded the rate of the subject or of `reference`: then neither rate nor
    /// their ratio says anything about the servers. Not so if it was not recorded.
    pub(crate) fn is_bound_by_client(&self, reference: Option<&Series>) -> bool {
        let mut both = std::iter::once(self.subject()).chain(reference);
        self.unit.is_rate() && both.any(Series::is_bound_by_client)
    }

    /// What `target` looks at: its median.
    pub(crate) fn reached(&self, target: &Target) -> Option<f64> {
        match &target.against {
            None => Some(self.subject().value()?.median),
            Some(name) => Some(self.ratio(self.named(name)?)?.median),
        }
    }

    /// Whether `target` is met by calls none of which failed: those that fail may be the quicker
    /// ones, and a reference that breaks down is easily outrun. A rate that a client bounds meets
    /// nothing.
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

    /// How busy both sides were, each the median of all readings; `None` if it was not recorded.
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

    /// Whether its server waited for a client that had no time left.
    pub(crate) fn is_bound_by_client(&self) -> bool {
        self.busy().is_some_and(|busy| {
            let is_client_busy = busy.client.is_some_and(|share| share >= MIN_BUSY_CLIENT);
            busy.server < MIN_BUSY_SERVER && is_client_busy
        })
    }

    /// The same readings, with what a number costs as their value.
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
        // Both are busy, or neither is, or it was not recorded.
        assert!(holds(full.clone(), busy(50.0, 0.90, 0.99)));
        assert!(holds(full.clone(), busy(50.0, 0.70, 0.94)));
        assert!(holds(full.clone(), Reading::of(50.0)));
        let rates = vec![Series::new("a", vec![full]), Series::new("b", vec![idle])];
        let row = Row::new("one", "one", Unit::RequestsPerSecond).series(rates);
        assert!(row.is_bound_by_client(Some(&row.series[1])));
        assert!(!row.is_bound_by_client(None));
        // What a number costs is no rate.
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
