//! Reads values as people write them: durations, whole numbers, truth values.
//!
//! A file has types, but the environment and flags have text only. So numbers and truth values are
//! read from both forms. Text stays text, so a token of digits keeps its leading zeros.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use odometer_core::duration::{self, GRAMMAR, exact};
use odometer_process::secret::Secret;
use serde::de::{Error, IgnoredAny, SeqAccess, Visitor, value::SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use toml_edit::ser::ValueSerializer;

use super::error::ConfigError;

/// A key as `odometer config` shows it.
pub(crate) struct ListedKey {
    pub(crate) key: String,
    /// `None` if the key is not set and has no default.
    pub(crate) value: Option<toml_edit::Value>,
}

/// A value of the configuration.
pub(crate) trait ConfigValue: Sized {
    /// Reads the value as the file, the environment or a flag has it.
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error>;

    /// Returns the value as a sentence shows it. Only values with bounds are shown.
    fn shown(&self) -> String {
        never(self)
    }

    /// Returns the value as a file has it, or a placeholder if it is secret. `None` if it is not set.
    fn in_file(&self) -> Option<toml_edit::Value>;

    /// Adds the key of this value to a list. A section adds its own keys.
    fn list(&self, key: &str, keys: &mut Vec<ListedKey>) {
        keys.push(ListedKey {
            key: key.to_owned(),
            value: self.in_file(),
        });
    }

    /// Says which key in this value is the first that is out of bounds. Only sections have keys.
    fn problem(&self) -> Option<ConfigError> {
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

            /// A section is no value.
            fn in_file(&self) -> Option<toml_edit::Value> {
                None
            }

            fn list(&self, _section: &str, keys: &mut Vec<crate::config::value::ListedKey>) {
                $(
                    let key = concat!($prefix, stringify!($key));
                    crate::config::value::ConfigValue::list(&self.$key, key, keys);
                )+
            }

            fn problem(&self) -> Option<crate::config::error::ConfigError> {
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

/// Says by which function values are read, by which function a sentence shows them, and by which
/// function a file has them.
macro_rules! read_by {
    ($($read:path, $shown:expr, $in_file:expr => $($value:ty),+;)+) => {
        $($(
            impl crate::config::value::ConfigValue for $value {
                fn read<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                    $read(source)
                }

                fn shown(&self) -> String {
                    ($shown)(self)
                }

                fn in_file(&self) -> Option<toml_edit::Value> {
                    ($in_file)(self)
                }
            }
        )+)+
    };
}
pub(crate) use read_by;

read_by! {
    number, ToString::to_string, serialized => u32, u64, usize;
    duration, exactly, |duration: &Duration| serialized(&exactly(duration)) => Duration;
    truth, never, serialized => bool;
    words, never, serialized => Vec<String>;
    address, never, serialized => SocketAddr;
    secret, never, |_secret: &Secret| Some("…".into()) => Secret;
    Deserialize::deserialize, never, serialized => String, PathBuf;
}

/// A key that another file of this folder reads field by field.
impl ConfigValue for IgnoredAny {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(source)
    }

    fn in_file(&self) -> Option<toml_edit::Value> {
        None
    }

    fn list(&self, _key: &str, _keys: &mut Vec<ListedKey>) {}
}

fn exactly(duration: &Duration) -> String {
    exact(*duration)
}

/// Returns a value as a file has it. `None` if it is null.
pub(crate) fn serialized<T: Serialize>(value: &T) -> Option<toml_edit::Value> {
    value.serialize(ValueSerializer::new()).ok()
}

/// Shows nothing, for values that have no bounds.
pub(crate) fn never<T>(_value: &T) -> String {
    String::new()
}

impl<T: ConfigValue> ConfigValue for Option<T> {
    fn read<'de, D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        T::read(source).map(Some)
    }

    fn in_file(&self) -> Option<toml_edit::Value> {
        self.as_ref().and_then(T::in_file)
    }
}

/// Says what to give instead, if the value of a key is out of bounds.
pub(crate) fn out_of_bounds<T: ConfigValue + PartialOrd>(
    key: &str,
    value: impl Into<Option<T>>,
    bounds: &RangeInclusive<T>,
) -> Option<ConfigError> {
    let value = value.into().filter(|value| !bounds.contains(value))?;
    let (value, least, most) = (value.shown(), bounds.start().shown(), bounds.end().shown());
    let problem = format!("{value} is out of bounds; give {least} to {most}");
    Some(ConfigError::new(key, problem))
}

/// Reads a duration, or says how to write one.
fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| format!("{text:?} {error}"))
}

/// Reads a duration from text alone. A number without its unit is refused.
fn duration<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
    let given: Value = Deserialize::deserialize(source)?;
    let text = given.as_str().ok_or_else(|| unfit(&given, GRAMMAR))?;
    parse_duration(text).map_err(Error::custom)
}

/// Reads a whole number from 0 up to the highest `T`, from a number or its decimal digits.
fn number<'de, D: Deserializer<'de>, T: TryFrom<u64>>(source: D) -> Result<T, D::Error> {
    let given: Value = Deserialize::deserialize(source)?;
    let number: Option<u64> = match given.as_str() {
        Some(digits) => digits.parse().ok(),
        None => given
            .to_num()
            .and_then(|number| number.to_u128_lossy()?.try_into().ok()),
    };
    let number = number.ok_or_else(|| unfit(&given, "a whole number"))?;
    T::try_from(number).map_err(|_| Error::custom(format!("{number} is too large")))
}

/// Reads a truth value from `true` or `false`, or from their text.
fn truth<'de, D: Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
    let given: Value = Deserialize::deserialize(source)?;
    let truth = given.to_bool().or_else(|| given.as_str()?.parse().ok());
    truth.ok_or_else(|| unfit(&given, "true or false"))
}

/// Returns the error of a value that is not what is wanted.
fn unfit<E: Error>(given: &Value, wanted: &str) -> E {
    E::custom(format!("found {}; give {wanted}", given.to_actual()))
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

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<String>, A::Error> {
            Deserialize::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    source.deserialize_any(Words)
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
    let text = String::deserialize(source);
    text.map(Secret::new)
        .map_err(|_| Error::custom("it must be text in quotation marks"))
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
