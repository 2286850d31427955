//! Recoveries: every counter goes on above what may have been issued.

use odometer_store::{Loss, StoreError};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend,
    stage::{LIMIT, Stage, of_sequence, recover, recover_by},
};

/// Steps that a recovery skips.
const SKIP: u64 = 1_000;

for_each_backend!(a_recovered_database_goes_on_above_what_it_forgot);

async fn a_recovered_database_goes_on_above_what_it_forgot(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    assert_eq!(stage.last_recovery(), None);
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
    let told = stage.last_recovery().expect("it is told");
    assert_eq!(
        (told.at_ms, told.highest_rise),
        (recovered.recovered_at, 1_000)
    );
    // An operator made it, and said what was lost.
    assert_eq!((told.lost_since_ms, told.made_by), (None, None));
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
    let looked =
        odometer_store::recover(&stage.settings, None, Loss::Steps(SKIP), true, &|_step| {}).await;
    let (_name, looked) = looked.expect("there is a store").pop().expect("a database");
    assert_eq!(looked.expect("it can be looked at").highest_rise, 1_000);
    assert_eq!(stage.next_value().await, 11, "a dry run changes nothing");
    stage.start().await;
}

for_each_backend!(a_sequence_that_waits_goes_on_when_an_operator_says_how_far);

/// Checks a sequence that a fence has stopped, because it has no limit.
async fn a_sequence_that_waits_goes_on_when_an_operator_says_how_far(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    let stop = "UPDATE counter SET must_recover = TRUE";
    stage.database.execute(stop).await;
    stage.start().await;
    let refused = stage.reserve(5, None).await;
    assert!(matches!(refused, Err(StoreError::WentBack)), "{refused:?}");
    stage.stop().await;
    for (name, is_nowhere) in [("nowhere", true), ("orders", false)] {
        let recovered = recover_by(&stage.settings, of_sequence(name, SKIP)).await;
        let recovered = recovered.expect("it can be recovered");
        assert_eq!(recovered.is_nowhere, is_nowhere, "{recovered:?}");
    }
    stage.start().await;
    let second = stage.reserve(5, None).await.expect("a block");
    assert_eq!(second.block.first(), 1_011);
}
