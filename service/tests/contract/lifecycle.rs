//! Tests floors, retirement and restoration at one replica.

use std::time::{Duration, SystemTime};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Backend, Client, Range, Reply,
    changes::{advance, call, restore, retire},
    for_each_backend, program, run, wait,
};

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
}

async fn next(client: &Client, name: &str) -> Reply {
    let path = format!("/v1/sequences/{name}/next");
    client.post(&path).await.expect("a reply")
}

async fn tag(client: &Client, name: &str) -> String {
    let path = format!("/v1/sequences/{name}");
    let reply = client.get(&path).await.expect("a reply");
    reply.header("etag").expect("a tag").to_owned()
}

/// Checks `everywhere_by`, from which time on a change holds at every replica. The time must lie
/// ten seconds (`definition_refresh`) after the change, which was made between `asked` and now.
fn assert_everywhere_by(reply: &Value, asked: SystemTime) {
    let by = reply["everywhere_by"].as_str().expect("a time");
    let by: jiff::Timestamp = by.parse().expect("RFC 3339");
    let by = SystemTime::from(by);
    // `everywhere_by` has whole milliseconds.
    let refresh = Duration::from_secs(10) - Duration::from_millis(1);
    assert!(by >= asked + refresh, "{reply}");
    assert!(by <= SystemTime::now() + Duration::from_secs(10), "{reply}");
}

for_each_backend!(
    a_floor_only_rises_and_nothing_below_it_is_issued,
    what_is_in_memory_below_a_floor_is_not_issued,
    a_floor_that_skips_much_has_to_be_confirmed,
    a_retired_sequence_issues_nothing_until_it_is_restored,
    floor_and_life_can_be_changed_on_a_condition,
    what_does_not_exist_is_not_created_by_a_change,
);

async fn a_floor_only_rises_and_nothing_below_it_is_issued(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    client
        .define("raised", &json!({"start": 5, "step": 10}))
        .await;
    let asked = SystemTime::now();
    let reply = advance(&client, "raised", &json!({"floor": "91"})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.header("etag").is_some(), "{reply:?}");
    let raised = reply.json();
    assert_everywhere_by(&raised, asked);
    // The floor is rounded up to the next number of the sequence.
    assert_eq!(raised["sequence"], "raised");
    assert_eq!(raised["floor"], "95", "{raised}");
    assert_eq!(raised["advanced"], true, "{raised}");
    assert_eq!(raised["high_water_mark"], "95", "{raised}");
    assert_eq!(client.next("raised").await, 95);

    let before = tag(&client, "raised").await;
    for floor in [json!(0), json!("5"), json!(95), json!("86")] {
        let reply = advance(&client, "raised", &json!({"floor": floor})).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let reply = reply.json();
        assert_eq!(reply["advanced"], false, "{reply}");
        assert_eq!(reply["floor"], "95", "{reply}");
    }
    assert_eq!(tag(&client, "raised").await, before);
    let version = "SELECT definitions_version FROM meta";
    // The sequence was defined once and advanced once.
    assert_eq!(database.number(version).await, Some(2));
    assert_eq!(client.next("raised").await, 105);
}

async fn what_is_in_memory_below_a_floor_is_not_issued(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("held", &json!({"block": {"min": 100}})).await;
    assert_eq!(client.next("held").await, 1);
    let last = wait::until("a block is held", Duration::from_secs(10), async || {
        let told = client.describe("held").await;
        let block = &told["state"]["block"];
        block.is_object().then(|| Range::identifier(&block["last"]))
    })
    .await;
    // A floor below the high-water mark skips no unreserved numbers. Numbers in memory below the
    // floor are dropped.
    let reply = advance(&client, "held", &json!({"floor": last})).await;
    let reply = reply.json();
    assert_eq!(reply["advanced"], true, "{reply}");
    assert!(
        Range::identifier(&reply["high_water_mark"]) > last,
        "{reply}"
    );
    assert_eq!(client.next("held").await, last);
    let far = last + 1_000_000;
    let reply = advance(&client, "held", &json!({"floor": far.to_string()})).await;
    assert_eq!(reply.json()["high_water_mark"], far.to_string());
    assert_eq!(client.next("held").await, far);
    let batch = client.post("/v1/sequences/held/next?count=500").await;
    let batch = batch.expect("a reply").numbers();
    assert!(batch.iter().all(|range| range.first > far), "{batch:?}");
}

