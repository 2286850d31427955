//! Worker ids: an id has one holder at a time, and no time is used twice under one id.

mod clocks;
mod known;
mod lost;
mod ordinary;
mod race;
mod released;
mod striped;
mod taken;
mod untold;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{Client, Reply};

/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(60);

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("a clock").as_millis()).expect("a moment")
}

/// Asks for a worker id and returns the reply.
async fn asked(client: &Client, pool: &str, bits: u32, ttl_ms: i64, holder: &str) -> Reply {
    let body = json!({"pool": pool, "bits": bits, "ttl_ms": ttl_ms, "holder": holder});
    client.ask_for_worker(&body).await.expect("a reply")
}

/// A time under a worker id, from `from` up to but not including `to`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Stretch {
    worker: u32,
    from: i64,
    to: i64,
}

/// Returns the pairs of neighbours that have a moment in common.
fn overlaps(mut all: Vec<Stretch>) -> Vec<(Stretch, Stretch)> {
    all.retain(|stretch| stretch.from < stretch.to);
    all.sort();
    let neighbours = all.iter().zip(all.iter().skip(1));
    neighbours
        .filter(|(one, other)| one.worker == other.worker && other.from < one.to)
        .map(|(one, other)| (*one, *other))
        .collect()
}
