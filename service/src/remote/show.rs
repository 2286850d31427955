//! Carries out `odometer show`: one sequence, its state and its definition.

use clap::Args;
use jiff::Timestamp;
use odometer_core::name::SequenceName;

use super::definition_diff;
use super::facts::{self, Traits};
use super::figures::{self, NOTHING};
use super::options::ReplicaOptions;
use super::replica_client::{ApiCall, ReplicaClient};
use super::replies::{RunwayLeft, SequenceInMemory, ShownSequence, ShownStore, WatchedName};
use super::table;
use crate::commands::{failure::CommandFailure, output};

/// Which sequence to show.
#[derive(Debug, Args)]
pub(crate) struct ShowOptions {
    /// The sequence.
    #[arg(value_name = "NAME", value_parser = SequenceName::parse)]
    name: SequenceName,
    /// The period to show. If you give none, the current one.
    #[arg(long, value_name = "PERIOD")]
    period: Option<String>,
    /// Show every field of the definition, not only those that differ from the defaults.
    #[arg(long)]
    all: bool,
    /// Print the reply of the API as it is, with the youngest blocks of the journal.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) replica: ReplicaOptions,
}

/// Prints one sequence.
///
/// # Errors
/// The replica cannot show it.
pub(crate) fn show(client: &ReplicaClient, options: &ShowOptions) -> Result<(), CommandFailure> {
    let name = options.name.as_str();
    let path = ["v1", "sequences", name];
    let call = ApiCall::get(&path).with("period", options.period.as_ref());
    let (shown, reply) = client.read::<ShownSequence>(&call)?;
    if options.json {
        return output::print_json(&reply.body);
    }
    let path = ["v1", "replica", "sequences", name];
    let call = ApiCall::get(&path).with("period", options.period.as_ref());
    let (watched, _) = client.read::<WatchedName>(&call)?;

    let mut lines = vec![title(name, &shown)];
    lines.extend(definition_diff::text_of(&shown.definition, "description"));
    lines.push(String::new());
    lines.extend(table::pairs(state(&shown, watched.live, Timestamp::now())));
    lines.push(String::new());
    lines.extend(definition(&shown, options.all));
    output::print_lines(&lines)
}

/// Returns the name of a sequence, and what it is in short words.
fn title(name: &str, shown: &ShownSequence) -> String {
    let text = |field| definition_diff::text_of(&shown.definition, field).unwrap_or_default();
    let (kind, order) = (text("kind"), text("order"));
    let (counts_by, store) = (text("period"), text("store"));
    let traits = Traits {
        kind: &kind,
        order: &order,
        counts_by: &counts_by,
        store: &store,
        retired: shown.state.retired == Some(true),
    };
    let mut words = traits.words();
    words.extend(shown.state.period.clone());
    if words.is_empty() {
        return name.to_owned();
    }
    format!("{name}  {}", words.join(" · "))
}

fn state(
    shown: &ShownSequence,
    live: Option<SequenceInMemory>,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let state = &shown.state;
    let retired = state.retired == Some(true);
    let mut facts = match live {
        // Memory may not have heard of the retirement yet.
        Some(live) => in_memory(
            &SequenceInMemory {
                retired: state.retired.unwrap_or(live.retired),
                ..live
            },
            state.runway.as_ref(),
            now,
        ),
        None => {
            let why = if retired {
                "It is retired: nothing is issued until it is restored."
            } else {
                "Not in memory on this replica: the next call fetches it."
            };
            vec![
                ("Rate", figures::rate(state.rate)),
                (
                    "Runway",
                    facts::runway_with_end(state.runway.as_ref(), false),
                ),
                ("Memory", why.to_owned()),
            ]
        }
    };
    let mark = state.high_water_mark.clone();
    facts.push((
        "High-water mark",
        mark.unwrap_or_else(|| NOTHING.to_owned()),
    ));
    facts.extend(
        state
            .store
            .as_ref()
            .map(|store| ("Store", store_in_words(store))),
    );
    facts
}

