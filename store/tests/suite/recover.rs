//! Recoveries: every counter goes on above what may have been issued.

use odometer_store::{Loss, StoreError};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend,
    stage::{LIMIT, Stage, recover},
};

/// Steps that a recovery skips.
const SKIP: u64 = 1_000;

for_each_backend!(a_recovered_database_goes_on_above_what_it_forgot);

async fn a_recovered_database_goes_on_above_what_it_forgot(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.go_back().await;
    let error = stage.reserve(5, Some(&first.known)).await;
    assert!(matches!(error, Err(StoreError::WentBack)), "{error:?}");
    let recovered = stage.recover(SKIP).await;
    assert_eq!((recovered.n_sequences, recovered.highest_rise), (1, 1_000));
    let second = wait::until("the store reserves again", LIMIT, async || {
        stage.reserve(5, None).await.ok()
    })
    .await;
    assert_eq!(second.block.first(), 1_001);
}

for_each_backend!(a_block_reserved_before_a_recovery_is_not_issued);

async fn a_block_reserved_before_a_recovery_is_not_issued(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.give_back(&first, 4).await;
    let recovered = stage.recover(SKIP).await;
    assert_eq!((recovered.n_blocks, recovered.n_numbers), (1, 7));
    // Others may have adopted it in commits that the database lost.
    let second = wait::until("the store reserves again", LIMIT, async || {
        stage.reserve_or_adopt(5, None, Some(0)).await.ok()
    })
    .await;
    assert!(!second.adopted);
    // A block that was reserved before this process saw the recovery is dropped.
    assert!(second.block.first() >= 1_011, "{:?}", second.block);
}

for_each_backend!(a_recovery_that_is_repeated_skips_once_more);

async fn a_recovery_that_is_repeated_skips_once_more(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    // Its answer may have been lost, so it is safe to run it again.
    for _ in 0..2 {
        recover(&stage.settings, SKIP).await;
    }
    stage.start().await;
    let second = stage.reserve(5, None).await.expect("a block");
    assert_eq!(second.block.first(), 2_011);
}

for_each_backend!(a_recovery_of_nothing_changes_no_counter);

async fn a_recovery_of_nothing_changes_no_counter(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    let looked = odometer_store::recover(&stage.settings, None, Loss::Steps(SKIP), true).await;
    let (_name, looked) = looked.expect("there is a store").pop().expect("a database");
    assert_eq!(looked.expect("it can be looked at").highest_rise, 1_000);
    assert_eq!(stage.next_value().await, 11, "a dry run changes nothing");
    stage.start().await;
}
