//! Tests that no change of a format prints an id twice.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::json;

use crate::support::changes::call;
use crate::support::{Backend, Client, Options, Program, Reply, TestDatabase, for_each_backend};

/// Takes the next number and returns its id. The call must succeed.
async fn id(client: &Client, name: &str) -> String {
    let reply = next(client, &format!("{name}/next"), &[]).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let id = reply.json()["id"].as_str().map(str::to_owned);
    id.expect("an id")
}

async fn next(client: &Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    call(client, Method::POST, path, None, headers).await
}

for_each_backend!(no_change_of_a_format_prints_an_id_twice);

async fn no_change_of_a_format_prints_an_id_twice(backend: Backend) {
    let (status, repeated) = printed_over_a_change(backend, &Program::options()).await;
    assert_eq!((status, repeated), (409, Vec::<String>::new()));
}

for_each_backend!(without_its_rule_a_change_of_a_format_prints_an_id_twice);

async fn without_its_rule_a_change_of_a_format_prints_an_id_twice(backend: Backend) {
    let options = Program::options().without_guards("formats-repeat");
    let (status, repeated) = printed_over_a_change(backend, &options).await;
    assert_eq!((status, repeated), (200, vec!["11".to_owned()]));
}

/// Changes the base of the format after 36 numbers. Returns the status of the change, and the ids
/// that come a second time after the change.
async fn printed_over_a_change(backend: Backend, options: &Options) -> (u16, Vec<String>) {
    let database = TestDatabase::prepared(backend).await;
    let program = options.clone().database(&database.url).start_ready().await;
    let client = program.client();
    let mut printed = HashSet::new();
    for _ in 0..36 {
        let id = id(&client, "changed").await;
        assert!(printed.insert(id), "before the change");
    }
    let body = json!({"format": "{value:b36}"});
    let changed = client.put("/v1/sequences/changed", &body).await;
    let mut repeated = Vec::new();
    let id = id(&client, "changed").await;
    if !printed.insert(id.clone()) {
        repeated.push(id);
    }
    (changed.expect("a reply").status, repeated)
}