fn in_memory(
    live: &SequenceInMemory,
    described: Option<&RunwayLeft>,
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let outlasts = live.outlasts_its_period(now);
    let mut facts = vec![
        ("Rate", figures::rate(Some(live.rate))),
        ("Reserve", live.reserve(now)),
        (
            "Runway",
            facts::runway_with_end(live.runway.as_ref().or(described), outlasts),
        ),
        ("Memory", live.block_used()),
    ];
    for (name, block) in [("Being issued", &live.block), ("Next", &live.next_block)] {
        facts.extend(block.as_ref().map(|block| {
            let left = facts::left_of(block);
            (name, format!("{} – {}, {left}", block.first, block.last))
        }));
    }
    if let Some(lease) = &live.lease {
        facts.extend([
            (
                "Time reserved until",
                figures::moment(lease.until.as_deref()),
            ),
            (
                "Lasts without the database",
                figures::duration(lease.seconds_left),
            ),
            ("Renewed", figures::ago(lease.renewed_at.as_deref(), now)),
            (
                "Database's clock ahead by",
                format!("{} ms", lease.clock_skew_ms),
            ),
        ]);
    }
    let title = if live.lease.is_some() || live.order == "strict" {
        "Why"
    } else {
        "Last block"
    };
    facts.extend(live.why.clone().map(|why| (title, why)));
    facts
}

fn store_in_words(store: &ShownStore) -> String {
    let places = store.databases.iter().chain(&store.redis);
    let places = places.map(|place| format!("{} {}", place.database, place.word()));
    let places: Vec<String> = places.collect();
    format!("{}: {}", store.name, places.join(", "))
}

fn definition(shown: &ShownSequence, all: bool) -> Vec<String> {
    let fields = if all {
        definition_diff::fields(&shown.definition)
    } else {
        definition_diff::unusual(&shown.definition)
    };
    let head = if all {
        "Definition"
    } else if fields.is_empty() {
        "Definition: every field has its default; --all shows them"
    } else {
        "Definition, where it differs from the defaults; --all shows every field"
    };
    let mut lines = vec![head.to_owned()];
    let indented = fields
        .into_iter()
        .map(|(name, value)| (format!("  {name}"), value));
    lines.extend(table::pairs(indented));
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(state: Value) -> ShownSequence {
        let definition = json!({"kind": "block", "order": "strict", "period": "year",
            "store": "default", "start": "5"});
        serde_json::from_value(json!({"definition": definition, "state": state})).unwrap()
    }

    #[test]
    fn what_is_not_in_memory_is_shown_as_the_database_knows_it() {
        let shown = shown(json!({
            "retired": true, "period": "2026", "high_water_mark": "364", "rate": 0.5,
            "runway": {"limit": "max", "numbers_left": 636, "days_left": 20.0},
            "store": {"name": "default", "databases": [{"database": "sqlite:a.db", "up": true}],
                "redis": {"server": "redis://r", "up": false}},
        }));
        assert_eq!(
            title("orders", &shown),
            "orders  retired · strict · by year · 2026"
        );
        let expected = [
            ("Rate", "0.5 /s"),
            ("Runway", "20 days · low, 636 numbers to max"),
            (
                "Memory",
                "It is retired: nothing is issued until it is restored.",
            ),
            ("High-water mark", "364"),
            (
                "Store",
                "default: sqlite:a.db answers, redis://r does not answer",
            ),
        ];
        let facts = state(&shown, None, Timestamp::UNIX_EPOCH);
        let facts: Vec<_> = facts
            .iter()
            .map(|(name, fact)| (*name, fact.as_str()))
            .collect();
        assert_eq!(facts, expected);
    }

    #[test]
    fn what_is_in_memory_is_shown_as_memory_knows_it() {
        let block = json!({"first": "1001", "last": "2000", "remaining": 1000, "size": 1000});
        let live = facts::in_memory(json!({
            "next_block": block, "why": "1000 numbers", "hold_seconds": 1,
            "runway": {"limit": "exact", "numbers_left": 12_345, "days_left": null},
        }));
        let shown = shown(json!({"retired": false, "high_water_mark": "2001", "rate": 0.0}));
        let facts = state(&shown, Some(live), Timestamp::UNIX_EPOCH);
        let facts: Vec<_> = facts
            .iter()
            .map(|(name, fact)| (*name, fact.as_str()))
            .collect();
        let expected = [
            ("Rate", "2 /s"),
            ("Reserve", "3.3 min"),
            ("Runway", "12.3 k left to 2^53"),
            ("Memory", "400 of 1,000 left"),
            ("Being issued", "1 – 1000, 400 of 1,000 left"),
            ("Next", "1001 – 2000, 1,000 of 1,000 left"),
            ("Last block", "1000 numbers"),
            ("High-water mark", "2001"),
        ];
        assert_eq!(facts, expected);
    }
}