async fn a_floor_that_skips_much_has_to_be_confirmed(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("short", &json!({"max": "1000"})).await;
    let before = tag(&client, "short").await;
    for body in [
        json!({"floor": 500}),
        json!({"floor": 12, "confirm": false}),
    ] {
        let reply = advance(&client, "short", &body).await;
        refused(&reply, 409, "confirm_needed");
        assert!(
            reply.json()["detail"].to_string().contains("1000"),
            "{reply:?}"
        );
    }
    assert_eq!(tag(&client, "short").await, before);
    // 1 % of the numbers that are left may be skipped without `confirm`.
    let reply = advance(&client, "short", &json!({"floor": 11})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let reply = advance(&client, "short", &json!({"floor": 500, "confirm": true})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(client.next("short").await, 500);
    for beyond in [json!(1002), json!("9223372036854775807")] {
        let reply = advance(&client, "short", &json!({"floor": beyond, "confirm": true})).await;
        refused(&reply, 400, "invalid_body");
        assert!(
            reply.json()["detail"].to_string().contains("1000"),
            "{reply:?}"
        );
    }
    // A floor above the last number leaves nothing to issue.
    let reply = advance(&client, "short", &json!({"floor": 1001, "confirm": true})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    refused(&next(&client, "short").await, 409, "sequence_exhausted");
    client.define("short", &json!({"max": "2000"})).await;
    assert_eq!(client.next("short").await, 1001);
}

async fn a_retired_sequence_issues_nothing_until_it_is_restored(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    client.define("tired", &json!({"block": {"min": 50}})).await;
    assert_eq!(client.next("tired").await, 1);
    for _ in 0..2 {
        let reply = retire(&client, "tired").await;
        assert_eq!(reply.status, 204, "{reply:?}");
        assert_eq!(reply.body, "");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
    // This replica issues nothing from now on, neither one number nor several.
    for path in ["next", "next?count=5", "blocks?size=1"] {
        let reply = client.post(&format!("/v1/sequences/tired/{path}")).await;
        refused(&reply.expect("a reply"), 410, "sequence_retired");
    }
    let reply = call(&client, Method::PUT, "tired", Some(&json!({})), &[]).await;
    refused(&reply, 410, "sequence_retired");
    let path = "tired?dry_run=true";
    let reply = call(&client, Method::PUT, path, Some(&json!({})), &[]).await;
    refused(&reply, 410, "sequence_retired");
    let reply = advance(&client, "tired", &json!({"floor": 5})).await;
    refused(&reply, 410, "sequence_retired");
    let told = client.describe("tired").await;
    assert_eq!(told["state"]["retired"], true, "{told}");
    let list = client.get("/v1/sequences").await.expect("a reply").json();
    assert_eq!(list["sequences"][0]["state"], "retired", "{list}");

    let high_water = database.next_value("tired").await.expect("it is kept");
    let asked = SystemTime::now();
    let reply = restore(&client, "tired").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.header("etag").is_some(), "{reply:?}");
    let restored = reply.json();
    assert_everywhere_by(&restored, asked);
    assert_eq!(restored["sequence"], "tired");
    assert_eq!(restored["restored"], true, "{restored}");
    assert_eq!(restored["high_water_mark"], high_water.to_string());
    assert_eq!(client.next("tired").await, high_water);
    let again = restore(&client, "tired").await.json();
    assert_eq!(again["restored"], false, "{again}");
    let told = client.describe("tired").await;
    assert_eq!(told["state"]["retired"], false, "{told}");
    assert_eq!(client.next("tired").await, high_water + 1);
}

async fn floor_and_life_can_be_changed_on_a_condition(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("agreed", &json!({})).await;
    let old = tag(&client, "agreed").await;
    client.define("agreed", &json!({"description": "x"})).await;
    let floor = json!({"floor": 7});
    let calls = [
        (Method::POST, "agreed/advance", Some(&floor)),
        (Method::DELETE, "agreed", None),
        (Method::POST, "agreed/restore", None),
    ];
    for (method, path, body) in &calls {
        let reply = call(&client, method.clone(), path, *body, &[("if-match", &old)]).await;
        refused(&reply, 412, "version_mismatch");
        let headers = [("if-none-match", "*")];
        let reply = call(&client, method.clone(), path, *body, &headers).await;
        refused(&reply, 400, "invalid_parameter");
    }
    for (method, path, body) in calls {
        let now = tag(&client, "agreed").await;
        let reply = call(&client, method, path, body, &[("if-match", &now)]).await;
        assert!(matches!(reply.status, 200 | 204), "{path}: {reply:?}");
        // Each of these calls changes the version.
        assert_ne!(tag(&client, "agreed").await, now, "{path}");
    }
    assert_eq!(client.next("agreed").await, 7);
}

async fn what_does_not_exist_is_not_created_by_a_change(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    for reply in [
        advance(&client, "nobody", &json!({"floor": 7})).await,
        retire(&client, "nobody").await,
        restore(&client, "nobody").await,
        call(&client, Method::DELETE, "nobody/periods/x", None, &[]).await,
    ] {
        refused(&reply, 404, "sequence_not_found");
    }
    let n_sequences = "SELECT COUNT(*) FROM sequence";
    assert_eq!(database.number(n_sequences).await, Some(0));
    client.define("nobody", &json!({})).await;
    let reply = call(&client, Method::DELETE, "nobody/periods/x", None, &[]).await;
    refused(&reply, 409, "not_for_kind");
}

#[test]
fn what_a_change_of_floor_or_life_cannot_read_is_refused() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        client.define("kept", &json!({})).await;
        let before = tag(&client, "kept").await;
        for (body, code) in [
            (json!({}), "invalid_body"),
            (json!([]), "invalid_body"),
            (json!({"floor": null}), "invalid_body"),
            (json!({"floor": "x"}), "invalid_body"),
            (json!({"floor": -1}), "invalid_body"),
            (json!({"floor": 1.5}), "invalid_body"),
            (json!({"floor": 1, "confirm": "yes"}), "invalid_body"),
            (json!({"floor": 1, "flor": 1}), "invalid_body"),
            (json!({"floor": 1, "period": "2026"}), "invalid_period"),
        ] {
            refused(&advance(&client, "kept", &body).await, 400, code);
        }
        let twice = Some(b"{\"floor\":7,\"floor\":8}".to_vec());
        let (path, json) = ("/v1/sequences/kept/advance", "application/json");
        for (body, media_type, status, code) in [
            (twice, json, 400, "invalid_body"),
            (None, json, 400, "invalid_body"),
            (
                Some(b"{\"floor\":7}".to_vec()),
                "text/plain",
                415,
                "unsupported_media_type",
            ),
            (Some(vec![b' '; 20_000]), json, 413, "body_too_large"),
        ] {
            let headers = [("content-type", media_type)];
            let reply = client.send(Method::POST, path, &headers, body).await;
            refused(&reply.expect("a reply"), status, code);
        }
        let floor = json!({"floor": 7});
        for (method, path, body) in [
            (Method::POST, "kept/advance", Some(&floor)),
            (Method::POST, "kept/restore", None),
            (Method::DELETE, "kept", None),
            (Method::DELETE, "kept/periods/x", None),
        ] {
            let asked = format!("{path}?force=true");
            let reply = call(&client, method.clone(), &asked, body, &[]).await;
            refused(&reply, 400, "invalid_parameter");
            if method == Method::POST {
                let key = [("idempotency-key", "1")];
                let reply = call(&client, method.clone(), path, body, &key).await;
                refused(&reply, 400, "invalid_parameter");
            }
            if body.is_none() {
                let fields = json!({"floor": 7});
                let reply = call(&client, method.clone(), path, Some(&fields), &[]).await;
                refused(&reply, 400, "invalid_body");
            }
            let bad = path.replace("kept", "k%20ept");
            let reply = call(&client, method, &bad, body, &[]).await;
            refused(&reply, 400, "invalid_name");
        }
        assert_eq!(tag(&client, "kept").await, before);
        assert_eq!(client.next("kept").await, 1);
    });
}
