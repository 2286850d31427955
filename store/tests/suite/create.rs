//! Sequences that are created by their first use.

use odometer_store::{Condition, StoreError};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend,
    stage::{LIMIT, Lock, Stage, define, key},
};

/// How many sequences there are.
const SEQUENCES: &str = "SELECT COUNT(*) FROM sequence";
/// How many counters there are.
const COUNTERS: &str = "SELECT COUNT(*) FROM counter";

for_each_backend!(the_first_reservation_creates_a_sequence);

async fn the_first_reservation_creates_a_sequence(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    let (summary, seen) = stage.store().look_up(&key()).await.expect("it is there");
    assert_eq!(summary.definition, first.known.definition);
    assert_eq!(seen, Some(first.known.seen));
}

for_each_backend!(first_uses_at_the_same_time_create_one_sequence);

async fn first_uses_at_the_same_time_create_one_sequence(backend: Backend) {
    let stage = Stage::new(backend).await;
    let (one, other) = tokio::join!(stage.reserve(10, None), stage.reserve(10, None));
    let (one, other) = (one.expect("a block"), other.expect("a block"));
    let mut firsts = [one.block.first(), other.block.first()];
    firsts.sort_unstable();
    assert_eq!(firsts, [1, 11]);
    assert_eq!(stage.database.number(SEQUENCES).await, Some(1));
    assert_eq!(stage.database.number(COUNTERS).await, Some(1));
}

for_each_backend!(a_creation_that_nobody_hears_of_happens_once_or_not_at_all);

async fn a_creation_that_nobody_hears_of_happens_once_or_not_at_all(backend: Backend) {
    let stage = Stage::impatient(backend).await;
    let creating = stage.reserve(10, None);
    let unheard = stage.unheard(Lock::Creations, creating).await;
    let error = unheard.expect_err("nothing is answered in time");
    assert!(
        matches!(error, StoreError::Deadline | StoreError::Unavailable),
        "{error:?}"
    );
    let block = wait::until("the store reserves", LIMIT, async || {
        stage.reserve(10, None).await.ok()
    })
    .await
    .block;
    assert_eq!(block.first(), 1, "a creation reserves nothing");
    assert_eq!(stage.database.number(SEQUENCES).await, Some(1));
    assert_eq!(stage.database.number(COUNTERS).await, Some(1));
}

for_each_backend!(nothing_is_created_in_a_database_that_went_back);

async fn nothing_is_created_in_a_database_that_went_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    stage.go_back().await;
    let error = stage.reserve(10, None).await.expect_err("it went back");
    assert!(matches!(error, StoreError::WentBack), "{error:?}");
    let error = stage.alter(define("{}"), Condition::None).await;
    let error = error.expect_err("it went back");
    assert!(matches!(error, StoreError::WentBack), "{error:?}");
    assert_eq!(stage.database.number(SEQUENCES).await, Some(0));
}
