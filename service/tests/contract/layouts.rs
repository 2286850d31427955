//! Tests the definitions of time-ordered sequences, as the API takes and shows them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Backend, Program, Reply, TestDatabase, changes::call, for_each_backend, program, run,
};

for_each_backend!(a_layout_is_completed_shown_and_kept);

async fn a_layout_is_completed_shown_and_kept(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    let put = async |name: &str, body: Value| {
        let reply: Reply = call(&client, Method::PUT, name, Some(&body), &[]).await;
        (reply.status, reply.json())
    };
    let (status, created) = put("flakes", json!({"kind": "snowflake"})).await;
    assert_eq!(status, 201, "{created}");
    let layout = json!({
        "high": "time", "epoch": "2026-01-01T00:00:00Z", "unit": "1ms",
        "time": 41, "worker": 10, "sequence": 12
    });
    assert_eq!(created["definition"]["layout"], layout);
    // A program that reads ids as floating point would get other numbers than were issued.
    let warnings = created["warnings"].to_string();
    assert!(warnings.contains("9007199254740991"), "{warnings}");
    // The shown definition can be sent back, and so can the original one.
    for body in [created["definition"].clone(), json!({"kind": "snowflake"})] {
        let (status, again) = put("flakes", body).await;
        assert_eq!(status, 200, "{again}");
        assert_eq!(again["definition"], created["definition"]);
    }
    for (body, field) in [
        (json!({"kind": "block"}), "kind"),
        (json!({"layout": "53-bit"}), "layout"),
        (json!({"layout": {"worker": 9}}), "layout"),
    ] {
        let (status, refused) = put("flakes", body).await;
        assert_eq!((status, &refused["code"]), (409, &json!("immutable_field")));
        assert!(refused["detail"].to_string().contains(field), "{refused}");
    }
    let shown = client.get("/v1/sequences/flakes").await.expect("a reply");
    let shown = shown.json();
    assert_eq!(shown["definition"]["layout"], layout);
    assert_eq!(shown["state"]["runway"]["limit"], "time", "{shown}");

    let (status, worker) = put(
        "w",
        json!({"kind": "snowflake", "layout": {"high": "worker"}}),
    )
    .await;
    assert_eq!(status, 201, "{worker}");
    assert_eq!(worker["definition"]["layout"]["high"], "worker");
}

#[test]
fn what_no_layout_can_be_is_refused_with_its_field() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        for (body, said) in [
            (json!({"layout": "53 bits"}), "`layout` must be"),
            (json!({"layout": {"time": 42}}), "63 bits"),
            (
                json!({"layout": {"bits": 42}}),
                "`layout.bits` is not a field",
            ),
            (
                json!({"layout": {"epoch": "2026"}}),
                "`layout.epoch` must be",
            ),
            (
                json!({"layout": {"epoch": "2999-01-01T00:00:00Z"}}),
                "`layout.epoch` must not lie in the future",
            ),
            (
                json!({"layout": {"time": 38, "unit": "1ms"}}),
                "`layout.time` must last for 10 years or more",
            ),
            (json!({"step": 10}), "`step` must be left out"),
            (json!({"period": "day"}), "`period` must be left out"),
            (json!({"format": "{value:08}"}), "`format` has room"),
            (
                json!({"block": {"hold": "1s"}}),
                "`block.hold` must be 2s or more",
            ),
            (
                json!({"kind": "block", "layout": {}}),
                "`layout` is for `kind`",
            ),
        ] {
            let mut body = body;
            if body["kind"].is_null() {
                body["kind"] = json!("snowflake");
            }
            for path in ["never", "never?dry_run=true"] {
                let reply = call(&client, Method::PUT, path, Some(&body), &[]).await;
                assert_eq!(reply.status, 400, "{body}: {reply:?}");
                assert_eq!(reply.code().as_deref(), Some("invalid_definition"));
                let detail = reply.json()["detail"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                assert!(detail.contains(said), "{detail}");
            }
        }
        let reply = client.get("/v1/sequences/never").await.expect("a reply");
        assert_eq!(reply.status, 404, "{reply:?}");
    });
}

#[test]
fn a_rehearsal_shows_ids_of_now_and_when_time_ends() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let body = json!({
            "kind": "snowflake", "layout": "53-bit", "format": "T{value}", "declared_rate": 1e6
        });
        let path = "tried?dry_run=true";
        let reply = call(&client, Method::PUT, path, Some(&body), &[]).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let told = reply.json();
        let samples = told["samples"].as_array().expect("samples");
        let ids: Vec<i64> = samples
            .iter()
            .filter_map(|id| id.as_str()?.strip_prefix('T')?.parse().ok())
            .collect();
        assert_eq!(ids.len(), 3, "{told}");
        assert!(ids.is_sorted_by(|one, next| one < next), "{told}");
        assert!(ids.iter().all(|id| (1..1 << 53).contains(id)), "{told}");
        let runway = &told["runway"];
        assert_eq!(runway["limit"], "time", "{told}");
        let years = runway["days_left"].as_f64().expect("days") / 365.25;
        assert!((70.0..88.0).contains(&years), "{told}");
        assert_eq!(runway["limits"].as_array().map(Vec::len), Some(1));
        // A warning says that a replica cannot issue as many ids as the declared rate.
        assert!(told["warnings"].to_string().contains("51200"), "{told}");
    });
}

#[test]
fn a_template_of_another_kind_is_in_nobodys_way() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_DEFAULT__STEP", 10)
            .env("ODOMETER_DEFAULT__PERIOD", "day")
            .env("ODOMETER_DEFAULT__DESCRIPTION", "of all kinds")
            .start_ready()
            .await;
        let client = program.client();
        let body = json!({"kind": "snowflake"});
        let reply = call(&client, Method::PUT, "flakes", Some(&body), &[]).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let definition = &reply.json()["definition"];
        assert_eq!(definition["step"], 1);
        assert_eq!(definition["description"], "of all kinds");
    });
}

#[test]
fn a_template_whose_time_has_not_begun_creates_nothing() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_DEFAULT__KIND", "snowflake")
            .env("ODOMETER_DEFAULT__LAYOUT__EPOCH", "2999-01-01T00:00:00Z")
            .start_ready()
            .await;
        let client = program.client();
        let reply = client.post("/v1/sequences/later/next").await;
        let reply = reply.expect("a reply");
        assert_eq!(
            reply.code().as_deref(),
            Some("invalid_definition"),
            "{reply:?}"
        );
        let reply = client.get("/v1/sequences/later").await.expect("a reply");
        assert_eq!(reply.status, 404, "{reply:?}");
    });
}
