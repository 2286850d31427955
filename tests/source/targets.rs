//! Tests that each event that is logged below the service names its target. Without a target, the
//! log would show the event under its crate and not under `odometer`.

use super::layers::sources_below;
use crate::support::settings;

const FOLDERS: [&str; 4] = ["database/src", "process/src", "sequence/src", "store/src"];
const EVENTS: [&str; 5] = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];

#[test]
fn what_is_logged_below_the_service_names_its_target() {
    let mut n_events = 0;
    for folder in FOLDERS {
        for file in sources_below(&settings::repository().join(folder)) {
            let source = std::fs::read_to_string(&file).expect("a source can be read");
            let (n_there, nameless) = looked_at(&source);
            n_events += n_there;
            assert!(nameless.is_empty(), "{}: {nameless:?}", file.display());
        }
    }
    assert!(n_events >= 50, "vacuous: {n_events} events");
}

#[test]
fn an_event_without_a_target_is_found_out() {
    for (source, n_nameless) in [
        (
            "tracing::warn!(target: TARGET, \"late\"); tracing::warn!(\"late\");",
            1,
        ),
        ("tracing::info!(\n    target: TARGET,\n    \"well\"\n);", 0),
        ("tracing::error!(\n    error = 1,\n    \"ill\"\n);", 1),
    ] {
        assert_eq!(looked_at(source).1.len(), n_nameless, "{source}");
    }
}

/// Returns the number of events of a source, and the start of each event that names no target.
fn looked_at(source: &str) -> (usize, Vec<String>) {
    let calls = source.split("tracing::").skip(1);
    let events = calls.filter_map(|call| {
        let event = EVENTS.iter().find(|event| call.starts_with(**event))?;
        Some(call[event.len()..].trim_start())
    });
    let events: Vec<&str> = events.collect();
    let nameless = events.iter().filter(|event| !event.starts_with("target:"));
    let nameless = nameless.map(|event| event.chars().take(60).collect());
    (events.len(), nameless.collect())
}
