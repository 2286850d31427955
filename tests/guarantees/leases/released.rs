//! An administrator ends leases without their tokens. The holders may go on to stamp the time that
//! they have reserved, so nobody else gets that time.

use reqwest::Method;

use super::{LIMIT, Stretch, asked, overlaps};
use crate::support::{
    Backend, Client, Lease, Options, Program, TestDatabase, for_each_backend, wait,
};

const BITS: u32 = 2;
const N_WORKERS: usize = 4;
/// Long enough to ask for the release before it is over.
const TTL_MS: i64 = 10_000;

for_each_backend!(a_pool_that_is_released_rests_until_its_holders_have_no_time_left);

async fn a_pool_that_is_released_rests_until_its_holders_have_no_time_left(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let stretches = drained_and_released(&options).await;
    assert_eq!(overlaps(stretches), [], "{backend:?}");
}

for_each_backend!(a_release_that_frees_time_gives_it_twice);

async fn a_release_that_frees_time_gives_it_twice(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .without_guards("release-frees-time");
    let stretches = drained_and_released(&options).await;
    assert_ne!(overlaps(stretches), [], "the check finds nothing");
}

/// Leases all ids of a pool, releases the pool and leases them again. Returns the time of each
/// lease, as its holder may use it.
async fn drained_and_released(options: &Options) -> Vec<Stretch> {
    let program = options.start_ready().await;
    let client = program.client();
    let mut leases = Vec::new();
    for n in 0..N_WORKERS {
        let holder = format!("junk-{n}");
        leases.push(client.lease("billing", BITS, TTL_MS, &holder).await);
    }
    let other = client.lease("other", BITS, TTL_MS, "kept").await;
    let unknown = release(&client, "/v1/workers/nobody").await;
    assert_eq!(unknown, 204);
    for _twice in 0..2 {
        assert_eq!(release(&client, "/v1/workers/billing").await, 204);
    }
    for lease in &leases {
        let renewed = client.renew(lease, None).await.expect("a reply");
        assert_eq!(renewed.code().as_deref(), Some("lease_lost"));
        let returned = client.give_back(lease, None).await.expect("a reply");
        assert_eq!(returned.code().as_deref(), Some("lease_lost"));
    }
    let renewed = client.renew(&other, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "another pool goes on: {renewed:?}");
    for n in 0..N_WORKERS {
        let holder = format!("billing-{n}");
        let lease = wait::until("an id is free", LIMIT, async || {
            let reply = asked(&client, "billing", BITS, TTL_MS, &holder).await;
            (reply.status == 201).then(|| Lease::of(&reply))
        });
        leases.push(lease.await);
    }
    program.stop().await;
    let stretch = |lease: Lease| Stretch {
        worker: lease.worker,
        from: lease.from_ms,
        to: lease.until_ms,
    };
    leases.into_iter().map(stretch).collect()
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
    let forced = release(&client, &format!("{path}?force=true")).await;
    assert_eq!(forced, 204);
    let renewed = client.renew(&released, None).await.expect("a reply");
    assert_eq!(renewed.code().as_deref(), Some("lease_lost"));
    let renewed = client.renew(&kept, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let log = program.stop().await;
    assert!(log.contains("worker ids were released"), "{log}");
}

async fn release(client: &Client, path: &str) -> u16 {
    let reply = client.send(Method::DELETE, path, &[], None).await;
    reply.expect("a reply").status
}
