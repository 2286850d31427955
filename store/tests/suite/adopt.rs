//! Blocks that were returned, and are taken over.

use odometer_store::StoreError;
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend, for_each_server,
    stage::{LIMIT, Lock, Stage, are_apart, connect, reserve_by},
};

/// How often two processes look for the same returned block.
const ROUNDS: usize = 20;

for_each_backend!(a_returned_block_is_adopted);

async fn a_returned_block_is_adopted(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.give_back(&first, 4).await;
    let second = stage.reserve_or_adopt(5, None, Some(0)).await;
    let second = second.expect("a block");
    assert!(second.adopted);
    assert_eq!((second.block.first(), second.block.last()), (4, 10));
    assert_eq!(stage.next_value().await, 11, "nothing more was reserved");
}

for_each_backend!(a_block_that_another_adopted_is_not_adopted_again);

async fn a_block_that_another_adopted_is_not_adopted_again(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.give_back(&first, 4).await;
    let adopt = "UPDATE block SET fate = 'adopted' WHERE fate = 'returned'";
    stage.database.execute(adopt).await;
    let second = stage.reserve_or_adopt(5, None, Some(0)).await;
    let second = second.expect("a block");
    assert!(!second.adopted);
    assert_eq!((second.block.first(), second.block.last()), (11, 15));
}

for_each_server!(two_processes_adopt_a_block_once);

async fn two_processes_adopt_a_block_once(backend: Backend) {
    let stage = Stage::new(backend).await;
    let (other, _metrics) = connect(&stage.settings).await;
    let mut n_adopted = 0;
    for _ in 0..ROUNDS {
        let first = stage.reserve(10, None).await.expect("a block");
        stage.give_back(&first, first.block.first()).await;
        let (here, there) = tokio::join!(
            reserve_by(stage.store(), 5, None, Some(0)),
            reserve_by(&other, 5, None, Some(0))
        );
        let blocks = [here.expect("a block"), there.expect("a block")];
        n_adopted += blocks.iter().filter(|block| block.adopted).count();
        assert!(are_apart(&blocks.map(|reserved| reserved.block)));
    }
    assert_eq!(n_adopted, ROUNDS, "each returned block is adopted once");
    other.close(LIMIT).await;
}

for_each_backend!(an_adoption_that_nobody_hears_of_gives_no_number_twice);

async fn an_adoption_that_nobody_hears_of_gives_no_number_twice(backend: Backend) {
    let stage = Stage::impatient(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.give_back(&first, 4).await;
    let adopting = async || stage.reserve_or_adopt(5, None, Some(0)).await;
    let unheard = stage.unknown(Lock::Blocks, adopting).await;
    let mut blocks = Vec::new();
    blocks.extend(unheard.ok().map(|reserved| reserved.block));
    let again = async || stage.reserve_or_adopt(5, None, Some(0)).await.ok();
    for _ in 0..2 {
        let next = wait::until("the store reserves again", LIMIT, again).await;
        blocks.push(next.block);
    }
    assert!(are_apart(&blocks), "{blocks:?}");
}

for_each_backend!(nothing_is_adopted_in_a_database_that_went_back);

async fn nothing_is_adopted_in_a_database_that_went_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    stage.give_back(&first, 4).await;
    stage.go_back().await;
    let error = stage.reserve_or_adopt(5, None, Some(0)).await;
    let error = error.expect_err("it went back");
    assert!(matches!(error, StoreError::WentBack), "{error:?}");
    let fates = "SELECT COUNT(*) FROM block WHERE fate = 'returned'";
    assert_eq!(stage.database.number(fates).await, Some(1));
}
