//! Worker ids that are leased.

use std::time::Duration;

use odometer_core::name::SequenceName;
use odometer_store::{LeaseError, LeaseGrant, LeaseWanted, WorkerChoice, WorkerPool};
use odometer_tests::{Backend, run, wait};

use crate::{
    for_each_backend,
    stage::{LIMIT, Lock, Stage},
};

/// How long a lease lasts: longer than any test.
const TTL: Duration = Duration::from_secs(600);
const STORE: &str = "default";

fn wanted(holder: &str, choice: WorkerChoice) -> LeaseWanted {
    LeaseWanted {
        pool: WorkerPool::Named(SequenceName::parse("billing").expect("it is a name")),
        bits: 3,
        holder: holder.into(),
        ttl: TTL,
        choice,
        usable_by_ms: None,
    }
}

async fn lease(stage: &Stage, holder: &str) -> Result<LeaseGrant, LeaseError> {
    let wanted = wanted(holder, WorkerChoice::Any);
    stage.store().lease(STORE, wanted).await
}

for_each_backend!(a_lease_is_renewed_and_given_back);

async fn a_lease_is_renewed_and_given_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = lease(&stage, "one").await.expect("a lease");
    let renewed = stage.store().renew_lease(&first.key, Some(TTL)).await;
    let renewed = renewed.expect("it is renewed");
    assert_eq!(renewed.key.worker, first.key.worker);
    assert!(renewed.until_ms >= first.until_ms);
    let unused_from_ms = Some(renewed.from_ms);
    let returned = stage.store().give_back_lease(&renewed.key, unused_from_ms);
    returned.await.expect("it is given back");
    let row = stage
        .store()
        .lease_row(STORE, &first.key.pool, first.key.worker)
        .await;
    let row = row.expect("it can be read").expect("it was leased");
    assert!(!row.is_held);
}

for_each_backend!(a_renewal_for_a_shorter_time_lets_the_lease_expire_no_earlier);

/// A failover may lose the renewal. Then the lease goes on, so nobody else may have had its id.
async fn a_renewal_for_a_shorter_time_lets_the_lease_expire_no_earlier(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = lease(&stage, "one").await.expect("a lease");
    let (pool, worker) = (&first.key.pool, first.key.worker);
    let expires_ms = async || {
        let row = stage.store().lease_row(STORE, pool, worker).await;
        row.expect("it can be read")
            .expect("it was leased")
            .expires_ms
    };
    let before_ms = expires_ms().await;
    let shorter = Some(Duration::from_secs(1));
    let renewed = stage.store().renew_lease(&first.key, shorter).await;
    assert_eq!(renewed.expect("it is renewed").ttl, Duration::from_secs(1));
    assert_eq!(expires_ms().await, before_ms);
    // An end that a wrong clock set does fall.
    let year_ms = 366 * 86_400_000;
    let jump = format!(
        "UPDATE worker_lease SET version = version + 1, expires_at = {}",
        before_ms + year_ms
    );
    stage.database.execute(&jump).await;
    let renewed = stage.store().renew_lease(&first.key, shorter).await;
    renewed.expect("it is renewed");
    assert!(expires_ms().await < before_ms + year_ms / 2);
}

for_each_backend!(a_lease_whose_caller_is_gone_is_given_back);

async fn a_lease_whose_caller_is_gone_is_given_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    // The call is sent, and its caller is gone before the database can answer.
    let calling = tokio::time::timeout(Duration::ZERO, lease(&stage, "one"));
    let hung_up = stage.unheard(Lock::Leases, calling).await;
    assert!(hung_up.is_err(), "{hung_up:?}");
    let pool = wanted("one", WorkerChoice::Any).pool;
    let row = wait::until("the lease is given back", LIMIT, async || {
        let rows = stage.store().leases_after(STORE, &pool, None, 10).await;
        let row = rows.expect("they can be read").into_iter().next();
        row.filter(|row| !row.is_held)
    })
    .await;
    let next = lease(&stage, "two").await.expect("a lease");
    assert_ne!(
        next.key.worker, row.worker,
        "an id that was never used comes first"
    );
}

for_each_backend!(a_lease_that_is_not_remembered_is_looked_at);

