//! Tests time-ordered ids: how callers get them, and how callers read them back.

use std::time::Duration;

use jiff::Timestamp;
use odometer_core::snowflake::{High, Layout, Parts};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::changes::{advance, call, restore, retire};
use crate::support::program;
use crate::support::{
    Backend, Client, Program, Reply, Scrape, TestDatabase, clock::now_ms, for_each_backend,
    for_each_server, run, wait,
};

const LIMIT: Duration = Duration::from_secs(30);
/// How far the time of an id may be from the time at which its reply was read.
const SLACK_MS: i64 = 20_000;

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
}

async fn next(client: &Client, name_and_query: &str) -> Reply {
    let path = format!("/v1/sequences/{name_and_query}");
    client.post(&path).await.expect("a reply")
}

fn parts(layout: &Layout, id: i64) -> Parts {
    let parts = layout.read(id).expect("an id of the layout");
    let off_ms = (layout.unix_ms_of(parts.tick) - now_ms()).abs();
    assert!(off_ms < SLACK_MS, "{id} is {off_ms} ms off");
    parts
}

for_each_backend!(ids_tell_time_and_worker_and_are_read_back);

async fn ids_tell_time_and_worker_and_are_read_back(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    for (name, layout) in [
        ("flakes", Layout::default()),
        ("exact", Layout::preset_53_bit()),
        (
            "counted",
            Layout {
                high: High::Worker,
                ..Layout::default()
            },
        ),
    ] {
        let definition = json!({"kind": "snowflake", "layout": layout});
        client.define(name, &definition).await;
        let one = next(&client, &format!("{name}/next")).await.json();
        assert_eq!(one["period"], Value::Null, "{one}");
        assert_eq!(one["id"], one["value"], "{one}");
        let id: i64 = one["value"]
            .as_str()
            .unwrap_or_default()
            .parse()
            .expect("an id");
        let of_one = parts(&layout, id);
        let batch = next(&client, &format!("{name}/next?count=10000")).await;
        let ids = batch.values();
        assert_eq!(ids.len(), 10_000);
        assert!(id < ids[0] && ids.is_sorted_by(|one, other| one < other));
        let workers = ids.iter().map(|id| parts(&layout, *id).worker);
        assert!(workers.into_iter().all(|worker| worker == of_one.worker));

        let (time, read) = read_back(&client, name, id).await;
        assert_eq!(time, layout.unix_ms_of(of_one.tick), "{read}");
        assert_eq!(read["worker"], of_one.worker, "{read}");
        assert_eq!(read["counter"], of_one.counter, "{read}");

        let described = client.describe(name).await;
        let state = &described["state"];
        assert_eq!(state["worker"], of_one.worker, "{state}");
        assert_eq!(state["lease"]["worker"], of_one.worker, "{state}");
        let left = state["lease"]["seconds_left"].as_f64().unwrap_or_default();
        assert!((600.0..=900.0).contains(&left), "{state}");
        assert_eq!(state["runway"]["limit"], "time", "{state}");
        assert!(
            state["block"].is_null() && state["high_water_mark"].is_null(),
            "{state}"
        );
        assert_eq!(described["blocks"], json!([]));
    }
    let scrape = Scrape::of(&client).await;
    let issued = scrape.sum("odometer_numbers_issued_total", &[("sequence", "flakes")]);
    assert_eq!(issued, 10_001.0);
    assert_eq!(scrape.sum("odometer_worker_ids_held", &[]), 3.0);
    let left = scrape.sum("odometer_worker_lease_seconds", &[]);
    assert!((600.0..=900.0).contains(&left), "{left}");
    program.stop().await;
}

/// Returns the reply of `parse` for an id, and the id's time in Unix milliseconds.
async fn read_back(client: &Client, name: &str, id: i64) -> (i64, Value) {
    let body = json!({"id": id.to_string()});
    let path = format!("{name}/parse");
    let read = call(client, Method::POST, &path, Some(&body), &[]).await;
    let read = read.json();
    assert_eq!(read["value"], id.to_string(), "{read}");
    let time = read["time"].as_str().expect("a time");
    let time: Timestamp = time.parse().expect("RFC 3339");
    (time.as_millisecond(), read)
}

#[test]
fn an_unbroken_range_is_of_one_tick() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        client.define("flakes", &json!({"kind": "snowflake"})).await;
        for count in [1, 100, 4000, 4096] {
            let path = format!("flakes/next?count={count}&contiguous=true");
            let reply = next(&client, &path).await.json();
            assert_eq!(reply["ranges"].as_array().map(Vec::len), Some(1), "{reply}");
            assert_eq!(reply["count"], count);
        }
        let too_many = next(&client, "flakes/next?count=4097&contiguous=true").await;
        refused(&too_many, 400, "invalid_count");
        assert!(too_many.body.contains("4096"), "{too_many:?}");
        // Without `contiguous`, the call succeeds with ranges of two or more ticks.
        let broken = next(&client, "flakes/next?count=4097").await;
        assert!(broken.numbers().len() >= 2, "{broken:?}");

        let few = json!({
            "kind": "snowflake", "block": {"hold": "2s"},
            "layout": {"unit": "1s", "time": 35, "sequence": 2, "high": "worker"}
        });
        client.define("few", &few).await;
        let too_many = next(&client, "few/next?count=5").await;
        refused(&too_many, 400, "invalid_count");
        assert!(too_many.body.contains("at most 4 ids"), "{too_many:?}");
        let too_long = next(&client, "few/next?count=5&contiguous=true").await;
        refused(&too_long, 400, "invalid_count");
        assert_eq!(next(&client, "few/next?count=4").await.values().len(), 4);
    });
}

