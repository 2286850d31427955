//! Tests printed numbers in every form of a reply, and which changes of a format are accepted.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::changes::call;
use crate::support::program;
use crate::support::{Backend, Client, Reply, Scrape, for_each_backend, run};

async fn next(client: &Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    call(client, Method::POST, path, None, headers).await
}

/// Takes the next number and returns its id. The call must succeed.
async fn id(client: &Client, name: &str) -> String {
    let reply = next(client, &format!("{name}/next"), &[]).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let id = reply.json()["id"].as_str().map(str::to_owned);
    id.expect("an id")
}

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
}

#[test]
fn every_form_of_a_reply_has_the_printed_ids() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let definition = json!({"format": "INV-{value:06}-{check:luhn}", "start": 41});
        client.define("invoices", &definition).await;
        let reply = next(&client, "invoices/next", &[]).await;
        assert_eq!(
            reply.body,
            r#"{"sequence":"invoices","period":null,"id":"INV-000041-3","value":"41"}"#
        );
        let reply = next(&client, "invoices/next?count=2", &[]).await;
        assert_eq!(
            reply.body,
            r#"{"sequence":"invoices","period":null,"count":2,"ranges":[{"first":"42","last":"43","count":2,"step":1}],"ids":["INV-000042-1","INV-000043-9"]}"#
        );
        let reply = next(&client, "invoices/next?count=1&ids=false", &[]).await;
        assert_eq!(reply.json()["ids"], Value::Null, "{reply:?}");
        let text = [("accept", "text/plain")];
        let reply = next(&client, "invoices/next", &text).await;
        assert_eq!(reply.body, "INV-000045-4\n");
        assert_eq!(reply.header("odometer-period"), None);
        let reply = next(&client, "invoices/next?count=2", &text).await;
        assert_eq!(reply.body, "INV-000046-2\nINV-000047-0\n");
        // The caller of `blocks` counts through the range and prints the ids.
        let reply = next(&client, "invoices/blocks?size=3", &[]).await;
        assert_eq!(reply.json()["count"], 3, "{reply:?}");
    });
}

for_each_backend!(the_period_is_printed_that_the_reply_names);

async fn the_period_is_printed_that_the_reply_names(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("batches", &json!({"period": "keyed"})).await;
    for (number, count) in [(1, ""), (2, "&count=1")] {
        let path = format!("batches/next?period=eod-7{count}");
        let reply = next(&client, &path, &[]).await.json();
        assert_eq!(reply["period"], "eod-7", "{reply}");
        let id = reply.get("id").unwrap_or(&reply["ids"][0]);
        assert_eq!(id, &format!("eod-7-{number}"), "{reply}");
    }
    let text = [("accept", "text/plain")];
    let reply = next(&client, "batches/next?period=eod-8&count=2", &text).await;
    assert_eq!(reply.body, "eod-8-1\neod-8-2\n");
    assert_eq!(reply.header("odometer-period"), Some("eod-8"));

    for (kind, format) in [
        ("day", "{yyyy}-{JJJ}/{period}/{value:04}"),
        ("week", "{yyyy}/{period}/{value:04}"),
        ("month", "{yyyy}{MM}/{period}/{value:04}"),
        ("year", "{yy}/{period}/{value:04}"),
    ] {
        let definition = json!({"period": kind, "format": format});
        client.define(kind, &definition).await;
        for number in 1..=2 {
            let reply = next(&client, &format!("{kind}/next"), &[]).await.json();
            let period = reply["period"].as_str().expect("a period");
            let id = reply["id"].as_str().expect("an id");
            let parts: Vec<&str> = id.split('/').collect();
            assert_eq!(parts[1..], [period, &format!("{number:04}")], "{reply}");
            let (year, first) = (&period[..4], parts[0]);
            let is_of_it = first.starts_with(year) || first == &year[2..];
            assert!(is_of_it, "{reply}");
        }
    }
}

for_each_backend!(a_number_past_its_padding_is_not_issued_unless_it_may_widen);

