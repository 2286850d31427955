//! How far ahead a lease reaches, and what a fence makes of leases.

use std::time::Duration;

use odometer_core::name::SequenceName;
use odometer_process::clock::now_ms;
use odometer_store::{LeaseError, LeaseGrant, LeaseWanted, WorkerChoice, WorkerPool};
use odometer_tests::{Backend, wait};

use crate::{
    for_each_backend, for_each_server,
    restart::{armed, change_stamp},
    stage::{LIMIT, Stage},
};

const TTL: Duration = Duration::from_secs(600);
const STORE: &str = "default";
/// How long anything takes that a test waits for, in milliseconds.
const SLACK_MS: i64 = 30_000;

async fn lease(stage: &Stage, holder: &str) -> Result<LeaseGrant, LeaseError> {
    let wanted = LeaseWanted {
        pool: WorkerPool::Named(SequenceName::parse("billing").expect("it is a name")),
        bits: 3,
        holder: holder.into(),
        ttl: TTL,
        choice: WorkerChoice::Any,
        usable_by_ms: None,
    };
    stage.store().lease(STORE, wanted).await
}

async fn renewed(stage: &Stage, lease: &LeaseGrant) -> LeaseGrant {
    let renewed = stage.store().renew_lease(&lease.key, None).await;
    renewed.expect("it is renewed")
}

/// Checks that a lease reserves so many seconds from now on.
fn reaches(lease: &LeaseGrant, seconds: i64) {
    let ahead_ms = lease.until_ms - now_ms();
    // Meanwhile the lease has lasted longer, too.
    let expected = seconds * 1000 - SLACK_MS..=seconds * 1000 + SLACK_MS;
    assert!(expected.contains(&ahead_ms), "{ahead_ms} in {expected:?}");
}

for_each_backend!(a_lease_reaches_no_further_than_it_has_lasted);

async fn a_lease_reaches_no_further_than_it_has_lasted(backend: Backend) {
    let mut stage = armed(backend).await;
    let first = lease(&stage, "one").await.expect("a lease");
    reaches(&first, 60);
    assert!(first.reach <= Duration::from_secs(60), "{:?}", first.reach);
    reaches(&renewed(&stage, &first).await, 60);
    let later = "UPDATE worker_lease SET leased_at = leased_at - 300000, version = version + 1";
    stage.database.execute(later).await;
    reaches(&renewed(&stage, &first).await, 300);
    // The row may be later than that, after a fence.
    let raised = format!(
        "UPDATE worker_lease SET reserved_until = {}, version = version + 1",
        now_ms() + 3_600_000
    );
    stage.database.execute(&raised).await;
    reaches(&renewed(&stage, &first).await, 300);
    // Nobody fences the database any more.
    stage.stop().await;
    let disarm = "UPDATE meta SET armed_at = NULL";
    stage.database.execute(disarm).await;
    stage.start().await;
    let other = lease(&stage, "other").await.expect("a lease");
    reaches(&other, 600);
}

for_each_server!(a_fence_ends_leases_only_if_they_have_run_out);

async fn a_fence_ends_leases_only_if_they_have_run_out(backend: Backend) {
    let stage = armed(backend).await;
    let lasting = lease(&stage, "one").await.expect("a lease");
    let ended = lease(&stage, "other").await.expect("a lease");
    let run_out = format!(
        "UPDATE worker_lease SET expires_at = 1 WHERE worker = {}",
        ended.key.worker
    );
    stage.database.execute(&run_out).await;
    change_stamp(&stage, "server").await;
    wait::until("it is fenced", LIMIT, async || {
        stage.reserve(1, None).await.ok().map(|_block| ())
    })
    .await;
    let fences = "SELECT COUNT(*) FROM fence";
    assert_eq!(stage.database.number(fences).await, Some(1));
    assert_eq!(
        renewed(&stage, &lasting).await.key.worker,
        lasting.key.worker
    );
    let lost = stage.store().renew_lease(&ended.key, None).await;
    assert!(matches!(lost, Err(LeaseError::Lost)), "{lost:?}");
    // A lease that the database has forgotten reaches ahead a minute, and the margin of clocks.
    let next = wait::until("an id is free", LIMIT, async || {
        lease(&stage, "third").await.ok()
    })
    .await;
    let ahead_ms = next.from_ms - now_ms();
    assert!((0..=75_000).contains(&ahead_ms), "{ahead_ms}");
    assert!(next.from_ms >= ended.until_ms, "{next:?}");
}
