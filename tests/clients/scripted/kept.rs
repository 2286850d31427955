//! What cannot be said in a case: several drivers at the same replicas, and a driver that is
//! killed.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{player::options, script::Case, stage::Stage};
use crate::{
    clients::{
        driver::Driver,
        language::{Language, for_each_language},
    },
    support::settings,
};

/// How many drivers choose between two replicas. That all choose the same one has a probability of
/// 1 in 2^19.
const N_DRIVERS: usize = 20;
/// How long a connection is idle. Libraries keep it for 60 s, and the service closes it after 75 s.
/// Only tests at full size have the time to wait for that.
const SHORT_IDLE: Duration = Duration::from_secs(2);
const LONG_IDLE: Duration = Duration::from_secs(63);

fn case(replicas: Value) -> Case {
    case_of(replicas, json!({}))
}

/// Returns a case with these fields of the definition.
pub(super) fn case_of(replicas: Value, definition: Value) -> Case {
    let case = json!({
        "name": "of_this_file", "rule": "C6", "sequence": {"definition": definition},
        "replicas": replicas, "steps": []
    });
    serde_json::from_value(case).expect("a case")
}

for_each_language!(
    drivers_begin_at_replicas_that_they_choose_at_random,
    a_killed_driver_loses_at_most_its_last_two_blocks,
    two_drivers_never_get_the_same_number,
    a_connection_is_used_again_unless_it_was_idle_for_a_minute,
);

async fn drivers_begin_at_replicas_that_they_choose_at_random(language: Language) {
    let mut chosen = BTreeSet::new();
    let case = case(json!([[], []]));
    let stage = Stage::start(&case).await;
    for _ in 0..N_DRIVERS {
        let mut driver = Driver::start(language, &options(&case, stage.endpoints())).await;
        driver.take("next 1").await;
        driver.exit().await;
        let log = stage.log();
        chosen.extend(log.calls.last().map(|call| call.replica));
    }
    assert_eq!(chosen.len(), 2, "all drivers began at the same replica");
}

async fn a_killed_driver_loses_at_most_its_last_two_blocks(language: Language) {
    let case = case(json!([[]]));
    let stage = Stage::start(&case).await;
    let options = options(&case, stage.endpoints());
    let mut killed = Driver::start(language, &options).await;
    let before = killed.take("next 250").await;
    killed.kill();
    let (n_taken, n_last) = {
        let log = stage.log();
        let sizes: Vec<u64> = log.counter.taken.iter().map(|run| run.count).collect();
        let n_last: u64 = sizes.iter().rev().take(2).sum();
        (log.counter.n_taken(), n_last)
    };
    assert_eq!((before.n_numbers(), &before.error), (250, &None));
    let n_lost = n_taken - before.n_numbers();
    assert!(n_lost > 0, "vacuous: the driver had nothing to lose");
    assert!(
        n_lost <= n_last,
        "{n_lost} lost, but its last two blocks had {n_last}"
    );
    let mut next = Driver::start(language, &options).await;
    let after = next.take("next 250").await;
    assert_eq!((after.n_numbers(), &after.error), (250, &None));
    let first = after.values().first().copied();
    let n_taken = i64::try_from(n_taken).expect("few");
    assert!(
        first > Some(n_taken),
        "{first:?} was taken by the killed driver"
    );
    next.exit().await;
}

async fn two_drivers_never_get_the_same_number(language: Language) {
    let case = case(json!([[], []]));
    let stage = Stage::start(&case).await;
    let options = options(&case, stage.endpoints());
    let mut one = Driver::start(language, &options).await;
    let mut other = Driver::start(language, &options).await;
    let (of_one, of_other) = tokio::join!(one.take("threads 4 500"), other.take("threads 4 500"));
    let mut values = [of_one.values(), of_other.values()].concat();
    assert_eq!(
        values.len(),
        4000,
        "{:?} {:?}",
        of_one.error,
        of_other.error
    );
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), 4000, "numbers came twice");
    one.exit().await;
    other.exit().await;
}

async fn a_connection_is_used_again_unless_it_was_idle_for_a_minute(language: Language) {
    // Each number is a call of its own.
    let case = case_of(json!([[]]), json!({"order": "strict"}));
    let stage = Stage::start(&case).await;
    let options = options(&case, stage.endpoints());
    let mut driver = Driver::start(language, &options).await;
    driver.take("next 3").await;
    let idle = settings::at_size(SHORT_IDLE, LONG_IDLE);
    tokio::time::sleep(idle).await;
    driver.take("next 1").await;
    driver.exit().await;
    let log = stage.log();
    let calls = log.calls.iter().filter(|call| call.is_for_numbers());
    let connections: Vec<usize> = calls.map(|call| call.connection).collect();
    let &[first, second, third, last] = connections.as_slice() else {
        panic!("vacuous: calls over the connections {connections:?}");
    };
    assert_eq!([second, third], [first, first], "a connection is kept");
    let is_kept = last == first;
    assert_eq!(
        is_kept,
        idle == SHORT_IDLE,
        "the connection was idle for {idle:?}"
    );
}
