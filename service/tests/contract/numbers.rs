//! Tests `next` and `blocks`: every form of the reply, and the end of a sequence.

use reqwest::Method;
use serde_json::json;

use crate::support::{Backend, Client, Program, Range, Reply, TestDatabase, for_each_backend, run};

/// Starts a program on SQLite. The tests that use SQLite have the same result on every database.
async fn program() -> (TestDatabase, Program) {
    on(Backend::Sqlite).await
}

async fn on(backend: Backend) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    (database, program)
}

async fn post(client: &Client, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let body = (!body.is_empty()).then(|| body.as_bytes().to_vec());
    client
        .send(Method::POST, path, headers, body)
        .await
        .expect("a reply")
}

#[test]
fn a_batch_comes_as_ranges_and_as_ids() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        client.define("orders", &json!({"start": "1001"})).await;
        let reply = post(&client, "/v1/sequences/orders/next?count=3", &[], "").await;
        assert_eq!(
            reply.body,
            r#"{"sequence":"orders","period":null,"count":3,"ranges":[{"first":"1001","last":"1003","count":3,"step":1}],"ids":["1001","1002","1003"]}"#
        );
        let reply = post(
            &client,
            "/v1/sequences/orders/next?count=2&ids=false",
            &[],
            "",
        )
        .await;
        assert_eq!(
            reply.body,
            r#"{"sequence":"orders","period":null,"count":2,"ranges":[{"first":"1004","last":"1005","count":2,"step":1}]}"#
        );
        // With `count`, the reply has the form of a batch, even for one number.
        let reply = post(&client, "/v1/sequences/orders/next?count=1", &[], "").await;
        assert_eq!(reply.numbers(), [Range::single(1006)]);
        assert_eq!(reply.json()["ids"], json!(["1006"]));
        assert_eq!(client.next("orders").await, 1007);
    });
}

#[test]
fn ten_thousand_come_in_one_call_and_a_contiguous_batch_is_one_range() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        let reply = post(&client, "/v1/sequences/many/next?count=10000", &[], "").await;
        let numbers = reply.numbers();
        let n: u64 = numbers.iter().map(|range| range.count).sum();
        assert_eq!(n, 10_000);
        for n in [1, 7, 500, 10_000] {
            let path = format!("/v1/sequences/many/next?count={n}&contiguous=true");
            let reply = post(&client, &path, &[], "").await;
            assert_eq!(reply.numbers().len(), 1, "{n} in {:?}", reply.numbers());
        }
    });
}

#[test]
fn a_sequence_counts_from_its_start_by_its_step() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        client
            .define("tens", &json!({"start": 5, "step": 10}))
            .await;
        assert_eq!(client.next("tens").await, 5);
        let reply = post(&client, "/v1/sequences/tens/next?count=3", &[], "").await;
        assert_eq!(
            reply.json()["ranges"],
            json!([{"first": "15", "last": "35", "count": 3, "step": 10}])
        );
        assert_eq!(reply.json()["ids"], json!(["15", "25", "35"]));
        let reply = post(&client, "/v1/sequences/tens/blocks?size=2", &[], "").await;
        let block = reply.json();
        assert_eq!((&block["count"], &block["step"]), (&json!(2), &json!(10)));
        let (first, last) = (
            Range::identifier(&block["first"]),
            Range::identifier(&block["last"]),
        );
        assert_eq!(last, first + 10);
        assert_eq!(first % 10, 5);
    });
}

#[test]
fn plain_text_is_one_id_a_line() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        let plain = [("accept", "text/plain")];
        let one = post(&client, "/v1/sequences/plain/next", &plain, "").await;
        assert_eq!((one.status, one.body.as_str()), (200, "1\n"));
        assert!(
            one.header("content-type")
                .is_some_and(|value| value.starts_with("text/plain")),
            "{one:?}"
        );
        assert_eq!(one.header("odometer-period"), None);
        let three = post(&client, "/v1/sequences/plain/next?count=3", &plain, "").await;
        assert_eq!((three.status, three.body.as_str()), (200, "2\n3\n4\n"));
        // With any other `Accept` header, the reply is JSON.
        for accept in ["*/*", "application/json", "image/png"] {
            let reply = post(
                &client,
                "/v1/sequences/plain/next",
                &[("accept", accept)],
                "",
            )
            .await;
            assert_eq!(reply.header("content-type"), Some("application/json"));
            reply.number();
        }
    });
}