async fn a_lease_that_is_not_remembered_is_looked_at(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    let first = lease(&stage, "one").await.expect("a lease");
    let (pool, worker) = (&first.key.pool, first.key.worker);
    stage.stop().await;
    stage.start().await;
    for (worker, token) in [
        (worker, &*"0".repeat(32)),
        (worker + 1, first.key.token()),
        (u32::MAX, first.key.token()),
    ] {
        let key = stage
            .store()
            .lease_by_token(STORE, pool.clone(), worker, token);
        let key = key.expect("it can be a token");
        let refused = stage.store().renew_lease(&key, None).await;
        assert!(matches!(refused, Err(LeaseError::Lost)), "{refused:?}");
    }
    let key = stage
        .store()
        .lease_by_token(STORE, pool.clone(), worker, first.key.token());
    let key = key.expect("it is a token");
    let renewed = stage.store().renew_lease(&key, None).await;
    let renewed = renewed.expect("it is renewed");
    assert_eq!((renewed.from_ms, renewed.ttl), (first.from_ms, TTL));
    assert!(renewed.until_ms >= first.until_ms);
    stage.stop().await;
    stage.start().await;
    let unused_from_ms = Some(first.from_ms);
    let returned = stage.store().give_back_lease(&key, unused_from_ms).await;
    returned.expect("it is given back");
    let returned = stage.store().give_back_lease(&key, unused_from_ms).await;
    returned.expect("it was given back");
    stage.stop().await;
    stage.start().await;
    let again = lease(&stage, "one").await.expect("a lease");
    assert_eq!((again.key.worker, again.from_ms), (worker, first.from_ms));
}

for_each_backend!(a_lease_that_is_not_as_it_is_remembered_is_looked_at);

async fn a_lease_that_is_not_as_it_is_remembered_is_looked_at(backend: Backend) {
    let stage = Stage::new(backend).await;
    let write = async |change: &str| {
        let sql = format!("UPDATE worker_lease SET version = version + 1, {change}");
        stage.database.execute(&sql).await;
    };
    let given_back = async |lease: &LeaseGrant| {
        let unused_from_ms = Some(lease.from_ms);
        let returned = stage.store().give_back_lease(&lease.key, unused_from_ms);
        returned.await.expect("it is given back");
        let (pool, worker) = (&lease.key.pool, lease.key.worker);
        let row = stage.store().lease_row(STORE, pool, worker).await;
        row.expect("it can be read").expect("it was leased")
    };
    let first = lease(&stage, "one").await.expect("a lease");
    let later_ms = first.until_ms + 1_000_000;
    write(&format!("reserved_until = {later_ms}")).await;
    let renewed = stage.store().renew_lease(&first.key, None).await;
    let renewed = renewed.expect("it is renewed");
    assert_eq!(renewed.until_ms, later_ms);
    // Another replica renewed the lease just now. So the time that is called unused may be used.
    write(&format!("reserved_until = {later_ms} + 1")).await;
    let row = given_back(&renewed).await;
    assert_eq!((row.is_held, row.until_ms), (false, later_ms + 1));

    // Another replica gave the id back, to be used from its beginning.
    write("reserved_until = 1").await;
    let again = lease(&stage, "one").await.expect("a lease");
    assert_eq!((again.key.worker, again.from_ms), (first.key.worker, 1));
    // Another replica renewed the lease long ago, and not since the call began.
    write("expires_at = expires_at - 600000").await;
    let row = given_back(&again).await;
    assert_eq!((row.is_held, row.until_ms), (false, again.from_ms));
}

for_each_backend!(holders_at_the_same_time_get_different_ids);

async fn holders_at_the_same_time_get_different_ids(backend: Backend) {
    let stage = Stage::new(backend).await;
    let (one, other) = tokio::join!(lease(&stage, "one"), lease(&stage, "other"));
    let (one, other) = (one.expect("a lease"), other.expect("a lease"));
    assert_ne!(one.key.worker, other.key.worker);
    let exact = wanted("third", WorkerChoice::Exact(one.key.worker));
    let refused = stage.store().lease(STORE, exact).await;
    match refused {
        Err(LeaseError::Held { worker }) => assert_eq!(worker, one.key.worker),
        other => panic!("{other:?}"),
    }
}

