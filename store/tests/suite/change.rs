//! Changes of definitions and floors.

use std::time::Instant;

use odometer_core::period::Period;
use odometer_store::{Act, Condition, StoreError};
use odometer_tests::{Backend, CutPoint, wait};

use crate::{
    for_each_backend, for_each_server,
    stage::{LIMIT, Lock, Stage, define, key},
};

/// The floor `floor`, whatever it skips.
fn advance(floor: i64) -> Act {
    Act::Advance {
        period: Period::none(),
        floor,
        confirm: true,
    }
}

for_each_backend!(a_floor_lies_below_all_that_is_reserved_next);

async fn a_floor_lies_below_all_that_is_reserved_next(backend: Backend) {
    let stage = Stage::new(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    let altered = stage.alter(advance(1000), Condition::None).await;
    let altered = altered.expect("it is changed");
    assert!(altered.is_written);
    assert_eq!(
        (altered.after.floor, altered.after.next_value),
        (1000, 1000)
    );
    // What this process remembers of the counter conflicts with the change.
    let second = stage.reserve(5, Some(&first.known)).await.expect("a block");
    assert_eq!(second.block.first(), 1000);
    let again = stage.alter(advance(1000), Condition::None).await;
    assert!(!again.expect("it is so already").is_written);
}

for_each_backend!(a_change_of_another_version_is_refused);

async fn a_change_of_another_version_is_refused(backend: Backend) {
    let stage = Stage::new(backend).await;
    let created = stage.alter(define("{}"), Condition::MustNotExist).await;
    let version = created.expect("it is created").after.version;
    let described = define(r#"{"description": "for orders"}"#);
    let changed = stage.alter(described, Condition::Version(version)).await;
    let changed = changed.expect("it is changed").after.version;
    assert!(changed > version);
    let late = define(r#"{"description": "too late"}"#);
    let refused = stage.alter(late, Condition::Version(version)).await;
    match refused {
        Err(StoreError::VersionMismatch { current }) => assert_eq!(current, changed),
        other => panic!("{other:?}"),
    }
    let exists = stage.alter(define("{}"), Condition::MustNotExist).await;
    assert!(
        matches!(exists, Err(StoreError::AlreadyExists)),
        "{exists:?}"
    );
}

for_each_backend!(a_change_that_nobody_hears_of_says_so);

async fn a_change_that_nobody_hears_of_says_so(backend: Backend) {
    let stage = Stage::impatient(backend).await;
    let first = stage.reserve(10, None).await.expect("a block");
    let changing = stage.alter(advance(1000), Condition::None);
    let unheard = stage.unheard(Lock::Counters, changing).await;
    let error = unheard.expect_err("no answer in time");
    let may_be_written = matches!(error, StoreError::MayHaveChanged | StoreError::Deadline);
    let is_certain = matches!(error, StoreError::NotChanged | StoreError::Unavailable);
    assert!(may_be_written || is_certain, "{error:?}");
    // The same change once more has an answer, and then holds.
    wait::until("the store changes again", LIMIT, async || {
        let again = stage.alter(advance(1000), Condition::None).await.ok()?;
        assert!(may_be_written || again.is_written, "it was said not to be");
        Some(())
    })
    .await;
    let second = stage.reserve(5, Some(&first.known)).await.expect("a block");
    assert!(second.block.first() >= 1000, "{:?}", second.block);
}

for_each_server!(a_change_whose_reply_is_lost_is_not_said_to_be_certain);

async fn a_change_whose_reply_is_lost_is_not_said_to_be_certain(backend: Backend) {
    let (stage, proxy) = Stage::behind_proxy(backend).await;
    stage.reserve(10, None).await.expect("a block");
    let started = Instant::now();
    let mut n_met = 0;
    // Each request of a change is cut in its turn; one of them is the commit.
    for n_passed in (0..20).cycle() {
        stage.until_up().await;
        let (before, n_cuts) = (floor(&stage).await, proxy.n_cuts());
        proxy.cut_after(n_passed, CutPoint::BeforeReply);
        let cut = stage.alter(advance(before + 100), Condition::None).await;
        let was_cut = proxy.n_cuts() > n_cuts;
        let is_written = floor(&stage).await > before;
        match cut {
            // The store may have found out that the commit was done.
            Ok(_) => assert!(is_written, "it was said to be changed"),
            Err(StoreError::MayHaveChanged) => {}
            Err(error) => assert!(!is_written, "{error:?}, and it was changed"),
        }
        n_met += u32::from(was_cut && is_written);
        if n_met >= 3 {
            break;
        }
        assert!(started.elapsed() < LIMIT, "vacuous: {n_met} commits met");
    }
}

/// The floor as the database has it.
async fn floor(stage: &Stage) -> i64 {
    let floor = stage.database.number("SELECT floor FROM counter").await;
    floor.expect("there is a counter")
}

for_each_backend!(nothing_is_changed_in_a_database_that_went_back);

async fn nothing_is_changed_in_a_database_that_went_back(backend: Backend) {
    let stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    let (before, _) = stage.store().look_up(&key()).await.expect("it is there");
    stage.go_back().await;
    for act in [
        advance(1000),
        define(r#"{"description": "late"}"#),
        Act::Retire,
    ] {
        let error = stage.alter(act, Condition::None).await;
        let error = error.expect_err("it went back");
        assert!(matches!(error, StoreError::WentBack), "{error:?}");
    }
    let (after, _) = stage.store().look_up(&key()).await.expect("it is there");
    assert_eq!(after.version, before.version);
}
