//! Reads and writes numbers in JSON.
//!
//! It says which JSON numbers are whole. Numbers that identify are written as strings, and read
//! from strings and whole numbers.

use serde::{Deserialize, Deserializer, Serializer, de};
use serde_json::{Number, Value};

/// Bounds the whole numbers that floating point keeps exactly: 2^53 − 1. From 2^53 on, a number in
/// floating point may have lost a fraction, or a one.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Returns the whole number that a JSON number is.
///
/// `None` if the number has a fraction, or does not fit an `i64`. In floating point, numbers beyond
/// ±(2^53 − 1) do not fit either.
///
/// For JSON Schema, `5001.0` and `3e4` are integers, and the libraries of some languages write all
/// numbers in this way.
#[must_use]
pub fn whole_number(number: &Number) -> Option<i64> {
    if !number.is_f64() {
        return number.as_i64();
    }
    let float = number.as_f64()?;
    let is_whole = float.fract() == 0.0 && (-MAX_EXACT..=MAX_EXACT).contains(&float);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it has no fraction, and fits by far"
    )]
    is_whole.then_some(float as i64)
}

/// Reads a number that counts: 0 or more, and always a JSON number. `None` for any other value.
pub(crate) fn counted(value: &Value) -> Option<u64> {
    u64::try_from(whole_number(value.as_number()?)?).ok()
}

/// Writes a number as a string, because JavaScript loses digits above 2^53.
pub(crate) fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Reads a number from a string of digits or a whole number.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    from_value(&value).ok_or_else(|| de::Error::custom("expected a whole number, as a string"))
}

/// Reads a whole number from a JSON number or a string of digits; `None` if it does not fit.
///
/// A string may start with `-`. It has no other sign, no blanks, no fraction and no exponent.
pub(crate) fn from_value(value: &Value) -> Option<i64> {
    if let Value::String(text) = value {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        return if plain { text.parse().ok() } else { None };
    }
    whole_number(value.as_number()?)
}
