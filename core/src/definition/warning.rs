//! Warns of definitions that are allowed but may surprise, in sentences for people.

use super::time_ordered::is_short_lived;
use super::{Definition, Order};
use crate::duration;
use crate::period::{Cutover, PeriodKind};
use crate::runway::{EXACT, Limit, Runway};
use crate::sizing;
use crate::snowflake::{Layout, epoch_to_text};
use crate::speed_limit::SpeedLimit;

/// Bounds the runway, in days. A sequence that lasts for a shorter time gets a warning.
const SHORT_RUNWAY_DAYS: f64 = 365.0;
const SECONDS_A_DAY: f64 = 86_400.0;
/// Divides the numbers of a sequence: a failover may skip so many of them.
const PART_SKIPPED: u64 = 50;
/// Sets for how long commits are lost in the failover of which a warning tells, in seconds.
const LOST_SECONDS: u64 = 60;
/// Sets the rate that is assumed for a sequence with an unknown rate, in numbers a second.
const ASSUMED_RATE: f64 = 1.0;

impl Definition {
    /// Lists what may surprise about this definition, each as a sentence.
    ///
    /// `next_value` is the high-water mark. `rate` is in numbers a second, and 0 if it is not
    /// known. A higher declared rate counts instead. `now_ms` is the present time in Unix
    /// milliseconds. It matters for time-ordered sequences only.
    #[must_use]
    pub fn warnings(&self, next_value: i64, rate: f64, now_ms: i64) -> Vec<String> {
        let rate = rate.max(self.declared_rate.unwrap_or(0.0));
        if let Some(layout) = &self.layout {
            let all = [
                loses_digits(layout),
                is_too_slow(layout, rate),
                ends_soon(layout, now_ms),
            ];
            return all.into_iter().flatten().collect();
        }
        let left = self.left(next_value);
        [
            self.loses_digits(),
            self.refills_before_it_holds(),
            self.cannot_hold(left, rate),
            self.is_nearly_used_up(left),
            self.lasts_shortly(next_value, rate),
            self.is_cut_early(),
            self.is_near_limit(rate),
            self.is_capped(),
            self.skips_much(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn loses_digits(&self) -> Option<String> {
        (self.last() > EXACT).then(|| {
            format!(
                "`max` is above {EXACT} (2^53 - 1). Programs that read numbers as floating point, \
                 as JavaScript does, lose digits above it. Let them take `id` as a string."
            )
        })
    }

    fn refills_before_it_holds(&self) -> Option<String> {
        let (hold, refill) = (self.block.hold, self.block.refill);
        (self.order == Order::Relaxed && refill < hold).then(|| {
            format!(
                "`block.refill` ({refill}) is shorter than `block.hold` ({hold}): a block lasts for \
                 `refill`, so what is in memory does not always last for `hold`."
            )
        })
    }

    /// Warns if one block may be too small for `hold`.
    ///
    /// When the next block is fetched, one block is in memory. So the reserve is one block.
    fn cannot_hold(&self, left: u64, rate: f64) -> Option<String> {
        let hold = self.block.hold;
        let burst = self.limit.map_or(u64::MAX, SpeedLimit::burst);
        let bounds = [
            (self.block.max, "`block.max`"),
            (sizing::max_at_once(left), "1/4096 of what is left"),
            ((burst / 2).max(1), "half of `limit.burst`"),
        ];
        let lower = |one: (u64, _), other: (u64, _)| if other.0 < one.0 { other } else { one };
        let (most, limit) = bounds.into_iter().fold((u64::MAX, ""), lower);
        let is_known = rate > 0.0;
        let needed = hold.as_secs_f64() * if is_known { rate } else { ASSUMED_RATE };
        let keeps_blocks = self.order == Order::Relaxed;
        if !keeps_blocks || left == 0 || most as f64 >= needed {
            return None;
        }
        if is_known {
            return Some(format!(
                "At {} numbers a second `block.hold` ({hold}) takes {needed:.0} numbers, and a \
                 block has at most {most}, {limit}: what is in memory does not always last for `hold`.",
                shown(rate)
            ));
        }
        // `block.max` was chosen, so it is no surprise. The 1/4096 of a short sequence is one.
        (most < self.block.max).then(|| {
            format!(
                "A block has at most {most} numbers, {limit}. If callers take more than that in \
                 `block.hold` ({hold}), the numbers in memory do not last for `hold` while the \
                 database is away."
            )
        })
    }

    fn is_nearly_used_up(&self, left: u64) -> Option<String> {
        let whole = self.left(self.start);
        (left < whole.div_ceil(10)).then(|| {
            let remedy = if self.last() < self.max {
                "`overflow` may be \"widen\""
            } else {
                "`max` may be raised"
            };
            format!("{left} of {whole} numbers are left, less than a tenth; {remedy}.")
        })
    }

    fn lasts_shortly(&self, next_value: i64, rate: f64) -> Option<String> {
        let runway = Runway::of(self, next_value, rate, 0);
        let left = runway.worst;
        let days = left.days_left.filter(|days| *days < SHORT_RUNWAY_DAYS)?;
        if runway.outlasts_a_period() || left.numbers_left == 0 {
            return None;
        }
        let end = match left.limit {
            Limit::Max | Limit::Time => String::new(),
            Limit::Width => " that `format` has room for".to_owned(),
            Limit::Exact => format!(" up to {EXACT} (2^53 - 1)"),
        };
        Some(format!(
            "At {} numbers a second the {} numbers left{end} last for {}.",
            shown(rate),
            left.numbers_left,
            duration::in_words(days * SECONDS_A_DAY)
        ))
    }

    /// Warns if callers need more than half of what the speed limit allows.
    fn is_near_limit(&self, rate: f64) -> Option<String> {
        let limit = self.limit?;
        (rate * 2.0 > f64::from(limit.rate())).then(|| {
            format!(
                "The speed limit allows {} numbers a second (`limit.rate`), less than twice the {} \
                 that are needed: above it callers wait, and then get 429.",
                limit.rate(),
                shown(rate)
            )
        })
    }

    /// Warns if the speed limit follows from the declared rate.
    fn is_capped(&self) -> Option<String> {
        let (declared, limit) = self.declared_rate.zip(self.limit)?;
        let undeclared = Self {
            declared_rate: None,
            ..self.clone()
        };
        let follows = self.limit == self.suitable_limit();
        (follows && self.limit != undeclared.suitable_limit()).then(|| {
            format!(
                "`declared_rate` ({}) is a cap, too: the speed limit follows from it, and allows {} \
                 numbers a second (`limit.rate`). If you need more, give a `limit`.",
                shown(declared),
                limit.rate()
            )
        })
    }

    /// Warns if a failover that loses commits would skip many of the numbers.
    fn skips_much(&self) -> Option<String> {
        let limit = self.limit?;
        let skipped = u64::from(limit.rate()) * LOST_SECONDS;
        let skipped = skipped.saturating_add(limit.burst());
        let whole = self.left(self.start);
        (skipped > whole / PART_SKIPPED).then(|| {
            format!(
                "A failover that loses the commits of a minute skips up to {skipped} of {whole} \
                 numbers, as many as `limit` allows: `limit` may be lowered."
            )
        })
    }

    /// Warns of a cut-over in the morning.
    ///
    /// A reader may think of the day that begins at the cut-over. Most ids then show the date of
    /// tomorrow, and the field cannot be changed any more.
    fn is_cut_early(&self) -> Option<String> {
        let counts_days = !matches!(self.period, PeriodKind::None | PeriodKind::Keyed);
        let is_early = Cutover::parse(&self.cutover).is_ok_and(Cutover::is_early);
        (counts_days && is_early).then(|| {
            format!(
                "With `cutover` \"{0}\" a day is the one that ends then: 20 November ends at {0} on \
                 the 20th, and what comes after that is of the 21st.",
                self.cutover
            )
        })
    }
}

fn loses_digits(layout: &Layout) -> Option<String> {
    (layout.highest() > EXACT).then(|| {
        format!(
            "Ids of this `layout` go above {EXACT} (2^53 - 1). Programs that read numbers as \
             floating point, as JavaScript does, lose digits above it. Let them take `id` as a \
             string, or give `layout` \"53-bit\"."
        )
    })
}

/// Warns if one replica is too slow for the rate. One replica issues the ids of one worker id.
fn is_too_slow(layout: &Layout, rate: f64) -> Option<String> {
    const MS_A_SECOND: f64 = 1000.0;
    let most = layout.ids_a_tick() as f64 * (MS_A_SECOND / layout.unit.ms() as f64);
    (rate > most).then(|| {
        format!(
            "A replica issues at most {} ids a second of this `layout`, and {} are to be expected.",
            shown(most),
            shown(rate)
        )
    })
}

/// Warns of a layout that ends soon. No new sequence may use such a layout, but an existing
/// sequence is served.
fn ends_soon(layout: &Layout, now_ms: i64) -> Option<String> {
    is_short_lived(layout, now_ms).then(|| {
        format!(
            "The time bits of `layout` end at {}, in {}: then no id is issued any more.",
            epoch_to_text(layout.ends_at_ms()),
            duration::in_words(layout.days_left(now_ms) * SECONDS_A_DAY)
        )
    })
}

/// Formats a number with few digits. A number above 0 is never shown as 0.
fn shown(number: f64) -> String {
    if number >= 10.0 {
        format!("{number:.0}")
    } else if number >= 0.01 {
        format!("{number:.2}")
    } else {
        format!("{number:.1e}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BlockPolicy, Kind, Span};
    use super::*;
    use crate::snowflake::{DEFAULT_EPOCH_MS, LayoutUnit};

    const NO_RATE: f64 = 0.0;
    const NOW_MS: i64 = DEFAULT_EPOCH_MS;

    fn up_to(max: i64) -> Definition {
        let mut definition = Definition {
            max,
            ..Definition::default()
        };
        definition.limit = definition.suitable_limit();
        definition
    }

    /// Returns the only warning of a definition, or an empty text.
    fn only(definition: &Definition, next_value: i64, rate: f64) -> String {
        let warnings = definition.warnings(next_value, rate, NOW_MS);
        assert!(warnings.len() <= 1, "{warnings:?}");
        warnings.concat()
    }

    #[test]
    fn the_defaults_surprise_nobody() {
        assert_eq!(only(&Definition::default(), 1, NO_RATE), "");
        assert_eq!(only(&Definition::default(), 1, 1000.0), "");
    }

    #[test]
    fn numbers_that_lose_digits_are_told() {
        assert_eq!(only(&up_to(EXACT), 1, NO_RATE), "");
        let told = only(&up_to(EXACT + 1), 1, NO_RATE);
        assert!(told.contains("9007199254740991"), "{told}");
    }

    #[test]
    fn a_refill_shorter_than_the_hold_is_told() {
        let mut definition = Definition::default();
        definition.block.refill = definition.block.hold;
        assert_eq!(only(&definition, 1, NO_RATE), "");
        definition.block.refill = Span::from_minutes(5);
        let told = only(&definition, 1, NO_RATE);
        assert!(told.contains("(5m)") && told.contains("(15m)"), "{told}");
    }

    #[test]
    fn blocks_too_small_for_the_hold_are_told_with_what_bounds_them() {
        let definition = Definition {
            block: BlockPolicy {
                max: 9_000,
                ..BlockPolicy::default()
            },
            ..Definition::default()
        };
        assert_eq!(only(&definition, 1, 10.0), "");
        let told = only(&definition, 1, 10.5);
        assert!(
            told.contains("9450") && told.contains("`block.max`"),
            "{told}"
        );
        let told = up_to(4096 * 1000).warnings(1, 2.0, NOW_MS).concat();
        assert!(told.contains("at most 1000, 1/4096"), "{told}");
    }

    #[test]
    fn a_range_too_small_for_a_reserve_is_told_whatever_the_rate() {
        let four_digits = up_to(9_999);
        let told = only(&four_digits, 1, NO_RATE);
        assert!(
            told.contains("at most 2 numbers, 1/4096") && told.contains("(15m)"),
            "{told}"
        );
        let told = four_digits.warnings(1, 0.01, NOW_MS).concat();
        assert!(told.contains("at most 2, 1/4096"), "{told}");
        // From this `max` on, a block lasts for `hold` at one number a second.
        assert_eq!(only(&up_to(4096 * 900), 1, NO_RATE), "");
        assert_ne!(only(&up_to(4096 * 900 - 1), 1, NO_RATE), "");
        // If the rate is known to be low, a smaller block is enough.
        assert_eq!(only(&up_to(4096 * 90), 1, 0.0011), "");
        let strict = Definition {
            order: Order::Strict,
            ..up_to(9_999)
        };
        assert_eq!(only(&strict, 1, NO_RATE), "");
    }

    #[test]
    fn an_end_that_is_near_is_told_in_numbers_and_in_days() {
        let up_to = |max| {
            let mut definition = up_to(max);
            definition.block.hold = Span::from_seconds(1);
            definition
        };
        assert_eq!(only(&up_to(100), 91, NO_RATE), "");
        let told = only(&up_to(100), 92, NO_RATE);
        assert!(told.starts_with("9 of 100 "), "{told}");
        let told = only(&up_to(100), 101, 5.0);
        assert!(told.starts_with("0 of 100 "), "{told}");
        // The numbers last for a day at 100 numbers a second, and blocks last for a minute.
        let day = up_to(8_640_000);
        let told = only(&day, 1, 100.0);
        assert!(
            told.contains("8640000") && told.ends_with("last for 24 hours."),
            "{told}"
        );
    }

    #[test]
    fn a_limit_that_is_near_is_told() {
        let mut definition = up_to(EXACT);
        definition.limit = SpeedLimit::new(100, 1_000_000);
        assert_eq!(only(&definition, 1, 50.0), "");
        let told = only(&definition, 1, 51.0);
        assert!(
            told.contains("allows 100 numbers") && told.contains("51"),
            "{told}"
        );
    }

    #[test]
    fn a_declared_rate_from_which_the_limit_follows_is_told() {
        let mut definition = Definition {
            declared_rate: Some(20.0),
            ..Definition::default()
        };
        assert_eq!(only(&definition, 1, NO_RATE), "");
        definition.limit = definition.suitable_limit();
        let told = only(&definition, 1, NO_RATE);
        assert!(
            told.contains("(20)") && told.contains("2000 numbers"),
            "{told}"
        );
        // A short range bounds the limit, so it does not follow.
        definition.max = 1_000_000;
        definition.limit = definition.suitable_limit();
        let told = definition.warnings(1, NO_RATE, NOW_MS).concat();
        assert!(!told.contains("a cap"), "{told}");
    }

    #[test]
    fn a_failover_that_would_skip_much_is_told() {
        let mut definition = up_to(10_000_000);
        assert_eq!(only(&definition, 1, NO_RATE), "");
        definition.limit = SpeedLimit::new(1_000, 140_000);
        assert_eq!(only(&definition, 1, NO_RATE), "");
        definition.limit = SpeedLimit::new(1_000, 140_001);
        let told = only(&definition, 1, NO_RATE);
        assert!(told.contains("200001 of 10000000"), "{told}");
    }

    #[test]
    fn a_cut_over_in_the_morning_is_told_with_the_day_that_it_ends() {
        let told = |period, cutover: &str| {
            let definition = Definition {
                period,
                cutover: cutover.to_owned(),
                ..Definition::default()
            };
            only(&definition, 1, NO_RATE)
        };
        for cutover in ["00:00", "12:00", "22:00"] {
            assert_eq!(told(PeriodKind::Day, cutover), "", "{cutover}");
        }
        for (period, cutover) in [
            (PeriodKind::Day, "00:01"),
            (PeriodKind::Month, "04:00"),
            (PeriodKind::Year, "11:59"),
        ] {
            let told = told(period, cutover);
            assert!(told.contains(&format!("ends at {cutover} on")), "{told}");
        }
        for period in [PeriodKind::None, PeriodKind::Keyed] {
            assert_eq!(told(period, "04:00"), "", "{period:?}");
        }
    }

    #[test]
    fn a_layout_is_told_where_it_loses_digits_is_slow_or_ends() {
        let of = |layout| Definition {
            kind: Kind::Snowflake,
            layout: Some(layout),
            ..Definition::default()
        };
        let preset = of(Layout::preset_53_bit());
        assert_eq!(only(&preset, 1, 51_200.0), "");
        let told = only(&preset, 1, 51_201.0);
        assert!(told.contains("at most 51200 ids a second"), "{told}");
        let told = only(&of(Layout::default()), 1, NO_RATE);
        assert!(told.contains("above 9007199254740991"), "{told}");
        let short = of(Layout {
            unit: LayoutUnit::Millisecond,
            ..Layout::preset_53_bit()
        });
        let told = only(&short, 1, NO_RATE);
        assert!(told.contains("end at 2034-09-17T"), "{told}");
    }
}
