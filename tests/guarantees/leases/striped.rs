//! Worker ids of a store with several databases, each of which leases its own ids.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;

use super::{LIMIT, asked};
use crate::support::{
    Backend, Lease, Link, Options, Program, Proxy, Scrape, Server, TestDatabase, run, settled, wait,
};

const KINDS: [Backend; 3] = [Backend::MariaDb, Backend::Postgres, Backend::MariaDb];
const TTL_MS: i64 = 600_000;
const BITS: u32 = 4;

struct Stripes {
    databases: Vec<TestDatabase>,
    proxies: Vec<Proxy>,
    options: Options,
}

async fn stripes() -> Stripes {
    let (mut databases, mut proxies, mut urls) = (Vec::new(), Vec::new(), Vec::new());
    for kind in KINDS {
        let database = TestDatabase::empty(kind).await;
        let server = Server::shared(kind).await;
        let proxy = Proxy::to(server.port()).await;
        urls.push(database.url_through(&proxy, server));
        databases.push(database);
        proxies.push(proxy);
    }
    let options = Program::options()
        .env("ODOMETER_STORES__DEFAULT__DATABASES", urls.join(","))
        .env("ODOMETER_DEFINITION_REFRESH", "2s");
    let migrated = options.run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
    Stripes {
        databases,
        proxies,
        options,
    }
}

#[test]
fn each_database_leases_ids_of_its_own_until_all_are_taken() {
    run(async {
        let stripes = stripes().await;
        let program = stripes.options.start_ready().await;
        let client = program.client();
        let mut leases = Vec::new();
        for n in 0..1 << BITS {
            leases.push(
                client
                    .lease("billing", BITS, TTL_MS, &format!("b-{n}"))
                    .await,
            );
        }
        let ids: BTreeSet<u32> = leases.iter().map(|lease| lease.worker).collect();
        assert_eq!(ids, (0..1 << BITS).collect());
        let refused = asked(&client, "billing", BITS, TTL_MS, "one-more").await;
        assert_eq!(
            refused.code().as_deref(),
            Some("no_worker_id"),
            "{refused:?}"
        );
        for (k, database) in stripes.databases.iter().enumerate() {
            let foreign = format!("SELECT COUNT(*) FROM worker_lease WHERE worker % 3 <> {k}");
            assert_eq!(database.number(&foreign).await, Some(0));
        }
        let listed = client.get("/v1/workers/billing").await.expect("a reply");
        let workers = listed.json()["workers"].as_array().map(Vec::len);
        assert_eq!(workers, Some(1 << BITS), "{listed:?}");
        // A release reaches every database.
        let other = client.lease("other", BITS, TTL_MS, "one").await;
        for n in 1..9 {
            let holder = format!("other-{n}");
            client.lease("other", BITS, TTL_MS, &holder).await;
        }
        let path = "/v1/workers/other";
        let released = client.send(Method::DELETE, path, &[], None).await;
        assert_eq!(released.expect("a reply").status, 204);
        let renewed = client.renew(&other, None).await.expect("a reply");
        assert_eq!(renewed.code().as_deref(), Some("lease_lost"));
        for database in &stripes.databases {
            let of_pool = "SELECT COUNT(*) FROM worker_lease WHERE pool = 'other'";
            assert!(database.number(of_pool).await >= Some(1), "vacuous");
            let kept = format!("{of_pool} AND token_hash <> ''");
            assert_eq!(database.number(&kept).await, Some(0));
        }
        // A holder that comes back gets its former id, no matter which database has it.
        for lease in leases.iter().rev().take(4) {
            let given = client.give_back(lease, Some(lease.from_ms)).await;
            assert_eq!(given.expect("a reply").status, 204);
        }
        for (n, former) in leases.iter().enumerate().rev().take(4) {
            let lease = client
                .lease("billing", BITS, TTL_MS, &format!("b-{n}"))
                .await;
            assert_eq!(lease.worker, former.worker);
        }
    });
}

#[test]
fn with_a_database_away_the_others_lease_theirs() {
    run(async {
        let stripes = stripes().await;
        let program = stripes.options.start_ready().await;
        let client = program.client();
        let held = lease_of(&client, 1).await;
        stripes.proxies[1].set(Link::Cut);
        for n in 0..8 {
            let lease = wait::until("an id is leased", LIMIT, async || {
                let reply = asked(&client, "billing", BITS, TTL_MS, &format!("later-{n}")).await;
                (reply.status == 201).then(|| Lease::of(&reply))
            });
            assert_ne!(lease.await.worker % 3, 1);
        }
        let away = client.renew(&held, None).await.expect("a reply");
        assert_eq!(away.status, 503, "{away:?}");
        stripes.proxies[1].set(Link::Whole);
        wait::until("it is renewed again", LIMIT, async || {
            let reply = client.renew(&held, None).await.expect("a reply");
            (reply.status == 200).then_some(())
        })
        .await;
    });
}

/// A database that is away takes no part in a lease. Neither does it if the name has left memory,
/// and every database is asked for the name again.
#[test]
fn with_a_database_away_a_name_that_left_memory_stamps_again() {
    run(async {
        let stripes = stripes().await;
        let options = stripes.options.clone().env("ODOMETER_IDLE__PARK", "1s");
        let options = options.env("ODOMETER_IDLE__UNLOAD", "2s");
        let program = options.start_ready().await;
        let client = program.client();
        client.define("flakes", &json!({"kind": "snowflake"})).await;
        let mut ids = BTreeSet::new();
        for k in 0..KINDS.len() {
            let next = || client.post("/v1/sequences/flakes/next");
            ids.insert(settled(next).await.number());
            wait::until("the name leaves memory", LIMIT, async || {
                let live = Scrape::of(&client)
                    .await
                    .sum("odometer_live_sequences", &[]);
                (live < 0.5).then_some(())
            })
            .await;
            stripes.proxies[k].set(Link::Cut);
            ids.insert(settled(next).await.number());
            stripes.proxies[k].set(Link::Whole);
        }
        assert_eq!(ids.len(), 2 * KINDS.len());
    });
}

/// Returns a lease from database `k`.
async fn lease_of(client: &crate::support::Client, k: u32) -> Lease {
    for n in 0..9 {
        let lease = client
            .lease("billing", BITS, TTL_MS, &format!("first-{n}"))
            .await;
        if lease.worker % 3 == k {
            return lease;
        }
    }
    panic!("no database but others gives one");
}

#[test]
fn a_width_with_fewer_ids_than_databases_does_without_some() {
    run(async {
        let stripes = stripes().await;
        let program = stripes.options.start_ready().await;
        let client = program.client();
        let one = client.lease("tiny", 1, TTL_MS, "one").await;
        let two = client.lease("tiny", 1, TTL_MS, "two").await;
        let ids = BTreeSet::from([one.worker, two.worker]);
        assert_eq!(ids, BTreeSet::from([0, 1]));
        let refused = asked(&client, "tiny", 1, TTL_MS, "three").await;
        assert_eq!(
            refused.code().as_deref(),
            Some("no_worker_id"),
            "{refused:?}"
        );
    });
}
