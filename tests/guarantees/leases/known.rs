//! Remembered rows of worker ids. They save reads, and a replica uses them only while they still
//! hold.

use super::{LIMIT, Stretch, now_ms, overlaps};
use crate::support::{
    Backend, Client, Lease, Options, Program, TestDatabase, for_each_backend, for_each_server, run,
    wait,
};

const BITS: u32 = 10;
const TTL_MS: i64 = 60_000;
/// The number of leases, and of their ends.
const N: i64 = 100;

fn options(database: &TestDatabase) -> Options {
    Program::options().database(&database.url)
}

for_each_server!(what_another_replica_wrote_since_is_looked_at);

async fn what_another_replica_wrote_since_is_looked_at(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let found = stale_knowledge(&options(&database), &options(&database)).await;
    assert!(found.is_empty(), "{found:?}");
}

for_each_server!(without_its_conditions_what_is_remembered_is_believed);

async fn without_its_conditions_what_is_remembered_is_believed(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let guards = "no-lease-conditions,no-went-back-checks";
    let credulous = options(&database).without_guards(guards);
    let found = stale_knowledge(&credulous, &options(&database)).await;
    assert!(!found.is_empty(), "the check finds nothing");
}

/// Leases and ends leases on the first replica, on the second, and on the first again. The first
/// replica does not know what the second one did. Returns the times that were used twice.
async fn stale_knowledge(first: &Options, second: &Options) -> Vec<(Stretch, Stretch)> {
    let (first, second) = (first.start_ready().await, second.start_ready().await);
    let mut used = Vec::new();
    // Each lease ended this long ago, so that the next one need not wait.
    for (client, ago_ms) in [
        (first.client(), 3000),
        (second.client(), 2000),
        (first.client(), 1000),
    ] {
        let lease = client.lease("billing", BITS, TTL_MS, "one").await;
        let to = now_ms() - ago_ms;
        used.push(Stretch {
            worker: lease.worker,
            from: Ord::max(lease.from_ms, to - 60_000),
            to,
        });
        let given = client.give_back(&lease, Some(to)).await.expect("a reply");
        assert_eq!(given.status, 204, "{given:?}");
    }
    overlaps(used)
}

for_each_backend!(a_row_that_is_another_one_at_a_known_version_is_looked_at);

/// Checks a database that has lost the end of a lease, and in which another replica wrote instead.
async fn a_row_that_is_another_one_at_a_known_version_is_looked_at(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = options(&database).start_ready().await;
    let client = program.client();
    let lease = client.lease("billing", BITS, TTL_MS, "one").await;
    let given = client.give_back(&lease, Some(lease.from_ms)).await;
    assert_eq!(given.expect("a reply").status, 204);
    let reserve = async |until_ms: i64| {
        let sql = format!("UPDATE worker_lease SET reserved_until = {until_ms}");
        database.execute(&sql).await;
    };
    let used_ms = now_ms() - 1000;
    reserve(used_ms).await;
    let again = client.lease("billing", BITS, TTL_MS, "one").await;
    assert_eq!((again.worker, again.from_ms), (lease.worker, used_ms));
    let later_ms = again.until_ms + TTL_MS;
    reserve(later_ms).await;
    let renewed = client.renew(&again, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(Lease::of(&renewed).until_ms, later_ms);
    reserve(later_ms + 1).await;
    let given = client.give_back(&again, None).await.expect("a reply");
    assert_eq!(given.status, 204, "{given:?}");
    let reserved = "SELECT MAX(reserved_until) FROM worker_lease";
    assert_eq!(database.number(reserved).await, Some(later_ms + 1));
}

for_each_server!(an_end_long_after_a_renewal_elsewhere_frees_its_time);

async fn an_end_long_after_a_renewal_elsewhere_frees_its_time(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    // This is longer than a renewal may take after its look.
    let (reserved, unused_ms) =
        end_after_a_renewal_elsewhere(&options(&database), &database, 30_000).await;
    assert_eq!(reserved, Some(unused_ms));
}

for_each_server!(an_end_beside_a_renewal_elsewhere_lets_its_time_rest);

async fn an_end_beside_a_renewal_elsewhere_lets_its_time_rest(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let (reserved, unused_ms) =
        end_after_a_renewal_elsewhere(&options(&database), &database, 0).await;
    assert!(reserved > Some(unused_ms), "{reserved:?}");
}

for_each_server!(an_end_that_sees_no_renewal_elsewhere_frees_its_time);

async fn an_end_that_sees_no_renewal_elsewhere_frees_its_time(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let blind = options(&database).without_guards("renewal-unseen");
    let (reserved, unused_ms) = end_after_a_renewal_elsewhere(&blind, &database, 0).await;
    assert_eq!(reserved, Some(unused_ms), "the check finds nothing");
}

/// Leases on one replica, renews on another one as if its look was `ago_ms` ago, and ends the lease
/// on the first. The first replica does not know of the renewal. Returns until when time is
/// reserved then, and from when on it was said to be unused.
async fn end_after_a_renewal_elsewhere(
    options: &Options,
    database: &TestDatabase,
    ago_ms: i64,
) -> (Option<i64>, i64) {
    let (first, second) = (options.start_ready().await, options.start_ready().await);
    let lease = first.client().lease("billing", BITS, TTL_MS, "one").await;
    let renewed = second.client().renew(&lease, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let earlier = format!("UPDATE worker_lease SET expires_at = expires_at - {ago_ms}");
    database.execute(&earlier).await;
    let unused_ms = lease.from_ms.max(now_ms() - 1000);
    let given = first.client().give_back(&lease, Some(unused_ms)).await;
    assert_eq!(given.expect("a reply").status, 204);
    let reserved = "SELECT MAX(reserved_until) FROM worker_lease";
    (database.number(reserved).await, unused_ms)
}

/// PostgreSQL counts the reads of the rows, including the read of a write.
#[test]
fn who_comes_again_is_served_without_a_look() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let program = options(&database).start_ready().await;
        let client = program.client();
        let mut n_written = 0;
        let first = n_looks(&database, &client, &mut n_written, |n| n).await;
        assert!(first >= N, "vacuous: {first} looks for {N} new holders");
        let again = n_looks(&database, &client, &mut n_written, |n| n % 8).await;
        assert!(again <= N / 10, "{again} looks for holders that are known");
    });
}

/// Leases and ends a lease `N` times, each time for the holder that `holder` names. Returns how
/// often rows were read in addition to the writes.
async fn n_looks(
    database: &TestDatabase,
    client: &Client,
    n_written: &mut i64,
    holder: impl Fn(i64) -> i64,
) -> i64 {
    let before = n_read(database).await;
    for n in 0..N {
        let holder = format!("holder-{}", holder(n));
        let lease = client.lease("billing", BITS, TTL_MS, &holder).await;
        let given = client.give_back(&lease, Some(lease.from_ms)).await;
        assert_eq!(given.expect("a reply").status, 204);
    }
    *n_written += 2 * N;
    let sql = "SELECT (n_tup_ins + n_tup_upd)::BIGINT FROM pg_stat_user_tables \
               WHERE relname = 'worker_lease'";
    // Each connection reports its counts about once a second.
    wait::until("the server has counted all writes", LIMIT, async || {
        (database.number(sql).await? >= *n_written).then_some(())
    })
    .await;
    n_read(database).await - before - 2 * N
}

async fn n_read(database: &TestDatabase) -> i64 {
    let sql = "SELECT (seq_scan + idx_scan)::BIGINT FROM pg_stat_user_tables \
               WHERE relname = 'worker_lease'";
    database.number(sql).await.expect("the table is there")
}
