//! Times and versions as replies write them.

use std::time::SystemTime;

use jiff::Timestamp;

/// A version as an entity tag.
pub(crate) fn entity_tag(version: i64) -> String {
    format!("\"{version}\"")
}

/// RFC 3339 in UTC, to the millisecond; a time beyond what it can write is left out.
pub(crate) fn rfc_3339(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(format!("{time:.3}"))
}

/// Unix milliseconds as RFC 3339 in UTC; a time beyond what it can write is left out.
pub(crate) fn moment(unix_ms: i64) -> Option<String> {
    let time = Timestamp::from_millisecond(unix_ms).ok()?;
    Some(format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_is_quoted() {
        assert_eq!(entity_tag(17), "\"17\"");
    }
}
