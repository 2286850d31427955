//! Recoveries that are computed from a time which an operator says.

use odometer_store::{FenceRequest, Loss, Recovered, StartError};
use odometer_tests::Backend;

use crate::{
    fence::ARM,
    for_each_backend,
    restart::change_stamp,
    stage::{Stage, recover_by},
};

const SECOND_US: i64 = 1_000_000;
/// The numbers of an hour at the default speed limit.
const HOUR_OF_NUMBERS: i64 = 3_600 * 100_000;

/// Computes what was lost since this time, as seconds before the last heartbeat.
async fn recover_since(stage: &Stage, before_s: i64) -> Result<Recovered, StartError> {
    let last = stage.number("SELECT MAX(beat_at) FROM replica").await;
    let since_us = last * 1000 - before_s * SECOND_US;
    recover_by(
        &stage.settings,
        Loss::Computed(FenceRequest::since(since_us)),
    )
    .await
}

for_each_backend!(an_operator_may_say_since_when_commits_are_lost);

async fn an_operator_may_say_since_when_commits_are_lost(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.is_born("rested").await;
    stage.stop().await;
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    // The database shows a time that is a few seconds before its last heartbeat.
    for before_s in [-86_400, -1, 0, 3] {
        let later = recover_since(&stage, before_s).await;
        let refused = later.expect_err("too little would be skipped").to_string();
        assert!(refused.contains("--since: "), "{before_s}: {refused}");
    }
    let fenced = recover_since(&stage, 3_600).await.expect("it is fenced");
    let n_more = fenced.highest_rise - HOUR_OF_NUMBERS;
    assert!((10_000_000..20_000_000).contains(&n_more), "{fenced:?}");
    // The copy has a reservation that is later than this time. All the same the sequence rises.
    assert!(fenced.unknown.is_empty(), "{fenced:?}");
    let lowest = stage.number("SELECT MIN(next_value) FROM counter").await;
    assert!(lowest > HOUR_OF_NUMBERS + 10_000_000, "{lowest}");
    let told = "SELECT MAX(until_us) - MAX(since_us) FROM fence";
    assert!(stage.number(told).await > 3_600 * SECOND_US);
}

for_each_backend!(a_heartbeat_of_a_clock_that_was_ahead_asks_for_the_time_of_the_loss);

async fn a_heartbeat_of_a_clock_that_was_ahead_asks_for_the_time_of_the_loss(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.is_born("rested").await;
    stage.stop().await;
    stage.database.execute(ARM).await;
    change_stamp(&stage, "server").await;
    let ahead = "UPDATE replica SET beat_at = beat_at + 3600000";
    stage.database.execute(ahead).await;
    let computed = Loss::Computed(FenceRequest::default());
    let refused = recover_by(&stage.settings, computed).await;
    let refused = refused.expect_err("nobody knows since when").to_string();
    assert!(refused.contains("give --since TIME"), "{refused}");
    recover_since(&stage, 3_600 - 60)
        .await
        .expect_err("that is in the future");
    let fenced = recover_since(&stage, 3_600 + 60).await;
    assert!(fenced.expect("it is fenced").fence.is_some());
}
