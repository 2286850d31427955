//! Tests that numbers which refused calls take, or which lie behind the end, are found.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{Backend, Client, Program, Reply, TestDatabase, for_each_backend, wait};

const LIMIT: Duration = Duration::from_secs(60);

async fn post(client: &Client, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let body = (!body.is_empty()).then(|| body.as_bytes().to_vec());
    client
        .send(Method::POST, path, headers, body)
        .await
        .expect("a reply")
}

for_each_backend!(
    numbers_taken_by_refused_calls_are_found_out,
    a_sequence_that_goes_on_behind_its_end_is_found_out,
);

async fn numbers_taken_by_refused_calls_are_found_out(backend: Backend) {
    let (_database, program) = without_guards(backend, "refused-burns").await;
    let client = program.client();
    let mut n_sequences = 0;
    // A refused call burns only numbers that are in memory. Near the end of a sequence, memory
    // holds one number or none.
    wait::until("a number is burnt", LIMIT, async || {
        n_sequences += 1;
        let name = format!("short-{n_sequences}");
        client.define(&name, &json!({"max": "10"})).await;
        for expected in 1..=7 {
            assert_eq!(client.next(&name).await, expected);
        }
        let path = format!("/v1/sequences/{name}/next?count=4");
        let reply = post(&client, &path, &[], "").await;
        assert_eq!(reply.code().as_deref(), Some("sequence_exhausted"));
        (client.next(&name).await == 9).then_some(())
    })
    .await;
}

async fn a_sequence_that_goes_on_behind_its_end_is_found_out(backend: Backend) {
    let (_database, program) = without_guards(backend, "no-end").await;
    let client = program.client();
    client.define("short", &json!({"max": "3"})).await;
    for expected in 1..=4 {
        assert_eq!(client.next("short").await, expected);
    }
}

async fn without_guards(backend: Backend, guards: &str) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards(guards);
    let program = options.database(&database.url).start_ready().await;
    (database, program)
}
