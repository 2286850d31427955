//! Computes the runway: how long the numbers of a sequence last, up to each end of the sequence.

use serde::Serialize;

use crate::format::{Format, Overflow};
use crate::snowflake::Layout;
use crate::{definition::Definition, period::PeriodKind};

/// Bounds the numbers that floating point keeps exactly: 2^53 − 1. Above it, JavaScript and other
/// programs that read numbers as floating point lose digits.
pub const EXACT: i64 = (1 << 53) - 1;

const SECONDS_A_DAY: f64 = 86_400.0;

/// An end that the numbers of a sequence run up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The end `max` of the definition.
    Max,
    /// The highest number that fits the format's padding. With `overflow` "widen", ids get longer
    /// after it.
    Width,
    /// 2^53 − 1. Numbers go on after it, but not every program reads them exactly.
    Exact,
    /// The end of the time bits, the only end of a time-ordered kind. The clock reaches it at any
    /// rate.
    Time,
}

/// The numbers and the time that are left up to one of the ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Left {
    /// The end.
    pub limit: Limit,
    /// The numbers up to that end that are not reserved. For [`Limit::Time`], the ids of all
    /// workers.
    pub numbers_left: u64,
    /// The days that the numbers last; `None` if no rate is known.
    pub days_left: Option<f64>,
}

/// The runway of a sequence: how long its numbers last.
///
/// For a sequence with periods, these are the numbers of one period.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Runway {
    /// The nearest of the ends that are not passed. An end that stops the sequence counts even when
    /// it is passed.
    #[serde(flatten)]
    pub worst: Left,
    /// All ends of the sequence.
    pub limits: Vec<Left>,
    /// The longest time that a period of the sequence lasts, in days; `None` if numbers never start
    /// again.
    #[serde(skip)]
    period_days: Option<f64>,
}

impl Runway {
    /// Computes the runway of a sequence with the high-water mark `next_value`.
    ///
    /// `rate` is in numbers a second, and 0 if it is not known. A higher declared rate counts
    /// instead. For a time-ordered kind only `now_ms` counts: the present time in Unix
    /// milliseconds.
    #[must_use]
    pub fn of(definition: &Definition, next_value: i64, rate: f64, now_ms: i64) -> Self {
        match &definition.layout {
            Some(layout) => Self::of_time(layout, now_ms),
            None => Self::of_numbers(definition, next_value, rate),
        }
    }

    fn of_time(layout: &Layout, now_ms: i64) -> Self {
        let now = layout.tick_at(now_ms).unwrap_or(0);
        let ticks_left = layout.end_tick().saturating_sub(now);
        let ids_a_tick = layout
            .ids_a_tick()
            .saturating_mul(u64::from(layout.workers()));
        let time = Left {
            limit: Limit::Time,
            numbers_left: ticks_left.saturating_mul(ids_a_tick),
            days_left: Some(layout.days_left(now_ms)),
        };
        Self {
            worst: time,
            limits: vec![time],
            period_days: None,
        }
    }

    fn of_numbers(definition: &Definition, next_value: i64, rate: f64) -> Self {
        let rate = rate.max(definition.declared_rate.unwrap_or(0.0));
        let left = |limit, up_to| {
            let numbers_left = definition.left_up_to(up_to, next_value);
            let days_left = days(numbers_left, rate);
            Left {
                limit,
                numbers_left,
                days_left,
            }
        };
        let max = left(Limit::Max, definition.max);
        let mut limits = vec![max];
        let width = Format::highest_of(&definition.format, Overflow::Refuse);
        if width < i64::MAX {
            limits.push(left(Limit::Width, width));
        }
        limits.push(left(Limit::Exact, EXACT));
        // The other ends stop nothing. Once such an end is passed, it no longer counts.
        let is_final = |limit| match limit {
            Limit::Max | Limit::Time => true,
            Limit::Width => definition.overflow == Overflow::Refuse,
            Limit::Exact => false,
        };
        let ahead = limits
            .iter()
            .filter(|left| left.numbers_left > 0 || is_final(left.limit));
        let worst = ahead.min_by_key(|left| left.numbers_left);
        Self {
            worst: worst.copied().unwrap_or(max),
            limits,
            period_days: longest_period(definition.period),
        }
    }

    /// Returns for how many seconds the numbers last; `None` if no rate is known.
    ///
    /// Numbers start again in `period_left` seconds, if there are periods. If the numbers last
    /// until then, the result is infinite.
    #[must_use]
    pub fn seconds(&self, period_left: Option<f64>) -> Option<f64> {
        let seconds = self.worst.days_left? * SECONDS_A_DAY;
        let starts_again = period_left.is_some_and(|left| seconds >= left);
        Some(if starts_again { f64::INFINITY } else { seconds })
    }

    /// Returns whether the numbers last for the longest period, if that period began now.
    pub(crate) fn outlasts_a_period(&self) -> bool {
        let days = self.worst.days_left.zip(self.period_days);
        days.is_some_and(|(days, period)| days >= period)
    }
}

fn days(numbers: u64, rate: f64) -> Option<f64> {
    let days = numbers as f64 / rate / SECONDS_A_DAY;
    (rate > 0.0 && days.is_finite()).then_some(days)
}

