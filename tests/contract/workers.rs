//! Tests worker ids for programs that have a snowflake library of their own.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Backend, Client, Lease, Program, Reply, TestDatabase, for_each_backend, run};

const TTL_MS: i64 = 30_000;

async fn started(backend: Backend) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    (database, program)
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("a clock").as_millis()).expect("a moment")
}

async fn listed(client: &Client, pool: &str) -> Value {
    let reply = client.get(&format!("/v1/workers/{pool}")).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
    let media_type = reply.header("content-type");
    assert_eq!(media_type, Some("application/problem+json"), "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    if status == 503 {
        let seconds = reply.header("retry-after").expect("when to come back");
        let seconds: u64 = seconds.parse().expect("seconds");
        assert!((1..=60).contains(&seconds), "{seconds}");
    }
}

for_each_backend!(a_worker_id_is_leased_renewed_and_given_back);

async fn a_worker_id_is_leased_renewed_and_given_back(backend: Backend) {
    let (_database, program) = started(backend).await;
    let client = program.client();
    let before = now_ms();
    let body = json!({"pool": "billing", "bits": 10, "ttl_ms": TTL_MS, "holder": "billing-7"});
    let reply = client.ask_for_worker(&body).await.expect("a reply");
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let lease = Lease::of(&reply);
    let after = now_ms();
    assert_eq!((lease.pool.as_str(), lease.worker), ("billing", 0));
    assert_eq!(lease.token.len(), 32, "{lease:?}");
    assert!(lease.from_ms <= before, "{lease:?}");
    let until = before + TTL_MS..=after + TTL_MS + 2000;
    assert!(until.contains(&lease.until_ms), "{lease:?}");
    assert_eq!(lease.renew_after_ms, TTL_MS / 3);

    let renewed = client.renew(&lease, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let renewed = Lease::of(&renewed);
    assert_eq!((renewed.worker, &renewed.token), (0, &lease.token));
    assert_eq!(renewed.from_ms, lease.from_ms);
    assert!(renewed.until_ms >= lease.until_ms);
    assert_eq!(renewed.renew_after_ms, TTL_MS / 3);
    let longer = json!({"ttl_ms": 60_000});
    let longer = client.renew(&lease, Some(&longer)).await.expect("a reply");
    let longer = Lease::of(&longer);
    assert_eq!(longer.renew_after_ms, 20_000);
    assert!(longer.until_ms >= before + 60_000);
    // A shorter lease does not take back time that was already reserved.
    let shorter = json!({"ttl_ms": 1000});
    let shorter = client.renew(&lease, Some(&shorter)).await.expect("a reply");
    assert_eq!(Lease::of(&shorter).until_ms, longer.until_ms);

    let other = client.lease("billing", 10, TTL_MS, "billing-8").await;
    assert_eq!(other.worker, 1, "nobody else has it");
    let pool = listed(&client, "billing").await;
    assert_eq!(pool["pool"], "billing");
    assert_eq!(pool["bits"], 10);
    assert_eq!(pool["next"], Value::Null);
    let workers = pool["workers"].as_array().expect("a list");
    assert_eq!(workers.len(), 2, "{pool}");
    assert_eq!(workers[0]["worker"], 0);
    assert_eq!(workers[0]["holder"], "billing-7");
    assert_eq!(workers[0]["held"], true);
    assert_eq!(workers[0]["until_ms"], longer.until_ms);
    assert!(!pool.to_string().contains(&lease.token), "{pool}");

    let unused = now_ms() + 5;
    let given = client
        .give_back(&lease, Some(unused))
        .await
        .expect("a reply");
    assert_eq!((given.status, given.body.as_str()), (204, ""));
    let again = client
        .give_back(&lease, Some(unused))
        .await
        .expect("a reply");
    assert_eq!(again.status, 204, "repeatable: {again:?}");
    let late = client.renew(&lease, None).await.expect("a reply");
    refused(&late, 409, "lease_lost");
    let pool = listed(&client, "billing").await;
    assert_eq!(pool["workers"][0]["held"], false);
    assert_eq!(pool["workers"][0]["until_ms"], unused);
    // The same holder gets the worker id again, with the time from the first unused moment on.
    let back = client.lease("billing", 10, TTL_MS, "billing-7").await;
    assert_eq!((back.worker, back.from_ms), (0, unused));
    assert_ne!(back.token, lease.token);
    program.stop().await;
}

#[test]
fn an_id_given_back_without_a_word_rests() {
    run(async {
        let (_database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        let lease = client.lease("billing", 1, TTL_MS, "one").await;
        let given = client.give_back(&lease, None).await.expect("a reply");
        assert_eq!(given.status, 204, "{given:?}");
        let back = client.lease("billing", 1, TTL_MS, "one").await;
        assert_eq!((back.worker, back.from_ms), (0, lease.until_ms));
        assert!(back.until_ms >= back.from_ms);
    });
}

#[test]
fn an_id_that_was_never_used_is_preferred_to_one_that_rests() {
    run(async {
        let (_database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        let one = client.lease("billing", 2, TTL_MS, "one").await;
        client.give_back(&one, None).await.expect("a reply");
        let workers: Vec<u32> = [
            client.lease("billing", 2, TTL_MS, "two").await,
            client.lease("billing", 2, TTL_MS, "three").await,
            client.lease("billing", 2, TTL_MS, "four").await,
            client.lease("billing", 2, TTL_MS, "five").await,
        ]
        .iter()
        .map(|lease| lease.worker)
        .collect();
        assert_eq!(workers, [1, 2, 3, 0]);
    });
}

#[test]
fn what_is_not_the_holders_is_refused() {
    run(async {
        let (_database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        let lease = client.lease("billing", 10, TTL_MS, "billing-7").await;
        for token in [
            "",
            "x",
            "00000000000000000000000000000000",
            "token with spaces",
        ] {
            let stranger = Lease {
                token: token.to_owned(),
                ..lease.clone()
            };
            let renewed = client.renew(&stranger, None).await.expect("a reply");
            refused(&renewed, 409, "lease_lost");
            let given = client.give_back(&stranger, None).await.expect("a reply");
            refused(&given, 409, "lease_lost");
        }
        for worker in [1, 1023, 4_000_000_000] {
            let stranger = Lease {
                worker,
                ..lease.clone()
            };
            let renewed = client.renew(&stranger, None).await.expect("a reply");
            refused(&renewed, 409, "lease_lost");
        }
        for unused in [lease.from_ms - 1, lease.until_ms + 1, i64::MIN, i64::MAX] {
            let given = client
                .give_back(&lease, Some(unused))
                .await
                .expect("a reply");
            refused(&given, 400, "invalid_parameter");
        }
        let without = client
            .send(Method::POST, "/v1/workers/billing/0/renew", &[], None)
            .await
            .expect("a reply");
        refused(&without, 400, "invalid_parameter");
        assert_eq!(
            Lease::of(&client.renew(&lease, None).await.expect("a reply")).worker,
            0
        );
    });
}

#[test]
fn what_is_asked_for_badly_is_refused_and_leases_nothing() {
    run(async {
        let (database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        let good = json!({"pool": "billing", "bits": 10, "ttl_ms": TTL_MS, "holder": "b"});
        for (field, value, code) in [
            ("bits", json!(0), "invalid_parameter"),
            ("bits", json!(23), "invalid_parameter"),
            ("bits", json!("10"), "invalid_body"),
            ("ttl_ms", json!(999), "invalid_parameter"),
            ("ttl_ms", json!(3_600_001), "invalid_parameter"),
            ("ttl_ms", Value::Null, "invalid_body"),
            ("holder", json!(""), "invalid_parameter"),
            ("holder", json!("a\nb"), "invalid_parameter"),
            ("holder", json!("a".repeat(129)), "invalid_parameter"),
            ("pool", json!("/orders"), "invalid_name"),
            ("pool", json!(""), "invalid_name"),
            ("worker", json!(3), "invalid_body"),
        ] {
            let mut body = good.clone();
            body[field] = value;
            let reply = client.ask_for_worker(&body).await.expect("a reply");
            refused(&reply, 400, code);
        }
        let text = client.send(
            Method::POST,
            "/v1/workers",
            &[],
            Some(good.to_string().into()),
        );
        refused(&text.await.expect("a reply"), 415, "unsupported_media_type");
        let query = "/v1/workers/billing?limit=0";
        refused(
            &client.get(query).await.expect("a reply"),
            400,
            "invalid_parameter",
        );
        let foreign = "/v1/workers/billing/x";
        let deleted = client.send(Method::DELETE, foreign, &[("odometer-lease", "x")], None);
        refused(&deleted.await.expect("a reply"), 400, "invalid_parameter");
        let got = client.get("/v1/workers").await.expect("a reply");
        refused(&got, 405, "method_not_allowed");
        assert_eq!(got.header("allow"), Some("POST"));
        let key = [
            ("content-type", "application/json"),
            ("idempotency-key", "1"),
        ];
        let keyed = client.send(
            Method::POST,
            "/v1/workers",
            &key,
            Some(good.to_string().into()),
        );
        refused(&keyed.await.expect("a reply"), 400, "invalid_parameter");
        let n_rows = database.number("SELECT COUNT(*) FROM worker_lease").await;
        assert_eq!(n_rows, Some(0));
        let empty = listed(&client, "billing").await;
        assert_eq!(
            (&empty["bits"], &empty["workers"]),
            (&Value::Null, &json!([]))
        );
    });
}

#[test]
fn a_pool_has_one_width() {
    run(async {
        let (_database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        client.lease("billing", 10, TTL_MS, "one").await;
        let other = json!({"pool": "billing", "bits": 5, "ttl_ms": TTL_MS, "holder": "two"});
        let reply = client.ask_for_worker(&other).await.expect("a reply");
        refused(&reply, 409, "immutable_field");
        assert!(reply.body.contains("`bits`"), "{reply:?}");
        assert!(reply.body.contains("10"), "{reply:?}");
        client.lease("shipping", 5, TTL_MS, "two").await;
    });
}

#[test]
fn a_listing_comes_in_pages() {
    run(async {
        let (_database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        for n in 0..5 {
            client.lease("billing", 3, TTL_MS, &format!("b-{n}")).await;
        }
        let page = listed(&client, "billing?limit=2").await;
        let workers = |page: &Value| -> Vec<i64> {
            let workers = page["workers"].as_array().expect("a list");
            let ids = workers.iter().map(|row| row["worker"].as_i64());
            ids.map(|id| id.expect("a worker id")).collect()
        };
        assert_eq!((workers(&page), &page["next"]), (vec![0, 1], &json!(1)));
        let rest = listed(&client, "billing?after=1&limit=3").await;
        assert_eq!(
            (workers(&rest), &rest["next"]),
            (vec![2, 3, 4], &Value::Null)
        );
    });
}

#[test]
fn a_lease_ends_by_itself_and_its_id_goes_to_the_next() {
    run(async {
        let (_database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        let one = client.lease("billing", 1, 5000, "one").await;
        let two = client.lease("billing", 1, TTL_MS, "two").await;
        assert_ne!(one.worker, two.worker);
        let asked = json!({"pool": "billing", "bits": 1, "ttl_ms": 1000, "holder": "three"});
        let reply = client.ask_for_worker(&asked).await.expect("a reply");
        refused(&reply, 503, "no_worker_id");
        let three = crate::support::wait::until("it ends", Duration::from_secs(20), async || {
            let reply = client.ask_for_worker(&asked).await.expect("a reply");
            (reply.status == 201).then(|| Lease::of(&reply))
        });
        let three = three.await;
        assert_eq!(three.worker, one.worker);
        assert!(three.from_ms >= one.until_ms, "{one:?} {three:?}");
        let late = client.renew(&one, None).await.expect("a reply");
        refused(&late, 409, "lease_lost");
        let late = client.give_back(&one, None).await.expect("a reply");
        refused(&late, 409, "lease_lost");
    });
}

#[test]
fn nobody_hears_a_token_twice() {
    run(async {
        let (database, program) = started(Backend::Sqlite).await;
        let client = program.client();
        let lease = client.lease("billing", 10, TTL_MS, "billing-7").await;
        let hash = database.query("SELECT token_hash FROM worker_lease").await;
        let hash: String = hash[0].try_get_by_index(0).expect("a text");
        assert!(hash.len() == 64 && !hash.contains(&lease.token), "{hash}");
        let log = program.stop().await;
        assert!(!log.contains(&lease.token) && !log.contains(&hash), "{log}");
    });
}
