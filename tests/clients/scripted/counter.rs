//! The numbers that scripted replicas give out, and the replies that have them.

use serde_json::{Map, Value, json};

use super::script::Numbers;

/// How many numbers are left out between two pieces.
const GAP: i64 = 1000;
/// The period of all numbers, if the sequence has periods.
const PERIOD: &str = "20261129";

/// Numbers that were taken for one call, with one distance between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) first: i64,
    pub(super) step: i64,
    pub(super) count: u64,
    /// Whether a reply has brought them to the library.
    pub(super) is_delivered: bool,
}

impl Run {
    pub(super) fn last(&self) -> i64 {
        self.first + self.step * (signed(self.count) - 1)
    }

    pub(super) fn contains(&self, value: i64) -> bool {
        (self.first..=self.last()).contains(&value) && (value - self.first) % self.step == 0
    }

    pub(super) fn values(self) -> impl Iterator<Item = i64> {
        let (first, step) = (self.first, self.step);
        (0..signed(self.count)).map(move |index| first + step * index)
    }

    fn json(&self) -> Value {
        json!({
            "first": self.first.to_string(), "last": self.last().to_string(),
            "count": self.count, "step": self.step
        })
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).expect("a count is far below 2^63")
}

/// The counter of the sequence.
#[derive(Debug)]
pub(super) struct Counter {
    numbers: Numbers,
    /// The next number, or `None` after the last one.
    next: Option<i64>,
    /// All that was taken, in this order.
    pub(super) taken: Vec<Run>,
}

impl Counter {
    pub(super) fn new(numbers: &Numbers) -> Self {
        Self {
            numbers: numbers.clone(),
            next: Some(numbers.start),
            taken: Vec::new(),
        }
    }

    /// Takes `count` numbers in `n_pieces` ranges. Returns the place of the first range in
    /// [`Self::taken`], or `None` if so many numbers are not left.
    pub(super) fn take(&mut self, count: u64, n_pieces: u64) -> Option<usize> {
        let place = self.taken.len();
        let n_pieces = n_pieces.clamp(1, count.max(1));
        let mut next = self.next?;
        let mut runs = Vec::new();
        for piece in 0..n_pieces {
            let is_last = piece + 1 == n_pieces;
            let share = count / n_pieces;
            let rest = count % n_pieces;
            let run = Run {
                first: next,
                step: self.numbers.step,
                count: if is_last { share + rest } else { share },
                is_delivered: false,
            };
            let length = signed(run.count - 1).checked_mul(run.step)?;
            let last = run.first.checked_add(length)?;
            if last > self.numbers.max {
                return None;
            }
            runs.push(run);
            next = last.saturating_add(run.step);
            if !is_last {
                next = next.saturating_add(run.step * GAP);
            }
        }
        self.taken.extend(runs);
        self.next = (next <= self.numbers.max).then_some(next);
        Some(place)
    }

    /// Notes that everything from `place` on reached the library.
    pub(super) fn deliver(&mut self, place: usize) {
        for run in self.taken.iter_mut().skip(place) {
            run.is_delivered = true;
        }
    }

    /// Returns what was delivered, in this order.
    pub(super) fn delivered(&self) -> impl Iterator<Item = Run> {
        let runs = self.taken.iter().copied();
        runs.filter(|run| run.is_delivered)
    }

    pub(super) fn n_taken(&self) -> u64 {
        self.taken.iter().map(|run| run.count).sum()
    }

    fn print(&self, value: i64) -> String {
        let (prefix, width) = (&self.numbers.prefix, self.numbers.width);
        format!("{prefix}{value:0width$}")
    }

    /// Returns the period in a reply.
    fn period(&self) -> Value {
        let period = self.numbers.definition.get("period");
        match period.and_then(Value::as_str) {
            None | Some("none") => Value::Null,
            Some(_) => Value::from(PERIOD),
        }
    }

    /// Returns the reply to `next` without a count.
    pub(super) fn one(&self, place: usize) -> Value {
        let value = self.taken.get(place).map_or(0, |run| run.first);
        json!({
            "sequence": self.numbers.name, "period": self.period(),
            "id": self.print(value), "value": value.to_string()
        })
    }

    /// Returns the reply to `next` with a count.
    pub(super) fn batch(&self, place: usize, ids: bool) -> Value {
        let runs = self.taken.get(place..).unwrap_or_default();
        let count: u64 = runs.iter().map(|run| run.count).sum();
        let ranges: Vec<Value> = runs.iter().map(Run::json).collect();
        let mut reply = json!({
            "sequence": self.numbers.name, "period": self.period(), "count": count,
            "ranges": ranges
        });
        if ids {
            let values = runs.iter().flat_map(|run| run.values());
            reply["ids"] = values.map(|value| self.print(value)).collect();
        }
        reply
    }

    /// Returns the reply to `blocks`.
    pub(super) fn block(&self, place: usize) -> Value {
        let mut reply = self.taken.get(place).map_or(Value::Null, Run::json);
        reply["sequence"] = Value::from(self.numbers.name.as_str());
        reply["period"] = self.period();
        reply
    }

    /// Returns the description of the sequence.
    pub(super) fn description(&self) -> Value {
        let (numbers, width) = (&self.numbers, self.numbers.width);
        let format = match width {
            0 => format!("{}{{value}}", numbers.prefix),
            _ => format!("{}{{value:0{width}}}", numbers.prefix),
        };
        let mut definition = json!({
            "kind": "block", "start": numbers.start.to_string(), "step": numbers.step,
            "max": numbers.max.to_string(), "order": "relaxed",
            "period": "none", "time_zone": "UTC", "cutover": "00:00", "year_starts": "01-01",
            "period_back": "2d", "period_ahead": "2d", "retain": "400d",
            "block": {"min": 1, "max": 1_000_000_000, "hold": "15m", "refill": "30m"},
            "format": format, "overflow": "refuse", "declared_rate": null,
            "limit": {"rate": 100_000, "burst": 10_000_000},
            "store": "default", "description": ""
        });
        merge(&mut definition, &numbers.definition);
        json!({"name": numbers.name, "definition": definition, "state": {}, "blocks": []})
    }
}

fn merge(definition: &mut Value, fields: &Map<String, Value>) {
    for (name, value) in fields {
        definition[name.as_str()] = value.clone();
    }
}

#[test]
fn pieces_are_apart_and_the_last_number_is_given() {
    let numbers = Numbers {
        max: 2010,
        ..Numbers::default()
    };
    let mut counter = Counter::new(&numbers);
    assert_eq!(counter.take(10, 2), Some(0));
    let ends: Vec<_> = counter
        .taken
        .iter()
        .map(|run| (run.first, run.last()))
        .collect();
    assert_eq!(ends, [(1, 5), (1006, 1010)]);
    assert_eq!(counter.take(1001, 1), None);
    assert_eq!(counter.take(1000, 1), Some(2));
    assert_eq!(counter.take(1, 1), None);
    assert_eq!(counter.n_taken(), 1010);
    assert_eq!(counter.delivered().count(), 0);
    counter.deliver(2);
    assert_eq!(counter.delivered().flat_map(Run::values).max(), Some(2010));
}
