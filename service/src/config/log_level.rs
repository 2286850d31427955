//! Checks the level of the log.

use tracing_subscriber::filter::EnvFilter;

/// Words for a level, in upper or lower case.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Returns what is wrong with a level, or a list of `target=level`, and what to give instead.
pub(crate) fn problem(level: &str) -> Option<String> {
    // The filter would take a word that is not a level for a target, and log that target only.
    let names_a_level = |directive: &str| {
        let word = directive.rsplit('=').next().unwrap_or_default().trim();
        LEVELS.iter().any(|known| known.eq_ignore_ascii_case(word))
    };
    let is_one = level.split(',').all(names_a_level) && EnvFilter::try_new(level).is_ok();
    (!is_one).then(|| {
        format!(
            "{level:?} is no level; give error, warn, info, debug, trace or off, \
             or a list as in \"info,odometer=debug\""
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_is_refused() {
        for level in [
            "",
            "loud",
            "info,",
            "odometer",
            "odometer=loud",
            "info;debug",
        ] {
            let sentence = problem(level).unwrap_or_default();
            assert!(sentence.contains("is no level"), "{level}: {sentence}");
        }
        for level in ["INFO", "off", "warn,odometer::store=trace"] {
            assert_eq!(problem(level), None, "{level}");
        }
    }
}
