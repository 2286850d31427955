//! Tests `explain`, which says what became of a number.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Backend, Link, Program, Proxy, Server, TestDatabase, for_each_backend, for_each_server, wait,
};

const LIMIT: Duration = Duration::from_secs(20);

for_each_backend!(a_number_is_explained);

async fn a_number_is_explained(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    let definition = json!({"start": "10", "step": 10, "block": {"min": 3}});
    client.define("tens", &definition).await;
    assert_eq!(client.next("tens").await, 10);
    let explain = async |value: i64| {
        let path = format!("/v1/sequences/tens/explain?id={value}");
        let reply = client.get(&path).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        reply.json()
    };
    let mut explained = explain(20).await;
    assert!(explained["holder"].is_string(), "{explained}");
    let at = explained["reserved_at"].as_str().expect("a moment");
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
    explained["holder"] = json!("h");
    explained["reserved_at"] = json!("t");
    let expected = json!({
        "sequence": "tens", "period": null, "value": "20", "fate": "held", "holder": "h",
        "reserved_at": "t", "block": {"first": "10", "last": "30", "step": 10},
    });
    assert_eq!(explained, expected);
    assert_eq!(explain(10).await["fate"], "issued_or_lost");
    // These values lie below the start, between two numbers, above the reserved ones, or above
    // `max`.
    for value in [0, 9, 15, 21, 1_000_000, i64::MAX] {
        let expected = json!({
            "sequence": "tens", "period": null, "value": value.to_string(),
            "fate": "not_reserved", "holder": null, "reserved_at": null, "block": null,
        });
        assert_eq!(explain(value).await, expected);
    }
    program.stop().await;
}

for_each_backend!(a_question_about_no_number_is_refused);

async fn a_question_about_no_number_is_refused(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    assert_eq!(client.next("asked").await, 1);
    for (query, code) in [
        ("", "invalid_id"),
        ("?id=", "invalid_id"),
        ("?id=x", "invalid_id"),
        ("?id=-1", "invalid_id"),
        ("?id=1.5", "invalid_id"),
        ("?id=01", "invalid_id"),
        ("?id=9223372036854775808", "invalid_id"),
        ("?id=1&id=2", "invalid_id"),
        ("?id=1&period=2026", "invalid_period"),
        ("?id=1&more=1", "invalid_parameter"),
    ] {
        let path = format!("/v1/sequences/asked/explain{query}");
        let reply = client.get(&path).await.expect("a reply");
        assert_eq!(reply.status, 400, "{query}: {reply:?}");
        assert_eq!(reply.code().as_deref(), Some(code), "{query}");
    }
    let path = "/v1/sequences/asked/explain?id=1";
    let reply = client.post(path).await.expect("a reply");
    assert_eq!(reply.status, 405, "{reply:?}");
    assert_eq!(reply.header("allow"), Some("GET, HEAD"));
    // A question creates no sequence.
    let path = "/v1/sequences/never-used/explain?id=1";
    let reply = client.get(path).await.expect("a reply");
    assert_eq!(reply.status, 404, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some("sequence_not_found"));
    assert_eq!(database.next_value("never-used").await, None);
    program.stop().await;
}

for_each_server!(a_question_needs_the_database);

async fn a_question_needs_the_database(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let port = Server::shared(backend).await.port();
    let proxy = Proxy::to(port).await;
    let direct = format!(":{port}/");
    assert!(database.url.contains(&direct));
    let proxied = database
        .url
        .replace(&direct, &format!(":{}/", proxy.port()));
    let program = Program::options().database(&proxied).start_ready().await;
    let client = program.client();
    assert_eq!(client.next("away").await, 1);
    proxy.set(Link::Cut);
    let path = "/v1/sequences/away/explain?id=1";
    wait::until("it is refused", LIMIT, async || {
        let reply = client.get(path).await.expect("a reply");
        (reply.status == 503).then_some(())
    })
    .await;
}
