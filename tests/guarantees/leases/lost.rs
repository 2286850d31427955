//! A database that forgets leases: nothing is leased until it was recovered, and then only time that
//! no forgotten holder can stamp.

use std::time::Duration;

use super::{LIMIT, asked, now_ms};
use crate::support::{
    Backend, Client, Lease, Options, Program, Reply, Scrape, TestDatabase, for_each_backend,
    for_each_server, wait,
};

const TTL_MS: i64 = 60_000;
const BITS: u32 = 10;
/// How long ids rest at least after a recovery.
const REST_MS: i64 = 15 * 60_000;

fn options(database: &TestDatabase) -> Options {
    Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "2s")
}

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
}

for_each_backend!(a_store_that_forgot_a_lease_leases_nothing);

async fn a_store_that_forgot_a_lease_leases_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", BITS, TTL_MS, "one").await;
    // The last commits are lost, and no beat with them.
    database.execute("DELETE FROM worker_lease").await;
    refused(
        &asked(&client, "billing", BITS, TTL_MS, "two").await,
        503,
        "store_went_back",
    );
    let renewed = client.renew(&lease, None).await.expect("a reply");
    refused(&renewed, 503, "store_went_back");
    let other = asked(&client, "other", BITS, TTL_MS, "two").await;
    refused(&other, 503, "store_went_back");
    assert_eq!(went_back(&client).await, 1.0);
    program.stop().await;

    let before = now_ms();
    recover(&database);
    let program = options(&database).start_ready().await;
    let client = program.client();
    let late = client.renew(&lease, None).await.expect("a reply");
    refused(&late, 409, "lease_lost");
    let next = client.lease("billing", BITS, TTL_MS, "two").await;
    assert_eq!(next.worker, lease.worker, "the row is gone");
    assert!(next.from_ms >= before + REST_MS, "{next:?}");
    assert!(next.from_ms > lease.until_ms, "{next:?} {lease:?}");
}

for_each_server!(a_forgotten_lease_is_noticed_though_nobody_asks);

async fn a_forgotten_lease_is_noticed_though_nobody_asks(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    client.lease("billing", BITS, TTL_MS, "one").await;
    database.execute("DELETE FROM worker_lease").await;
    wait::until("it is noticed", LIMIT, async || {
        (went_back(&client).await == 1.0).then_some(())
    })
    .await;
}

for_each_backend!(what_is_confirmed_is_not_asked_for_any_more);

async fn what_is_confirmed_is_not_asked_for_any_more(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", BITS, TTL_MS, "one").await;
    // Longer than two polls: whatever goes back from here on loses a beat as well.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(went_back(&client).await, 0.0);
    let renewed = client.renew(&lease, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(went_back(&client).await, 0.0);
}

for_each_server!(without_its_checks_a_forgotten_lease_is_given_again);

async fn without_its_checks_a_forgotten_lease_is_given_again(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("no-went-back-checks");
    let program = options.start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", BITS, TTL_MS, "one").await;
    database.execute("DELETE FROM worker_lease").await;
    let again = client.lease("billing", BITS, TTL_MS, "two").await;
    assert_eq!(again.worker, lease.worker);
    assert!(again.from_ms < lease.until_ms, "the check finds nothing");
}

for_each_backend!(a_recovery_voids_every_lease);

async fn a_recovery_voids_every_lease(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let long = client.lease("billing", 1, 3_600_000, "one").await;
    let short = client.lease("billing", 1, TTL_MS, "two").await;
    program.stop().await;
    let before = now_ms();
    recover(&database);
    let program = options(&database).start_ready().await;
    let client = program.client();
    for lease in [&long, &short] {
        let renewed = client.renew(lease, None).await.expect("a reply");
        refused(&renewed, 409, "lease_lost");
        let given = client.give_back(lease, None).await.expect("a reply");
        refused(&given, 409, "lease_lost");
    }
    // One like the long one may have been forgotten.
    for holder in ["one", "two"] {
        let lease: Lease = client.lease("billing", 1, TTL_MS, holder).await;
        assert!(lease.from_ms >= before + 3_600_000, "{lease:?}");
    }
    let fresh = client.lease("new", 1, TTL_MS, "one").await;
    assert!(fresh.from_ms >= before + 3_600_000, "{fresh:?}");
}

fn recover(database: &TestDatabase) {
    let options = Program::options().database(&database.url);
    let finished = options.run(&["recover", "--skip", "10"]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

async fn went_back(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    scrape.sum("odometer_store_went_back", &[])
}
