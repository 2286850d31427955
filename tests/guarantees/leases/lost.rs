//! A database that forgets leases. Nothing is leased until the recovery, and then only time that no
//! forgotten holder can use.

use super::{LIMIT, asked, now_ms};
use crate::support::{
    Backend, Client, Options, Program, Reply, Scrape, TestDatabase, for_each_backend,
    for_each_server, wait,
};

const TTL_MS: i64 = 60_000;
const BITS: u32 = 10;
/// How long ids rest at least after a recovery: the longest lease, and five minutes for clocks.
const REST_MS: i64 = 65 * 60_000;
/// How much longer the rest may be. Clocks may be five minutes apart, and calls take time.
const LATER_MS: i64 = 6 * 60_000;

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
    // The last commits are lost, but no heartbeat with them.
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

    recover(&database);
    let recovered_at = recovered_at(&database).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let late = client.renew(&lease, None).await.expect("a reply");
    refused(&late, 409, "lease_lost");
    rests(&client, "billing", recovered_at).await;
    let n_rows = database.number("SELECT COUNT(*) FROM worker_lease").await;
    assert_eq!(n_rows, Some(0), "a lease without any time was written");
}

/// Checks that no id of a pool can be used before every forgotten lease has certainly ended.
async fn rests(client: &Client, pool: &str, recovered_at: i64) {
    for (bits, ttl_ms) in [(BITS, TTL_MS), (BITS, 3_600_000)] {
        let reply = asked(client, pool, bits, ttl_ms, "whoever").await;
        refused(&reply, 503, "clock_behind");
        let words = reply.body.split(|letter: char| !letter.is_ascii_digit());
        let from_ms: i64 = words
            .filter_map(|word| word.parse().ok())
            .max()
            .expect("when it begins");
        let rest = recovered_at + REST_MS..recovered_at + REST_MS + LATER_MS;
        assert!(rest.contains(&from_ms), "{from_ms} in {rest:?}");
    }
}

async fn recovered_at(database: &TestDatabase) -> i64 {
    let read = database.number("SELECT last_recovery_at FROM meta").await;
    read.expect("it was recovered")
}

for_each_server!(a_recovery_under_a_replica_ends_its_leases_and_nothing_else);

async fn a_recovery_under_a_replica_ends_its_leases_and_nothing_else(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", BITS, TTL_MS, "one").await;
    database.execute("DELETE FROM worker_lease").await;
    let renewed = client.renew(&lease, None).await.expect("a reply");
    refused(&renewed, 503, "store_went_back");
    recover(&database);
    wait::until("the recovery is seen", LIMIT, async || {
        (went_back(&client).await == 0.0).then_some(())
    })
    .await;
    for _ in 0..3 {
        let renewed = client.renew(&lease, None).await.expect("a reply");
        refused(&renewed, 409, "lease_lost");
    }
    rests(&client, "billing", recovered_at(&database).await).await;
    assert_eq!(went_back(&client).await, 0.0);
}

for_each_backend!(a_recovery_by_an_older_program_holds_rows_back_as_well);

async fn a_recovery_by_an_older_program_holds_rows_back_as_well(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", 1, TTL_MS, "one").await;
    let given = client.give_back(&lease, Some(lease.from_ms)).await;
    assert_eq!(given.expect("a reply").status, 204);
    // An older program raises the column that it knows, and no row of a lease.
    let from_ms = now_ms() + 600_000;
    database
        .execute(&format!("UPDATE meta SET leases_from = {from_ms}"))
        .await;
    let early = asked(&client, "billing", 1, TTL_MS, "one").await;
    refused(&early, 503, "clock_behind");
    let next = client.lease("billing", 1, 3_600_000, "one").await;
    assert_eq!((next.worker, next.from_ms), (lease.worker, from_ms));
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
    // A loss of commits after two polls includes a heartbeat.
    let beat = async || database.number("SELECT MAX(beat) FROM replica").await;
    let before = beat().await.expect("a replica is there");
    wait::until("there were two polls", LIMIT, async || {
        beat().await.filter(|beat| *beat >= before + 2)
    })
    .await;
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
    recover(&database);
    let recovered_at = recovered_at(&database).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    for lease in [&long, &short] {
        let renewed = client.renew(lease, None).await.expect("a reply");
        refused(&renewed, 409, "lease_lost");
        let given = client.give_back(lease, None).await.expect("a reply");
        refused(&given, 409, "lease_lost");
    }
    // The database may have forgotten a lease as long as the long one.
    let early = asked(&client, "billing", 1, TTL_MS, "one").await;
    refused(&early, 503, "clock_behind");
    rests(&client, "new", recovered_at).await;
    let least = "SELECT MIN(reserved_until) FROM worker_lease";
    let least = database.number(least).await.expect("two rows");
    assert!(least >= recovered_at + REST_MS, "{least} {recovered_at}");
}

fn recover(database: &TestDatabase) {
    let options = Program::options().database(&database.url);
    let finished = options.run(&["recover", "--yes", "--skip", "10"]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

async fn went_back(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    scrape.sum("odometer_store_went_back", &[])
}
