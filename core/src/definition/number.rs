//! Numbers that identify, in JSON: written as strings, read from strings and whole numbers.

use serde::{Deserialize, Deserializer, Serializer, de};
use serde_json::Value;

/// Writes a number as a string, since JavaScript loses digits above 2^53.
pub(super) fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Reads a number from a string of digits or a whole number.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    from_value(&value).ok_or_else(|| de::Error::custom("expected a whole number, as a string"))
}

/// A whole number from a JSON number or a string of digits, as far as it fits. No sign but a
/// leading `-`, no blanks, no fraction, no exponent.
pub(super) fn from_value(value: &Value) -> Option<i64> {
    if let Value::String(text) = value {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        return if plain { text.parse().ok() } else { None };
    }
    value.as_i64()
}
