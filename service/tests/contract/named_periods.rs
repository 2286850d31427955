//! Tests which periods callers may name in a call, and which they may not.

use reqwest::Method;
use serde_json::json;

use crate::support::{Backend, Client, Reply, changes::call, for_each_backend, program};

async fn post(client: &Client, path: &str) -> Reply {
    call(client, Method::POST, path, None, &[]).await
}

fn refused(reply: &Reply, status: u16, code: &str, what: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{what}: {reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{what}");
}

for_each_backend!(a_period_that_is_none_is_refused_and_nothing_is_given);

async fn a_period_that_is_none_is_refused_and_nothing_is_given(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    client.define("plain", &json!({})).await;
    client.define("keyed", &json!({"period": "keyed"})).await;
    client.define("daily", &json!({"period": "day"})).await;
    client.define("weekly", &json!({"period": "week"})).await;
    let long = format!("keyed?{}", "k".repeat(65));
    for asked in [
        "plain?2026",
        "plain?",
        "keyed?",
        "keyed?a%20b",
        "keyed?a+b",
        "keyed?-a",
        "keyed?caf%C3%A9",
        "keyed?a%2Fb",
        "keyed?a%00",
        &long,
        "keyed?a&period=b",
        "daily?",
        "daily?2026",
        "daily?20260230",
        "daily?2026W47",
        "daily?20200101",
        "daily?99991231",
        "daily?19691231",
        "weekly?20261120",
        "weekly?2020W54",
        "weekly?2020W01",
    ] {
        let (name, period) = asked.split_once('?').expect("a name and a period");
        for call in ["next", "next?count=2", "blocks?size=1"] {
            let joint = if call.contains('?') { '&' } else { '?' };
            let path = format!("{name}/{call}{joint}period={period}");
            refused(&post(&client, &path).await, 400, "invalid_period", &path);
        }
    }
    // Sequences that count by keys need a key in each call.
    for path in ["keyed/next", "keyed/blocks?size=1"] {
        refused(&post(&client, path).await, 400, "invalid_period", path);
    }
    let periods = "SELECT COUNT(*) FROM counter WHERE period <> ''";
    assert_eq!(database.number(periods).await, Some(0));
    assert_eq!(client.next("plain").await, 1);
    let reply = post(&client, "keyed/next?period=a.b_c:d-e").await;
    assert_eq!(reply.json()["id"], "a.b_c:d-e-1", "{reply:?}");
}

for_each_backend!(a_key_that_was_removed_is_never_counted_in_again);

async fn a_key_that_was_removed_is_never_counted_in_again(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("batches", &json!({"period": "keyed"})).await;
    for period in ["eod-7", "eod-8"] {
        let path = format!("batches/next?period={period}");
        assert_eq!(post(&client, &path).await.json()["value"], "1");
    }
    let remove = async |key: &str| -> Reply {
        let path = format!("batches/periods/{key}");
        call(&client, Method::DELETE, &path, None, &[]).await
    };
    // A key that was never used also leaves a tombstone.
    for key in ["eod-7", "eod-7", "eod-9"] {
        let reply = remove(key).await;
        assert_eq!((reply.status, reply.body.as_str()), (204, ""), "{key}");
    }
    for key in ["eod-7", "eod-9"] {
        for call in ["next?", "next?count=2&", "blocks?size=1&"] {
            let path = format!("batches/{call}period={key}");
            refused(&post(&client, &path).await, 410, "period_removed", &path);
        }
        let body = json!({"floor": "100", "period": key});
        let reply = call(&client, Method::POST, "batches/advance", Some(&body), &[]).await;
        refused(&reply, 410, "period_removed", key);
    }
    let reply = post(&client, "batches/next?period=eod-8").await;
    assert_eq!(reply.json()["value"], "2", "{reply:?}");
    refused(
        &remove("a%20b").await,
        400,
        "invalid_period",
        "a key with a blank",
    );
    client.define("daily", &json!({"period": "day"})).await;
    let path = "daily/periods/20261120";
    let reply = call(&client, Method::DELETE, path, None, &[]).await;
    refused(&reply, 409, "not_for_kind", path);
}
