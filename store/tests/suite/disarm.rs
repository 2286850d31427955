//! The way back to a program that knows no fences.

use odometer_store::{Arming, FenceRequest, Loss, StartError};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend,
    restart::change_stamp,
    stage::{LIMIT, Stage, of_sequence, recover_by},
};

const ARM: &str = "UPDATE meta SET armed_at = 1, compatible_from = 7";
const IS_ARMED: &str = "SELECT COUNT(*) FROM meta WHERE armed_at IS NOT NULL";
/// An older program that makes its row. It writes no column that it does not know.
const OLDER: &str =
    "INSERT INTO replica (holder, beat, beat_at) VALUES ('older', 7, 9000000000000)";
const N_OLDER: &str = "SELECT COUNT(*) FROM replica WHERE holder = 'older'";
/// What older programs take for the last recovery, and the last one of all sequences.
const TOLD: &str = "SELECT COALESCE(recovered_at, 0) FROM meta";
const LAST: &str = "SELECT last_recovery_at FROM meta";

async fn set(stage: &Stage, arming: Arming) -> Result<(), StartError> {
    odometer_store::migrate(&stage.settings, Some(arming), &mut |_line| {}, &|_step| {}).await
}

for_each_backend!(older_programs_may_use_a_database_that_is_disarmed);

async fn older_programs_may_use_a_database_that_is_disarmed(backend: Backend) {
    let mut stage = Stage::new(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.database.execute(ARM).await;
    stage.database.execute(OLDER).await;
    // Control: in an armed database the row of an older program goes.
    wait::until("the row of the older program goes", LIMIT, async || {
        (stage.number(N_OLDER).await == 0).then_some(())
    })
    .await;
    stage.stop().await;
    set(&stage, Arming::Off)
        .await
        .expect("nothing is in the way");
    assert_eq!(stage.number(IS_ARMED).await, 0);
    let n_open = "SELECT COUNT(*) FROM meta WHERE compatible_from = 4";
    assert_eq!(stage.number(n_open).await, 1);
    stage.start().await;
    stage.database.execute(OLDER).await;
    let beats = "SELECT MAX(beat) FROM replica WHERE holder <> 'older'";
    let before = stage.number(beats).await;
    wait::until("the replica has looked several times", LIMIT, async || {
        (stage.number(beats).await >= before + 5).then_some(())
    })
    .await;
    assert_eq!(stage.number(N_OLDER).await, 1);
    let second = stage.reserve(5, None).await.expect("a block");
    assert_eq!(second.block.first(), 11);
    stage.stop().await;
    let n_disarmed = "SELECT COUNT(*) FROM meta WHERE disarmed = TRUE";
    assert_eq!(stage.number(n_disarmed).await, 1);
    set(&stage, Arming::Allowed).await.expect("it is allowed");
    assert_eq!(stage.number(n_disarmed).await, 0);
}

for_each_backend!(a_database_is_disarmed_only_if_older_programs_repeat_nothing);

async fn a_database_is_disarmed_only_if_older_programs_repeat_nothing(backend: Backend) {
    let mut stage = Stage::impatient(backend).await;
    stage.reserve(10, None).await.expect("a block");
    stage.stop().await;
    stage.database.execute(ARM).await;
    let refused = async |stage: &Stage, why: &str| {
        let refused = set(stage, Arming::Off).await;
        let refused = refused.expect_err(why).to_string();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(stage.number(IS_ARMED).await, 1);
        let n_disarmed = "SELECT COUNT(*) FROM meta WHERE disarmed = TRUE";
        assert_eq!(stage.number(n_disarmed).await, 0);
    };
    change_stamp(&stage, "server").await;
    refused(&stage, "--disarm: this database is a copy").await;
    let compute = Loss::Computed(FenceRequest::default());
    let fenced = recover_by(&stage.settings, compute).await;
    assert!(fenced.expect("it is fenced").fence.is_some());
    let wait = "UPDATE counter SET must_recover = TRUE";
    stage.database.execute(wait).await;
    refused(&stage, "--disarm: sequences wait for").await;
    let said = recover_by(&stage.settings, of_sequence("orders", 0)).await;
    said.expect("an operator has said what was lost");
    refused(&stage, "`odometer recover --births-from-start` first").await;
    // An older program has not heard of these recoveries.
    assert_eq!(stage.number(TOLD).await, 0);
    let said = recover_by(&stage.settings, Loss::NoCounter).await;
    said.expect("no counter was lost");
    set(&stage, Arming::Off)
        .await
        .expect("nothing is in the way");
    assert_eq!(stage.number(TOLD).await, stage.number(LAST).await);
    // Replicas of this version see no recovery in that.
    stage.start().await;
    let number = wait::until("the limit allows numbers", LIMIT, async || {
        stage.reserve(5, None).await.ok()
    });
    assert!(number.await.block.first() > 10_000_000);
    stage.stop().await;
}
