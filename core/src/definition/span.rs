//! Defines spans of time as definitions write them: "15m", "400d".

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::duration;

/// A [duration] in whole seconds.
///
/// A span is printed in the largest unit that is exact: 3600 s is `1h`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    seconds: u64,
}

/// Says that a text is not a duration in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a duration of whole seconds is {}", duration::GRAMMAR)]
pub struct InvalidSpan;

impl Span {
    /// Creates a span from seconds.
    #[must_use]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self { seconds }
    }

    /// Creates a span from minutes.
    #[must_use]
    pub const fn from_minutes(minutes: u32) -> Self {
        Self::from_seconds(minutes as u64 * 60)
    }

    /// Creates a span from days of 24 hours.
    #[must_use]
    pub const fn from_days(days: u32) -> Self {
        Self::from_seconds(days as u64 * 86_400)
    }

    /// Reads a span such as `90s`, `15m`, `2d`.
    ///
    /// # Errors
    /// [`InvalidSpan`] if the text is not a duration, or has parts of a second.
    pub fn parse(text: &str) -> Result<Self, InvalidSpan> {
        let duration = duration::parse(text).map_err(|_| InvalidSpan)?;
        if duration.subsec_millis() > 0 {
            return Err(InvalidSpan);
        }
        Ok(Self::from_seconds(duration.as_secs()))
    }

    /// Returns the length in seconds.
    #[must_use]
    pub const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Returns the length in milliseconds, at most `i64::MAX`.
    #[must_use]
    pub fn as_millis(&self) -> i64 {
        i64::try_from(self.seconds.saturating_mul(1000)).unwrap_or(i64::MAX)
    }

    /// Returns the length in seconds, as a floating-point number.
    #[must_use]
    pub fn as_secs_f64(&self) -> f64 {
        self.seconds as f64
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::exact(Duration::from_secs(self.seconds)))
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
