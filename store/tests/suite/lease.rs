//! Worker ids that are leased.

use std::time::Duration;

use odometer_core::name::SequenceName;
use odometer_store::{LeaseError, LeaseGrant, LeaseWanted, WorkerChoice, WorkerPool};
use odometer_tests::{Backend, wait};

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
