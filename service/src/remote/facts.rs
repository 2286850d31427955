//! Says what is known of a sequence in the words of the page (`http/page/facts.js`).

use jiff::Timestamp;

use super::figures::{self, NOTHING, count};
use super::replies::{BlockInMemory, RunwayLeft, SequenceInMemory, StorePlace};

/// As long before the end of the numbers as the alerts say, in days.
const RUNWAY_WARN_DAYS: f64 = 30.0;
const RUNWAY_BAD_DAYS: f64 = 7.0;
/// A sequence that issues fewer numbers a second is not in use.
const MIN_RATE: f64 = 0.1;
/// A lease is renewed long before it ends, so only less than this part of `hold` is low.
const PART_OF_A_LEASE: f64 = 1.0 / 3.0;
const SECONDS_A_DAY: f64 = 86_400.0;

/// How urgent a figure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    None,
    /// Low only because the sequence has just become busy. It needs nobody.
    WarmingUp,
    Low,
    VeryLow,
}

impl Urgency {
    /// Returns a figure with the word of its urgency.
    fn with_word(self, figure: &str) -> String {
        match self {
            Self::None => figure.to_owned(),
            Self::WarmingUp => format!("{figure} · warming up"),
            Self::Low => format!("{figure} · low"),
            Self::VeryLow => format!("{figure} · very low"),
        }
    }
}

/// What a sequence is, in short words.
pub(crate) struct Traits<'a> {
    pub(crate) kind: &'a str,
    pub(crate) order: &'a str,
    pub(crate) counts_by: &'a str,
    pub(crate) store: &'a str,
    pub(crate) retired: bool,
}

impl Traits<'_> {
    /// Lists what is not as most sequences have it.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.retired {
            words.push("retired".to_owned());
        }
        if self.kind == "snowflake" {
            words.push("time-ordered".to_owned());
        }
        if self.order == "strict" {
            words.push("strict".to_owned());
        }
        match self.counts_by {
            "none" | "" => {}
            "keyed" => words.push("by key".to_owned()),
            period => words.push(format!("by {period}")),
        }
        if !matches!(self.store, "default" | "") {
            words.push(self.store.to_owned());
        }
        words
    }
}

impl SequenceInMemory {
    /// Returns what the sequence is.
    pub(crate) fn traits(&self) -> Traits<'_> {
        Traits {
            kind: &self.kind,
            order: &self.order,
            counts_by: &self.counts_by,
            store: &self.store,
            retired: self.retired,
        }
    }

    /// Returns for how many seconds memory lasts, if that is known. Of what is retired, nothing
    /// lasts.
    pub(crate) fn lasts_seconds(&self) -> Option<f64> {
        self.reserve_seconds.filter(|_| !self.retired)
    }

    /// Returns how urgent the reserve is: memory lasts neither for `hold` nor to the end of the
    /// period.
    pub(crate) fn urgency_of_reserve(&self, now: Timestamp) -> Urgency {
        let Some(seconds) = self.lasts_seconds() else {
            return Urgency::None;
        };
        let hold = std::time::Duration::from_secs(self.hold_seconds).as_secs_f64();
        let part = if self.kind == "snowflake" {
            PART_OF_A_LEASE
        } else {
            1.0
        };
        let left = self.period_left_seconds(now).unwrap_or(f64::INFINITY);
        if self.rate < MIN_RATE || seconds >= left.min(hold * part) {
            Urgency::None
        } else if self.warming_up {
            Urgency::WarmingUp
        } else {
            Urgency::Low
        }
    }

    fn period_left_seconds(&self, now: Timestamp) -> Option<f64> {
        let ends: Timestamp = self.period_ends.as_deref()?.parse().ok()?;
        Some(ends.duration_since(now).as_secs_f64())
    }

    /// Says how long memory lasts.
    pub(crate) fn reserve(&self, now: Timestamp) -> String {
        match self.lasts_seconds() {
            None => NOTHING.to_owned(),
            Some(seconds) => self
                .urgency_of_reserve(now)
                .with_word(&figures::duration(seconds)),
        }
    }

    /// Returns whether numbers start again before these are used up.
    pub(crate) fn outlasts_its_period(&self, now: Timestamp) -> bool {
        let (Some(runway), Some(left)) = (&self.runway, self.period_left_seconds(now)) else {
            return false;
        };
        match runway.days_left {
            None => runway.numbers_left > 0,
            Some(days) => days * SECONDS_A_DAY >= left,
        }
    }

    /// Says how the numbers in memory are kept, and how many of them are left.
    pub(crate) fn block_used(&self) -> String {
        if self.retired {
            return "Retired: nothing is issued".to_owned();
        }
        if self.kind == "snowflake" {
            return match &self.lease {
                Some(lease) => format!("Stamps with worker id {}", lease.worker),
                None => "Holds no worker id".to_owned(),
            };
        }
        if self.order == "strict" {
            return "Keeps nothing in memory".to_owned();
        }
        if self.counts_by == "keyed" {
            let keys = figures::plural(self.periods.unwrap_or_default(), "key", "keys");
            return format!("{keys} in memory, {} numbers", count(self.remaining));
        }
        match &self.block {
            Some(block) => left_of(block),
            None => "No block in memory".to_owned(),
        }
    }
}

