//! Counters that are created after recoveries, and the word of an operator that none was lost.

use std::sync::Arc;

use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_store::{
    Condition, FenceRequest, Loss, ReservationProgress, ReserveRequest, Reserved, Stores, Want,
};
use odometer_tests::{Backend, wait};
use tracing::Span;

use crate::{
    fence::ARM,
    for_each_backend, for_each_server,
    restart::change_stamp,
    stage::{LIMIT, Stage, define, name, recover, recover_by},
};

/// Steps that an operator says were lost.
const SKIP: u64 = 1_000;

/// An operator says that no counter was lost.
async fn say(stage: &mut Stage) {
    stage.stop().await;
    let said = recover_by(&stage.settings, Loss::NoCounter).await;
    said.expect("the database is whole");
    stage.start().await;
}

for_each_backend!(new_counters_begin_at_their_start_once_an_operator_says_that_none_was_lost);

async fn new_counters_begin_at_their_start_once_an_operator_says_that_none_was_lost(
    backend: Backend,
) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    recover(&stage.settings, SKIP).await;
    stage.start().await;
    let branch = stage.number("SELECT branch FROM lineage").await;
    assert_eq!(stage.is_born("before").await, 1_001);
    say(&mut stage).await;
    assert_eq!(stage.is_born("after").await, 1);
    // The word is no recovery.
    assert_eq!(stage.number("SELECT branch FROM lineage").await, branch);
    assert_eq!(stage.number("SELECT COUNT(*) FROM fence").await, 1);
    let second = stage.reserve(5, None).await.expect("a block");
    assert_eq!(second.block.first(), 1_011);
    // A later recovery counts. What was lost by it may have begun above the earlier one.
    stage.stop().await;
    recover(&stage.settings, SKIP).await;
    stage.start().await;
    assert_eq!(stage.is_born("later").await, 2_001);
    say(&mut stage).await;
    assert_eq!(stage.is_born("last").await, 1);
    // A copy that lacks the word, and one that lacks the row which it names.
    for lose in [
        "UPDATE meta SET births_after = NULL",
        "UPDATE meta SET births_after = 2",
    ] {
        stage.database.execute(lose).await;
        let name = format!("copy-{}", lose.len());
        assert_eq!(stage.is_born(&name).await, 2_001);
    }
    stage.stop().await;
}

for_each_backend!(a_fence_counts_for_new_counters_after_that_word);

async fn a_fence_counts_for_new_counters_after_that_word(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    recover(&stage.settings, SKIP).await;
    let said = recover_by(&stage.settings, Loss::NoCounter).await;
    said.expect("the database is whole");
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    let said = recover_by(&stage.settings, Loss::NoCounter).await;
    let refused = said.expect_err("it is a copy").to_string();
    assert!(refused.contains("--births-from-start: "), "{refused}");
    let compute = Loss::Computed(FenceRequest::default());
    let fenced = recover_by(&stage.settings, compute).await;
    let highest_rise = fenced.expect("it is fenced").highest_rise;
    stage.start().await;
    // The recovery before the word does not count. Nothing was paid for, so the counter rises by as
    // much as any other one.
    let level = stage.is_born("lost").await - 1;
    assert!((highest_rise..2 * highest_rise).contains(&level), "{level}");
    // A replica knew of a branch that the copy lacks. A counter may have begun there above it.
    let levels = "UPDATE fence SET n_levels = 1 WHERE number = 2";
    stage.database.execute(levels).await;
    assert_eq!(stage.is_born("lost-there").await, 1_001 + level);
    say(&mut stage).await;
    assert_eq!(stage.is_born("new").await, 1);
    stage.stop().await;
}

for_each_server!(a_new_sequence_that_waited_is_told_no_longer_after_that_word);

async fn a_new_sequence_that_waited_is_told_no_longer_after_that_word(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    let compute = Loss::Computed(FenceRequest::default());
    let fenced = recover_by(&stage.settings, compute).await;
    fenced.expect("it is fenced");
    stage.start().await;
    let few = SequenceName::parse("few").expect("it is a name");
    let short = Arc::new(Definition {
        max: 10_000,
        limit: None,
        ..Definition::default()
    });
    let refused = stage.store().create(&few, &short, None).await;
    refused.expect_err("nobody knows what was lost of it");
    assert_eq!(stage.went_back(), 1);
    let said = recover_by(&stage.settings, Loss::NoCounter).await;
    said.expect("the database is whole");
    wait::until("the replica tells of no loss", LIMIT, async || {
        (stage.went_back() == 0).then_some(())
    })
    .await;
    let created = stage.store().create(&few, &short, None).await;
    let created = created.expect("it is created");
    assert_eq!(created.known.seen.next_value, 1);
    stage.stop().await;
}

/// Takes a number in a period of the sequence of the tests.
pub(crate) async fn reserve_in(store: &Stores, period: &str) -> Reserved {
    let request = ReserveRequest {
        key: CounterKey {
            sequence: name(),
            period: Period::parse(period).expect("it is a period"),
        },
        counted_by: None,
        last_seen: None,
        known: None,
        is_fresh: false,
        is_first: true,
        want: Want::Exactly(1),
        adopt_from: None,
        urgency: Arc::default(),
        progress: Arc::new(ReservationProgress::of(Span::current())),
    };
    let reserved = store.reserve(request).await;
    let reserved = reserved.expect("a reservation is answered");
    let reserved = reserved.expect("a number").publish_for(true);
    reserved.expect("nothing was recovered since")
}

async fn first_in(stage: &Stage, period: &str) -> i64 {
    reserve_in(stage.store(), period).await.block.first()
}

for_each_backend!(new_periods_begin_at_their_start_after_that_word);

async fn new_periods_begin_at_their_start_after_that_word(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    let defined = stage.alter(define(r#"{"period": "keyed"}"#), Condition::None);
    defined.await.expect("it has periods");
    assert_eq!(first_in(&stage, "before").await, 1);
    stage.stop().await;
    recover(&stage.settings, SKIP).await;
    stage.start().await;
    assert_eq!(first_in(&stage, "before").await, 1_002);
    assert_eq!(first_in(&stage, "lost").await, 1_001);
    say(&mut stage).await;
    assert_eq!(first_in(&stage, "after").await, 1);
    assert_eq!(first_in(&stage, "lost").await, 1_002);
    stage.stop().await;
}
