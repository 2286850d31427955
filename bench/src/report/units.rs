//! Writes figures as people read them.

use crate::{
    reading::Spread,
    row::{Bound, Unit},
};

/// The steps of a unit: the smallest value of a step, its divisor, and the text behind the number.
type Steps = &'static [(f64, f64, &'static str)];

const RATE: Steps = &[(0.0, 1.0, "/s"), (1e3, 1e3, " k/s"), (1e6, 1e6, " M/s")];
const TIME: Steps = &[
    (0.0, 1e-3, " ns"),
    (1.0, 1.0, " µs"),
    (1e3, 1e3, " ms"),
    (1e6, 1e6, " s"),
    (1.2e8, 6e7, " min"),
];
const SIZE: Steps = &[
    (0.0, 1.0, " B"),
    (1024.0, 1024.0, " KiB"),
    (1_048_576.0, 1_048_576.0, " MiB"),
    (1_073_741_824.0, 1_073_741_824.0, " GiB"),
];
const NUMBER: Steps = &[(0.0, 1.0, ""), (1e4, 1e3, " k"), (1e6, 1e6, " M")];

impl Unit {
    /// Returns the steps of this unit, and the factor that a value is multiplied by first.
    fn steps(self) -> (Steps, f64) {
        match self {
            Self::RequestsPerSecond
            | Self::NumbersPerSecond
            | Self::NamesPerSecond
            | Self::RowsPerSecond => (RATE, 1.0),
            Self::Microseconds => (TIME, 1.0),
            Self::Milliseconds => (TIME, 1e3),
            Self::Seconds => (TIME, 1e6),
            Self::Bytes => (SIZE, 1.0),
            Self::Count => (NUMBER, 1.0),
        }
    }
}

/// Returns a value with its unit: `159 k/s`, `64 µs`, `12 MiB`.
pub(crate) fn value(value: f64, unit: Unit) -> String {
    let (divisor, suffix) = scale(value, unit);
    format!("{}{suffix}", digits(value / divisor))
}

/// Returns the median. If the values differ, adds minimum and maximum: `159 k/s (155–161)`.
pub(crate) fn spread(spread: Spread, unit: Unit) -> String {
    let (divisor, _) = scale(spread.median, unit);
    let median = value(spread.median, unit);
    with_bounds(median, spread, |bound| digits(bound / divisor))
}

/// Returns a ratio in the same form. The median is rounded away from a bound that it misses.
pub(crate) fn ratio(spread: Spread, bounds: &[Bound]) -> String {
    let median = spread.median;
    let missed = bounds.iter().find(|bound| !bound.holds(median));
    let scale = 10_f64.powi(n_decimals(median));
    let shown = match missed {
        None => median,
        Some(Bound::AtLeast(_)) => (median * scale).floor() / scale,
        Some(Bound::AtMost(_)) => (median * scale).ceil() / scale,
    };
    with_bounds(fraction(shown), spread, fraction)
}

/// Returns a bound: `≥ 0.95`, `≤ 2 KiB`. A ratio has no unit.
pub(crate) fn bound(bound: Bound, unit: Option<Unit>) -> String {
    let (sign, limit) = match bound {
        Bound::AtLeast(limit) => ("≥", limit),
        Bound::AtMost(limit) => ("≤", limit),
    };
    match unit {
        Some(unit) => format!("{sign} {}", value(limit, unit)),
        // The limit of a ratio is shown as it is written in the code.
        None => format!("{sign} {limit}"),
    }
}

/// Returns a part of 1 as `98 %`.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn with_bounds(median: String, spread: Spread, show: impl Fn(f64) -> String) -> String {
    if spread.min == spread.max {
        return median;
    }
    format!("{median} ({}–{})", show(spread.min), show(spread.max))
}

/// Returns the divisor for a value of this size, and the text behind the number.
fn scale(value: f64, unit: Unit) -> (f64, &'static str) {
    let (steps, factor) = unit.steps();
    let reached = steps
        .iter()
        .rev()
        .find(|(from, ..)| value * factor >= *from);
    let (_, divisor, suffix) = reached.unwrap_or(&steps[0]);
    (divisor / factor, suffix)
}

/// Returns a number with three digits, or with all digits before the point.
fn digits(value: f64) -> String {
    let n_decimals = match value.abs() {
        small if small < 9.995 => 2,
        medium if medium < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.n_decimals$}");
    if text.contains('.') {
        let bare = text.trim_end_matches('0').trim_end_matches('.');
        return bare.to_owned();
    }
    text
}

/// Returns the decimals of a ratio: one more than the bounds of ratios have.
fn n_decimals(ratio: f64) -> i32 {
    if ratio < 9.9995 { 3 } else { 1 }
}

fn fraction(value: f64) -> String {
    format!("{value:.*}", n_decimals(value) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit_of_their_size() {
        let known = [
            (158_912.0, Unit::RequestsPerSecond, "159 k/s"),
            (15_891_200.0, Unit::NumbersPerSecond, "15.9 M/s"),
            (812.4, Unit::NamesPerSecond, "812/s"),
            (64.0, Unit::Microseconds, "64 µs"),
            (0.083, Unit::Microseconds, "83 ns"),
            (1.0, Unit::Microseconds, "1 µs"),
            (1_250.0, Unit::Microseconds, "1.25 ms"),
            (0.5, Unit::Milliseconds, "500 µs"),
            (15.0 * 60.0, Unit::Seconds, "15 min"),
            (512.0, Unit::Bytes, "512 B"),
            (2048.0, Unit::Bytes, "2 KiB"),
            (12.5 * 1_048_576.0, Unit::Bytes, "12.5 MiB"),
            (1.5, Unit::Count, "1.5"),
            (0.0, Unit::Count, "0"),
        ];
        for (number, unit, expected) in known {
            assert_eq!(value(number, unit), expected);
        }
    }

    #[test]
    fn a_share_has_no_decimals() {
        assert_eq!([0.704, 0.996, 1.0].map(percent), ["70 %", "100 %", "100 %"]);
    }

    #[test]
    fn minimum_and_maximum_have_the_unit_of_the_median() {
        let (median, min, max) = (1_020.0, 980.0, 1_100.0);
        let seen = Spread { median, min, max };
        assert_eq!(spread(seen, Unit::Microseconds), "1.02 ms (0.98–1.1)");
        let (median, min, max) = (0.949_6, 0.9, 1.0);
        let seen = Spread { median, min, max };
        assert_eq!(ratio(seen, &[]), "0.950 (0.900–1.000)");
        let missed = [Bound::AtLeast(0.95)];
        assert_eq!(ratio(seen, &missed), "0.949 (0.900–1.000)");
        assert_eq!(bound(Bound::AtMost(1.1), None), "≤ 1.1");
        assert_eq!(bound(Bound::AtMost(2048.0), Some(Unit::Bytes)), "≤ 2 KiB");
    }
}
