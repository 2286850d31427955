//! Carries out `odometer status`: whether a replica is ready, how long its memory lasts, and what
//! needs attention.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;

use super::facts::{self, Urgency};
use super::figures::{self, NOTHING};
use super::options::ReplicaOptions;
use super::replica_client::{ApiCall, ReplicaClient};
use super::replies::{RunningReplica, SequenceInMemory};
use super::table::{self, Side};
use super::top::{self, MemoryView};
use crate::commands::{failure::CommandFailure, output};

/// The most lines about sequences that need attention.
const MAX_WARNINGS: usize = 20;

/// How to say it.
#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// Print the reply of `/v1/replica` as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) replica: ReplicaOptions,
}

/// Prints the status of a replica, and returns an exit code that says whether it is ready.
///
/// # Errors
/// The replica cannot be asked.
pub(crate) fn status(
    client: &ReplicaClient,
    options: &StatusOptions,
) -> Result<ExitCode, CommandFailure> {
    let (replica, reply) = client.read::<RunningReplica>(&ApiCall::get(&["v1", "replica"]))?;
    if options.json {
        output::print_json(&reply.body)?;
    } else {
        let memory = top::memory(client)?;
        output::print_lines(&lines(&replica, &memory, Timestamp::now()))?;
    }
    Ok(if replica.ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn lines(replica: &RunningReplica, memory: &MemoryView, now: Timestamp) -> Vec<String> {
    let token = if replica.token_needed {
        "needed for changes"
    } else {
        "not needed on this listener"
    };
    let mut lines = table::pairs([
        ("Ready", ready(replica)),
        ("Holder", replica.holder.clone()),
        ("Version", replica.version.clone()),
        ("Up since", figures::ago(Some(&replica.started), now)),
        ("Counters in memory", figures::count(replica.live_sequences)),
        ("Memory lasts", lasts(&memory.sequences)),
        ("Token", token.to_owned()),
    ]);
    lines.push(String::new());
    let places = replica.stores.iter().flat_map(|store| {
        let places = store.databases.iter().chain(&store.redis);
        places.map(|place| {
            let cells = [store.name.as_str(), &place.database, place.word()];
            cells.map(str::to_owned).to_vec()
        })
    });
    let places: Vec<Vec<String>> = places.collect();
    lines.extend(table::lines(&[Side::Left; 3], &places));
    let warnings = warnings(replica, memory, now);
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.push("What needs attention:".to_owned());
        lines.extend(warnings.into_iter().map(|warning| format!("  {warning}")));
    }
    lines
}

/// Says whether a replica is ready, and if not, why.
pub(crate) fn ready(replica: &RunningReplica) -> String {
    match (&replica.why, replica.ready) {
        (_, true) => "Yes".to_owned(),
        (Some(why), false) => format!("No: {why}"),
        (None, false) => "No".to_owned(),
    }
}

/// Says how long memory lasts for the sequence that it lasts for the shortest time.
fn lasts(sequences: &[SequenceInMemory]) -> String {
    let in_use = sequences.iter().filter(|sequence| sequence.rate > 0.0);
    let known = in_use.filter_map(|sequence| {
        let seconds = sequence.lasts_seconds()?;
        Some((seconds, &sequence.sequence))
    });
    let shortest = known.min_by(|(one, _), (other, _)| one.total_cmp(other));
    shortest.map_or_else(
        || NOTHING.to_owned(),
        |(seconds, name)| format!("{} for {name}, the shortest", figures::duration(seconds)),
    )
}

/// Lists what the page would mark, places before sequences.
fn warnings(replica: &RunningReplica, memory: &MemoryView, now: Timestamp) -> Vec<String> {
    let places = replica.stores.iter().flat_map(|store| {
        let places = store.databases.iter().chain(&store.redis);
        let bad = places.filter(|place| !place.is_good());
        bad.map(|place| format!("{} {}", place.database, place.word()))
    });
    let mut warnings: Vec<String> = places.collect();
    let of_sequences = memory
        .sequences
        .iter()
        .flat_map(|sequence| of(sequence, now));
    let of_sequences: Vec<String> = of_sequences.collect();
    let n_more = of_sequences.len().saturating_sub(MAX_WARNINGS);
    warnings.extend(of_sequences.into_iter().take(MAX_WARNINGS));
    if n_more > 0 {
        warnings.push(format!(
            "and {n_more} more; `odometer top --once` shows all"
        ));
    }
    if memory.is_cut_off {
        let n = figures::count(u64::try_from(memory.sequences.len()).unwrap_or(u64::MAX));
        warnings.push(format!(
            "only the first {n} sequences in memory were looked at"
        ));
    }
    warnings
}

fn of(sequence: &SequenceInMemory, now: Timestamp) -> Vec<String> {
    let name = &sequence.sequence;
    let mut found = Vec::new();
    if sequence.urgency_of_reserve(now) == Urgency::Low {
        found.push(format!("{name}: reserve {}", sequence.reserve(now)));
    }
    let runway = sequence.runway.as_ref();
    let is_urgent = facts::urgency_of_runway(runway) != Urgency::None;
    if is_urgent && !sequence.outlasts_its_period(now) {
        found.push(format!("{name}: runway {}", facts::runway(runway, false)));
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn replica(fields: &Value) -> RunningReplica {
        let mut all = json!({
            "holder": "host-1-a", "version": "0.1.0", "started": "2026-11-20T11:00:00Z",
            "ready": true, "why": null, "live_sequences": 17, "token_needed": false,
            "stores": [{"name": "default", "kind": "database", "redis": [], "databases": [
                {"database": "sqlite:odometer.db", "up": true, "went_back": false}]}],
        });
        let fields = fields.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(all).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_replica_that_is_well_needs_no_attention() {
        let memory = MemoryView {
            sequences: vec![facts::in_memory(json!({"hold_seconds": 100}))],
            is_cut_off: false,
        };
        let expected = [
            "Ready               Yes",
            "Holder              host-1-a",
            "Version             0.1.0",
            "Up since            60 min ago",
            "Counters in memory  17",
            "Memory lasts        3.3 min for orders, the shortest",
            "Token               not needed on this listener",
            "",
            "default  sqlite:odometer.db  answers",
        ];
        assert_eq!(lines(&replica(&json!({})), &memory, now()), expected);
    }

    #[test]
    fn what_needs_attention_is_named() {
        let places = json!([{"database": "postgres://a/b", "up": false},
            {"database": "postgres://c/d", "up": true, "went_back": true}]);
        let replica = replica(&json!({"ready": false, "why": "This replica is stopping.",
            "stores": [{"name": "default", "databases": places,
                "redis": [{"server": "redis://r", "up": false}]}]}));
        let short = json!({"limit": "max", "numbers_left": 5, "days_left": 6.0});
        let mut sequences = vec![facts::in_memory(json!({"runway": short}))];
        sequences.extend((0..30).map(|_| facts::in_memory(json!({}))));
        let memory = MemoryView {
            sequences,
            is_cut_off: true,
        };
        assert_eq!(ready(&replica), "No: This replica is stopping.");
        let found = warnings(&replica, &memory, now());
        let places = [
            "postgres://a/b does not answer",
            "postgres://c/d went back",
            "redis://r does not answer",
            "orders: reserve 3.3 min · low",
            "orders: runway 6 days · very low",
        ];
        assert_eq!(found[..5], places);
        assert_eq!(found.len(), 3 + MAX_WARNINGS + 2);
        assert_eq!(found[23], "and 12 more; `odometer top --once` shows all");
        assert!(found[24].contains("the first 31 sequences"), "{found:?}");
        assert_eq!(lasts(&[]), NOTHING);
    }
}
