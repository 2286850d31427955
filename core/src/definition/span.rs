//! Spans of time as definitions write them: "15m", "400d".

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

const UNITS: [(char, u64); 5] = [
    ('w', 7 * 86_400),
    ('d', 86_400),
    ('h', 3_600),
    ('m', 60),
    ('s', 1),
];

/// A span of time in whole seconds: a whole number and one unit of `s`, `m`, `h`, `d`, `w`.
///
/// It prints in the largest unit that is exact: 3600 s is `1h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    seconds: u64,
}

/// A text is not a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a span of time is a whole number and one of the units s, m, h, d, w, such as \"15m\"")]
pub struct InvalidSpan;

impl Span {
    /// A span of so many seconds.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self { seconds }
    }

    /// A span of so many minutes.
    #[must_use]
    pub const fn from_minutes(minutes: u32) -> Self {
        Self::from_seconds(minutes as u64 * 60)
    }

    /// A span of so many days of 24 hours.
    #[must_use]
    pub const fn from_days(days: u32) -> Self {
        Self::from_seconds(days as u64 * 86_400)
    }

    /// Reads a span such as `90s`, `15m`, `2d`.
    ///
    /// # Errors
    /// [`InvalidSpan`] for anything but digits and one unit, and above 2^64 − 1 seconds.
    pub fn parse(text: &str) -> Result<Self, InvalidSpan> {
        let (unit, seconds) = UNITS
            .into_iter()
            .find(|(unit, _)| text.ends_with(*unit))
            .ok_or(InvalidSpan)?;
        let digits = text.strip_suffix(unit).ok_or(InvalidSpan)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidSpan);
        }
        let number: u64 = digits.parse().map_err(|_| InvalidSpan)?;
        number
            .checked_mul(seconds)
            .map(Self::from_seconds)
            .ok_or(InvalidSpan)
    }

    /// Its length in seconds.
    #[must_use]
    pub const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Its length in milliseconds, at most `i64::MAX`.
    #[must_use]
    pub fn as_millis(&self) -> i64 {
        i64::try_from(self.seconds.saturating_mul(1000)).unwrap_or(i64::MAX)
    }

    /// Its length in seconds, as a floating-point number.
    #[must_use]
    pub fn as_secs_f64(&self) -> f64 {
        self.seconds as f64
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, seconds) = UNITS
            .into_iter()
            .find(|(_, seconds)| self.seconds > 0 && self.seconds.is_multiple_of(*seconds))
            .unwrap_or(('s', 1));
        write!(f, "{}{unit}", self.seconds / seconds)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}
