//! Callers of a time-ordered sequence, and the ids that they got.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_core::snowflake::Layout;
use serde_json::{Value, json};

use crate::support::{Answer, Client, Ledger, Reply};

pub(super) const NAME: &str = "flakes";
/// `refill.deadline` of the configuration, plus time for a busy machine.
const LONGEST_ANSWER: Duration = Duration::from_secs(12);

/// The outcome of one caller, or of all callers.
#[derive(Default, Debug)]
pub(super) struct Got {
    pub(super) ledger: Ledger,
    /// Refusals, by code.
    pub(super) refused: BTreeMap<String, u64>,
    /// Calls that got no reply.
    pub(super) n_cut: u64,
}

impl Got {
    pub(super) fn merge(&mut self, other: Self) {
        self.ledger.merge(other.ledger);
        self.n_cut += other.n_cut;
        for (code, n) in other.refused {
            *self.refused.entry(code).or_default() += n;
        }
    }

    pub(super) fn n_refused(&self, code: &str) -> u64 {
        self.refused.get(code).copied().unwrap_or(0)
    }

    /// Checks that each refusal has one of these codes.
    pub(super) fn check_refusals(&self, allowed: &[&str]) {
        let strange = self
            .refused
            .keys()
            .find(|code| !allowed.contains(&code.as_str()));
        assert_eq!(strange, None, "{:?}", self.refused);
    }

    /// Makes one call, and returns whether ids were issued.
    pub(super) async fn call(&mut self, client: &Client, count: u64) -> bool {
        let path = match count {
            1 => format!("/v1/sequences/{NAME}/next"),
            _ => format!("/v1/sequences/{NAME}/next?count={count}&ids=false"),
        };
        let asked = Instant::now();
        let answer = client.ask(&path).await;
        assert!(asked.elapsed() < LONGEST_ANSWER, "{answer:?}");
        match answer {
            Answer::Given(ranges) => {
                self.ledger.record(NAME, &ranges);
                true
            }
            Answer::Refused(reply) => {
                *self.refused.entry(refusal(&reply)).or_default() += 1;
                false
            }
            Answer::NoReply(_) => {
                self.n_cut += 1;
                false
            }
        }
    }
}

/// Returns the code of a refusal, which must say when to try again.
fn refusal(reply: &Reply) -> String {
    assert_eq!(reply.status, 503, "{reply:?}");
    let after: u64 = reply
        .header("retry-after")
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or_else(|| panic!("no Retry-After: {reply:?}"));
    assert!((1..=60).contains(&after), "{reply:?}");
    reply.code().expect("a code")
}

/// Callers that go on until they are stopped. Each of them asks for a fixed number of ids at once.
pub(super) struct Callers {
    over: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<Got>>,
}

impl Callers {
    pub(super) fn start(client: &Client, counts: &[u64]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let tasks = counts.iter().map(|count| {
            let (client, over, count) = (client.clone(), Arc::clone(&over), *count);
            tokio::spawn(async move {
                let mut got = Got::default();
                let mut highest = i64::MIN;
                while !over.load(Ordering::Relaxed) {
                    let n_before = got.ledger.given(NAME).len();
                    if !got.call(&client, count).await {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                    highest = check_ascent(&got.ledger, n_before, highest);
                }
                got
            })
        });
        Self {
            tasks: tasks.collect(),
            over,
        }
    }

    pub(super) async fn stop(self) -> Got {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Got::default();
        for task in self.tasks {
            all.merge(task.await.expect("a caller does not fail"));
        }
        all
    }
}

/// Checks that the ids of one worker id ascend for one caller. Returns the highest id of the
/// caller.
fn check_ascent(ledger: &Ledger, n_before: usize, highest: i64) -> i64 {
    let layout = Layout::default();
    let worker = |id: i64| layout.read(id).map(|parts| parts.worker);
    let mut highest = highest;
    for range in &ledger.given(NAME)[n_before..] {
        let is_same = highest > 0 && worker(highest) == worker(range.first);
        assert!(
            !is_same || range.first > highest,
            "{range:?} after {highest}"
        );
        highest = range.last();
    }
    highest
}

/// Returns the definition of a sequence whose ids reach `hold` ahead.
pub(super) fn definition(high: &str, hold: &str) -> Value {
    json!({"kind": "snowflake", "layout": {"high": high}, "block": {"hold": hold}})
}
