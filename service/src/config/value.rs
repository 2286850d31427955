//! Values as people write them: durations, whole numbers, truth values.
//!
//! A file has types, the environment and flags have text only: numbers and truth values are read
//! from both forms. What is text stays text, so a token of digits keeps its leading zeros.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};

const DURATION: &str = "a whole number and its unit, ms, s, m, h or d, as in \"5s\"";

/// The units and their lengths in milliseconds.
const UNITS_MS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Reads `500ms`, `5s`, `15m`, `1h`, `2d`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is no duration; write {DURATION}");
    let digits = text.trim_end_matches(|last: char| !last.is_ascii_digit());
    let unit = text.strip_prefix(digits).ok_or_else(refused)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused());
    }
    let (_, unit_ms) = UNITS_MS
        .into_iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(refused)?;
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit_ms))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is too long for a duration"))
}

/// A duration, from text alone: a number without its unit is refused.
pub(super) fn duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(DURATION)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).map_err(E::custom)
        }
    }

    source.deserialize_any(Text)
}

/// A whole number from 0 up to what `T` holds, from a number or its decimal digits.
pub(super) fn number<'de, D, T>(source: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    struct Number<T>(PhantomData<T>);

    impl<T: TryFrom<u64>> Visitor<'_> for Number<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a whole number")
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            T::try_from(number).map_err(|_| E::custom(format!("{number} is too large")))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            match u64::try_from(number) {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
            }
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            match text.parse() {
                Ok(number) => self.visit_u64(number),
                Err(_) => Err(E::invalid_value(Unexpected::Str(text), &self)),
            }
        }
    }

    source.deserialize_any(Number(PhantomData))
}

/// As [`number`], for a value whose absence means something.
pub(super) fn some_number<'de, D, T>(source: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    number(source).map(Some)
}

/// A truth value, from `true` or `false` or their text.
pub(super) fn truth<'de, D: Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
    struct Truth;

    impl Visitor<'_> for Truth {
        type Value = bool;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("true or false")
        }

        fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
            Ok(value)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
            text.parse()
                .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
        }
    }

    source.deserialize_any(Truth)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, ms) in [
            ("0s", 0),
            ("5ms", 5),
            ("500ms", 500),
            ("25s", 25_000),
            ("15m", 900_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(
                parse_duration(text).unwrap(),
                Duration::from_millis(ms),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_form() {
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
            let sentence = parse_duration(text).unwrap_err();
            assert!(sentence.contains("as in \"5s\""), "{text}: {sentence}");
        }
        for text in ["99999999999999999999s", "18446744073709551615d"] {
            let sentence = parse_duration(text).unwrap_err();
            assert!(sentence.contains("too long"), "{text}: {sentence}");
        }
    }
}
