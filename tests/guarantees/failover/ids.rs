//! Worker ids and time-ordered ids after a failover that lost leases.

use std::time::Duration;

use odometer_process::clock::now_ms;
use serde_json::json;

use super::fenced::{ARM, FENCES};
use super::stage::{MOMENTS, Stage};
use crate::support::{Answer, Backend, Lease, Options, Program, for_each_server, wait};

/// How long after the promotion ids without a living lease may be missing.
const LONGEST: Duration = Duration::from_secs(75);
const POOL: &str = "billing";
const TTL_MS: i64 = 600_000;

/// What became of the leases of a pool in a failover.
struct Outcome {
    _stage: Stage,
    old: Program,
    /// A lease that the copy has.
    held: Lease,
    /// A lease that the copy lacks.
    lost: Lease,
    /// The next lease after the fence.
    next: Lease,
    promoted_ms: i64,
}

async fn fail_over(backend: Backend, options: Options) -> Outcome {
    let mut stage = Stage::new(backend, options).await.fencing();
    let old = stage.start().await;
    stage.database.execute(ARM).await;
    let client = old.client();
    stage.take(&client, 1).await;
    let held = client.lease(POOL, 4, TTL_MS, "held").await;
    stage.catch_up().await;
    stage.hold();
    let lost = client.lease(POOL, 4, TTL_MS, "lost").await;
    stage.lose_primary();
    stage.promote().await;
    let promoted_ms = now_ms();
    stage.lead_to_copy();
    let body = json!({"pool": POOL, "bits": 4, "ttl_ms": TTL_MS, "holder": "next"});
    let next = wait::until("a lease", 2 * LONGEST, async || {
        let reply = client.ask_for_worker(&body).await.expect("a reply");
        (reply.status == 201).then(|| Lease::of(&reply))
    })
    .await;
    assert_eq!(stage.database.number(FENCES).await, Some(1));
    assert_eq!(next.worker, lost.worker, "vacuous: it is another id");
    Outcome {
        _stage: stage,
        old,
        held,
        lost,
        next,
        promoted_ms,
    }
}

for_each_server!(
    a_fence_keeps_leases_and_gives_lost_ids_again_when_their_time_is_over,
    leases_that_reach_far_share_time_after_a_fence,
    time_ordered_ids_go_on_soon_after_a_fence,
);

async fn a_fence_keeps_leases_and_gives_lost_ids_again_when_their_time_is_over(backend: Backend) {
    let outcome = fail_over(backend, Program::options()).await;
    let (lost, next) = (&outcome.lost, &outcome.next);
    assert!(next.from_ms >= lost.until_ms, "{next:?} after {lost:?}");
    let waited_ms = next.from_ms - outcome.promoted_ms;
    assert!(waited_ms < longest_ms(), "{waited_ms} ms");
    let client = outcome.old.client();
    let renewed = client.renew(&outcome.held, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let renewed = client.renew(lost, None).await.expect("a reply");
    assert_eq!(renewed.code().as_deref(), Some("lease_lost"), "{renewed:?}");
}

async fn leases_that_reach_far_share_time_after_a_fence(backend: Backend) {
    let options = Program::options().without_guards("leases-reach-far");
    let outcome = fail_over(backend, options).await;
    let (lost, next) = (&outcome.lost, &outcome.next);
    assert!(next.from_ms < lost.until_ms, "nothing is found");
}

async fn time_ordered_ids_go_on_soon_after_a_fence(backend: Backend) {
    let options = Program::options();
    let mut stage = Stage::new(backend, options).await.fencing();
    let mut old = stage.start().await;
    stage.database.execute(ARM).await;
    stage.fail_over(&old.client()).await;
    old.kill();
    let promoted_ms = now_ms();
    let fresh = stage.options.start().await;
    let (client, path) = (fresh.client(), format!("/v1/sequences/{MOMENTS}/next"));
    wait::until("an id", 2 * LONGEST, async || {
        match client.ask(&path).await {
            Answer::Given(_) => Some(()),
            Answer::Refused(_) => None,
            Answer::NoReply(error) => panic!("no reply: {error}"),
        }
    })
    .await;
    assert_eq!(stage.database.number(FENCES).await, Some(1));
    let rested = "SELECT leases_from FROM meta";
    let from_ms = stage
        .database
        .number(rested)
        .await
        .expect("a fence sets it");
    let rested_ms = from_ms - promoted_ms;
    assert!(rested_ms < longest_ms(), "{rested_ms} ms");
}

fn longest_ms() -> i64 {
    i64::try_from(LONGEST.as_millis()).expect("a short time")
}
