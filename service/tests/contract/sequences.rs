//! Tests how sequences are defined, described and listed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Backend, Client, Program, Range, Reply, TestDatabase, for_each_backend, run};

async fn program() -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    (database, program)
}

async fn put(client: &Client, name: &str, body: &Value, headers: &[(&str, &str)]) -> Reply {
    let path = format!("/v1/sequences/{name}");
    client
        .put_with(&path, body, headers)
        .await
        .expect("a reply")
}

/// Returns the definition of a sequence that was created without any setting.
fn defaults() -> Value {
    json!({
        "kind": "block", "start": "1", "step": 1, "max": "9007199254740991", "order": "relaxed",
        "period": "none", "time_zone": "UTC", "cutover": "00:00", "year_starts": "01-01",
        "period_back": "2d", "period_ahead": "2d", "retain": "400d",
        "block": {"min": 1, "max": 1_000_000_000, "hold": "15m", "refill": "30m"},
        "format": "{value}", "overflow": "refuse", "declared_rate": null,
        "limit": {"rate": 100_000, "burst": 10_000_000},
        "store": "default", "description": ""
    })
}

#[test]
fn a_sequence_is_created_with_the_defaults_and_changed_field_by_field() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        let created = put(&client, "orders", &json!({}), &[]).await;
        assert_eq!(created.status, 201, "{created:?}");
        assert_eq!(created.json()["definition"], defaults());
        assert_eq!(created.json()["warnings"], json!([]));

        let change = json!({"block": {"min": 5}, "description": "for orders"});
        let changed = put(&client, "orders", &change, &[]).await;
        assert_eq!(changed.status, 200, "{changed:?}");
        let mut expected = defaults();
        expected["block"]["min"] = json!(5);
        expected["description"] = json!("for orders");
        assert_eq!(changed.json()["definition"], expected);
        let described = client.describe("orders").await;
        assert_eq!(described["definition"], expected);

        // The same body, sent again, changes nothing.
        let before = client.get("/v1/sequences/orders").await.expect("a reply");
        let again = put(&client, "orders", &change, &[]).await;
        assert_eq!(again.status, 200);
        let after = client.get("/v1/sequences/orders").await.expect("a reply");
        assert!(before.header("etag").is_some(), "{before:?}");
        assert_eq!(before.header("etag"), after.header("etag"));
    });
}

for_each_backend!(a_change_can_be_made_conditional);

async fn a_change_can_be_made_conditional(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    let create_only = [("if-none-match", "*")];
    let created = put(&client, "invoices", &json!({}), &create_only).await;
    assert_eq!(created.status, 201, "{created:?}");
    let refused = put(&client, "invoices", &json!({}), &create_only).await;
    assert_eq!(refused.status, 412, "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("already_exists"));

    let described = client.get("/v1/sequences/invoices").await.expect("a reply");
    let tag = described.header("etag").expect("a tag").to_owned();
    let change = |text: &str| json!({"description": text});
    let matching = [("if-match", tag.as_str())];
    let changed = put(&client, "invoices", &change("first"), &matching).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    let refused = put(&client, "invoices", &change("second"), &matching).await;
    assert_eq!(refused.status, 412, "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("version_mismatch"));
    let described = client.describe("invoices").await;
    assert_eq!(described["definition"]["description"], "first");
}

#[test]
fn what_was_counted_from_cannot_be_changed() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        client
            .define("fixed", &json!({"start": "100", "step": 2}))
            .await;
        for (field, value) in [("start", json!("1")), ("step", json!(3))] {
            let reply = put(&client, "fixed", &json!({field: value}), &[]).await;
            assert_eq!(reply.status, 409, "{field}: {reply:?}");
            assert_eq!(reply.code().as_deref(), Some("immutable_field"));
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains(field), "{detail}");
        }
        // `max` must not fall below the reserved numbers.
        assert_eq!(client.next("fixed").await, 100);
        let blocks = "/v1/sequences/fixed/blocks?size=1000";
        assert_eq!(client.post(blocks).await.expect("a reply").status, 200);
        let reply = put(&client, "fixed", &json!({"max": "110"}), &[]).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("invalid_definition"));
        assert_eq!(client.next("fixed").await % 2, 0);
    });
}

#[test]
fn what_there_is_not_is_refused_by_name() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        for (field, value) in [("kind", json!("dice")), ("store", json!("other"))] {
            let reply = put(&client, "later", &json!({field: value}), &[]).await;
            assert_eq!(reply.status, 400, "{field}: {reply:?}");
            assert_eq!(reply.code().as_deref(), Some("invalid_definition"));
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains(field), "{detail}");
        }
        // The refused calls created nothing. A definition that states the defaults is accepted.
        let reply = client.get("/v1/sequences/later").await.expect("a reply");
        assert_eq!(reply.status, 404, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("sequence_not_found"));
        client.define("later", &defaults()).await;
    });
}

for_each_backend!(a_sequence_tells_what_it_does);

