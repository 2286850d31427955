//! Tests what callers can use up for good: numbers, names, keys and worker ids.
//!
//! Each attack was made on a service without roles first, and did what its test says here.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{ADMIN, Roles, TestCaller, get, post, refused, send};
use crate::support::{Backend, Client, Options, Program, Reply, for_each_backend, run, wait};

/// A role that may do what callers can do without roles, within quotas.
const ACCESS: &str = "\
[access.roles.greedy]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
lease = [\"*\"]
numbers = \"5k/s\"
names = 20
workers = 16
[access.roles.modest]
take = [\"orders\"]
lease = [\"*\"]
[access.roles.definer]
take = [\"*\"]
block = [\"*\"]
create = [\"*\"]
define = [\"*\"]
names = 20
[[template]]
match = \"*-small\"
share = \"misc\"
";

/// How long something may take that comes within a second.
const LIMIT: Duration = Duration::from_secs(30);

/// The numbers of an `int4`.
const INT4: i64 = i32::MAX as i64;

struct Cast {
    greedy: TestCaller,
    modest: TestCaller,
    definer: TestCaller,
}

async fn start(backend: Backend, options: Options) -> (Roles, Cast) {
    let cast = Cast {
        greedy: TestCaller::new("greedy", "greedy"),
        modest: TestCaller::new("modest", "modest"),
        definer: TestCaller::new("definer", "definer"),
    };
    let all = [&cast.greedy, &cast.modest, &cast.definer];
    let sections: String = all.iter().map(|caller| caller.section()).collect();
    let roles = Roles::start_on(backend, options, ACCESS, &sections).await;
    (roles, cast)
}

pub(super) async fn define(client: &Client, name: &str, definition: Value) {
    let path = format!("/v1/sequences/{name}");
    let made = send(client, ADMIN, (Method::PUT, &path, Some(&definition))).await;
    assert_eq!(made.status, 201, "{made:?}");
}

pub(super) async fn high_water_mark(client: &Client, name: &str) -> i64 {
    let path = format!("/v1/sequences/{name}");
    let shown = get(client, ADMIN, &path).await.json();
    let mark = shown["state"]["high_water_mark"].as_str();
    mark.and_then(|mark| mark.parse().ok()).expect("a number")
}

/// Takes as many numbers of an `int4` as come, by blocks of the largest size and by large batches.
/// Returns how many are gone, and how many the quota allows in that time at most.
async fn used_up(roles: &Roles, caller: &TestCaller) -> (i64, i64) {
    let client = roles.client();
    define(&client, "int4", json!({"max": INT4.to_string()})).await;
    let began = Instant::now();
    for _ in 0..50 {
        for call in [
            "blocks?size=500000",
            "blocks?size=50000",
            "next?count=10000&ids=false",
        ] {
            let path = format!("/v1/sequences/int4/{call}");
            let reply = post(&client, &caller.token, &path).await;
            assert!([200, 400, 429].contains(&reply.status), "{reply:?}");
        }
    }
    let passed = i64::try_from(began.elapsed().as_secs()).expect("no such time") + 1;
    // The burst and the rate, and what a replica reserves ahead.
    let most = 50_000 + 5000 * passed + 3 * INT4 / 4096;
    (high_water_mark(&client, "int4").await, most)
}

#[test]
fn a_caller_uses_up_an_int4_no_faster_than_its_quota_allows() {
    run(async {
        let (roles, cast) = start(Backend::Sqlite, Program::options()).await;
        let (gone, most) = used_up(&roles, &cast.greedy).await;
        assert!(gone > 40_000, "vacuous: {gone}");
        assert!(gone < most, "{gone} of {most}");
    });
}

#[test]
fn without_a_quota_an_int4_is_used_up() {
    run(async {
        let options = Program::options().without_guards("quota-uncounted");
        let (roles, cast) = start(Backend::Sqlite, options).await;
        let (gone, most) = used_up(&roles, &cast.greedy).await;
        assert!(gone > most, "{gone} of {most}");
    });
}

/// Takes all 9,999 numbers of a sequence in one call.
async fn take_all(roles: &Roles, caller: &TestCaller, more: &str) -> Reply {
    let path = format!("/v1/sequences/small/next?count=9999&ids=false{more}");
    post(&roles.client(), &caller.token, &path).await
}

#[test]
fn no_call_takes_all_numbers_unless_a_definer_confirms_it() {
    run(async {
        let (roles, cast) = start(Backend::Sqlite, Program::options()).await;
        let client = roles.client();
        define(&client, "small", json!({"max": "9999"})).await;
        for caller in [&cast.greedy, &cast.definer] {
            let reply = take_all(&roles, caller, "").await;
            refused(&reply, 409, "confirm_needed", "all numbers");
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains("1% of the 9999 that are left"), "{detail}");
        }
        let reply = take_all(&roles, &cast.greedy, "&confirm=true").await;
        refused(&reply, 403, "forbidden", "confirmed without the right");
        assert_eq!(
            high_water_mark(&client, "small").await,
            1,
            "nothing is gone"
        );
        // What is small enough is taken, from memory and from the store.
        for _ in 0..3 {
            let path = "/v1/sequences/small/next?count=100";
            let reply = post(&client, &cast.greedy.token, path).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            let path = "/v1/sequences/small/next?count=101";
            let reply = post(&client, &cast.greedy.token, path).await;
            refused(&reply, 409, "confirm_needed", path);
        }
        let path = "/v1/sequences/small/next?count=9000&confirm=true";
        let reply = post(&client, &cast.definer.token, path).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let metrics = get(&client, ADMIN, "/metrics").await.body;
        let counted = "odometer_quota_refused_total{role=\"greedy\",quota=\"share\"} 4";
        assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    });
}

#[test]
fn without_a_share_one_call_takes_all_numbers() {
    run(async {
        let options = Program::options().without_guards("quota-uncounted");
        let (roles, cast) = start(Backend::Sqlite, options).await;
        define(&roles.client(), "small", json!({"max": "9999"})).await;
        let reply = take_all(&roles, &cast.greedy, "").await;
        assert_eq!(reply.status, 200, "{reply:?}");
    });
}

/// Uses new names until 60 are used. Returns how many there were.
async fn fill_names(roles: &Roles, caller: &TestCaller) -> usize {
    let client = roles.client();
    let mut n_made = 0;
    for n in 0..60 {
        let path = format!("/v1/sequences/junk-{n}/next");
        let reply = post(&client, &caller.token, &path).await;
        match reply.status {
            200 => n_made += 1,
            _ => refused(&reply, 409, "too_many_sequences", &path),
        }
    }
    n_made
}

for_each_backend!(
    junk_names_end_at_the_quota_and_an_administrator_goes_on,
    without_a_quota_of_names_the_store_is_full_of_junk,
    keys_count_as_names_do,
    calls_at_once_share_what_is_left,
    ids_that_rest_count,
    a_pool_is_not_drained_and_an_administrator_frees_it,
);

async fn junk_names_end_at_the_quota_and_an_administrator_goes_on(backend: Backend) {
    let options = Program::options().env("ODOMETER_MAX_SEQUENCES", 40);
    let (roles, cast) = start(backend, options).await;
    let client = roles.client();
    assert_eq!(fill_names(&roles, &cast.greedy).await, 20);
    // A name that was used goes on.
    let used = post(&client, &cast.greedy.token, "/v1/sequences/junk-0/next").await;
    assert_eq!(used.status, 200, "{used:?}");
    // Definitions count as much as first calls.
    let call = (Method::PUT, "/v1/sequences/defined", Some(&json!({})));
    let reply = send(&client, &cast.definer.token, call).await;
    refused(&reply, 409, "too_many_sequences", "a definition");
    define(&client, "orders", json!({})).await;
    // What is retired makes room, within the second that a refusal lasts.
    for n in 0..5 {
        let path = format!("/v1/sequences/junk-{n}");
        let retired = send(&client, ADMIN, (Method::DELETE, &path, None)).await;
        assert_eq!(retired.status, 204, "{retired:?}");
    }
    let made = wait::until("there is room", LIMIT, async || {
        let path = "/v1/sequences/after/next";
        let reply = post(&client, &cast.greedy.token, path).await;
        (reply.status == 200).then_some(())
    });
    made.await;
}

/// Negative control: what the quota is for.
async fn without_a_quota_of_names_the_store_is_full_of_junk(backend: Backend) {
    let options = Program::options()
        .env("ODOMETER_MAX_SEQUENCES", 40)
        .without_guards("quota-uncounted");
    let (roles, cast) = start(backend, options).await;
    assert_eq!(fill_names(&roles, &cast.greedy).await, 40);
    let call = (Method::PUT, "/v1/sequences/orders", Some(&json!({})));
    let reply = send(&roles.client(), ADMIN, call).await;
    refused(&reply, 409, "too_many_sequences", "the administrator");
}

async fn keys_count_as_names_do(backend: Backend) {
    let (roles, cast) = start(backend, Program::options()).await;
    let client = roles.client();
    define(&client, "tickets", json!({"period": "keyed"})).await;
    // Periods of the calendar are no keys.
    define(
        &client,
        "daily",
        json!({"period": "day", "description": "\"period\":\"keyed\""}),
    )
    .await;
    let daily = post(&client, ADMIN, "/v1/sequences/daily/next").await;
    assert_eq!(daily.status, 200, "{daily:?}");
    let mut n_keys = 0;
    for n in 0..30 {
        let path = format!("/v1/sequences/tickets/next?period=key-{n}");
        let reply = post(&client, &cast.greedy.token, &path).await;
        match reply.status {
            200 => n_keys += 1,
            _ => refused(&reply, 409, "too_many_periods", &path),
        }
    }
    assert_eq!(n_keys, 18, "two names and their keys are 20");
}

/// Calls that would each be the last one that the quota allows.
async fn calls_at_once_share_what_is_left(backend: Backend) {
    let (roles, cast) = start(backend, Program::options()).await;
    let client = roles.client();
    let mut calls = JoinSet::new();
    for n in 0..60 {
        let (client, token) = (client.clone(), cast.greedy.token.clone());
        calls.spawn(async move {
            let path = format!("/v1/sequences/junk-{n}/next");
            post(&client, &token, &path).await
        });
    }
    let replies = calls.join_all().await;
    let n_made = replies.iter().filter(|reply| reply.status == 200).count();
    let path = "/v1/sequences?prefix=junk";
    let listed = get(&client, ADMIN, path).await.json();
    let n_listed = listed["sequences"].as_array().map_or(0, Vec::len);
    // A call that came too late for its reply may have created its name all the same.
    assert!(n_made >= 1 && n_made <= n_listed, "{n_made}: {listed}");
    assert!(n_listed <= 20, "{listed}");
}

/// A definer who has used up its quota, with names `defined-0` to `defined-19`.
async fn start_full() -> (Roles, Cast) {
    let (roles, cast) = start(Backend::Sqlite, Program::options()).await;
    for n in 0..20 {
        let reply = put(&roles, &cast.definer, &format!("defined-{n}")).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    (roles, cast)
}

async fn put(roles: &Roles, caller: &TestCaller, name: &str) -> Reply {
    let path = format!("/v1/sequences/{name}");
    let call = (Method::PUT, &*path, Some(&json!({})));
    send(&roles.client(), &caller.token, call).await
}

#[test]
fn a_definer_makes_no_room_by_retiring_and_restoring() {
    run(async {
        let (roles, cast) = start_full().await;
        let client = roles.client();
        let path = "/v1/sequences/defined-0";
        let call = (Method::DELETE, path, None);
        let retired = send(&client, &cast.definer.token, call).await;
        assert_eq!(retired.status, 204, "{retired:?}");
        wait::until("there is room", LIMIT, async || {
            let reply = put(&roles, &cast.definer, "another").await;
            (reply.status == 201).then_some(())
        })
        .await;
        let restore = format!("{path}/restore");
        let reply = post(&client, &cast.definer.token, &restore).await;
        refused(&reply, 409, "too_many_sequences", "a restored name");
        // What lives is neither restored nor created.
        let live = post(
            &client,
            &cast.definer.token,
            "/v1/sequences/another/restore",
        )
        .await;
        assert_eq!(live.status, 200, "{live:?}");
        let changed = put(&roles, &cast.definer, "another").await;
        assert_eq!(changed.status, 200, "{changed:?}");
    });
}

/// The first call of a shared name leaves it in memory under the sequence that gives its numbers.
#[test]
fn a_shared_name_is_no_way_round_the_quota() {
    run(async {
        let (roles, cast) = start_full().await;
        for _ in 0..3 {
            let reply = put(&roles, &cast.definer, "new-small").await;
            refused(&reply, 409, "too_many_sequences", "a shared name");
        }
    });
}

#[test]
fn a_key_that_is_advanced_counts_too() {
    run(async {
        let (roles, cast) = start_full().await;
        let client = roles.client();
        define(&client, "tickets", json!({"period": "keyed"})).await;
        let body = json!({"period": "fr", "floor": "7"});
        let path = "/v1/sequences/tickets/advance";
        let call = (Method::POST, path, Some(&body));
        let reply = send(&client, &cast.definer.token, call).await;
        refused(&reply, 409, "too_many_periods", "an advanced key");
        let path = "/v1/sequences/tickets/periods/fr";
        let call = (Method::DELETE, path, None);
        let reply = send(&client, &cast.definer.token, call).await;
        refused(&reply, 409, "too_many_periods", "a removed key");
    });
}

/// Leases worker ids for an hour, and gives each back with its time. So it rests for an hour.
async fn ids_that_rest_count(backend: Backend) {
    let (roles, cast) = start(backend, Program::options()).await;
    let client = roles.client();
    let bearer = format!("Bearer {}", cast.greedy.token);
    let mut n_leased = 0;
    for n in 0..40 {
        let reply = lease(&client, &cast.greedy, &format!("greedy-{n}")).await;
        if reply.status != 201 {
            refused(&reply, 429, "quota_exceeded", "a worker id");
            continue;
        }
        n_leased += 1;
        let leased = reply.json();
        let path = format!("/v1/workers/small/{}", leased["worker"]);
        let token = leased["token"].as_str().expect("a token");
        let headers = [("authorization", &*bearer), ("odometer-lease", token)];
        let returned = client.send(Method::DELETE, &path, &headers, None).await;
        assert_eq!(returned.expect("a reply").status, 204);
    }
    assert_eq!(n_leased, 16);
}

/// Leases worker ids for an hour until 40 are leased. Returns how many there were.
async fn drain(roles: &Roles, caller: &TestCaller) -> usize {
    let client = roles.client();
    let mut n_leased = 0;
    for n in 0..40 {
        let reply = lease(&client, caller, &format!("greedy-{n}")).await;
        match reply.status {
            201 => n_leased += 1,
            429 => refused(&reply, 429, "quota_exceeded", "a worker id"),
            _ => refused(&reply, 503, "no_worker_id", "a worker id"),
        }
    }
    n_leased
}

async fn lease(client: &Client, caller: &TestCaller, holder: &str) -> Reply {
    let body = json!({"pool": "small", "bits": 5, "ttl_ms": 3_600_000, "holder": holder});
    let call = (Method::POST, "/v1/workers", Some(&body));
    send(client, &caller.token, call).await
}

async fn a_pool_is_not_drained_and_an_administrator_frees_it(backend: Backend) {
    let (roles, cast) = start(backend, Program::options()).await;
    let client = roles.client();
    assert_eq!(drain(&roles, &cast.greedy).await, 16);
    let other = lease(&client, &cast.modest, "modest").await;
    assert_eq!(other.status, 201, "half of the pool is free: {other:?}");
    let call = (Method::DELETE, "/v1/workers/small", None);
    let freed = send(&client, ADMIN, call).await;
    assert_eq!(freed.status, 204, "{freed:?}");
    let me = get(&client, &cast.greedy.token, "/v1/me").await.json();
    let quotas = (&me["names"], &me["workers"], &me["share"]);
    assert_eq!(quotas, (&json!(20), &json!(16), &json!("1%")), "{me}");
}

/// Negative control: what the quota is for.
#[test]
fn without_a_quota_of_worker_ids_a_pool_is_drained() {
    run(async {
        let options = Program::options().without_guards("quota-uncounted");
        let (roles, cast) = start(Backend::Sqlite, options).await;
        assert_eq!(drain(&roles, &cast.greedy).await, 32);
        let other = lease(&roles.client(), &cast.modest, "modest").await;
        refused(&other, 503, "no_worker_id", "nothing is left");
    });
}

#[test]
fn nobody_squats_a_name_before_its_owner_defines_it() {
    run(async {
        let (roles, cast) = start(Backend::Sqlite, Program::options()).await;
        let client = roles.client();
        let path = "/v1/sequences/orders/next";
        let reply = post(&client, &cast.modest.token, path).await;
        refused(&reply, 403, "forbidden", "the first use");
        define(&client, "orders", json!({"start": "5000"})).await;
        let reply = post(&client, &cast.modest.token, path).await;
        assert_eq!(reply.json()["value"], "5000", "{reply:?}");
    });
}

/// Without roles, too, on a listener that others reach.
#[test]
fn strangers_create_no_name_beyond_loopback() {
    run(async {
        for (unknown, status) in [(None, 404), (Some("create"), 200)] {
            let mut options = Program::options().env("ODOMETER_LISTEN", "0.0.0.0:0");
            if let Some(unknown) = unknown {
                options = options.env("ODOMETER_UNKNOWN", unknown);
            }
            let program = options.start_ready().await;
            for call in ["next", "blocks?size=7"] {
                let path = format!("/v1/sequences/orders/{call}");
                let reply = program.client().post(&path).await.expect("a reply");
                assert_eq!(reply.status, status, "{path}: {reply:?}");
                if status == 404 {
                    refused(&reply, 404, "sequence_not_found", &path);
                    let detail = reply.json()["detail"].to_string();
                    assert!(detail.contains("`unknown` is `reject`"), "{detail}");
                }
            }
        }
    });
}

/// The log names who did what cannot be undone.
#[test]
fn first_uses_blocks_and_pools_are_in_the_audit() {
    run(async {
        let (roles, cast) = start(Backend::Sqlite, Program::options()).await;
        let client = roles.client();
        for path in ["next", "next", "blocks?size=7", "next?count=9999"] {
            let path = format!("/v1/sequences/told/{path}");
            let reply = post(&client, &cast.greedy.token, &path).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        for holder in ["a", "b"] {
            let reply = lease(&client, &cast.greedy, holder).await;
            assert_eq!(reply.status, 201, "{reply:?}");
        }
        let reply = post(&client, &cast.modest.token, "/v1/sequences/told/next").await;
        refused(&reply, 403, "forbidden", "no right");
        let expected = [
            ("first-use", "greedy", "told"),
            ("reserve-block", "greedy", "told"),
            ("new-pool", "greedy", "small"),
            ("take", "modest", ""),
        ];
        let told = wait::until("the log has it", LIMIT, async || {
            let told = audited(&roles.program);
            (told.len() >= expected.len()).then_some(told)
        });
        let told = told.await;
        let told: Vec<(&str, &str, &str)> = told
            .iter()
            .map(|(what, who, on)| (&**what, &**who, &**on))
            .collect();
        assert_eq!(told, expected);
    });
}

fn audited(program: &Program) -> Vec<(String, String, String)> {
    let lines = program.log_lines();
    let lines = lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines = lines.filter(|line| line["target"] == "odometer::audit");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = lines.map(|line| {
        let on = match text(&line["sequence"]) {
            sequence if sequence.is_empty() => text(&line["pool"]),
            sequence => sequence,
        };
        (text(&line["what"]), text(&line["who"]), on)
    });
    told.collect()
}
