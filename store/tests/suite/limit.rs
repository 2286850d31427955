//! Reservations within the speed limit of their sequence.

use std::time::{Duration, Instant};

use odometer_store::{Act, Condition, Reserved, StoreError};
use odometer_tests::Backend;

use crate::{
    for_each_backend,
    stage::{Stage, define},
};

/// One number a second, and a thousand at once. What is refused would have to wait for longer than a
/// reservation may take.
const SLOW: &str = r#"{"limit": {"rate": 1, "burst": 1000}}"#;
/// How many microseconds lie between the database's clock and the test's question.
const SOON_US: i64 = 20_000_000;

/// How long the bucket of a hundred numbers takes to fill at a hundred a second, less what clocks are
/// rounded by.
const WAIT: Duration = Duration::from_millis(990);

async fn limited(backend: Backend, definition: &str) -> Stage {
    let stage = Stage::new(backend).await;
    redefine(&stage, definition).await;
    stage
}

async fn redefine(stage: &Stage, definition: &str) {
    let altered = stage.alter(define(definition), Condition::None).await;
    altered.expect("the sequence is defined");
}

fn assert_limited(outcome: Result<Reserved, StoreError>) {
    let refused = outcome.expect_err("the limit does not allow it");
    assert!(
        matches!(refused, StoreError::RateLimited { .. }),
        "{refused:?}"
    );
}

/// How far ahead of the time the limit is used, in microseconds.
async fn ahead_us(stage: &Stage) -> i64 {
    let paced = "SELECT paced_until_us FROM counter WHERE sequence = 'orders'";
    let paced = stage.database.number(paced).await.expect("a counter");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("it is later than 1970");
    paced - i64::try_from(now.as_micros()).expect("it fits")
}

for_each_backend!(a_reservation_pays_for_its_numbers);

async fn a_reservation_pays_for_its_numbers(backend: Backend) {
    let stage = limited(backend, SLOW).await;
    let first = stage.reserve(600, None).await.expect("a block");
    let ahead = ahead_us(&stage).await;
    assert!((600_000_000 - SOON_US..=600_000_000).contains(&ahead));
    let second = stage
        .reserve(400, Some(&first.known))
        .await
        .expect("a block");
    assert_eq!(second.n_conflicts, 0);
    let ahead = ahead_us(&stage).await;
    assert!((1_000_000_000 - SOON_US..=1_000_000_000).contains(&ahead));
    for known in [Some(&second.known), None] {
        assert_limited(stage.reserve(500, known).await);
    }
    assert_eq!(stage.next_value().await, 1001, "nothing was written");
    assert_eq!(stage.n_conflicts(), 0);
    assert!(stage.n_limited() > 0);
}

for_each_backend!(a_reservation_waits_until_the_limit_allows_it);

