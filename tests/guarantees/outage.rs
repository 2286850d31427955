//! The database is killed under load and comes back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Program, Reply, Server, TestDatabase, for_each_server,
    settings, wait,
};

/// The time between two calls of the warm sequence. It bounds the rate, so that the reserve is
/// known to last.
const BETWEEN_CALLS: Duration = Duration::from_millis(5);
/// The time after the database's return within which everything works again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(2);

for_each_server!(a_warm_sequence_outlives_its_database);

async fn a_warm_sequence_outlives_its_database(backend: Backend) {
    let outage = settings::at_size(Duration::from_secs(10), Duration::from_secs(60));
    let mut server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    let mut program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    client.define("warm", &json!({})).await;
    // The program knows this sequence, but has no numbers of it in memory.
    client.define("defined", &json!({})).await;

    let over = Arc::new(AtomicBool::new(false));
    let load = tokio::spawn(use_warm(program.client(), Arc::clone(&over)));
    wait_until_it_lasts(&client, outage * 2).await;

    server.kill();
    let killed = Instant::now();
    let mut n_refused = 0;
    while killed.elapsed() < outage {
        for cold in [format!("never-seen-{n_refused}"), "defined".to_owned()] {
            let reply = client.post(&format!("/v1/sequences/{cold}/next")).await;
            check_refusal(&reply.expect("a reply"));
        }
        n_refused += 1;
        let ready = client.get("/readyz").await.expect("a reply");
        assert_eq!(ready.status, 200, "a reserve lasts: {ready:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(n_refused >= 20, "vacuous: {n_refused} calls of a cold name");

    server.start_again().await;
    let returned = Instant::now();
    for path in ["never-seen/next", "defined/next", "warm/blocks?size=1"] {
        let path = format!("/v1/sequences/{path}");
        let what = format!("{path} works again");
        let left = RECOVERY_LIMIT.saturating_sub(returned.elapsed());
        wait::until(&what, left, async || match client.ask(&path).await {
            Answer::Given(_) => Some(()),
            Answer::Refused(reply) => {
                check_refusal(&reply);
                None
            }
            Answer::NoReply(error) => panic!("{path}: {error:?}"),
        })
        .await;
    }
    over.store(true, Ordering::Relaxed);
    let ledger = load.await.expect("every call of the warm one was answered");
    assert_eq!(ledger.n_duplicates(), 0);
    let stored = database.next_value("warm").await;
    assert!(ledger.highest("warm") < stored, "given but not reserved");
    assert!(!program.has_ended());
    program.stop().await;
}

/// Checks the answer of a name without a reserve while the database is away.
fn check_refusal(reply: &Reply) {
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(
        reply.code().as_deref(),
        Some("store_unavailable"),
        "{reply:?}"
    );
    let retry_after: Option<u64> = reply
        .header("retry-after")
        .and_then(|seconds| seconds.parse().ok());
    assert!(retry_after >= Some(1), "{reply:?}");
}

/// Calls `warm` at a steady rate. Each call must get a number.
async fn use_warm(client: Client, over: Arc<AtomicBool>) -> Ledger {
    let mut ledger = Ledger::default();
    let mut ticks = tokio::time::interval(BETWEEN_CALLS);
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        match client.ask("/v1/sequences/warm/next").await {
            Answer::Given(ranges) => ledger.record("warm", &ranges),
            Answer::Refused(reply) => panic!("the warm sequence refused: {reply:?}"),
            Answer::NoReply(error) => panic!("the warm sequence did not answer: {error:?}"),
        }
    }
    ledger
}

/// Waits until the reserve of `warm` lasts at least for `time`, as the program itself reports.
async fn wait_until_it_lasts(client: &Client, time: Duration) {
    wait::until(
        "the reserve is long enough",
        Duration::from_secs(120),
        async || {
            let description = client.describe("warm").await;
            let seconds = description["state"]["reserve_seconds"].as_f64()?;
            (seconds >= time.as_secs_f64()).then_some(())
        },
    )
    .await;
}
