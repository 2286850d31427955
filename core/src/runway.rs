//! Runway: how long the numbers of a sequence last, up to each end that it has.

use serde::Serialize;

use crate::format::{Format, Overflow};
use crate::snowflake::Layout;
use crate::{definition::Definition, period::PeriodKind};

/// 2^53 − 1: above it JavaScript, and whatever else counts in floating point, loses digits.
pub const EXACT: i64 = (1 << 53) - 1;

const SECONDS_A_DAY: f64 = 86_400.0;

/// An end that numbers run up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// `max`.
    Max,
    /// What fits the format's padding. With `overflow` "widen" ids grow behind it.
    Width,
    /// 2^53 − 1. Numbers go on behind it, but not every program reads them exactly.
    Exact,
    /// The time bits of a time-ordered kind, its only end: it comes by the clock, at any rate.
    Time,
}

/// How far it is to one of the ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Left {
    /// Which end.
    pub limit: Limit,
    /// Numbers that nobody has reserved, up to there.
    pub numbers_left: u64,
    /// For how many days they last; `None` where no rate is known.
    pub days_left: Option<f64>,
}

/// How long the numbers of a sequence last.
///
/// Of a sequence with periods it speaks of the numbers of one period.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Runway {
    /// The end that is nearest, of those that are not behind already.
    #[serde(flatten)]
    pub worst: Left,
    /// All ends that the sequence has.
    pub limits: Vec<Left>,
    /// The longest that its periods last, in days; `None` where numbers never start again.
    #[serde(skip)]
    period_days: Option<f64>,
}

impl Runway {
    /// The runway of a sequence whose high-water mark is `next_value` and which issues `rate`
    /// numbers a second, 0 where that is not known. A higher declared rate counts instead. Of a
    /// time-ordered kind only `now_ms` counts, the Unix milliseconds of now.
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
        // What is only a nuisance is passed for good, and then warns of nothing any more.
        let is_final = |limit| match limit {
            Limit::Max | Limit::Time => true,
            Limit::Width => definition.overflow == Overflow::Refuse,
            Limit::Exact => false,
        };
        let ahead = limits
            .iter()
            .filter(|left| left.numbers_left > 0 || is_final(left.limit));
        let worst = ahead.fold(max, |worst, left| {
            if left.numbers_left < worst.numbers_left {
                *left
            } else {
                worst
            }
        });
        Self {
            worst,
            limits,
            period_days: longest_period(definition.period),
        }
    }

    /// For how many seconds the numbers last; infinite where numbers start again before, in
    /// `period_left` seconds if at all, and `None` where no rate is known.
    #[must_use]
    pub fn seconds(&self, period_left: Option<f64>) -> Option<f64> {
        let seconds = self.worst.days_left? * SECONDS_A_DAY;
        let starts_again = period_left.is_some_and(|left| seconds >= left);
        Some(if starts_again { f64::INFINITY } else { seconds })
    }

    /// Whether the numbers last for the longest period, were it only to begin now.
    pub(crate) fn outlasts_a_period(&self) -> bool {
        let days = self.worst.days_left.zip(self.period_days);
        days.is_some_and(|(days, period)| days >= period)
    }
}

fn days(numbers: u64, rate: f64) -> Option<f64> {
    let days = numbers as f64 / rate / SECONDS_A_DAY;
    (rate > 0.0 && days.is_finite()).then_some(days)
}

/// The longest that a period lasts, in days: an hour more where clocks are put back in it.
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
        // What is used up before the period is over is short.
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
