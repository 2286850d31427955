//! Tests that callers who hang up before their reply have used up their quota all the same.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::attacks::{define, high_water_mark};
use super::{ADMIN, Roles, TestCaller, get, post, refused};
use crate::support::{Backend, Options, Program, Scrape, for_each_backend, raw, wait};

/// A quota whose burst is 1000 numbers.
pub(super) const ACCESS: &str = "\
[access.roles.slow]
take = [\"*\"]
block = [\"*\"]
numbers = \"100/s\"
share = \"100%\"
";
const RATE: u64 = 100;
pub(super) const BURST: u64 = 1000;

/// The calls of a round, and how many numbers each wants: the burst together. The store works for the
/// first call, and the others queue up behind it.
const CALLS: [(&str, u64); 6] = [
    ("next?count", 950),
    ("blocks?size", 10),
    ("next?count", 10),
    ("next?count", 10),
    ("blocks?size", 10),
    ("next?count", 10),
];
/// Without charge, the first calls of these rounds alone take what the quota gives in 100 s.
const N_ROUNDS: usize = 12;
/// The sequence that shows what is left of the quota.
const LEFT: &str = "left";

const LIMIT: Duration = Duration::from_secs(60);

/// What a caller took who hung up again and again.
#[derive(Debug)]
struct Outcome {
    /// The numbers of the calls that waited when their caller hung up.
    n_asked: u64,
    /// The numbers that the sequences lost by that.
    n_gone: u64,
    /// The numbers that the quota gave after that.
    n_left: u64,
    /// The most numbers of the quota in all this time.
    most: u64,
}

/// Hangs up in each round on calls of a sequence with this definition.
async fn hang_up_again_and_again(
    backend: Backend,
    options: Options,
    definition: &Value,
) -> Outcome {
    let caller = TestCaller::new("slow", "slow");
    // The limits are longer than the tables stay locked.
    let options = options
        .env("ODOMETER_STORE__TIMEOUT", "25s")
        .env("ODOMETER_REFILL__DEADLINE", "25s");
    let roles = Roles::start_on(backend, options, ACCESS, &caller.section()).await;
    begin(&roles, LEFT, &json!({})).await;
    let mut outcome = Outcome {
        n_asked: 0,
        n_gone: 0,
        n_left: 0,
        most: 0,
    };
    let mut marks = Vec::new();
    let began = Instant::now();
    for round in 0..N_ROUNDS {
        let name = format!("held-{round}");
        let before = begin(&roles, &name, definition).await;
        outcome.n_asked += hang_up(&roles, &caller.token, &name).await;
        marks.push((name, before));
    }
    for (name, before) in marks {
        let mark = high_water_mark(&roles.client(), &name).await;
        outcome.n_gone += u64::try_from(mark - before).expect("no sequence goes back");
    }
    outcome.n_left = n_left(&roles, &caller.token).await;
    let passed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    outcome.most = BURST + (RATE * passed_ms).div_ceil(1000) + 1;
    outcome
}

/// Defines a sequence and takes its first number, so that memory knows it. Returns its high-water
/// mark.
pub(super) async fn begin(roles: &Roles, name: &str, definition: &Value) -> i64 {
    let client = roles.client();
    define(&client, name, definition.clone()).await;
    wait::until("it gives a number", LIMIT, async || {
        let reply = post(&client, ADMIN, &format!("/v1/sequences/{name}/next")).await;
        (reply.status == 200).then_some(())
    })
    .await;
    high_water_mark(&client, name).await
}

/// Hangs up on calls that wait for the store. Returns how many numbers they wanted. Calls that were
/// refused do not count.
async fn hang_up(roles: &Roles, token: &str, name: &str) -> u64 {
    let frozen = roles.database.freeze().await;
    let mut calls = Vec::new();
    for (call, count) in CALLS {
        let path = format!("/v1/sequences/{name}/{call}={count}");
        let header = format!("Authorization: Bearer {token}\r\n");
        let request = raw::request("POST", path.as_bytes(), &header, b"");
        let mut stream = TcpStream::connect(roles.program.address())
            .await
            .expect("it listens");
        stream.write_all(&request).await.expect("it reads");
        calls.push((count, stream));
        wait::until("the calls wait or are refused", LIMIT, async || {
            let n_waiting = n_waiting(roles).await;
            calls.retain(|(_, stream)| is_unanswered(stream));
            (n_waiting == calls.len()).then_some(())
        })
        .await;
    }
    let n_wanted: u64 = calls.iter().map(|(count, _)| *count).sum();
    drop(calls);
    wait::until("their end was noticed", LIMIT, async || {
        (n_waiting(roles).await == 0).then_some(())
    })
    .await;
    frozen.thaw().await;
    n_wanted
}

/// Returns how many callers wait for the store. What they want is charged by then.
async fn n_waiting(roles: &Roles) -> usize {
    let reply = get(&roles.client(), ADMIN, "/metrics").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let n_waiting = Scrape::parse(&reply.body).sum("odometer_waiters", &[]);
    let found = (0..=CALLS.len()).find(|n| {
        let n = u32::try_from(*n).expect("a few");
        (f64::from(n) - n_waiting).abs() < 0.5
    });
    found.unwrap_or_else(|| panic!("{n_waiting} callers wait"))
}

/// Returns whether nothing came, neither a part of a reply nor the end. It takes a part of what came.
fn is_unanswered(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Takes numbers until the quota has no more of them. Returns how many they were.
async fn n_left(roles: &Roles, token: &str) -> u64 {
    let client = roles.client();
    let path = format!("/v1/sequences/{LEFT}/next?count=100&ids=false");
    let mut n_left = 0;
    // The quota may grow meanwhile.
    while n_left < 2 * BURST {
        let reply = post(&client, token, &path).await;
        if reply.status != 200 {
            refused(&reply, 429, "quota_exceeded", &path);
            break;
        }
        n_left += 100;
    }
    n_left
}

/// The first call has its numbers written for it, or waits for a refill. In strict order, what is
/// written for a caller who is gone goes to nobody else.
fn definitions() -> [Value; 2] {
    let small = json!({"block": {"min": 1, "max": 1}});
    [json!({"order": "strict"}), small]
}

for_each_backend!(
    callers_who_hang_up_have_used_up_their_quota,
    a_quota_that_is_given_back_to_who_hangs_up_is_found_out,
);

async fn callers_who_hang_up_have_used_up_their_quota(backend: Backend) {
    for definition in definitions() {
        let options = Program::options();
        let outcome = hang_up_again_and_again(backend, options, &definition).await;
        let (n_asked, most) = (outcome.n_asked, outcome.most);
        assert!(n_asked >= BURST, "vacuous: {definition} {outcome:?}");
        assert!(n_asked + outcome.n_left <= most, "{definition} {outcome:?}");
        if definition["order"] == "strict" {
            let n_gone = outcome.n_gone;
            assert!(n_gone >= CALLS[0].1, "vacuous: {outcome:?}");
            assert!(n_gone <= most, "{outcome:?}");
        }
    }
}

/// Negative control: each round takes what the first one took, and the quota is whole after all.
async fn a_quota_that_is_given_back_to_who_hangs_up_is_found_out(backend: Backend) {
    for definition in definitions() {
        let options = Program::options().without_guards("quota-given-back");
        let outcome = hang_up_again_and_again(backend, options, &definition).await;
        assert!(outcome.n_asked > outcome.most, "{definition} {outcome:?}");
        assert!(outcome.n_left >= BURST, "{definition} {outcome:?}");
        if definition["order"] == "strict" {
            assert!(outcome.n_gone > outcome.most, "{outcome:?}");
        }
    }
}
