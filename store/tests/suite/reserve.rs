//! Blocks that are reserved by the conditional update.

use odometer_store::StoreError;
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend,
    stage::{LIMIT, Lock, Stage, are_apart},
};

for_each_backend!(blocks_follow_one_another);

async fn blocks_follow_one_another(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    let second = stage.reserve(5, Some(&first.known)).await.expect("a block");
    assert_eq!((first.block.first(), first.block.last()), (1, 10));
    assert_eq!((second.block.first(), second.block.last()), (11, 15));
    assert_eq!(stage.next_value().await, 16);
}

for_each_backend!(a_reservation_that_meets_another_goes_on_above_it);

async fn a_reservation_that_meets_another_goes_on_above_it(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.another_reserves(100).await;
    let second = stage.reserve(5, Some(&first.known)).await.expect("a block");
    assert!(second.n_conflicts > 0, "vacuous: no conflict");
    assert_eq!((second.block.first(), second.block.last()), (111, 115));
}

for_each_backend!(a_reservation_that_nobody_hears_of_repeats_no_number);

async fn a_reservation_that_nobody_hears_of_repeats_no_number(backend: Backend) {
    let stage = Stage::impatient(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    let reserving = async || stage.reserve(7, Some(&first.known)).await;
    let unheard = stage.unknown(Lock::Counters, reserving).await;
    let error = unheard.expect_err("nothing is answered in time");
    assert!(
        matches!(error, StoreError::Deadline | StoreError::Unavailable),
        "{error:?}"
    );
    // Whether it was written late or not at all, what comes next lies above it, or is the same
    // numbers, which nobody got.
    let second = wait::until("the store reserves again", LIMIT, async || {
        stage.reserve(5, Some(&first.known)).await.ok()
    })
    .await;
    assert!(are_apart(&[first.block, second.block]));
    let n_lost = second.block.first() - first.block.end();
    assert_eq!(
        u64::try_from(n_lost).expect("it goes up"),
        stage.n_abandoned(),
        "each lost number is counted"
    );
}

for_each_backend!(nothing_is_reserved_in_a_database_that_went_back);

async fn nothing_is_reserved_in_a_database_that_went_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.go_back().await;
    for known in [Some(&first.known), None] {
        let error = stage.reserve(5, known).await.expect_err("it went back");
        assert!(matches!(error, StoreError::WentBack), "{error:?}");
    }
    assert_eq!(stage.next_value().await, 1, "nothing was written");
}