for_each_backend!(a_lease_that_nobody_hears_of_is_no_one_elses);

async fn a_lease_that_nobody_hears_of_is_no_one_elses(backend: Backend) {
    let stage = Stage::impatient(backend).await;
    let first = lease(&stage, "one").await.expect("a lease");
    let leasing = lease(&stage, "other");
    let unheard = stage.unheard(Lock::Leases, leasing).await;
    let unheard = unheard.expect_err("no answer in time");
    assert!(
        matches!(
            unheard,
            LeaseError::Deadline | LeaseError::Unavailable | LeaseError::MayHaveHappened
        ),
        "{unheard:?}"
    );
    let second = wait::until("the store leases again", LIMIT, async || {
        lease(&stage, "other").await.ok()
    })
    .await;
    assert_ne!(first.key.worker, second.key.worker);
    // An id that was got for nobody is taken back, so that there are enough for all.
    let mut others = Vec::new();
    for holder in ["a", "b", "c", "d", "e", "f"] {
        let next = wait::until("there is an id left", LIMIT, async || {
            lease(&stage, holder).await.ok()
        })
        .await;
        others.push(next.key.worker);
    }
    others.extend([first.key.worker, second.key.worker]);
    others.sort_unstable();
    assert_eq!(others, [0, 1, 2, 3, 4, 5, 6, 7]);
}

for_each_backend!(nothing_is_leased_in_a_database_that_went_back);

async fn nothing_is_leased_in_a_database_that_went_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = lease(&stage, "one").await.expect("a lease");
    stage.go_back().await;
    let error = lease(&stage, "other").await.expect_err("it went back");
    assert!(matches!(error, LeaseError::WentBack), "{error:?}");
    let renewed = stage.store().renew_lease(&first.key, Some(TTL)).await;
    let error = renewed.expect_err("it went back");
    assert!(matches!(error, LeaseError::WentBack), "{error:?}");
}

/// Counts the ends that are written, and ignores them, as if another writer always came first.
const HOLD_ENDS: &str = "
    CREATE TABLE held_end (worker INTEGER);
    CREATE TRIGGER hold_ends BEFORE UPDATE ON worker_lease WHEN NEW.ended BEGIN
        INSERT INTO held_end VALUES (NEW.worker);
        SELECT RAISE(IGNORE);
    END";

/// Lets a renewal and an end of one lease meet. The end looks and does not come to write until the
/// renewal is answered.
#[test]
fn an_end_that_meets_a_renewal_frees_none_of_its_time() {
    run(let_an_end_meet_a_renewal());
}

async fn let_an_end_meet_a_renewal() {
    let mut stage = Stage::new(Backend::Sqlite).await;
    let lease = lease(&stage, "one").await.expect("a lease");
    let (pool, worker) = (&lease.key.pool, lease.key.worker);
    // Nothing is remembered of the row, so the end looks at it first.
    stage.stop().await;
    // The end tries for as long as it is held.
    stage.settings.bounds.attempts = u32::MAX;
    stage.start().await;
    stage.database.execute(HOLD_ENDS).await;
    let store = stage.store();
    let key = store.lease_by_token(STORE, pool.clone(), worker, lease.key.token());
    let key = key.expect("it is a token");
    let ending = store.give_back_lease(&key, Some(lease.from_ms));
    let renewing = async {
        wait::until("the end has looked and is held", LIMIT, async || {
            let n_held = "SELECT COUNT(*) FROM held_end";
            let n_held = stage.database.number(n_held).await;
            (n_held > Some(0)).then_some(())
        })
        .await;
        let renewed = store.renew_lease(&key, None).await;
        stage.database.execute("DROP TRIGGER hold_ends").await;
        renewed.expect("it is renewed")
    };
    let (ended, renewed) = tokio::join!(ending, renewing);
    ended.expect("it is given back");
    let row = store.lease_row(STORE, pool, worker).await;
    let row = row.expect("it can be read").expect("it was leased");
    assert!(!row.is_held);
    assert!(
        row.until_ms >= renewed.until_ms,
        "the time of a renewal is free"
    );
}
