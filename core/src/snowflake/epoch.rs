//! Reads and writes the epoch of a layout.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Sets the default epoch: 2026-01-01T00:00:00Z, in Unix milliseconds.
pub const DEFAULT_EPOCH_MS: i64 = 1_767_225_600_000;

const NANOSECONDS_A_MS: i128 = 1_000_000;

/// Reads an instant in RFC 3339 as Unix milliseconds.
///
/// `None` if the text is no instant, or if the instant lies before 1970 or between two
/// milliseconds.
#[must_use]
pub fn epoch_from_text(text: &str) -> Option<i64> {
    let instant: Timestamp = text.parse().ok()?;
    let is_whole = instant.as_nanosecond() % NANOSECONDS_A_MS == 0;
    let unix_ms = instant.as_millisecond();
    (is_whole && unix_ms >= 0).then_some(unix_ms)
}

/// Writes an instant in RFC 3339, in UTC with `Z`. An instant that is too late becomes the last one
/// that can be written, 9999-12-30.
#[must_use]
pub fn epoch_to_text(unix_ms: i64) -> String {
    let instant = Timestamp::from_millisecond(unix_ms);
    instant.unwrap_or(Timestamp::MAX).to_string()
}

/// Writes an epoch as a definition shows it.
pub(crate) fn serialize<S: Serializer>(unix_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&epoch_to_text(*unix_ms))
}

/// Reads an epoch from a stored definition.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    epoch_from_text(&text).ok_or_else(|| de::Error::custom("expected an instant in RFC 3339"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_whole_milliseconds_from_1970_on_and_printed_in_utc() {
        for (text, printed) in [
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00Z"),
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
            ("2010-11-04T01:42:54.657Z", "2010-11-04T01:42:54.657Z"),
        ] {
            let unix_ms = epoch_from_text(text);
            assert_eq!(unix_ms.map(epoch_to_text).as_deref(), Some(printed));
        }
        for text in [
            "",
            "2026",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-13-01T00:00:00Z",
            "1969-12-31T23:59:59.999Z",
            "2026-01-01T00:00:00.0005Z",
            "yesterday",
        ] {
            assert_eq!(epoch_from_text(text), None, "{text:?}");
        }
        let default = epoch_to_text(DEFAULT_EPOCH_MS);
        assert_eq!(default, "2026-01-01T00:00:00Z");
    }
}
