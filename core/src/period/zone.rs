//! Finds time zones by their names.
//!
//! The zones come with the program, not from the machine. So replicas of one version agree on every
//! cut-over, whichever zones their hosts have. And a container needs no zone files.
//!
//! Without the feature `time-zones`, there is UTC alone, except on Windows.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Bounds the text for which near names are searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 64;

/// Bounds how many near names a message shows.
const MAX_NEAR: usize = 3;

/// The zone of a definition that names none.
const UTC: &str = "UTC";

/// Returns the zone with this name. The name must be spelled as the time zone database spells it.
pub(crate) fn find(name: &str) -> Option<TimeZone> {
    if name == UTC {
        return Some(TimeZone::UTC);
    }
    let zone = TimeZoneDatabase::bundled().get(name).ok()?;
    // The lookup ignores case, but a name is accepted only in its exact spelling.
    (zone.iana_name() == Some(name)).then_some(zone)
}

/// Returns the names of zones nearest to a name that does not exist, the nearest first. It may find
/// none.
pub(crate) fn near(missed: &str) -> Vec<String> {
    if missed.len() > MAX_SEARCHED_BYTES {
        return Vec::new();
    }
    let missed = plain(missed);
    let mut near: Vec<(usize, usize, String)> = TimeZoneDatabase::bundled()
        .available()
        .map(|name| {
            let known = plain(name.as_str());
            let city = known.rsplit('/').next().unwrap_or(&known);
            let n_edits = |known: &str| strsim::osa_distance(&missed, known);
            let whole = n_edits(&known);
            (whole.min(n_edits(city)), whole, name.to_string())
        })
        .filter(|(edits, ..)| *edits <= 1 + missed.len() / 5)
        .collect();
    near.sort();
    let names = near.into_iter().map(|(.., name)| name);
    names.take(MAX_NEAR).collect()
}

/// Spells a name as people do: "new york" for "New_York".
fn plain(name: &str) -> String {
    name.to_lowercase().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_come_with_the_program() {
        // A machine with a small zone database of its own would have fewer.
        assert!(TimeZoneDatabase::bundled().available().count() > 400);
        for name in [
            "UTC",
            "Europe/Berlin",
            "Asia/Kolkata",
            "Etc/GMT+12",
            "EST5EDT",
        ] {
            assert!(find(name).is_some(), "{name}");
        }
        for name in [
            "",
            "utc",
            "europe/berlin",
            "Europe/Berlin ",
            "Berlin",
            "Etc/Unknown",
            "+01:00",
            "CET-1CEST",
            "Local",
            "localtime",
            "../etc/passwd",
            "/Europe/Berlin",
        ] {
            assert!(find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn near_names_are_told() {
        for (missed, expected) in [
            ("europe/berlin", "Europe/Berlin"),
            ("Europe/Berln", "Europe/Berlin"),
            ("Berlin", "Europe/Berlin"),
            ("Kolkata", "Asia/Kolkata"),
            ("America/New York", "America/New_York"),
            ("utc", "UTC"),
        ] {
            let near = near(missed);
            assert!(near.len() <= MAX_NEAR, "{near:?}");
            assert!(
                near.iter().any(|name| name == expected),
                "{missed}: {near:?}"
            );
        }
        assert!(near("Mars/Olympus_Mons").is_empty());
        assert!(near(&"x".repeat(10_000)).is_empty());
    }
}
