//! Callers' keys, more of them than memory keeps, and changes that follow each other closely.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Program, Range, Reply, TestDatabase, for_each_backend,
    for_each_server, wait,
};

/// How soon a change holds everywhere.
const REFRESH: Duration = Duration::from_secs(4);

for_each_server!(changes_of_two_replicas_within_one_poll_hide_nothing);

/// What one replica is told of the sequence is newer than what it knows of the other key.
async fn changes_of_two_replicas_within_one_poll_hide_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "4s");
    let (here, there) = (options.start_ready().await, options.start_ready().await);
    let (here_client, there_client) = (here.client(), there.client());
    let definition = json!({"period": "keyed", "block": {"min": 1000}});
    here_client.define("batches", &definition).await;
    for round in 0..3 {
        let (kept, removed) = (format!("kept-{round}"), format!("removed-{round}"));
        for key in [&kept, &removed] {
            let reply = next(&here_client, key).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        let path = format!("/v1/sequences/batches/periods/{removed}");
        let reply = there_client.send(Method::DELETE, &path, &[], None).await;
        assert_eq!(reply.expect("a reply").status, 204);
        let described = json!({"description": format!("round {round}")});
        let reply = here_client.put("/v1/sequences/batches", &described).await;
        assert_eq!(reply.expect("a reply").status, 200);
        wait::until("the key is gone everywhere", REFRESH * 3, async || {
            let reply = next(&here_client, &removed).await;
            (reply.code().as_deref() == Some("period_removed")).then_some(())
        })
        .await;
        assert_eq!(next(&here_client, &kept).await.status, 200);
    }
    here.stop().await;
    there.stop().await;
}

for_each_backend!(more_keys_than_memory_keeps_are_all_served);

async fn more_keys_than_memory_keeps_are_all_served(backend: Backend) {
    const N_KEYS: usize = 40;
    const N_ROUNDS: i64 = 3;
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_LIMITS__LIVE_PERIODS", "2")
        .start_ready()
        .await;
    let client = program.client();
    let definition = json!({"period": "keyed", "block": {"min": 10}});
    client.define("many", &definition).await;
    let mut ledger = Ledger::default();
    for _round in 0..N_ROUNDS {
        let calls: Vec<_> = (0..N_KEYS)
            .map(|key| tokio::spawn(served(client.clone(), key)))
            .collect();
        for (key, call) in calls.into_iter().enumerate() {
            let ranges = call.await.expect("no panic");
            ledger.record(&format!("key-{key}"), &ranges);
        }
    }
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    assert_eq!(ledger.n_numbers(), 120);
    program.stop().await;
}

/// A key's next number; with as many at once as this, some are told to come again.
async fn served(client: Client, key: usize) -> Vec<Range> {
    let path = format!("/v1/sequences/many/next?period=key-{key}");
    let started = Instant::now();
    loop {
        match client.ask(&path).await {
            Answer::Given(ranges) => return ranges,
            Answer::Refused(reply) => {
                assert_eq!(reply.code().as_deref(), Some("overloaded"), "{reply:?}");
            }
            Answer::NoReply(error) => panic!("no reply: {error:?}"),
        }
        assert!(started.elapsed() < Duration::from_secs(25), "{path}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn next(client: &Client, key: &str) -> Reply {
    let path = format!("/v1/sequences/batches/next?period={key}");
    client.post(&path).await.expect("a reply")
}
