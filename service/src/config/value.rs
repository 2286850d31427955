//! Reads values as people write them: durations, whole numbers, truth values.
//!
//! A file has types, but the environment and flags have text only. So numbers and truth values are
//! read from both forms. Text stays text, so a token of digits keeps its leading zeros.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use odometer_core::duration::{self, GRAMMAR, InvalidDuration, exact};
use serde::de::{Error, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::secret::Secret;

/// A key whose value cannot be used, and a sentence that says what to give instead.
pub(crate) type KeyProblem = (&'static str, String);

/// A value of the configuration.
pub(crate) trait ConfigValue: Sized {
    /// Reads the value as the file, the environment or a flag has it.
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error>;

    /// Returns the value as a sentence shows it. Only values with bounds are shown.
    fn shown(&self) -> String {
        never(self)
    }

    /// Returns the first key in this value that is out of bounds. Only sections have keys.
    fn problem(&self) -> Option<KeyProblem> {
        None
    }
}

/// Declares a section of the configuration: each key with its type, its default, and its bounds if
/// it has any.
///
/// The text after the name of the type comes before each key in a sentence. `computed` fields are
/// no keys: they are filled after the keys are read.
macro_rules! section {
    (
        $(#[$about:meta])*
        $name:ident $prefix:literal {
            $(
                $(#[$doc:meta])*
                $key:ident: $type:ty = $default:expr $(, $bounds:expr)?;
            )+
        }
        $(computed {
            $($(#[$computed_doc:meta])* $computed:ident: $computed_type:ty = $value:expr;)+
        })?
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$doc])*
                #[serde(deserialize_with = "crate::config::value::ConfigValue::read")]
                pub $key: $type,
            )+
            $($($(#[$computed_doc])* #[serde(skip)] pub $computed: $computed_type,)+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ $($($computed: $value,)+)? }
            }
        }

        impl crate::config::value::ConfigValue for $name {
            fn read<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(source)
            }

            fn problem(&self) -> Option<crate::config::value::KeyProblem> {
                let problem = None;
                $(
                    let problem = problem.or_else(|| {
                        crate::config::value::ConfigValue::problem(&self.$key)
                    });
                    $(
                        let problem = problem.or_else(|| {
                            let key = concat!($prefix, stringify!($key));
                            crate::config::value::out_of_bounds(key, self.$key, &$bounds)
                        });
                    )?
                )+
                problem
            }
        }
    };
}
pub(crate) use section;

/// Says by which function values are read, and by which function a sentence shows them.
macro_rules! read_by {
    ($($read:path, $shown:expr => $($value:ty),+;)+) => {
        $($(
            impl crate::config::value::ConfigValue for $value {
                fn read<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                    $read(source)
                }

                fn shown(&self) -> String {
                    ($shown)(self)
                }
            }
        )+)+
    };
}
pub(crate) use read_by;

read_by! {
    number, ToString::to_string => u32, u64, usize;
    duration, |duration: &Duration| exact(*duration) => Duration;
    truth, never => bool;
    words, never => Vec<String>;
    address, never => SocketAddr;
    secret, never => Secret;
    Deserialize::deserialize, never => String, ReadSeparately;
}

/// Shows nothing, for values that have no bounds.
pub(crate) fn never<T>(_value: &T) -> String {
    String::new()
}

impl<T: ConfigValue> ConfigValue for Option<T> {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::read(source).map(Some)
    }
}

/// Stands for `[default]`, `[[template]]` or `[stores.NAME]`.
///
/// These sections are read field by field elsewhere, so that a wrong field can be named.
#[derive(Clone, Copy, Debug)]
pub struct ReadSeparately;

impl<'de> Deserialize<'de> for ReadSeparately {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(source).map(|_| Self)
    }
}

/// Returns the key and what to give instead, if its value is out of bounds.
pub(crate) fn out_of_bounds<T: ConfigValue + PartialOrd>(
    key: &'static str,
    value: impl Into<Option<T>>,
    bounds: &RangeInclusive<T>,
) -> Option<KeyProblem> {
    let value = value.into().filter(|value| !bounds.contains(value))?;
    let (value, least, most) = (value.shown(), bounds.start().shown(), bounds.end().shown());
    Some((
        key,
        format!("{value} is out of bounds; give {least} to {most}"),
    ))
}

/// Reads a duration, or says how to write one.
fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| match error {
        InvalidDuration::Form => format!("{text:?} is no duration; write {GRAMMAR}"),
        InvalidDuration::TooLong => format!("{text:?} is too long for a duration"),
    })
}

/// Reads a duration from text alone. A number without its unit is refused.
fn duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
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
fn number<'de, D, T>(source: D) -> Result<T, D::Error>
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

/// Reads words from a list, or from text with commas between them.
fn words<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
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
fn truth<'de, D: Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
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

fn address<'de, D: Deserializer<'de>>(source: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(source)?;
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    numeric.parse().map_err(|_| {
        Error::custom(format!(
            "{text:?} is no address; give ADDRESS:PORT, as in \"127.0.0.1:8080\" or \"[::]:8080\""
        ))
    })
}

fn secret<'de, D: Deserializer<'de>>(source: D) -> Result<Secret, D::Error> {
    // The sentence of a failed conversion would show the value.
    Secret::deserialize(source).map_err(|_| Error::custom("it must be text in quotation marks"))
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