async fn a_reservation_waits_until_the_limit_allows_it(backend: Backend) {
    for order in ["relaxed", "strict"] {
        let definition =
            format!(r#"{{"order": "{order}", "limit": {{"rate": 100, "burst": 100}}}}"#);
        let stage = limited(backend, &definition).await;
        let started = Instant::now();
        let first = stage.reserve(100, None).await.expect("a block");
        let second = stage.reserve(100, Some(&first.known)).await;
        let second = second.expect("a block, when the bucket has filled");
        assert!(started.elapsed() >= WAIT, "no wait");
        assert_eq!((second.block.first(), second.n_conflicts), (101, 0));
        assert_eq!(stage.n_conflicts(), 0);
        let refused = stage.reserve(101, Some(&second.known)).await;
        assert!(matches!(
            refused,
            Err(StoreError::AboveBurst { burst: 100 })
        ));
    }
}

for_each_backend!(what_others_have_used_is_no_conflict);

async fn what_others_have_used_is_no_conflict(backend: Backend) {
    let stage = limited(backend, SLOW).await;
    let first = stage.reserve(100, None).await.expect("a block");
    let used = "UPDATE counter SET paced_until_us = paced_until_us + 800000000";
    stage.database.execute(used).await;
    assert_limited(stage.reserve(500, Some(&first.known)).await);
    assert_eq!(stage.n_conflicts(), 0);
    // The counter is still where it was, so this is no conflict either.
    let second = stage.reserve(5, Some(&first.known)).await.expect("a block");
    assert_eq!((second.block.first(), second.n_conflicts), (101, 0));
    stage.another_reserves(1).await;
    let third = stage
        .reserve(1, Some(&second.known))
        .await
        .expect("a block");
    assert_eq!((third.block.first(), third.n_conflicts), (107, 1));
    assert_eq!(stage.n_conflicts(), 1);
}

for_each_backend!(a_time_too_far_ahead_counts_as_now);

async fn a_time_too_far_ahead_counts_as_now(backend: Backend) {
    let stage = limited(backend, SLOW).await;
    stage.reserve(1000, None).await.expect("a block");
    let hour = "UPDATE counter SET paced_until_us = paced_until_us + 3600000000";
    stage.database.execute(hour).await;
    stage.reserve(1000, None).await.expect("a block");
    let ahead = ahead_us(&stage).await;
    assert!((1_000_000_000 - SOON_US..=1_000_000_000).contains(&ahead));
    assert_limited(stage.reserve(500, None).await);
}

for_each_backend!(another_limit_keeps_the_numbers_that_were_paid_for);

async fn another_limit_keeps_the_numbers_that_were_paid_for(backend: Backend) {
    let stage = limited(backend, SLOW).await;
    stage.reserve(900, None).await.expect("a block");
    redefine(&stage, r#"{"limit": {"rate": 10, "burst": 10000}}"#).await;
    let ahead = ahead_us(&stage).await;
    assert!(
        (90_000_000 - SOON_US..=90_000_010).contains(&ahead),
        "{ahead}"
    );
    stage.reserve(9000, None).await.expect("a block");
    // A burst of the new limit is the most that is kept.
    redefine(&stage, r#"{"limit": {"rate": 1, "burst": 500}}"#).await;
    let ahead = ahead_us(&stage).await;
    assert!(
        (500_000_000 - SOON_US..=500_000_000).contains(&ahead),
        "{ahead}"
    );
    assert_limited(stage.reserve(400, None).await);
}

for_each_backend!(what_is_skipped_is_paid_for_if_the_limit_allows_it);

async fn what_is_skipped_is_paid_for_if_the_limit_allows_it(backend: Backend) {
    let stage = limited(backend, SLOW).await;
    let advance = async |floor| {
        let act = Act::Advance {
            period: odometer_core::period::Period::none(),
            floor,
            confirm: true,
        };
        let altered = stage.alter(act, Condition::None).await;
        altered.expect("the floor is raised");
    };
    advance(801).await;
    let ahead = ahead_us(&stage).await;
    assert!(
        (800_000_000 - SOON_US..=800_000_000).contains(&ahead),
        "{ahead}"
    );
    for floor in [1801, 100_000] {
        advance(floor).await;
        assert!(ahead_us(&stage).await <= 800_000_000, "{floor}");
    }
    assert_eq!(stage.next_value().await, 100_000);
}

for_each_backend!(a_definition_without_a_limit_gets_one_with_its_first_change);

async fn a_definition_without_a_limit_gets_one_with_its_first_change(backend: Backend) {
    let stage = limited(backend, "{}").await;
    // A program that knew no limits wrote it.
    let old = r#"UPDATE sequence SET definition = '{"format": "INV-{value:08}"}'"#;
    stage.database.execute(old).await;
    let refused = stage.reserve(10_001, None).await;
    assert!(matches!(
        refused,
        Err(StoreError::AboveBurst { burst: 10_000 })
    ));
    let n_with_limit = async || {
        let query = r#"SELECT COUNT(*) FROM sequence
            WHERE definition LIKE '%"limit":{"rate":100,"burst":10000}%'"#;
        stage.database.number(query).await
    };
    let unchanged = stage.alter(define("{}"), Condition::None).await;
    assert!(!unchanged.expect("it is as it was").is_written);
    assert_eq!(n_with_limit().await, Some(0));
    redefine(&stage, r#"{"description": "invoices"}"#).await;
    assert_eq!(n_with_limit().await, Some(1));
}
