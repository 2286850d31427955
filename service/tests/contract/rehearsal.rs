//! Tests dry runs of a change, and the warnings about a definition.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Backend, Client, Program, Reply, Scrape, TestDatabase, changes::call, for_each_backend,
    program, run, wait,
};

const LIMIT: Duration = Duration::from_secs(30);

async fn rehearse(client: &Client, name: &str, body: &Value, headers: &[(&str, &str)]) -> Reply {
    let path = format!("{name}?dry_run=true");
    call(client, Method::PUT, &path, Some(body), headers).await
}

/// Returns the number of sequences, and the number of changes of definitions.
async fn rows(database: &TestDatabase) -> (Option<i64>, Option<i64>) {
    (
        database.number("SELECT COUNT(*) FROM sequence").await,
        database
            .number("SELECT definitions_version FROM meta")
            .await,
    )
}

#[test]
fn a_dry_run_tells_what_comes_next_of_a_name_at_rest() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.env("ODOMETER_IDLE__PARK", "1s").start_ready().await;
        let client = program.client();
        client.define("rested", &json!({})).await;
        assert_eq!(client.next("rested").await, 1);
        wait::until("the name is at rest", LIMIT, async || {
            let actors = Scrape::of(&client).await.sum("odometer_actors", &[]);
            (actors < 0.5).then_some(())
        })
        .await;
        let told = rehearse(&client, "rested", &json!({"max": "100000"}), &[]).await;
        assert_eq!(told.json()["samples"], json!(["2", "3", "4"]), "{told:?}");
        assert_eq!(client.next("rested").await, 2);
    });
}

for_each_backend!(a_dry_run_tells_what_would_be_and_changes_nothing);

async fn a_dry_run_tells_what_would_be_and_changes_nothing(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    let before = rows(&database).await;
    let wanted = json!({"start": "10", "step": 5, "max": "100"});
    let reply = rehearse(&client, "tried", &wanted, &[]).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let told = reply.json();
    assert_eq!(told["definition"]["start"], "10", "{told}");
    assert_eq!(told["definition"]["block"]["hold"], "15m", "{told}");
    let warnings = told["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 1, "{told}");
    assert_eq!(told["samples"], json!(["10", "15", "20"]), "{told}");
    assert_eq!(told["runway"]["numbers_left"], 19, "{told}");
    assert_eq!(rows(&database).await, before);
    let path = "/v1/sequences/tried";
    assert_eq!(client.get(path).await.expect("a reply").status, 404);

    client.define("tried", &wanted).await;
    assert_eq!(client.next("tried").await, 10);
    let described = client.get(path).await.expect("a reply");
    let tag = described.header("etag").expect("a tag").to_owned();
    let before = rows(&database).await;
    let raised = json!({"max": "1000"});
    // After its reservation, a block is for a moment neither in the store nor in memory.
    wait::until("what comes next is told", LIMIT, async || {
        let told = rehearse(&client, "tried", &raised, &[("if-match", &tag)]).await;
        assert_eq!(told.status, 200, "{told:?}");
        let told = told.json();
        assert_eq!(told["definition"]["max"], "1000", "{told}");
        (told["samples"] == json!(["15", "20", "25"])).then_some(())
    })
    .await;
    // A dry run refuses what the change would refuse, and changes nothing.
    for (body, headers, status, code) in [
        (json!({"step": 7}), &[][..], 409, "immutable_field"),
        (json!({"max": "5"}), &[], 400, "invalid_definition"),
        (json!({}), &[("if-none-match", "*")], 412, "already_exists"),
        (json!({}), &[("if-match", "\"0\"")], 412, "version_mismatch"),
    ] {
        let reply = rehearse(&client, "tried", &body, headers).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
    }
    let after = client.get(path).await.expect("a reply");
    assert_eq!(after.header("etag"), Some(tag.as_str()));
    assert_eq!(after.json()["definition"]["max"], "100");
    assert_eq!(rows(&database).await, before);
    assert_eq!(client.next("tried").await, 15);
}

#[test]
fn a_rehearsal_of_the_last_numbers_shows_as_many_as_there_are() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let told = rehearse(&client, "two", &json!({"max": "2"}), &[]).await;
        assert_eq!(told.json()["samples"], json!(["1", "2"]));
        client.define("two", &json!({"max": "2"})).await;
        assert_eq!(client.next("two").await, 1);
        assert_eq!(client.next("two").await, 2);
        let told = rehearse(&client, "two", &json!({}), &[]).await.json();
        assert_eq!(told["samples"], json!([]), "{told}");
        assert_eq!(told["runway"]["numbers_left"], 0, "{told}");
    });
}

for_each_backend!(a_range_too_short_for_a_reserve_is_always_told);