/// Says how much of a block is left.
pub(crate) fn left_of(block: &BlockInMemory) -> String {
    format!("{} of {} left", count(block.remaining), count(block.size))
}

/// Returns how urgent a runway is.
pub(crate) fn urgency_of_runway(runway: Option<&RunwayLeft>) -> Urgency {
    match runway {
        None => Urgency::None,
        Some(runway) if runway.numbers_left == 0 => Urgency::VeryLow,
        Some(runway) => match runway.days_left {
            Some(days) if days < RUNWAY_BAD_DAYS => Urgency::VeryLow,
            Some(days) if days < RUNWAY_WARN_DAYS => Urgency::Low,
            _ => Urgency::None,
        },
    }
}

/// Says how long the numbers last. `outlasts`: they start again before.
pub(crate) fn runway(runway: Option<&RunwayLeft>, outlasts: bool) -> String {
    if outlasts {
        return "its period".to_owned();
    }
    urgency_of_runway(runway).with_word(&figures::runway(runway))
}

/// Says how long the numbers last, and how many they are.
pub(crate) fn runway_with_end(left: Option<&RunwayLeft>, outlasts: bool) -> String {
    let lasts = runway(left, outlasts);
    match left {
        Some(left) if left.days_left.is_some() || outlasts => {
            let (numbers, end) = (figures::count(left.numbers_left), figures::end(&left.limit));
            format!("{lasts}, {numbers} numbers {end}")
        }
        Some(left) => format!("{lasts} {}", figures::end(&left.limit)),
        None => lasts,
    }
}

impl StorePlace {
    /// Returns whether the database or server can be used.
    pub(crate) fn is_good(&self) -> bool {
        self.up && !self.went_back
    }

    /// Says whether the database or server answers.
    pub(crate) fn word(&self) -> &'static str {
        if self.went_back {
            "went back"
        } else if self.up {
            "answers"
        } else {
            "does not answer"
        }
    }
}

