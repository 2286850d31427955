//! All ids of a pool are taken, and the next caller gets a clear refusal.

use super::{LIMIT, asked};
use crate::support::{
    Backend, Client, Lease, Program, Scrape, TestDatabase, for_each_backend, run, wait,
};
use reqwest::Method;
use std::{collections::BTreeSet, time::Instant};

const TTL_MS: i64 = 600_000;
const BITS: u32 = 10;
const N_WORKERS: usize = 1024;
/// The number of callers at the same time.
const N_CALLERS: usize = 8;

for_each_backend!(of_1024_leases_all_differ_and_the_next_is_refused);

async fn of_1024_leases_all_differ_and_the_next_is_refused(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..backend.replicas(2) {
        programs.push(options.start_ready().await);
    }
    let callers: Vec<_> = (0..N_CALLERS)
        .map(|n| tokio::spawn(take(programs[n % programs.len()].client(), n)))
        .collect();
    let mut leases = Vec::new();
    for caller in callers {
        leases.extend(caller.await.expect("a caller does not panic"));
    }
    assert_eq!(leases.len(), N_WORKERS);
    let ids: BTreeSet<u32> = leases.iter().map(|lease| lease.worker).collect();
    assert_eq!(ids.len(), N_WORKERS);
    assert!(ids.iter().all(|id| *id < 1 << BITS), "{ids:?}");

    let client = programs[0].client();
    let refused = asked(&client, "full", BITS, TTL_MS, "one-more").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("no_worker_id"));
    assert!(refused.body.contains("1024"), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    let n_refused = Scrape::of(&client)
        .await
        .sum("odometer_worker_leases_refused_total", &[]);
    assert_eq!(n_refused, 1.0);
    // Another pool has ids of its own.
    client.lease("empty", BITS, TTL_MS, "one-more").await;

    let given = &leases[7];
    let back = client.give_back(given, Some(given.from_ms)).await;
    assert_eq!(back.expect("a reply").status, 204);
    let next = wait::until("the one that is free is given", LIMIT, async || {
        let reply = asked(&client, "full", BITS, TTL_MS, "one-more").await;
        (reply.status == 201).then(|| Lease::of(&reply))
    });
    assert_eq!(next.await.worker, given.worker);
}

for_each_backend!(worker_ids_above_the_end_of_their_pool_are_found_out);

async fn worker_ids_above_the_end_of_their_pool_are_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let program = options.without_guards("no-pool-end").start_ready().await;
    let mut ids = BTreeSet::new();
    for n in 0..3 {
        let holder = format!("holder-{n}");
        let lease = program.client().lease("full", 1, TTL_MS, &holder).await;
        ids.insert(lease.worker);
    }
    assert_eq!(ids, BTreeSet::from([0, 1, 2]), "of a pool with one bit");
}

#[test]
fn pools_that_nobody_used_of_late_do_not_count() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.start_ready().await;
        let client = program.client();
        let old = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) \
                   INSERT INTO worker_lease (pool, worker, bits, holder, token_hash, expires_at, \
                   reserved_until, version, reserved_from, ttl_ms, ended) \
                   SELECT 'old-' || i, 0, 10, 'h', 'x', 0, 0, 1, 0, 1000, 1 FROM n";
        database.execute(old).await;
        client.lease("one-more", BITS, TTL_MS, "one").await;
        let hour_ago = "UPDATE worker_lease SET expires_at = (unixepoch() - 3600) * 1000";
        database.execute(hour_ago).await;
        let refused = asked(&client, "yet-another", BITS, TTL_MS, "one").await;
        assert_eq!(refused.status, 409, "{refused:?}");
        assert_eq!(refused.code().as_deref(), Some("too_many_sequences"));
        // A pool that exists already can still lease.
        client.lease("old-7", BITS, TTL_MS, "one").await;
        // So can a new one, if an administrator has released one.
        for pool in ["old-8", "old-9"] {
            let path = format!("/v1/workers/{pool}");
            let released = client.send(Method::DELETE, &path, &[], None).await;
            assert_eq!(released.expect("a reply").status, 204);
        }
        client.lease("yet-another", BITS, TTL_MS, "one").await;
    });
}

async fn take(client: Client, caller: usize) -> Vec<Lease> {
    let mut leases = Vec::new();
    for n in 0..N_WORKERS / N_CALLERS {
        let holder = format!("holder-{caller}-{n}");
        let started = Instant::now();
        loop {
            let reply = asked(&client, "full", BITS, TTL_MS, &holder).await;
            if reply.status == 201 {
                leases.push(Lease::of(&reply));
                break;
            }
            // Many callers want the same ids. On a slow disk the time ends in the middle of a
            // write.
            let code = reply.code().unwrap_or_default();
            let is_late = code == "refill_timeout" || reply.body.contains("may have been");
            assert!(is_late, "{reply:?}");
            assert!(started.elapsed() < LIMIT, "{holder} gets none");
        }
    }
    leases
}

for_each_backend!(a_holder_that_comes_back_gets_its_former_id);

async fn a_holder_that_comes_back_gets_its_former_id(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    let client = program.client();
    let mut leases = Vec::new();
    for n in 0..5 {
        leases.push(
            client
                .lease("pods", BITS, TTL_MS, &format!("pod-{n}"))
                .await,
        );
    }
    for lease in &leases {
        let back = client.give_back(lease, Some(lease.from_ms)).await;
        assert_eq!(back.expect("a reply").status, 204);
    }
    program.stop().await;
    let program = options.start_ready().await;
    let client = program.client();
    for (n, former) in leases.iter().enumerate().rev() {
        let lease = client
            .lease("pods", BITS, TTL_MS, &format!("pod-{n}"))
            .await;
        assert_eq!(lease.worker, former.worker);
    }
}

for_each_backend!(how_full_the_fullest_pool_is_can_be_seen);

async fn how_full_the_fullest_pool_is_can_be_seen(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s");
    let program = options.start_ready().await;
    let client = program.client();
    client.lease("wide", BITS, TTL_MS, "only-one").await;
    let mut leases = Vec::new();
    for n in 0..4 {
        let holder = format!("holder-{n}");
        leases.push(client.lease("narrow", 2, TTL_MS, &holder).await);
    }
    let shows = async |part: f64| {
        wait::until(&format!("{part} is shown"), LIMIT, async || {
            let scrape = Scrape::of(&program.client()).await;
            let shown = scrape.sum("odometer_worker_ids_taken_ratio", &[]);
            (shown == part).then_some(())
        })
        .await;
    };
    shows(1.0).await;
    for lease in &leases[..3] {
        let back = client.give_back(lease, None).await;
        assert_eq!(back.expect("a reply").status, 204);
    }
    shows(0.25).await;
}
