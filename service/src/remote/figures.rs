//! Writes figures for people as the page does (`http/page/format.js`): short, with units.
//!
//! Ids are strings, and stay as they are.

use jiff::Timestamp;

use super::replies::RunwayLeft;

/// Stands for a figure that is not known.
pub(crate) const NOTHING: &str = "–";

const STEPS: [&str; 7] = ["", " k", " M", " G", " T", " P", " E"];
const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
const YEAR: f64 = 365.25 * DAY;

/// Writes a count, exact below ten thousand.
pub(crate) fn count(value: u64) -> String {
    scaled(value as f64)
}

fn scaled(value: f64) -> String {
    if value < 10_000.0 {
        return if value.fract() == 0.0 {
            grouped(&format!("{value:.0}"))
        } else {
            significant(value)
        };
    }
    let mut rest = value;
    let mut step = 0;
    while rest >= 999.5 && step < STEPS.len() - 1 {
        rest /= 1000.0;
        step += 1;
    }
    let unit = STEPS.get(step).copied().unwrap_or_default();
    format!("{}{unit}", significant(rest))
}

/// Writes numbers a second.
pub(crate) fn rate(value: Option<f64>) -> String {
    match value {
        None => NOTHING.to_owned(),
        Some(value) if value <= 0.0 => "0 /s".to_owned(),
        Some(value) if value < 0.001 => "< 0.001 /s".to_owned(),
        Some(value) if value < 10_000.0 => format!("{} /s", significant(value)),
        Some(value) => format!("{}/s", scaled(value)),
    }
}

/// Writes a time that passes, in the one unit that says most.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds.is_nan() {
        return NOTHING.to_owned();
    }
    if seconds < 1.0 {
        return if seconds <= 0.0 { "0 s" } else { "< 1 s" }.to_owned();
    }
    if seconds < 2.0 * MINUTE {
        return format!("{} s", fixed(seconds, 0));
    }
    if seconds < 2.0 * HOUR {
        let n_digits = usize::from(seconds < 10.0 * MINUTE);
        return format!("{} min", shortest(&fixed(seconds / MINUTE, n_digits)));
    }
    if seconds < 2.0 * DAY {
        return format!("{} h", significant(seconds / HOUR));
    }
    if seconds < 2.0 * YEAR {
        return format!("{} days", significant(seconds / DAY));
    }
    if seconds < 1000.0 * YEAR {
        return format!("{} years", significant(seconds / YEAR));
    }
    "> 1000 years".to_owned()
}

/// Writes how long the numbers of a runway last.
pub(crate) fn runway(runway: Option<&RunwayLeft>) -> String {
    match runway {
        None => NOTHING.to_owned(),
        Some(runway) => match runway.days_left {
            None => format!("{} left", count(runway.numbers_left)),
            Some(days) => duration(days * DAY),
        },
    }
}

/// Says which end a runway leads to.
pub(crate) fn end(limit: &str) -> &str {
    match limit {
        "max" => "to max",
        "width" => "to the width of the format",
        "exact" => "to 2^53",
        "time" => "to the end of its time bits",
        other => other,
    }
}

