//! Holds the figures of one measurement.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// One measurement of one contender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The value, in the unit of the row.
    #[serde(deserialize_with = "number")]
    pub(crate) value: f64,
    /// Microseconds of processor time for each answered request. The time is user and system time
    /// of all processes of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) busy: Option<Busy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) latency: Option<Latency>,
    pub(crate) n_requests: u64,
    /// Requests without the answer that they were made for.
    pub(crate) n_failed: u64,
    /// Other figures of the measurement, by name.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "numbers"
    )]
    pub(crate) figures: BTreeMap<String, f64>,
}

/// How busy both sides of a measurement were. The processor time that the kernel counts is divided
/// by the elapsed time and by the number of the side's cores. So 1 means all cores, all the time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Busy {
    /// The measured server.
    #[serde(deserialize_with = "number")]
    pub(crate) server: f64,
    /// The load, or `None` if there is no load because the contender runs in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<f64>,
}

/// Reads a number. JSON has `null` for a value that is not finite, such as 0/0.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number: Option<f64> = Option::deserialize(deserializer)?;
    Ok(number.unwrap_or(f64::NAN))
}

fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let numbers: BTreeMap<String, Option<f64>> = BTreeMap::deserialize(deserializer)?;
    let numbers = numbers.into_iter();
    Ok(numbers
        .map(|(name, number)| (name, number.unwrap_or(f64::NAN)))
        .collect())
}

impl Reading {
    pub(crate) fn of(value: f64) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// Returns this reading, with the calls and the failed calls of `other` added.
    pub(crate) fn and_failures_of(mut self, other: &Self) -> Self {
        self.n_requests += other.n_requests;
        self.n_failed += other.n_failed;
        self
    }

    pub(crate) fn figure(mut self, name: &str, value: f64) -> Self {
        self.figures.insert(name.to_owned(), value);
        self
    }
}

/// How long calls took, in microseconds, by percentile.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p75: f64,
    pub(crate) p90: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: f64,
    #[serde(rename = "p99.99")]
    pub(crate) p99_99: f64,
    pub(crate) max: f64,
}

impl Latency {
    /// Returns the percentiles of single durations in microseconds.
    ///
    /// # Panics
    /// If there is no duration.
    pub(crate) fn of(mut micros: Vec<f64>) -> Self {
        assert!(!micros.is_empty(), "no call was timed");
        micros.sort_by(f64::total_cmp);
        Self::by(|part| {
            let index = (part * micros.len() as f64).ceil() as usize;
            micros[index.clamp(1, micros.len()) - 1]
        })
    }

    /// Returns the percentiles of a histogram. It has durations in microseconds, in ascending
    /// order, and how often each one was seen.
    ///
    /// # Panics
    /// If nothing was counted.
    pub(crate) fn of_counts(counts: &[(f64, u64)]) -> Self {
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        assert!(total > 0, "no call was timed");
        Self::by(|part| {
            let wanted = ((part * total as f64).ceil() as u64).max(1);
            let mut n_seen = 0;
            let found = counts.iter().find(|(_, count)| {
                n_seen += count;
                n_seen >= wanted
            });
            found
                .or(counts.last())
                .map_or(f64::NAN, |(micros, _)| *micros)
        })
    }

    /// Builds the percentiles from `at`. For a part of all calls, from 0 to 1, `at` returns the
    /// duration that this part did not exceed.
    pub(crate) fn by(at: impl Fn(f64) -> f64) -> Self {
        Self {
            p50: at(0.50),
            p75: at(0.75),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: at(1.0),
        }
    }
}

/// The median of several values, and their range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Returns `None` if there are no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        let of_three = spread(&[3.0, 1.0, 2.0]).map(|it| (it.median, it.min, it.max));
        assert_eq!(of_three, Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[1.0, 4.0]).map(|it| it.median), Some(2.5));
    }

    #[test]
    fn what_is_no_number_can_be_read_again() {
        let written = Reading::of(f64::INFINITY).figure("share", f64::NAN);
        let text = serde_json::to_string(&written).expect("it can be written");
        let read: Reading = serde_json::from_str(&text).expect("it was just written");
        assert!(read.value.is_nan() && read.figures["share"].is_nan());
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let latency = Latency::of((1..=1000).map(f64::from).collect());
        assert_eq!((latency.p50, latency.p99), (500.0, 990.0));
        assert_eq!((latency.p99_9, latency.max), (999.0, 1000.0));
        assert_eq!(Latency::of(vec![7.0]).p50, 7.0);
        let counted = Latency::of_counts(&[(1.0, 500), (2.0, 490), (3.0, 10)]);
        assert_eq!((counted.p50, counted.p99, counted.max), (1.0, 2.0, 3.0));
    }
}