for_each_backend!(calls_that_time_ordered_sequences_have_no_use_for_are_refused);

async fn calls_that_time_ordered_sequences_have_no_use_for_are_refused(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("flakes", &json!({"kind": "snowflake"})).await;
    // The first round runs before the sequence is in memory, the second round after.
    for _ in 0..2 {
        let blocks = next(&client, "flakes/blocks?size=10").await;
        refused(&blocks, 409, "not_for_kind");
        refused(
            &advance(&client, "flakes", &json!({"floor": "5"})).await,
            409,
            "not_for_kind",
        );
        refused(
            &next(&client, "flakes/next?period=20261122").await,
            400,
            "invalid_period",
        );
        let path = "flakes/periods/eod-7";
        let removed = call(&client, Method::DELETE, path, None, &[]).await;
        refused(&removed, 409, "not_for_kind");
        client.next("flakes").await;
    }
}

for_each_backend!(a_retired_time_ordered_sequence_issues_nothing_until_it_is_restored);

async fn a_retired_time_ordered_sequence_issues_nothing_until_it_is_restored(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("flakes", &json!({"kind": "snowflake"})).await;
    let first = client.next("flakes").await;
    assert_eq!(retire(&client, "flakes").await.status, 204);
    for call in [
        "next",
        "next?count=10",
        "next?count=10&contiguous=true",
        "blocks?size=10",
    ] {
        let reply = next(&client, &format!("flakes/{call}")).await;
        // `blocks` has two reasons for a refusal: the sequence is retired, and its kind has no
        // blocks.
        if call.starts_with("next") {
            refused(&reply, 410, "sequence_retired");
        }
        assert!(reply.status >= 400, "{reply:?}");
    }
    let described = client.describe("flakes").await;
    assert_eq!(described["state"]["lease"], Value::Null, "{described}");
    assert_eq!(restore(&client, "flakes").await.status, 200);
    assert!(client.next("flakes").await > first);
}

for_each_backend!(a_template_creates_time_ordered_sequences_and_a_format_prints_them);