/// Writes a moment of the API (RFC 3339), in UTC.
pub(crate) fn moment(text: Option<&str>) -> String {
    let time = text.and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or_else(
        || NOTHING.to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// Says how long ago a moment of the API was.
pub(crate) fn ago(text: Option<&str>, now: Timestamp) -> String {
    let time = text.and_then(|text| text.parse::<Timestamp>().ok());
    time.map_or_else(
        || NOTHING.to_owned(),
        |time| {
            let passed = now.duration_since(time).as_secs_f64();
            format!("{} ago", duration(passed.max(0.0)))
        },
    )
}

/// Writes `1 key`, `3 keys`.
pub(crate) fn plural(number: u64, one: &str, many: &str) -> String {
    let unit = if number == 1 { one } else { many };
    format!("{} {unit}", count(number))
}

fn significant(value: f64) -> String {
    if value >= 99.95 {
        return grouped(&fixed(value, 0));
    }
    let n_digits = if value >= 9.995 {
        1
    } else if value >= 0.1 {
        2
    } else {
        3
    };
    shortest(&fixed(value, n_digits))
}

/// Writes so many digits after the point. A half is rounded up, as JavaScript's `toFixed` does.
fn fixed(value: f64, n_digits: usize) -> String {
    // Exactly a half at this place is what is odd at the binary place below it. Ten has a factor
    // of two for each digit, so there is no other one.
    let places = [2.0, 4.0, 8.0, 16.0];
    let place = places.get(n_digits).copied().unwrap_or(1.0);
    let is_half = (value * place) % 2.0 == 1.0;
    let value = if is_half { value.next_up() } else { value };
    format!("{value:.n_digits$}")
}

/// Leaves out zeros at the end of a fraction.
fn shortest(digits: &str) -> String {
    if digits.contains('.') {
        return digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned();
    }
    digits.to_owned()
}

/// Puts a comma between each three digits.
fn grouped(digits: &str) -> String {
    let mut written = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            written.push(',');
        }
        written.push(digit);
    }
    written
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short_and_exact_below_ten_thousand() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (9_999, "9,999"),
            (10_000, "10 k"),
            (12_345, "12.3 k"),
            (999_499, "999 k"),
            (999_500, "1 M"),
            (9_007_199_254_740_991, "9.01 P"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(count(value), expected, "{value}");
        }
        assert_eq!(plural(1, "key", "keys"), "1 key");
        assert_eq!(plural(0, "key", "keys"), "0 keys");
    }

    #[test]
    fn rates_have_three_digits() {
        for (value, expected) in [
            (0.0, "0 /s"),
            (0.0001, "< 0.001 /s"),
            (0.009_98, "0.01 /s"),
            (12.5, "12.5 /s"),
            (999.9, "1,000 /s"),
            (9_999.4, "9,999 /s"),
            (10_000.0, "10 k/s"),
            (1_234_567.0, "1.23 M/s"),
        ] {
            assert_eq!(rate(Some(value)), expected, "{value}");
        }
        assert_eq!(rate(None), NOTHING);
    }

    #[test]
    fn durations_have_the_unit_that_says_most() {
        for (seconds, expected) in [
            (0.0, "0 s"),
            (0.4, "< 1 s"),
            (119.4, "119 s"),
            (125.0, "2.1 min"),
            (900.0, "15 min"),
            (36_060.0, "10 h"),
            (7_500.0, "2.08 h"),
            (3.0 * DAY, "3 days"),
            (3.0 * YEAR, "3 years"),
            (1e12, "> 1000 years"),
            (f64::NAN, NOTHING),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }

    /// JavaScript rounds exact halves up, and others to the nearest. Each expectation is what
    /// `toFixed` gives.
    #[test]
    fn halves_are_rounded_as_the_page_rounds_them() {
        for (value, n_digits, expected) in [
            (100.5, 0, "101"),
            (12.25, 1, "12.3"),
            (1.45, 1, "1.4"),
            (0.125, 2, "0.13"),
            (1.005, 2, "1.00"),
            (0.062_5, 3, "0.063"),
            (2.0, 1, "2.0"),
            (1.5, 2, "1.50"),
        ] {
            assert_eq!(fixed(value, n_digits), expected, "{value}");
        }
    }

    #[test]
    fn runways_lead_to_an_end() {
        let left = |days_left| RunwayLeft {
            limit: "max".to_owned(),
            numbers_left: 8999,
            days_left,
        };
        assert_eq!(runway(Some(&left(None))), "8,999 left");
        assert_eq!(runway(Some(&left(Some(3.5)))), "3.5 days");
        assert_eq!(runway(None), NOTHING);
        assert_eq!(end("exact"), "to 2^53");
        assert_eq!(end("new"), "new");
    }

    #[test]
    fn moments_are_in_utc() {
        let now: Timestamp = "2026-11-20T13:24:05Z".parse().unwrap();
        let text = Some("2026-11-20T13:22:05.519Z");
        assert_eq!(moment(text), "2026-11-20 13:22:05 UTC");
        assert_eq!(ago(text, now), "119 s ago");
        assert_eq!(ago(Some("2026-11-20T13:30:00Z"), now), "0 s ago");
        assert_eq!(moment(Some("never")), NOTHING);
        assert_eq!(ago(None, now), NOTHING);
    }
}
