//! An administrator voids the tokens of leases. The holders may go on to stamp the time that they
//! have reserved, so nobody else gets their ids before the leases have expired.

use std::time::Instant;

use reqwest::Method;
use serde_json::Value;

use super::{LIMIT, Stretch, asked, overlaps};
use crate::support::{
    Backend, Client, Lease, Options, Program, TestDatabase, for_each_backend, wait,
};

const BITS: u32 = 2;
const N_WORKERS: usize = 4;
/// Longer than the calls around a release take on a busy machine.
const TTL_MS: i64 = 15_000;

for_each_backend!(a_pool_that_is_released_rests_until_its_holders_have_no_time_left);

async fn a_pool_that_is_released_rests_until_its_holders_have_no_time_left(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let (stretches, is_given_early) = drained_and_released(&options, backend).await;
    assert_eq!(overlaps(stretches), []);
    assert!(!is_given_early, "an id was given before its lease expired");
}

for_each_backend!(a_release_that_frees_time_gives_it_twice);

async fn a_release_that_frees_time_gives_it_twice(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .without_guards("release-frees-time");
    let (stretches, _) = drained_and_released(&options, backend).await;
    assert_ne!(overlaps(stretches), [], "the check finds nothing");
}

/// Leases all ids of a pool, releases the pool while its holders renew, and leases them again.
/// Returns the time of each lease, as its holder may use it, and whether an id was given before any
/// lease can have expired.
async fn drained_and_released(options: &Options, backend: Backend) -> (Vec<Stretch>, bool) {
    let mut programs = Vec::new();
    for _ in 0..backend.replicas(2) {
        programs.push(options.start_ready().await);
    }
    // The replica that releases is not the one that remembers the leases.
    let clients = [programs.first(), programs.last()];
    let [holders, administrator] = clients.map(|program| program.expect("it runs").client());
    let mut leases = Vec::new();
    let started = Instant::now();
    for n in 0..N_WORKERS {
        let holder = format!("junk-{n}");
        leases.push(holders.lease("billing", BITS, TTL_MS, &holder).await);
    }
    let other = holders.lease("other", BITS, TTL_MS, "kept").await;
    let renewing: Vec<_> = leases
        .into_iter()
        .map(|lease| tokio::spawn(renew_until_lost(holders.clone(), lease)))
        .collect();
    assert_eq!(release(&administrator, "/v1/workers/nobody").await, 204);
    for _twice in 0..2 {
        assert_eq!(release(&administrator, "/v1/workers/billing").await, 204);
    }
    let at_once = asked(&administrator, "billing", BITS, TTL_MS, "at-once").await;
    let is_early = started.elapsed().as_millis() < u128::from(TTL_MS.unsigned_abs());
    let mut leases = Vec::new();
    for renewing in renewing {
        leases.push(renewing.await.expect("a holder does not panic"));
    }
    for lease in &leases {
        let returned = holders.give_back(lease, None).await.expect("a reply");
        assert_eq!(returned.code().as_deref(), Some("lease_lost"));
    }
    let renewed = holders.renew(&other, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "another pool goes on: {renewed:?}");
    let is_free_at_once = at_once.status == 201;
    if is_free_at_once {
        leases.push(Lease::of(&at_once));
    }
    for n in 0..N_WORKERS - usize::from(is_free_at_once) {
        let holder = format!("billing-{n}");
        let lease = wait::until("an id is free", LIMIT, async || {
            let reply = asked(&administrator, "billing", BITS, TTL_MS, &holder).await;
            (reply.status == 201).then(|| Lease::of(&reply))
        });
        leases.push(lease.await);
    }
    for program in programs {
        program.stop().await;
    }
    let stretch = |lease: Lease| Stretch {
        worker: lease.worker,
        from: lease.from_ms,
        to: lease.until_ms,
    };
    let stretches = leases.into_iter().map(stretch).collect();
    (stretches, is_free_at_once && is_early)
}

/// Renews a lease until it is lost. Returns the lease with the time that its holder may use.
async fn renew_until_lost(client: Client, mut lease: Lease) -> Lease {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        let reply = client.renew(&lease, None).await.expect("a reply");
        if reply.status == 200 {
            lease = Lease::of(&reply);
        } else if reply.code().as_deref() == Some("lease_lost") {
            return lease;
        }
    }
    panic!("the lease is never lost: {lease:?}");
}

for_each_backend!(one_worker_id_is_released_and_the_others_go_on);

async fn one_worker_id_is_released_and_the_others_go_on(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    let client = program.client();
    let released = client.lease("billing", BITS, TTL_MS, "released").await;
    let kept = client.lease("billing", BITS, TTL_MS, "kept").await;
    let path = format!("/v1/workers/billing/{}", released.worker);
    let unforced = client.send(Method::DELETE, &path, &[], None).await;
    assert_eq!(unforced.expect("a reply").status, 400, "without its token");
    let forced = format!("{path}?force=true");
    let token = [("odometer-lease", released.token.as_str())];
    let both = client.send(Method::DELETE, &forced, &token, None).await;
    assert_eq!(both.expect("a reply").status, 400, "with both");
    for _twice in 0..2 {
        assert_eq!(release(&client, &forced).await, 204);
    }
    let renewed = client.renew(&released, None).await.expect("a reply");
    assert_eq!(renewed.code().as_deref(), Some("lease_lost"));
    let renewed = client.renew(&kept, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let log = program.stop().await;
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let audited: Vec<Value> = lines
        .filter(|line| line["what"] == "release-workers")
        .collect();
    assert_eq!(audited.len(), 1, "the second release did nothing: {log}");
    let line = &audited[0];
    assert_eq!(
        (&line["pool"], &line["n_leases"]),
        (&"billing".into(), &1.into())
    );
    assert_eq!(
        (&line["worker"], &line["who"]),
        (&released.worker.into(), &"loopback".into())
    );
}

async fn release(client: &Client, path: &str) -> u16 {
    let reply = client.send(Method::DELETE, path, &[], None).await;
    reply.expect("a reply").status
}