async fn a_range_too_short_for_a_reserve_is_always_told(backend: Backend) {
    const TOLD: &str = "A block has at most 2 numbers, 1/4096 of what is left";
    let (database, program) = program(backend).await;
    let client = program.client();
    let four_digits = json!({"format": "{value:04}"});
    let tried = rehearse(&client, "orders", &four_digits, &[]).await.json();
    let created = client.define("orders", &four_digits).await.json();
    // The warning comes again as long as its reason lasts: if nothing changes, and for each period.
    let repeated = client.define("orders", &json!({})).await.json();
    let by_day = json!({"format": "{period}-{value:04}", "period": "day"});
    let by_day = client.define("daily", &by_day).await.json();
    for reply in [tried, created, repeated, by_day] {
        assert!(reply["warnings"].to_string().contains(TOLD), "{reply}");
    }
    let wide = json!({"format": "{value:04}", "overflow": "widen"});
    let wide = client.define("wide", &wide).await.json();
    assert_eq!(wide["warnings"], json!([]), "{wide}");
    program.stop().await;

    let folder = crate::support::directory("short");
    let file = folder.path().join("short.toml");
    std::fs::write(&file, "[sequences.short]\nformat = \"{value:04}\"\n").expect("a file");
    let file = file.display().to_string();
    let options = Program::options().database(&database.url);
    for arguments in [&["apply", &file, "--dry-run"][..], &["apply", &file]] {
        let applied = options.run(arguments);
        assert_eq!(applied.code, Some(0), "{applied}");
        assert!(applied.output.contains(TOLD), "{applied}");
    }
}

for_each_backend!(what_may_surprise_is_told);

async fn what_may_surprise_is_told(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    let put = async |body: Value| -> String {
        let reply = client.define("odd", &body).await.json();
        let warnings = reply["warnings"].as_array().expect("a list").clone();
        let told = warnings
            .iter()
            .map(|text| text.as_str().expect("a sentence"));
        told.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(put(json!({"max": "9007199254740991"})).await, "");
    let told = put(json!({"max": "9007199254740992"})).await;
    assert!(told.contains("JavaScript"), "{told}");
    // The warning comes again as long as its reason lasts, even if nothing changes.
    assert_eq!(put(json!({})).await, told);
    let told = put(json!({"max": "1000000", "block": {"refill": "1m"}})).await;
    assert!(told.contains("`block.refill` (1m)"), "{told}");
    let told = put(json!({"block": {"refill": "1h"}})).await;
    assert!(!told.contains("refill"), "{told}");

    // The warnings use the rate that is stored with the counter.
    assert_eq!(client.next("odd").await, 1);
    // The rate is written in each round, because the next block of the name would overwrite it.
    wait::until("the rate is met", LIMIT, async || {
        database.execute("UPDATE counter SET rate = 2").await;
        let told = put(json!({"description": "x"})).await;
        let is_met = told.contains("`block.hold` (15m) takes 1800");
        (is_met && told.contains(" days.")).then_some(())
    })
    .await;
}

for_each_backend!(names_that_may_have_been_meant_are_suggested);

async fn names_that_may_have_been_meant_are_suggested(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_UNKNOWN", "reject")
        .start_ready()
        .await;
    let client = program.client();
    for name in [
        "Orders",
        "orders-eu",
        "tickets",
        "ticket.s",
        "retired-orders",
    ] {
        client.define(name, &json!({})).await;
    }
    for n in 0..200 {
        let row = format!("('oz-{n:03}', '{{}}', 'live', '', 0, 0, 0)");
        database
            .execute(&format!("INSERT INTO sequence VALUES {row}"))
            .await;
    }
    let retired = call(&client, Method::DELETE, "ticket.s", None, &[]).await;
    assert_eq!(retired.status, 204, "{retired:?}");
    let floor = json!({"floor": 5});
    let refusals = [
        (Method::POST, "oders/next", None),
        (Method::POST, "orders/blocks?size=1", None),
        (Method::GET, "ORDERS.EU", None),
        (Method::DELETE, "tickes", None),
        (Method::POST, "Tickets/advance", Some(&floor)),
        (Method::POST, "Oders/restore", None),
    ];
    let meant = "Orders Orders orders-eu tickets tickets Orders".split(' ');
    for ((method, path, body), meant) in refusals.into_iter().zip(meant) {
        // Only a few searches a second are made, so a second call may be needed.
        let found = wait::until(meant, LIMIT, async || {
            let reply = call(&client, method.clone(), path, body, &[]).await;
            assert_eq!(
                reply.code().as_deref(),
                Some("sequence_not_found"),
                "{reply:?}"
            );
            let problem = reply.json();
            let detail = problem["detail"].as_str()?.to_owned();
            let is_one = detail.contains("Did you mean");
            is_one.then(|| (detail, problem["suggestions"].clone()))
        });
        let (detail, suggestions) = found.await;
        assert!(detail.contains(&format!("`{meant}`")), "{path}: {detail}");
        assert!(!detail.contains("ticket.s"), "{path}: {detail}");
        // A program finds the same names in a field of their own, the nearest first.
        let names = suggestions.as_array().expect("a list");
        assert!(names.contains(&json!(meant)), "{path}: {names:?}");
        for name in names {
            let name = name.as_str().expect("a name");
            assert!(detail.contains(&format!("`{name}`")), "{path}: {detail}");
        }
    }
    let reply = client.post("/v1/sequences/quite-another/next").await;
    let problem = reply.expect("a reply").json();
    let detail = problem["detail"].to_string();
    assert!(!detail.contains("mean"), "{detail}");
    assert_eq!(problem.get("suggestions"), None, "{problem}");
}
