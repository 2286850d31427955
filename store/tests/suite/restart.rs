//! A server that is started again, as its stamp says.

use odometer_store::{Loss, StoreError};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend, for_each_server,
    stage::{LIMIT, Stage, recover_by},
};

const ENDED: &str = "SELECT COUNT(*) FROM replica WHERE ended";
const FENCES: &str = "SELECT COUNT(*) FROM fence";
/// Takes from each row that its process has ended in order.
const KILL: &str = "UPDATE replica SET ended = FALSE";

/// Makes the stamp that of an earlier start of the server.
async fn start_again(stage: &Stage) {
    change_stamp(stage, "started").await;
}

/// Changes what the stamp says of the server. The row says that it is no copy.
pub(crate) async fn change_stamp(stage: &Stage, column: &str) {
    let writer = match stage.database.backend {
        Backend::Postgres => "pg_current_xact_id()::text::bigint",
        Backend::MariaDb => {
            "/*M! TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) */ \
             /*!80000 0 */"
        }
        Backend::Sqlite => "0",
    };
    let stamp = format!("UPDATE lineage SET {column} = 'earlier', written_by = {writer}");
    stage.database.execute(&stamp).await;
}

/// A database that is fenced if nobody knows what it lost.
pub(crate) async fn armed(backend: Backend) -> Stage {
    let stage = Stage::impatient(backend).await;
    stage.database.execute("UPDATE meta SET armed_at = 1").await;
    stage
}

/// How many starts are counted as vouched for. A SQLite file is not fenced, so each start is trusted.
fn of_one_that_is_fenced(backend: Backend) -> u64 {
    u64::from(backend != Backend::Sqlite)
}

async fn first_number(stage: &Stage) -> i64 {
    let block = wait::until("a block", LIMIT, async || {
        stage.reserve(10, None).await.ok()
    })
    .await;
    block.block.first()
}

for_each_backend!(a_replica_notes_that_it_ended_in_order);

async fn a_replica_notes_that_it_ended_in_order(backend: Backend) {
    let mut stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    assert_eq!(stage.database.number(ENDED).await, Some(0));
    stage.stop().await;
    assert_eq!(stage.database.number(ENDED).await, Some(1));
    stage.start().await;
    assert_eq!(first_number(&stage).await, 11);
    assert_eq!(stage.database.number(ENDED).await, Some(1));
}

for_each_backend!(a_start_costs_nothing_that_a_replica_lived_through);

async fn a_start_costs_nothing_that_a_replica_lived_through(backend: Backend) {
    let stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    start_again(&stage).await;
    assert_eq!(first_number(&stage).await, 11);
    assert_eq!(stage.database.number(FENCES).await, Some(0));
    assert_eq!(stage.n_vouched(), of_one_that_is_fenced(backend));
}

for_each_backend!(a_start_costs_nothing_after_all_replicas_ended_in_order);

async fn a_start_costs_nothing_after_all_replicas_ended_in_order(backend: Backend) {
    let mut stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    stage.stop().await;
    start_again(&stage).await;
    stage.start().await;
    assert_eq!(first_number(&stage).await, 11);
    assert_eq!(stage.database.number(FENCES).await, Some(0));
    assert_eq!(stage.n_vouched(), of_one_that_is_fenced(backend));
}

for_each_server!(a_start_that_no_replica_lived_through_is_fenced);

async fn a_start_that_no_replica_lived_through_is_fenced(backend: Backend) {
    let mut stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    stage.stop().await;
    stage.database.execute(KILL).await;
    start_again(&stage).await;
    stage.start().await;
    // The burst, and the rate for the time since the last heartbeat.
    let first = first_number(&stage).await;
    assert!((10_000_000..20_000_000).contains(&first), "{first}");
    assert_eq!(stage.database.number(FENCES).await, Some(1));
    assert_eq!(stage.n_vouched(), 0);
}

for_each_server!(a_start_is_trusted_if_failovers_lose_nothing);

async fn a_start_is_trusted_if_failovers_lose_nothing(backend: Backend) {
    let mut stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    stage.stop().await;
    stage.database.execute(KILL).await;
    start_again(&stage).await;
    stage.settings.bounds.failover.is_lossless = true;
    stage.start().await;
    assert_eq!(first_number(&stage).await, 11);
    assert_eq!(stage.database.number(FENCES).await, Some(0));
    assert_eq!(stage.n_vouched(), 0);
}

for_each_server!(a_fence_that_fails_is_told_and_tried_again);

async fn a_fence_that_fails_is_told_and_tried_again(backend: Backend) {
    let stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    let rename = "ALTER TABLE fence RENAME COLUMN highest_rise TO another";
    stage.database.execute(rename).await;
    change_stamp(&stage, "server").await;
    wait::until("it is told", LIMIT, async || {
        let refused = stage.reserve(1, None).await;
        matches!(refused, Err(StoreError::WentBack)).then_some(())
    })
    .await;
    let rename = "ALTER TABLE fence RENAME COLUMN another TO highest_rise";
    stage.database.execute(rename).await;
    let first = first_number(&stage).await;
    assert!(first > 10_000_000, "{first}");
    assert_eq!(stage.database.number(FENCES).await, Some(1));
}

for_each_server!(a_word_about_the_present_server_leaves_what_waits_since_an_earlier_one);

/// Checks a database with a fence that stopped a sequence, and that is on another server since.
async fn a_word_about_the_present_server_leaves_what_waits_since_an_earlier_one(backend: Backend) {
    let mut stage = armed(backend).await;
    assert_eq!(first_number(&stage).await, 1);
    stage.stop().await;
    let fence = "INSERT INTO fence (number, branch, previous_branch, since_us, until_us, n_levels, \
                 n_steps, is_said, highest_rise, made_by, fenced_at) \
                 SELECT 1, branch, 7, 1, 1, 0, 0, FALSE, 0, '', 1 FROM lineage";
    let stop = "UPDATE counter SET must_recover = TRUE";
    stage.database.execute(fence).await;
    stage.database.execute(stop).await;
    start_again(&stage).await;
    for n_counters in [0, 1] {
        let recovered = recover_by(&stage.settings, Loss::Steps(0)).await;
        let recovered = recovered.expect("it can be recovered");
        assert_eq!(recovered.unknown, ["orders"], "{recovered:?}");
        assert_eq!(recovered.n_sequences, n_counters);
        stage.start().await;
        let taken = stage.reserve(10, None).await;
        match n_counters {
            0 => assert!(matches!(taken, Err(StoreError::WentBack)), "{taken:?}"),
            _ => assert_eq!(taken.expect("a block").block.first(), 11),
        }
        stage.stop().await;
    }
    stage.start().await;
}