async fn a_template_creates_time_ordered_sequences_and_a_format_prints_them(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__KIND", "snowflake")
        .env("ODOMETER_DEFAULT__FORMAT", "E-{value:b36}")
        .start_ready()
        .await;
    let client = program.client();
    let one = next(&client, "events/next").await.json();
    let id = one["id"].as_str().expect("an id");
    let value: i64 = one["value"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .expect("a number");
    assert!(
        id.starts_with("E-") && parts(&Layout::default(), value).tick > 0,
        "{one}"
    );
    let body = json!({ "id": id });
    let read = call(&client, Method::POST, "events/parse", Some(&body), &[]).await;
    assert_eq!(read.json()["value"], one["value"]);
    // When the format changes, the next id already has the new format.
    client
        .define("events", &json!({"format": "F-{value}"}))
        .await;
    let one = next(&client, "events/next").await.json();
    let expected = format!("F-{}", one["value"].as_str().unwrap_or_default());
    assert_eq!(one["id"], expected, "{one}");
}

for_each_backend!(what_became_of_a_time_ordered_id_is_told_no_further_than_it_is_known);

async fn what_became_of_a_time_ordered_id_is_told_no_further_than_it_is_known(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    client.define("flakes", &json!({"kind": "snowflake"})).await;
    let layout = Layout::default();
    let id = client.next("flakes").await;
    let of_id = layout.read(id).expect("an id");
    wait::until("a tick has passed", LIMIT, async || {
        (parts(&layout, client.next("flakes").await).tick > of_id.tick).then_some(())
    })
    .await;
    let tick_ms = |ms: i64| of_id.tick + u64::try_from(ms).expect("later");
    for (id, fate) in [
        (id, "issued_or_lost"),
        (layout.compose(of_id.worker, tick_ms(600_000), 0), "held"),
        (
            layout.compose(of_id.worker, tick_ms(86_400_000), 0),
            "not_reserved",
        ),
        (layout.compose(of_id.worker + 1, of_id.tick, 0), "no_record"),
    ] {
        let path = format!("/v1/sequences/flakes/explain?id={id}");
        let told = client.get(&path).await.expect("a reply").json();
        assert_eq!(told["fate"], fate, "{told}");
        assert_eq!(told["block"], Value::Null, "{told}");
    }
}

for_each_server!(a_worker_id_may_be_configured_and_is_refused_where_it_is_held);

async fn a_worker_id_may_be_configured_and_is_refused_where_it_is_held(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_WORKER", 3);
    let program = options.start_ready().await;
    let client = program.client();
    client.define("flakes", &json!({"kind": "snowflake"})).await;
    let layout = Layout::default();
    assert_eq!(parts(&layout, client.next("flakes").await).worker, 3);
    let other = options.start_ready().await;
    let held = next(&other.client(), "flakes/next").await;
    refused(&held, 503, "no_worker_id");
    assert!(held.body.contains("worker id 3"), "{held:?}");
    let narrow = json!({"kind": "snowflake", "layout": {"worker": 1}});
    client.define("narrow", &narrow).await;
    let none = next(&client, "narrow/next").await;
    refused(&none, 503, "no_worker_id");
    assert!(none.body.contains("has 2 from 0 on"), "{none:?}");
    program.stop().await;
    // The lease was given back, so another replica gets the worker id at once.
    wait::until("the worker id is free", LIMIT, async || {
        let reply = next(&other.client(), "flakes/next").await;
        (reply.status == 200).then(|| assert_eq!(parts(&layout, reply.number()).worker, 3))
    })
    .await;
}

for_each_server!(where_all_worker_ids_are_held_a_further_replica_is_refused);

async fn where_all_worker_ids_are_held_a_further_replica_is_refused(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let definition = json!({
        "kind": "snowflake", "layout": {"worker": 1}, "block": {"hold": "1h"}
    });
    let mut programs = Vec::new();
    for _ in 0..2 {
        let program = options.start_ready().await;
        program.client().define("flakes", &definition).await;
        program.client().next("flakes").await;
        programs.push(program);
    }
    let third = options.start_ready().await;
    let reply = next(&third.client(), "flakes/next").await;
    refused(&reply, 503, "no_worker_id");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    // A replica that stops gives its worker id back.
    programs.remove(0).stop().await;
    wait::until("a worker id is free", LIMIT, async || {
        let reply = next(&third.client(), "flakes/next").await;
        (reply.status == 200).then_some(())
    })
    .await;
}

for_each_server!(a_lease_that_is_lost_serves_until_it_ends);

async fn a_lease_that_is_lost_serves_until_it_ends(backend: Backend) {
    for configured in [None, Some(3)] {
        let database = TestDatabase::prepared(backend).await;
        let mut options = Program::options().database(&database.url);
        if let Some(worker) = configured {
            options = options.env("ODOMETER_WORKER", worker);
        }
        let program = options.start_ready().await;
        let client = program.client();
        let definition = json!({"kind": "snowflake", "block": {"hold": "6s"}});
        client.define("flakes", &definition).await;
        let layout = Layout::default();
        let began = std::time::Instant::now();
        let mut ids = vec![client.next("flakes").await];
        let worker = parts(&layout, ids[0]).worker;
        // The row looks as if another replica held the worker id.
        database
            .execute(
                "UPDATE worker_lease SET token_hash = 'another', expires_at = expires_at + 60000",
            )
            .await;
        let lost = std::time::Instant::now();
        let refused_after = loop {
            let reply = next(&client, "flakes/next").await;
            if reply.status != 200 {
                refused(&reply, 503, "no_worker_id");
                break Some(lost.elapsed());
            }
            ids.push(reply.number());
            if parts(&layout, reply.number()).worker != worker {
                break None;
            }
            assert!(lost.elapsed() < LIMIT, "it never ends");
        };
        assert_eq!(refused_after.is_some(), configured.is_some());
        // The renewal notices the loss after two seconds. The reserved time lasts for nearly six.
        let least = Duration::from_secs(if configured.is_some() { 5 } else { 1 });
        assert!(began.elapsed() > least, "{refused_after:?}");
        let n_ids = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), n_ids);
        program.stop().await;
    }
}

#[test]
fn whoever_wants_one_id_is_served_beside_those_who_want_whole_ticks() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        client.define("flakes", &json!({"kind": "snowflake"})).await;
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..300 {
                        let reply =
                            next(&client, "flakes/next?count=4096&contiguous=true&ids=false").await;
                        assert_eq!(reply.status, 200, "{reply:?}");
                    }
                })
            })
            .collect();
        let mut n_late = 0;
        let mut n_beside = 0;
        while !callers.iter().all(tokio::task::JoinHandle::is_finished) {
            let asked = std::time::Instant::now();
            client.next("flakes").await;
            // This call would wait for a second if the ids of a batch began as far ahead as a batch
            // may reach.
            n_late += u32::from(asked.elapsed() > Duration::from_millis(800));
            n_beside += 1;
        }
        for caller in callers {
            caller.await.expect("a caller does not fail");
        }
        assert!(n_beside > 20, "vacuous: {n_beside} calls");
        assert!(n_late * 10 < n_beside, "{n_late} of {n_beside} were late");
    });
}