async fn a_sequence_tells_what_it_does(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    client.define("told", &json!({"block": {"min": 100}})).await;
    assert_eq!(client.next("told").await, 1);
    // The caller who waited for the block is answered before the rest of the block is in memory.
    let told = crate::support::wait::until(
        "the block is in memory",
        std::time::Duration::from_secs(20),
        async || {
            let told = client.describe("told").await;
            told["state"]["block"].is_object().then_some(told)
        },
    )
    .await;
    let state = &told["state"];
    assert_eq!(state["period"], Value::Null);
    let high_water_mark = Range::identifier(&state["high_water_mark"]);
    // One block was reserved, and perhaps already the next one.
    assert!(matches!(high_water_mark, 101 | 201), "{told}");
    assert_eq!(state["block"]["first"], "1", "{told}");
    assert_eq!(state["block"]["last"], "100", "{told}");
    assert_eq!(state["block"]["remaining"], 99, "{told}");
    assert_eq!(state["block"]["size"], 100, "{told}");
    assert!(state["why"].is_string(), "{told}");
    assert!(state["rate"].is_number(), "{told}");
    assert!(state["last_refill"].is_string(), "{told}");
    for key in ["next_block", "reserve_seconds", "runway"] {
        assert!(state.get(key).is_some(), "{key} in {told}");
    }
    // The journal is written when the block is already in use.
    crate::support::wait::until(
        "the block is in the journal",
        std::time::Duration::from_secs(20),
        async || {
            let told = client.describe("told").await;
            let blocks = told["blocks"].as_array()?;
            let first = blocks.iter().find(|block| block["first"] == "1")?;
            assert_eq!(first["last"], "100", "{told}");
            assert_eq!(first["fate"], "held", "{told}");
            Some(())
        },
    )
    .await;
}

#[test]
fn sequences_are_listed_by_prefix_and_in_pages() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        for name in ["a-1", "a-2", "a-3", "b-1", "B-2", "a"] {
            client.define(name, &json!({})).await;
        }
        let names = |page: &Value| -> Vec<String> {
            let sequences = page["sequences"].as_array().expect("a list");
            sequences
                .iter()
                .map(|sequence| {
                    let name = sequence.get("sequence").or_else(|| sequence.get("name"));
                    name.and_then(Value::as_str).expect("a name").to_owned()
                })
                .collect()
        };
        let list = async |query: &str| {
            let path = format!("/v1/sequences{query}");
            let reply = client.get(&path).await.expect("a reply");
            assert_eq!(reply.status, 200, "{reply:?}");
            reply.json()
        };
        assert_eq!(
            names(&list("").await),
            ["B-2", "a", "a-1", "a-2", "a-3", "b-1"]
        );
        assert_eq!(names(&list("?prefix=a-").await), ["a-1", "a-2", "a-3"]);
        assert_eq!(names(&list("?prefix=A-").await), Vec::<String>::new());
        let mut seen = Vec::new();
        let mut page = list("?limit=2").await;
        loop {
            seen.extend(names(&page));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            page = list(&format!("?limit=2&after={next}")).await;
        }
        assert_eq!(seen, ["B-2", "a", "a-1", "a-2", "a-3", "b-1"]);
        for limit in ["0", "1001", "x", ""] {
            let path = format!("/v1/sequences?limit={limit}");
            let reply = client.get(&path).await.expect("a reply");
            assert_eq!(reply.status, 400, "{limit}: {reply:?}");
        }
    });
}

#[test]
fn an_unknown_name_is_refused_where_the_configuration_says_so() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_UNKNOWN", "reject")
            .start_ready()
            .await;
        let client = program.client();
        for path in ["next", "blocks?size=1"] {
            let path = format!("/v1/sequences/typo/{path}");
            let reply = client.post(&path).await.expect("a reply");
            assert_eq!(reply.status, 404, "{reply:?}");
            assert_eq!(reply.code().as_deref(), Some("sequence_not_found"));
        }
        client.define("typo", &json!({})).await;
        assert_eq!(client.next("typo").await, 1);
    });
}

#[test]
fn names_are_created_up_to_their_bound() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_MAX_SEQUENCES", 3)
            .start_ready()
            .await;
        let client = program.client();
        for name in ["one", "two", "three"] {
            assert_eq!(client.next(name).await, 1);
        }
        let reply = client
            .post("/v1/sequences/four/next")
            .await
            .expect("a reply");
        assert_eq!(reply.status, 409, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("too_many_sequences"));
        assert_eq!(client.next("one").await, 2);
        // A retired name makes room, up to ten retired names for each that is allowed.
        let mut last = "three".to_owned();
        for nth in 0..30 {
            let path = format!("/v1/sequences/{last}");
            let retired = client.send(Method::DELETE, &path, &[], None).await;
            assert_eq!(retired.expect("a reply").status, 204);
            if nth < 29 {
                last = format!("junk-{nth}");
                assert_eq!(client.next(&last).await, 1);
            }
        }
        let taken = client.post("/v1/sequences/four/next").await;
        let defined = client.put("/v1/sequences/four", &json!({})).await;
        for refused in [taken, defined] {
            let code = refused.expect("a reply").code();
            assert_eq!(code.as_deref(), Some("too_many_sequences"));
        }
    });
}
