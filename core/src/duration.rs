//! Reads and writes durations in one grammar, for the configuration, definitions, flags and
//! messages.

use std::time::Duration;

use thiserror::Error;

/// Describes the grammar of durations, for messages that ask for one.
pub const GRAMMAR: &str = "a whole number and its unit, ms, s, m, h, d or w, as in \"15m\"";

/// Lists the units and their lengths in milliseconds, the longest first.
const UNITS_MS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Says why a text is not a duration. The message is read after the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidDuration {
    #[error("is no duration; write {GRAMMAR}")]
    Form,
    #[error("is too long for a duration")]
    TooLong,
}

/// Reads `500ms`, `5s`, `15m`, `1h`, `2d`, `3w`.
///
/// # Errors
/// [`InvalidDuration::Form`] if the text is not digits and one unit. [`InvalidDuration::TooLong`]
/// if the number or the whole seconds are above 2^64 − 1.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(n_digits);
    let unit = UNITS_MS.into_iter().find(|(name, _)| *name == unit);
    let (Some((_, unit_ms)), false) = (unit, digits.is_empty()) else {
        return Err(InvalidDuration::Form);
    };
    let number: u64 = digits.parse().map_err(|_| InvalidDuration::TooLong)?;
    let ms = u128::from(number) * u128::from(unit_ms);
    let seconds = u64::try_from(ms / 1000).map_err(|_| InvalidDuration::TooLong)?;
    let rest = u64::try_from(ms % 1000).unwrap_or_default();
    Ok(Duration::from_secs(seconds) + Duration::from_millis(rest))
}

/// Writes a duration in the longest unit that is exact, so that [`parse`] reads it back.
///
/// Parts of a millisecond are cut off.
#[must_use]
pub fn exact(duration: Duration) -> String {
    let ms = duration.as_millis();
    let (name, unit_ms) = UNITS_MS
        .into_iter()
        .find(|(_, unit_ms)| ms > 0 && ms.is_multiple_of(u128::from(*unit_ms)))
        .unwrap_or(("s", 1000));
    format!("{}{name}", ms / u128::from(unit_ms))
}

/// Describes in words about how long a number of seconds is: `33 minutes`.
///
/// The unit is the longest one that fits at least twice.
#[must_use]
pub fn in_words(seconds: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)];
    let long = UNITS.into_iter().find(|(_, unit)| seconds >= 2.0 * unit);
    match long {
        Some((name, unit)) => format!("{:.0} {name}", seconds / unit),
        None if seconds >= 2.0 => format!("{seconds:.0} seconds"),
        None => "less than 2 seconds".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units_and_printed_in_the_longest_that_is_exact() {
        for (text, ms, printed) in [
            ("0s", 0, "0s"),
            ("0ms", 0, "0s"),
            ("5ms", 5, "5ms"),
            ("1500ms", 1500, "1500ms"),
            ("2000ms", 2000, "2s"),
            ("90s", 90_000, "90s"),
            ("15m", 900_000, "15m"),
            ("60m", 3_600_000, "1h"),
            ("2d", 172_800_000, "2d"),
            ("14d", 1_209_600_000, "2w"),
            ("3w", 1_814_400_000, "3w"),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
            assert_eq!(exact(Duration::from_millis(ms)), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "5 s",
            "1.5s",
            "5S",
            "5s ",
            " 5s",
            "1h5m",
            "5 parsecs",
            "٣s",
        ] {
            assert_eq!(parse(text), Err(InvalidDuration::Form), "{text}");
        }
        for text in ["99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(parse(text), Err(InvalidDuration::TooLong), "{text}");
        }
    }

    #[test]
    fn a_time_in_words_is_in_a_unit_of_which_there_are_some() {
        for (seconds, words) in [
            (0.0, "less than 2 seconds"),
            (45.4, "45 seconds"),
            (119.0, "119 seconds"),
            (0.023 * 86_400.0, "33 minutes"),
            (86_400.0, "24 hours"),
            (2.0 * 86_400.0, "2 days"),
            (364.6 * 86_400.0, "365 days"),
        ] {
            assert_eq!(in_words(seconds), words, "{seconds}");
        }
    }
}