/// Returns the longest time that a period lasts, in days. It has an extra hour, because clocks may
/// be set back during the period.
fn longest_period(kind: PeriodKind) -> Option<f64> {
    const HOUR: f64 = 1.0 / 24.0;
    match kind {
        PeriodKind::None | PeriodKind::Keyed => None,
        PeriodKind::Day => Some(1.0 + HOUR),
        PeriodKind::Week => Some(7.0 + HOUR),
        PeriodKind::Month => Some(31.0 + HOUR),
        PeriodKind::Year => Some(366.0 + HOUR),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::Kind;
    use crate::snowflake::DEFAULT_EPOCH_MS;

    const NOW_MS: i64 = DEFAULT_EPOCH_MS;

    fn invoices(overflow: Overflow) -> Definition {
        Definition {
            format: "INV-{value:06}".to_owned(),
            overflow,
            ..Definition::default()
        }
    }

    #[test]
    fn every_end_is_told_and_the_nearest_first() {
        let runway = Runway::of(&invoices(Overflow::Refuse), 1, 1.0, NOW_MS);
        assert_eq!(
            serde_json::to_value(&runway).ok(),
            Some(json!({
                "limit": "width", "numbers_left": 999_999, "days_left": 999_999.0 / 86_400.0,
                "limits": [
                    {"limit": "max", "numbers_left": 9_007_199_254_740_991_u64,
                     "days_left": 9_007_199_254_740_991.0 / 86_400.0},
                    {"limit": "width", "numbers_left": 999_999, "days_left": 999_999.0 / 86_400.0},
                    {"limit": "exact", "numbers_left": 9_007_199_254_740_991_u64,
                     "days_left": 9_007_199_254_740_991.0 / 86_400.0},
                ]
            }))
        );
        assert_eq!(runway.seconds(None), Some(999_999.0));
    }

    #[test]
    fn without_a_rate_numbers_are_told_and_no_days() {
        let runway = Runway::of(&Definition::default(), 5, 0.0, NOW_MS);
        assert_eq!((runway.worst.limit, runway.limits.len()), (Limit::Max, 2));
        assert_eq!(runway.worst.numbers_left, 9_007_199_254_740_987);
        assert_eq!((runway.worst.days_left, runway.seconds(None)), (None, None));
    }

    #[test]
    fn the_higher_of_the_rates_counts() {
        let mut definition = invoices(Overflow::Refuse);
        definition.declared_rate = Some(10.0);
        for (rate, seconds) in [(0.0, 100_000.0), (1.0, 100_000.0), (100.0, 10_000.0)] {
            let told = Runway::of(&definition, 0, rate, NOW_MS).seconds(None);
            assert!(
                told.is_some_and(|told| (told - seconds).abs() < 1.0),
                "{told:?}"
            );
        }
    }

    #[test]
    fn an_end_that_only_bothers_counts_until_it_is_behind() {
        let mut definition = invoices(Overflow::Widen);
        let worst = |definition: &Definition, next_value| {
            let worst = Runway::of(definition, next_value, 0.0, NOW_MS).worst;
            (worst.limit, worst.numbers_left)
        };
        assert_eq!(worst(&definition, 999_999), (Limit::Width, 1));
        assert_eq!(worst(&definition, 1_000_000).0, Limit::Max);
        definition.overflow = Overflow::Refuse;
        assert_eq!(worst(&definition, 1_000_000), (Limit::Width, 0));
        let large = Definition {
            max: i64::MAX - 1,
            ..Definition::default()
        };
        assert_eq!(worst(&large, EXACT - 1), (Limit::Exact, 2));
        assert_eq!(worst(&large, EXACT + 1).0, Limit::Max);
        assert_eq!(worst(&large, i64::MAX), (Limit::Max, 0));
    }

    #[test]
    fn what_outlasts_its_period_is_not_short() {
        let mut definition = invoices(Overflow::Refuse);
        for (kind, lasts) in [
            (PeriodKind::None, false),
            (PeriodKind::Keyed, false),
            (PeriodKind::Day, true),
            (PeriodKind::Week, true),
            (PeriodKind::Month, false),
        ] {
            definition.period = kind;
            let runway = Runway::of(&definition, 1, 1.0, NOW_MS);
            assert_eq!(runway.outlasts_a_period(), lasts, "{kind:?}");
        }
    }

    #[test]
    fn what_lasts_until_numbers_start_again_is_not_short() {
        let mut definition = invoices(Overflow::Refuse);
        definition.period = PeriodKind::Month;
        let runway = Runway::of(&definition, 1, 1.0, NOW_MS);
        for (period_left, expected) in [
            (None, 999_999.0),
            (Some(1_000_000.0), 999_999.0),
            (Some(999_000.0), f64::INFINITY),
            (Some(0.0), f64::INFINITY),
        ] {
            assert_eq!(runway.seconds(period_left), Some(expected));
        }
        // Numbers that are used up before the period ends are short.
        let faster = Runway::of(&definition, 1, 1024.0, NOW_MS);
        assert_eq!(faster.seconds(Some(1000.0)), Some(999_999.0 / 1024.0));
    }

    #[test]
    fn time_is_the_only_end_of_what_is_ordered_by_it() {
        let layout = Layout::default();
        let definition = Definition {
            kind: Kind::Snowflake,
            layout: Some(layout),
            declared_rate: Some(1e9),
            ..Definition::default()
        };
        let runway = Runway::of(&definition, 1, 1e9, NOW_MS + 86_400_000);
        let days = layout.days_left(NOW_MS) - 1.0;
        let numbers = (layout.end_tick() - 86_400_000) << 22;
        assert_eq!(
            serde_json::to_value(&runway).ok(),
            Some(json!({
                "limit": "time", "numbers_left": numbers, "days_left": days,
                "limits": [{"limit": "time", "numbers_left": numbers, "days_left": days}]
            }))
        );
        assert_eq!(runway.seconds(None), Some(days * 86_400.0));
        let ended = Runway::of(&definition, 1, 0.0, i64::MAX).worst;
        assert_eq!((ended.numbers_left, ended.days_left), (0, Some(0.0)));
    }
}
