//! Time zones by their name.
//!
//! They come with the program, not from the machine: replicas of one version then agree on every
//! cut-over, whatever their hosts have installed, and a container needs no zone files.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// The longest text that near names are looked for, in bytes.
const LONGEST: usize = 64;

/// Names that are told to who misses one.
const MAX_NEAR: usize = 3;

/// The zone of that name, spelled as the database spells it.
pub(crate) fn find(name: &str) -> Option<TimeZone> {
    let zone = TimeZoneDatabase::bundled().get(name).ok()?;
    // Names are found whatever their case, and taken only as they stand.
    (zone.iana_name() == Some(name)).then_some(zone)
}

/// The names of zones nearest to one that is none, the nearest first; may be none.
pub(crate) fn near(missed: &str) -> Vec<String> {
    if missed.len() > LONGEST {
        return Vec::new();
    }
    let missed = plain(missed);
    let mut near: Vec<(usize, usize, String)> = TimeZoneDatabase::bundled()
        .available()
        .map(|name| {
            let (whole, city) = distances(&missed, &plain(name.as_str()));
            (whole.min(city), whole, name.to_string())
        })
        .filter(|(edits, ..)| *edits <= 1 + missed.len() / 5)
        .collect();
    near.sort();
    let names = near.into_iter().map(|(.., name)| name);
    names.take(MAX_NEAR).collect()
}

/// As people mean it: "new york" is "America/New_York".
fn plain(name: &str) -> String {
    name.to_lowercase().replace('_', " ")
}

/// How many edits lead to a name, and how many to its last part.
fn distances(missed: &str, name: &str) -> (usize, usize) {
    let city = name.rsplit('/').next().unwrap_or(name);
    (
        strsim::osa_distance(missed, name),
        strsim::osa_distance(missed, city),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_come_with_the_program() {
        // A handful would be a sign of a machine's own.
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