/// Returns a sequence in memory, for tests.
#[cfg(test)]
pub(super) fn in_memory(fields: serde_json::Value) -> SequenceInMemory {
    let mut all = serde_json::json!({
        "sequence": "orders", "kind": "block", "order": "relaxed", "counts_by": "none",
        "store": "default", "retired": false, "remaining": 400, "rate": 2.0,
        "reserve_seconds": 200.0, "hold_seconds": 900,
        "block": {"first": "1", "last": "1000", "remaining": 400, "size": 1000},
        "something": "new",
    });
    if let (Some(all), serde_json::Value::Object(fields)) = (all.as_object_mut(), fields) {
        all.extend(fields);
    }
    serde_json::from_value(all).unwrap_or_else(|error| unreachable!("{error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_reserve_below_hold_is_low_only_if_the_sequence_is_in_use() {
        let reserve = |fields: Value| in_memory(fields).reserve(now());
        assert_eq!(reserve(json!({})), "3.3 min · low");
        assert_eq!(reserve(json!({"rate": 0.09})), "3.3 min");
        let warming_up = reserve(json!({"warming_up": true}));
        assert_eq!(warming_up, "3.3 min · warming up");
        assert_eq!(reserve(json!({"hold_seconds": 100})), "3.3 min");
        assert_eq!(reserve(json!({"retired": true})), NOTHING);
        assert_eq!(reserve(json!({"reserve_seconds": null})), NOTHING);
        // A third of `hold` is enough for a lease.
        let lease =
            |seconds: f64| reserve(json!({"kind": "snowflake", "reserve_seconds": seconds}));
        assert_eq!(
            (lease(301.0), lease(299.0)),
            ("5 min".into(), "5 min · low".into())
        );
        // So is what is left of the period.
        let until = |time: &str| reserve(json!({"period": "20261120", "period_ends": time}));
        assert_eq!(until("2026-11-20T12:03:00Z"), "3.3 min");
        assert_eq!(until("2026-11-20T12:04:00Z"), "3.3 min · low");
    }

    #[test]
    fn a_runway_is_low_a_month_before_its_end() {
        let left = |numbers_left, days_left| RunwayLeft {
            limit: "max".to_owned(),
            numbers_left,
            days_left,
        };
        for (given, expected) in [
            (left(5, None), "5 left"),
            (left(0, None), "0 left · very low"),
            (left(5, Some(30.0)), "30 days"),
            (left(5, Some(29.0)), "29 days · low"),
            (left(5, Some(6.5)), "6.5 days · very low"),
        ] {
            assert_eq!(runway(Some(&given), false), expected);
        }
        assert_eq!(runway(Some(&left(5, Some(6.5))), true), "its period");
        assert_eq!(runway(None, false), NOTHING);
        let short = json!({"limit": "max", "numbers_left": 5, "days_left": 2.0});
        let outlasts = |ends: &str| {
            let sequence = in_memory(json!({"runway": short, "period_ends": ends}));
            sequence.outlasts_its_period(now())
        };
        assert!(outlasts("2026-11-22T12:00:00Z"));
        assert!(!outlasts("2026-11-22T12:00:01Z"));
        assert!(!in_memory(json!({"runway": short})).outlasts_its_period(now()));
    }

    #[test]
    fn what_a_sequence_is_stands_in_short_words() {
        let words = |fields: Value| in_memory(fields).traits().words().join(" ");
        assert_eq!(words(json!({})), "");
        let all = json!({"retired": true, "kind": "snowflake", "order": "strict",
            "counts_by": "month", "store": "fast"});
        assert_eq!(words(all), "retired time-ordered strict by month fast");
        assert_eq!(words(json!({"counts_by": "keyed"})), "by key");
    }

    #[test]
    fn the_use_of_memory_depends_on_what_a_sequence_is() {
        let used = |fields: Value| in_memory(fields).block_used();
        assert_eq!(used(json!({})), "400 of 1,000 left");
        assert_eq!(used(json!({"block": null})), "No block in memory");
        assert_eq!(used(json!({"retired": true})), "Retired: nothing is issued");
        assert_eq!(used(json!({"order": "strict"})), "Keeps nothing in memory");
        let keyed = json!({"counts_by": "keyed", "periods": 3});
        assert_eq!(used(keyed), "3 keys in memory, 400 numbers");
        let lease = json!({"worker": 7, "seconds_left": 1.0, "clock_skew_ms": 0});
        let held = json!({"kind": "snowflake", "lease": lease});
        assert_eq!(used(held), "Stamps with worker id 7");
        assert_eq!(used(json!({"kind": "snowflake"})), "Holds no worker id");
    }
}