async fn a_number_past_its_padding_is_not_issued_unless_it_may_widen(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    let definition = json!({"format": "N-{value:01}", "start": 7});
    client.define("narrow", &definition).await;
    for expected in ["N-7", "N-8", "N-9"] {
        assert_eq!(id(&client, "narrow").await, expected);
    }
    let reply = next(&client, "narrow/next", &[]).await;
    refused(&reply, 409, "sequence_exhausted");
    let state = client.describe("narrow").await["state"].clone();
    assert_eq!(state["runway"]["limit"], "width", "{state}");
    assert_eq!(state["runway"]["numbers_left"], 0, "{state}");
    let reply = client.define("narrow", &json!({"overflow": "widen"})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(id(&client, "narrow").await, "N-10");
    let reply = client
        .put("/v1/sequences/narrow", &json!({"overflow": "refuse"}))
        .await
        .expect("a reply");
    refused(&reply, 400, "invalid_definition");
    assert!(reply.body.contains("`overflow`"), "{reply:?}");
}

for_each_backend!(a_format_changes_only_to_one_that_prints_no_old_id);

async fn a_format_changes_only_to_one_that_prints_no_old_id(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    let to = async |format: &str| -> Reply {
        let body = json!({ "format": format });
        let reply = client.put("/v1/sequences/changed", &body).await;
        reply.expect("a reply")
    };
    client.define("changed", &json!({})).await;
    // No number was issued yet.
    assert_eq!(to("{value:b36}").await.status, 200);
    assert_eq!(to("{value}").await.status, 200);
    assert_eq!(id(&client, "changed").await, "1");
    let reply = to("{value:b36}").await;
    refused(&reply, 409, "immutable_field");
    assert!(reply.body.contains("`format`"), "{reply:?}");
    assert_eq!(to("A-{value}").await.status, 200);
    assert_eq!(id(&client, "changed").await, "A-2");
    // The new format has no id in common with the present format, but some with the former one.
    refused(&to("{value:b36}").await, 409, "immutable_field");
    let definition = client.describe("changed").await["definition"].clone();
    assert_eq!(definition["format"], "A-{value}", "{definition}");
    assert_eq!(definition.get("former_formats"), None, "{definition}");
    // A definition that was read can be sent back. It changes nothing.
    let reply = client.define("changed", &definition).await;
    assert_eq!(reply.json()["definition"], definition);
    assert_eq!(id(&client, "changed").await, "A-3");
}

#[test]
fn formats_that_cannot_be_are_refused_with_what_is_wrong_and_where() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        for (body, said) in [
            (
                json!({"format": "{year}-{value}"}),
                "unknown field `{year}` at character 1",
            ),
            (json!({"format": "INV-{value"}), "`{` at character 5"),
            (json!({"format": "INV-value}"}), "`}` at character 10"),
            (json!({"format": "INV-{yyyy}"}), "has no `{value}`"),
            (json!({"format": ""}), "has no `{value}`"),
            (json!({"format": "{value:040}"}), "padding `040`"),
            (json!({"format": "INV2026{value:06}"}), "mistaken"),
            (json!({"format": "INV{value:b36}"}), "mistaken"),
            (
                json!({"format": "{value}", "period": "day"}),
                "tell the periods apart",
            ),
            (
                json!({"format": "{yy}{MM}{dd}-{value}", "period": "day"}),
                "`{yyyy}`",
            ),
            (
                json!({"format": "{period}-{dd}{value}", "period": "month"}),
                "finer",
            ),
            (
                json!({"format": "{period}{value}", "period": "keyed"}),
                "read back",
            ),
            (json!({"format": "{period}-{value}"}), "without periods"),
            (json!({"format": "\u{e9}-{value}"}), "character 1"),
            (json!({"format": "a\n{value}"}), "character 2"),
            (json!({"format": 5}), "a string"),
            (json!({"overflow": "wrap"}), "`overflow`"),
            (json!({"declared_rate": 0}), "`declared_rate`"),
            (json!({"declared_rate": 1e12}), "`declared_rate`"),
        ] {
            let reply = client.put("/v1/sequences/never", &body).await;
            let reply = reply.expect("a reply");
            refused(&reply, 400, "invalid_definition");
            let detail = reply.json()["detail"].clone();
            let detail = detail.as_str().expect("a sentence");
            assert!(detail.contains(said), "{body}: {detail}");
        }
        let reply = client.get("/v1/sequences/never").await.expect("a reply");
        refused(&reply, 404, "sequence_not_found");
    });
}

#[test]
fn a_rehearsal_shows_printed_ids_and_the_runway_to_each_end() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let rehearse = async |body: Value| -> Value {
            let path = "tried?dry_run=true";
            let reply = call(&client, Method::PUT, path, Some(&body), &[]).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            reply.json()
        };
        let told = rehearse(json!({"format": "S-{value:03}", "declared_rate": 1})).await;
        assert_eq!(
            told["samples"],
            json!(["S-001", "S-002", "S-003"]),
            "{told}"
        );
        let runway = &told["runway"];
        assert_eq!(runway["limit"], "width", "{told}");
        assert_eq!(runway["numbers_left"], 999, "{told}");
        let days = runway["days_left"].as_f64().expect("days");
        assert!((days - 999.0 / 86_400.0).abs() < 1e-9, "{told}");
        let limits: Vec<&Value> = runway["limits"]
            .as_array()
            .expect("a list")
            .iter()
            .collect();
        let names: Vec<&str> = limits
            .iter()
            .filter_map(|limit| limit["limit"].as_str())
            .collect();
        assert_eq!(names, ["max", "width", "exact"], "{told}");
        let warnings = told["warnings"].to_string();
        assert!(
            warnings.contains("999 numbers left that `format`"),
            "{told}"
        );

        let told = rehearse(json!({"period": "keyed"})).await;
        assert_eq!(
            told["samples"],
            json!(["key-1", "key-2", "key-3"]),
            "{told}"
        );
        assert_eq!(told["runway"]["days_left"], Value::Null, "{told}");
        let told = rehearse(json!({"period": "day", "format": "{period}/{value:02}"})).await;
        let samples = told["samples"].as_array().expect("a list");
        let endings: Vec<&str> = samples
            .iter()
            .filter_map(|sample| sample.as_str()?.get(8..))
            .collect();
        assert_eq!(endings, ["/01", "/02", "/03"], "{told}");
    });
}

#[test]
fn the_gauges_tell_the_nearest_end_at_the_declared_rate() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let definition = json!({"format": "S-{value:05}", "declared_rate": 10});
        client.define("short", &definition).await;
        assert_eq!(id(&client, "short").await, "S-00001");
        // A day has fewer seconds than numbers.
        let daily = json!({"period": "day", "format": "{period}-{value:09}", "declared_rate": 1});
        client.define("daily", &daily).await;
        assert!(id(&client, "daily").await.ends_with("-000000001"));
        let scrape = Scrape::of(&client).await;
        let of = |name: &str| scrape.sum("odometer_runway_seconds", &[("sequence", name)]);
        assert!(
            (9_000.0..10_000.0).contains(&of("short")),
            "{}",
            of("short")
        );
        assert!(of("daily").is_infinite(), "{}", of("daily"));
        let shortest = scrape.sum("odometer_shortest_runway_seconds", &[]);
        assert!((shortest - of("short")).abs() < 1.0, "{shortest}");
        let numbers = scrape.sum("odometer_shortest_runway_numbers", &[]);
        assert!(numbers < 100_000.0, "{numbers}");
    });
}
