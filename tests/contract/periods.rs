//! Tests calls that name a period: which periods a call may name, and which numbers it then gets.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{Backend, Client, Program, Reply, TestDatabase, for_each_backend, run};

/// Noon on Saturday 14 March 2026, so that no test runs over midnight.
const NOON: &str = "2026-03-14T12:00:00Z";

async fn program(backend: Backend) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let noon: Timestamp = NOON.parse().expect("an instant");
    let ahead: SignedDuration = noon.duration_since(Timestamp::now());
    let ahead_ms = i64::try_from(ahead.as_millis()).expect("a few years");
    let program = Program::options()
        .database(&database.url)
        .clock_ahead(ahead_ms)
        .start_ready()
        .await;
    (database, program)
}

async fn next(client: &Client, sequence: &str, query: &str) -> Reply {
    let path = format!("/v1/sequences/{sequence}/next{query}");
    client.post(&path).await.expect("a reply")
}

async fn is_given(client: &Client, query: &str, period: &str, value: &str) {
    let reply = next(client, "daily", query).await;
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    let body = reply.json();
    assert_eq!(
        (&body["period"], &body["value"]),
        (&json!(period), &json!(value))
    );
}

async fn is_refused(client: &Client, sequence: &str, query: &str, said: &str) {
    let reply = next(client, sequence, query).await;
    assert_eq!(reply.status, 400, "{query}: {reply:?}");
    assert_eq!(reply.code().as_deref(), Some("invalid_period"), "{query}");
    let detail = reply.json()["detail"].to_string();
    assert!(detail.contains(said), "{query}: {detail}");
}

for_each_backend!(a_calendar_period_is_named_within_its_bounds);

async fn a_calendar_period_is_named_within_its_bounds(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("daily", &json!({"period": "day"})).await;
    is_given(&client, "", "20260314", "1").await;
    is_given(&client, "?period=20260314", "20260314", "2").await;
    // Each period has its own counter. The order of the calls does not matter.
    is_given(&client, "?period=20260316", "20260316", "1").await;
    is_given(&client, "?period=20260313", "20260313", "1").await;
    is_given(&client, "?period=20260312", "20260312", "1").await;
    is_given(&client, "?period=20260313", "20260313", "2").await;
    is_given(&client, "", "20260314", "3").await;
    // The 12th ended 36 h ago, the 11th 60 h ago. The 16th begins in 36 h, the 17th in 60 h.
    for day in ["20260311", "20260317", "20250314", "99991231", "19700101"] {
        is_refused(&client, "daily", &format!("?period={day}"), day).await;
    }
    let block = client.post("/v1/sequences/daily/blocks?size=5&period=20260313");
    let block = block.await.expect("a reply").json();
    assert_eq!(block["period"], "20260313", "{block}");
    let closer = json!({"period_back": "0s", "period_ahead": "0s"});
    client.define("daily", &closer).await;
    is_given(&client, "?period=20260314", "20260314", "4").await;
    for day in ["20260313", "20260315"] {
        is_refused(&client, "daily", &format!("?period={day}"), day).await;
    }
}

#[test]
fn what_is_no_period_of_the_sequence_is_refused_with_what_one_is() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        for (name, body) in [
            ("daily", json!({"period": "day"})),
            ("weekly", json!({"period": "week"})),
            (
                "monthly",
                json!({"period": "month", "time_zone": "Asia/Kolkata"}),
            ),
            ("yearly", json!({"period": "year", "year_starts": "04-06"})),
            (
                "samoan",
                json!({"period": "day", "time_zone": "Pacific/Apia", "period_back": "36500d",
                    "retain": "36501d"}),
            ),
            ("batches", json!({"period": "keyed"})),
            ("plain", json!({})),
        ] {
            client.define(name, &body).await;
        }
        for (name, query, said) in [
            ("daily", "?period=2026-03-14", "20261120"),
            ("daily", "?period=20260230", "20261120"),
            ("daily", "?period=", ""),
            ("weekly", "?period=2026W54", "2026W47"),
            ("weekly", "?period=20260314", "2026W47"),
            ("monthly", "?period=202613", "202611"),
            ("yearly", "?period=26", "a year"),
            ("samoan", "?period=20111230", "Pacific/Apia"),
            ("batches", "", ""),
            ("batches", "?period=a%20b", "characters"),
            ("plain", "?period=20260314", ""),
        ] {
            is_refused(&client, name, query, said).await;
        }
        for (name, query, period) in [
            ("weekly", "?period=2026W11", "2026W11"),
            ("monthly", "", "202603"),
            ("yearly", "", "2025"),
            ("samoan", "?period=20111229", "20111229"),
        ] {
            let reply = next(&client, name, query).await;
            assert_eq!(reply.status, 200, "{name}: {reply:?}");
            assert_eq!(reply.json()["period"], period);
            assert_eq!(reply.number(), 1);
        }
    });
}
