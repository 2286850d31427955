//! Reads values as people write them: durations, whole numbers, truth values.
//!
//! A file has types, but the environment and flags have text only. So numbers and truth values are
//! read from both forms. Text stays text, so a token of digits keeps its leading zeros.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use odometer_core::duration::{self, GRAMMAR, InvalidDuration};
use serde::Deserializer;
use serde::de::{Error, SeqAccess, Unexpected, Visitor};

/// Reads a duration, or says how to write one.
fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| match error {
        InvalidDuration::Form => format!("{text:?} is no duration; write {GRAMMAR}"),
        InvalidDuration::TooLong => format!("{text:?} is too long for a duration"),
    })
}

/// Reads a duration from text alone. A number without its unit is refused.
pub(crate) fn duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(GRAMMAR)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).map_err(E::custom)
        }
    }

    source.deserialize_any(Text)
}

/// Reads a whole number from 0 up to the highest `T`, from a number or its decimal digits.
pub(crate) fn number<'de, D, T>(source: D) -> Result<T, D::Error>
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

/// Reads a whole number as [`number`] does, for a key that may be absent.
pub(crate) fn some_number<'de, D, T>(source: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    number(source).map(Some)
}

/// Reads words from a list, or from text with commas between them.
pub(crate) fn words<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
    struct Words;

    impl<'de> Visitor<'de> for Words {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of words, or words with commas between them")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<String>, E> {
            let words = text.split(',').map(str::trim);
            let words = words.filter(|word| !word.is_empty());
            Ok(words.map(str::to_owned).collect())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut words = Vec::new();
            while let Some(word) = list.next_element()? {
                words.push(word);
            }
            Ok(words)
        }
    }

    source.deserialize_any(Words)
}

/// Reads a truth value from `true` or `false`, or from their text.
pub(crate) fn truth<'de, D: Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
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
    fn what_is_no_duration_is_refused_with_the_form() {
        assert_eq!(parse_duration("2w"), Ok(Duration::from_secs(14 * 86_400)));
        let sentence = parse_duration("5 s").unwrap_err();
        assert!(sentence.contains("as in \"15m\""), "{sentence}");
        let sentence = parse_duration("99999999999999999999s").unwrap_err();
        assert!(sentence.contains("too long"), "{sentence}");
    }
}
