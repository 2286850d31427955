//! Changes of a sequence with open windows, and the order of numbers over all the ways to ask.

use reqwest::Method;
use serde_json::{Value, json};

use super::{LIMIT, SEQUENCE, Stage, n_steps, refusal};
use crate::support::{Backend, Client, Program, for_each_server, wait};

/// How soon a change holds everywhere.
const REFRESH: &str = "2s";

for_each_server!(a_change_closes_the_window_on_every_replica);

async fn a_change_closes_the_window_on_every_replica(backend: Backend) {
    for fallback in ["none", "database"] {
        let stage = Stage::new(backend, fallback).await;
        let options = Program::options().env("ODOMETER_DEFINITION_REFRESH", REFRESH);
        let programs = stage.start(options).await;
        let (here, there) = (programs[0].client(), programs[1].client());
        let mut last = 0;
        for client in [&here, &there, &here] {
            last = above(last, client.next(SEQUENCE).await);
        }
        // If one replica has met the floor, the other one goes on above the floor, too.
        let floor = json!({"floor": "10000000"});
        assert_eq!(change(&here, Method::POST, "/advance", &floor).await, 200);
        last = above(9_999_999, here.next(SEQUENCE).await);
        last = above(last, there.next(SEQUENCE).await);
        // A replica that meets no other one learns of the floor by itself.
        let floor = json!({"floor": "20000000"});
        assert_eq!(change(&there, Method::POST, "/advance", &floor).await, 200);
        last = wait::until("the floor holds there", LIMIT, async || {
            last = above(last, here.next(SEQUENCE).await);
            (last >= 20_000_000).then_some(last)
        })
        .await;
        last = above(last, there.next(SEQUENCE).await);

        assert_eq!(change(&here, Method::DELETE, "", &Value::Null).await, 204);
        let retired = Some("sequence_retired".to_owned());
        assert_eq!(refusal(&here, SEQUENCE).await, retired);
        wait::until("the retirement holds there", LIMIT, async || {
            (refusal(&there, SEQUENCE).await == retired).then_some(())
        })
        .await;
        let restored = change(&there, Method::POST, "/restore", &Value::Null).await;
        assert_eq!(restored, 200);
        last = above(last, there.next(SEQUENCE).await);
        wait::until("the restoration holds here", LIMIT, async || {
            refusal(&here, SEQUENCE).await.is_none().then_some(())
        })
        .await;
        last = above(last, here.next(SEQUENCE).await);

        // From now on numbers come in blocks, and no block lies below the issued numbers.
        let relaxed = json!({"order": "relaxed"});
        here.define(SEQUENCE, &relaxed).await;
        assert!(n_steps(&programs).await >= 5.0, "vacuous: no steps");
        above(last, here.next(SEQUENCE).await);
        wait::until("blocks are given there", LIMIT, async || {
            let number = above(last, there.next(SEQUENCE).await);
            let state = there.describe(SEQUENCE).await["state"].clone();
            (number > last && state["block"].is_object()).then_some(())
        })
        .await;
    }
}

for_each_server!(all_ways_to_ask_a_redis_sequence_ascend_over_replicas);

async fn all_ways_to_ask_a_redis_sequence_ascend_over_replicas(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let programs = stage.start(Program::options()).await;
    let clients: Vec<Client> = programs.iter().map(Program::client).collect();
    let definition = json!({"order": "strict", "start": "10", "step": 5});
    clients[0].define("stepped", &definition).await;
    let mut last = 5;
    let asked = [
        "next",
        "next?count=30",
        "blocks?size=40",
        "next?count=7&contiguous=true",
        "next?count=3&ids=false",
    ];
    for (n_call, asked) in asked.iter().cycle().take(40).enumerate() {
        let path = format!("/v1/sequences/stepped/{asked}");
        let reply = clients[n_call % 2].post(&path).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        for value in reply.values() {
            assert_eq!(value % 5, 0, "{value}");
            last = above(last, value);
        }
    }
    assert!(n_steps(&programs).await >= 40.0, "vacuous: no steps");
    // No number was lost on the way.
    let n_given: i64 = 8 * (1 + 30 + 40 + 7 + 3);
    assert_eq!(last, 10 + 5 * (n_given - 1));
}

for_each_server!(periods_of_a_redis_sequence_count_for_themselves);

async fn periods_of_a_redis_sequence_count_for_themselves(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let options = Program::options().env("ODOMETER_DEFINITION_REFRESH", REFRESH);
    let programs = stage.start(options).await;
    let clients: Vec<Client> = programs.iter().map(Program::client).collect();
    let keyed = json!({"order": "strict", "period": "keyed"});
    clients[0].define("keyed", &keyed).await;
    let daily = json!({"order": "strict", "period": "day"});
    clients[0].define("daily", &daily).await;
    for expected in 1..=20 {
        for (sequence, period) in [
            ("keyed", Some("eod-7")),
            ("keyed", Some("eod-8")),
            ("daily", None),
        ] {
            let asked = period.map_or(String::new(), |period| format!("?period={period}"));
            let path = format!("/v1/sequences/{sequence}/next{asked}");
            let client = &clients[usize::from(expected % 2 == 0)];
            let reply = client.post(&path).await.expect("a reply");
            // The day may change during the test.
            let number = reply.number();
            let is_a_new_day = sequence == "daily" && number < expected;
            assert!(number == expected || is_a_new_day, "{path}: {reply:?}");
        }
    }
    assert!(n_steps(&programs).await >= 60.0, "vacuous: no steps");
    let removal = "/v1/sequences/keyed/periods/eod-7";
    let removed = clients[0].send(Method::DELETE, removal, &[], None).await;
    assert_eq!(removed.expect("a reply").status, 204);
    for client in &clients {
        wait::until("the period is gone", LIMIT, async || {
            let path = "/v1/sequences/keyed/next?period=eod-7";
            let reply = client.post(path).await.expect("a reply");
            (reply.code().as_deref() == Some("period_removed")).then_some(())
        })
        .await;
        let path = "/v1/sequences/keyed/next?period=eod-8";
        let reply = client.post(path).await.expect("a reply");
        assert!(reply.number() > 20, "{reply:?}");
    }
}

/// Returns `number`, which must be above `last`.
fn above(last: i64, number: i64) -> i64 {
    assert!(number > last, "{number} after {last}");
    number
}

async fn change(client: &Client, method: Method, action: &str, body: &Value) -> u16 {
    let path = format!("/v1/sequences/{SEQUENCE}{action}");
    let headers = [("content-type", "application/json")];
    let reply = if body.is_null() {
        client.send(method, &path, &[], None).await
    } else {
        let body = body.to_string().into_bytes();
        client.send(method, &path, &headers, Some(body)).await
    };
    reply.expect("a reply").status
}
