//! Writes times and versions as replies have them.

use std::time::SystemTime;

use super::payload::values::Timestamp;

/// Returns a version as an entity tag.
pub(crate) fn entity_tag(version: i64) -> String {
    format!("\"{version}\"")
}

/// Returns a time as RFC 3339 in UTC, to the millisecond, or `None` if the form cannot hold the
/// time.
pub(crate) fn rfc_3339(time: SystemTime) -> Option<Timestamp> {
    let time = jiff::Timestamp::try_from(time).ok()?;
    Some(Timestamp::from(format_args!("{time:.3}")))
}

/// Returns Unix milliseconds as RFC 3339 in UTC, or `None` if the form cannot hold the time.
pub(crate) fn moment(unix_ms: i64) -> Option<Timestamp> {
    let time = jiff::Timestamp::from_millisecond(unix_ms).ok()?;
    Some(Timestamp::from(format_args!("{time:.3}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_is_quoted() {
        assert_eq!(entity_tag(17), "\"17\"");
    }
}