#[test]
fn an_empty_object_is_as_good_as_no_body() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        let json = [("content-type", "application/json")];
        for (headers, body) in [(&json[..], "{}"), (&[], "{}"), (&json[..], "")] {
            let reply = post(&client, "/v1/sequences/body/next", headers, body).await;
            reply.number();
        }
        let reply = post(&client, "/v1/sequences/body/blocks?size=2", &json, "{}").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(client.next("body").await, 4);
    });
}

for_each_backend!(a_block_is_nobody_else_s);

async fn a_block_is_nobody_else_s(backend: Backend) {
    let (database, program) = on(backend).await;
    let client = program.client();
    assert_eq!(client.next("shared").await, 1);
    let reply = post(&client, "/v1/sequences/shared/blocks?size=100", &[], "").await;
    let block = reply.json();
    assert_eq!(block["sequence"], "shared");
    assert_eq!(block["period"], json!(null));
    let [block] = reply.numbers()[..] else {
        panic!("not one range: {reply:?}")
    };
    assert_eq!(block.count, 100);
    assert!(database.next_value("shared").await >= Some(block.end()));
    for _ in 0..200 {
        let number = client.next("shared").await;
        assert!(!block.values().contains(&number), "{number} of {block:?}");
    }
}

for_each_backend!(the_last_number_is_issued_and_then_the_sequence_is_exhausted);

async fn the_last_number_is_issued_and_then_the_sequence_is_exhausted(backend: Backend) {
    let (_database, program) = on(backend).await;
    let client = program.client();
    client
        .define("short", &json!({"start": "1", "max": "10"}))
        .await;
    for expected in 1..=7 {
        assert_eq!(client.next("short").await, expected);
    }
    // The call asks for more than is left. It is refused as a whole and takes no number.
    let reply = post(&client, "/v1/sequences/short/next?count=4", &[], "").await;
    assert_eq!(reply.status, 409, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some("sequence_exhausted"));
    for expected in 8..=10 {
        assert_eq!(client.next("short").await, expected);
    }
    for _ in 0..3 {
        let reply = post(&client, "/v1/sequences/short/next", &[], "").await;
        assert_eq!(reply.status, 409, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("sequence_exhausted"));
    }
    let reply = post(&client, "/v1/sequences/short/blocks?size=1", &[], "").await;
    assert!(matches!(reply.status, 400 | 409), "{reply:?}");
    // With a higher `max`, the sequence goes on.
    client.define("short", &json!({"max": "12"})).await;
    assert_eq!(client.next("short").await, 11);
}

for_each_backend!(the_highest_number_that_a_database_can_hold_is_issued);

async fn the_highest_number_that_a_database_can_hold_is_issued(backend: Backend) {
    let (_database, program) = on(backend).await;
    let client = program.client();
    let max = i64::MAX - 1;
    let definition = json!({"start": (max - 2).to_string(), "max": max.to_string()});
    client.define("top", &definition).await;
    for expected in [max - 2, max - 1, max] {
        assert_eq!(client.next("top").await, expected);
    }
    let reply = post(&client, "/v1/sequences/top/next", &[], "").await;
    assert_eq!(reply.code().as_deref(), Some("sequence_exhausted"));
}

#[test]
fn a_block_may_not_be_larger_than_its_share_of_what_is_left() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        client.define("small", &json!({"max": "40960"})).await;
        let reply = post(&client, "/v1/sequences/small/blocks?size=11", &[], "").await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("invalid_count"));
        let detail = reply.json()["detail"].to_string();
        assert!(detail.contains("10"), "names the limit: {detail}");
        let reply = post(&client, "/v1/sequences/small/blocks?size=10", &[], "").await;
        assert_eq!(reply.numbers(), [Range::between(1, 10)]);
    });
}
