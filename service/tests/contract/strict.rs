//! Tests strict order in the contract: nothing is in memory, and every number comes from the
//! database.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Answer, Backend, Client, Program, Scrape, TestDatabase, for_each_backend, run, wait,
};

/// Bounds each wait.
const LIMIT: Duration = Duration::from_secs(20);

async fn program(database: &TestDatabase) -> Program {
    Program::options()
        .database(&database.url)
        .start_ready()
        .await
}

for_each_backend!(a_strict_sequence_keeps_nothing_in_memory);

async fn a_strict_sequence_keeps_nothing_in_memory(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let started = program(&database).await;
    let client = started.client();
    let definition = json!({"order": "strict", "start": "10", "step": 5});
    client.define("strict", &definition).await;
    assert_eq!(client.next("strict").await, 10);
    let state = client.describe("strict").await["state"].clone();
    assert_eq!(state["high_water_mark"], "15", "{state}");
    for absent in ["block", "next_block", "reserve_seconds"] {
        assert_eq!(state[absent], Value::Null, "{absent}: {state}");
    }
    let why = state["why"].as_str().expect("a sentence");
    assert!(why.contains("strict order keeps no block"), "{why}");

    let reply = client
        .post("/v1/sequences/strict/next?count=3&contiguous=true")
        .await;
    let range = reply.expect("a reply").json()["ranges"].clone();
    let expected = json!([{"first": "15", "last": "25", "count": 3, "step": 5}]);
    assert_eq!(range, expected);
    let reply = client.post("/v1/sequences/strict/blocks?size=4").await;
    let reply = reply.expect("a reply").json();
    assert_eq!(
        (&reply["first"], &reply["last"]),
        (&json!("30"), &json!("45"))
    );
    assert_eq!(client.next("strict").await, 50);
    let issued = ("odometer_numbers_issued_total", [("sequence", "strict")]);
    // Numbers are counted when their answer is already on its way.
    wait::until("all nine are counted", LIMIT, async || {
        let n_issued = Scrape::of(&client).await.sum(issued.0, &issued.1);
        assert!(n_issued <= 9.0, "{n_issued}");
        (n_issued == 9.0).then_some(())
    })
    .await;

    // Only the range that was given to the caller as a block is in the journal.
    wait::until("the row is written", LIMIT, async || {
        let journal = database.journal("strict").await;
        let rows: Vec<_> = journal.iter().map(|row| (row.first, row.last)).collect();
        (rows == [(30, 45)]).then_some(())
    })
    .await;
    for (value, fate) in [
        (10, "no_record"),
        (35, "issued_or_lost"),
        (50, "no_record"),
        (55, "not_reserved"),
    ] {
        let path = format!("/v1/sequences/strict/explain?id={value}");
        let told = client.get(&path).await.expect("a reply").json();
        assert_eq!(told["fate"], fate, "{told}");
    }
    started.stop().await;
    let again = program(&database).await;
    assert_eq!(again.client().next("strict").await, 55);
}

for_each_backend!(a_strict_sequence_ends_with_its_last_number);

async fn a_strict_sequence_ends_with_its_last_number(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = program(&database).await;
    let client = program.client();
    client
        .define("short", &json!({"order": "strict", "max": "100"}))
        .await;
    // Together the callers want more numbers than there are. Each call is served or refused on its
    // own.
    let callers: Vec<_> = (0..40)
        .map(|n_caller| {
            let client = client.clone();
            let count = if n_caller % 4 == 0 { 101 } else { 3 };
            let path = format!("/v1/sequences/short/next?count={count}");
            tokio::spawn(async move { (count, client.ask(&path).await) })
        })
        .collect();
    let mut n_given = 0;
    for caller in callers {
        match caller.await.expect("a caller does not panic") {
            (3, Answer::Given(_)) => n_given += 1,
            (101, Answer::Refused(reply)) => {
                assert_eq!(reply.code().as_deref(), Some("sequence_exhausted"));
            }
            other => panic!("not as expected: {other:?}"),
        }
    }
    assert_eq!(n_given, 30);
    for last in 91..=100 {
        assert_eq!(client.next("short").await, last);
    }
    for path in ["next", "next?count=2", "blocks?size=1"] {
        let path = format!("/v1/sequences/short/{path}");
        let reply = client.post(&path).await.expect("a reply");
        assert_eq!(
            reply.code().as_deref(),
            Some("sequence_exhausted"),
            "{reply:?}"
        );
    }
    // With a higher `max`, the sequence goes on.
    client.define("short", &json!({"max": "200"})).await;
    assert_eq!(client.next("short").await, 101);
}

for_each_backend!(a_strict_sequence_lives_and_dies_like_any);

async fn a_strict_sequence_lives_and_dies_like_any(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = program(&database).await;
    let client = program.client();
    client.define("life", &json!({"order": "strict"})).await;
    assert_eq!(client.next("life").await, 1);
    assert_eq!(
        change(&client, "POST", "/advance", Some(r#"{"floor":"50"}"#)).await,
        200
    );
    assert_eq!(client.next("life").await, 50);
    assert_eq!(change(&client, "DELETE", "", None).await, 204);
    let reply = client
        .post("/v1/sequences/life/next")
        .await
        .expect("a reply");
    assert_eq!(reply.status, 410, "{reply:?}");
    assert_eq!(change(&client, "POST", "/restore", None).await, 200);
    assert_eq!(client.next("life").await, 51);
    let reply = client
        .post("/v1/sequences/life/blocks?size=10000000000")
        .await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.code().as_deref(), Some("invalid_count"), "{reply:?}");
}

async fn change(client: &Client, method: &str, action: &str, body: Option<&str>) -> u16 {
    let method = method.parse().expect("a method");
    let headers: &[(&str, &str)] = match body {
        Some(_) => &[("content-type", "application/json")],
        None => &[],
    };
    let path = format!("/v1/sequences/life{action}");
    let body = body.map(|body| body.as_bytes().to_vec());
    let reply = client.send(method, &path, headers, body).await;
    reply.expect("a reply").status
}

#[test]
fn strict_order_may_be_relaxed_and_not_the_reverse() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = program(&database).await;
        let client = program.client();
        client.define("order", &json!({"order": "strict"})).await;
        assert_eq!(client.next("order").await, 1);
        let reply = client.define("order", &json!({"order": "relaxed"})).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(client.next("order").await, 2);
        // The block of that number may be used up, and the next one under way.
        wait::until("numbers are in memory", LIMIT, async || {
            let shown = client.describe("order").await;
            shown["state"]["block"].is_object().then_some(())
        })
        .await;
        let reply = client
            .put("/v1/sequences/order", &json!({"order": "strict"}))
            .await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 409, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("immutable_field"));
    });
}

for_each_backend!(a_name_created_with_strict_order_gives_its_first_callers_all_its_numbers);

async fn a_name_created_with_strict_order_gives_its_first_callers_all_its_numbers(
    backend: Backend,
) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__ORDER", "strict")
        .start_ready()
        .await;
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let client = program.client();
            tokio::spawn(async move { client.next("newborn").await })
        })
        .collect();
    let mut numbers = Vec::new();
    for caller in callers {
        numbers.push(caller.await.expect("a caller does not panic"));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=50).collect::<Vec<i64>>());
}
