//! Several failovers, lost recoveries and names that nobody can fence: what a replica knows decides.

use std::time::Duration;

use serde_json::json;

use super::fenced::{FENCES, arm, went_back};
use super::stage::{N_AFTER, Stage};
use super::{LIMIT, WENT_BACK};
use crate::support::{Answer, Backend, Client, Program, for_each_server, run, wait};

/// A sequence with a limit that is reached in the test.
pub(super) const LIMITED: &str = "limited";
const FEW: &str = "few";
const FEW_MORE: &str = "few-more";
/// How much longer the second standby follows than the first one.
const LONGER: Duration = Duration::from_secs(20);
/// Makes a heartbeat as young as if the copy had been good until now.
const BEAT: &str =
    "UPDATE replica SET beat_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
/// More steps than any limit allows.
const SKIP: &str = "100000000";

impl Stage {
    /// Takes `n` numbers of a sequence, as soon as there are any.
    pub(super) async fn take_slowly(&mut self, client: &Client, (name, n): (&str, u64)) {
        let path = format!("/v1/sequences/{name}/next");
        for _ in 0..n {
            let ranges = wait::until("a number is given", LIMIT, async || {
                match client.ask(&path).await {
                    Answer::Given(ranges) => Some(ranges),
                    Answer::Refused(_) => None,
                    Answer::NoReply(error) => panic!("no reply: {error}"),
                }
            });
            self.ledger.record(name, &ranges.await);
        }
    }

    /// Takes numbers of a sequence until it is refused because of the failover.
    async fn takes_until_refused(&mut self, client: &Client, name: &str) {
        let path = format!("/v1/sequences/{name}/next");
        let ledger = &mut self.ledger;
        wait::until("it is refused", LIMIT, async || {
            match client.ask(&path).await {
                Answer::Given(ranges) => {
                    ledger.record(name, &ranges);
                    None
                }
                Answer::Refused(reply) => {
                    (reply.code().as_deref() == Some(WENT_BACK)).then_some(())
                }
                Answer::NoReply(error) => panic!("no reply: {error}"),
            }
        })
        .await;
    }
}

#[test]
fn two_failovers_in_a_row_repeat_nothing() {
    run(async {
        let stage = Stage::new(Backend::Postgres, Program::options()).await;
        let mut stage = stage.fencing();
        let replica = stage.start().await;
        arm(&stage).await;
        for n_fences in [1, 2] {
            stage.fail_over(&replica.client()).await;
            stage.is_served_again(&replica.client()).await;
            stage.take(&replica.client(), N_AFTER).await;
            assert_eq!(stage.database.number(FENCES).await, Some(n_fences));
            if n_fences == 1 {
                stage = stage.follow_again().await;
            }
        }
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

/// Fails over to a copy, and then to another copy that is further ahead and lacks the fence. Returns
/// how many numbers were given twice.
async fn a_copy_lacks_the_fence(lives_through: bool) -> u64 {
    let stage = Stage::new(Backend::Postgres, Program::options()).await;
    let mut stage = stage.fencing();
    let second = stage.second().await;
    let mut old = stage.start().await;
    arm(&stage).await;
    let limit = json!({"limit": {"rate": 100, "burst": 1000}});
    old.client().define(LIMITED, &limit).await;
    stage.take_slowly(&old.client(), (LIMITED, 20)).await;
    stage.catch_up().await;
    stage.hold();
    tokio::time::sleep(LONGER).await;
    stage.take_slowly(&old.client(), (LIMITED, 200)).await;
    stage.hold_second(&second).await;
    stage.lose_primary();
    stage.promote().await;
    stage.lead_to_copy();
    stage.take_slowly(&old.client(), (LIMITED, 50)).await;
    if lives_through {
        stage.fail_over_to(&second).await;
        stage.take_slowly(&old.client(), (LIMITED, 250)).await;
        return stage.ledger.n_duplicates();
    }
    old.kill();
    stage.fail_over_to(&second).await;
    // However long the failovers took, the second fence is below the first one.
    stage.database.execute(BEAT).await;
    let fresh = stage.options.start_ready().await;
    let mut n_taken = 0;
    while stage.ledger.n_duplicates() == 0 && n_taken < 20_000 {
        stage.take_slowly(&fresh.client(), (LIMITED, 50)).await;
        n_taken += 50;
    }
    stage.ledger.n_duplicates()
}

#[test]
fn a_copy_that_lacks_a_fence_is_fenced_above_it() {
    run(async {
        assert_eq!(a_copy_lacks_the_fence(true).await, 0);
    });
}

#[test]
fn a_copy_that_lacks_a_fence_repeats_numbers_if_nobody_knows_the_fence() {
    run(async {
        let n_twice = a_copy_lacks_the_fence(false).await;
        assert!(n_twice > 0, "nothing is found");
    });
}

for_each_server!(
    a_replica_that_was_frozen_goes_on_from_the_fence_of_a_fresh_one,
    a_fence_is_above_a_recovery_that_was_lost,
    a_word_about_one_sequence_outlives_a_failover,
    a_sequence_with_few_numbers_waits_for_an_operator,
);

async fn a_replica_that_was_frozen_goes_on_from_the_fence_of_a_fresh_one(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let mut stage = stage.fencing();
    let old = stage.start().await;
    arm(&stage).await;
    stage.lose_commits(&old.client()).await;
    old.freeze();
    let n_lost = stage.promote().await;
    assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
    stage.lead_to_copy();
    let fresh = stage.options.start().await;
    stage.is_served_again(&fresh.client()).await;
    stage.take(&fresh.client(), N_AFTER).await;
    old.thaw();
    stage.is_served_again(&old.client()).await;
    stage.take(&old.client(), N_AFTER).await;
    assert_eq!(stage.database.number(FENCES).await, Some(1));
    assert_eq!(stage.ledger.n_duplicates(), 0);
}

async fn a_fence_is_above_a_recovery_that_was_lost(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let mut stage = stage.fencing();
    let replica = stage.start().await;
    arm(&stage).await;
    stage.take(&replica.client(), N_AFTER).await;
    stage.catch_up().await;
    stage.hold();
    let recovered = stage.options.run(&["recover", "--yes", "--skip", SKIP]);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    let skip: i64 = SKIP.parse().expect("a number");
    wait::until("the recovery is seen", LIMIT, async || {
        (replica.client().next("orders").await > skip).then_some(())
    })
    .await;
    stage.take(&replica.client(), N_AFTER).await;
    let highest = stage.ledger.highest("orders").expect("some were taken");
    stage.lose_primary();
    stage.promote().await;
    assert_eq!(stage.database.number(FENCES).await, Some(0), "vacuous");
    stage.lead_to_copy();
    stage.is_served_again(&replica.client()).await;
    stage.take(&replica.client(), N_AFTER).await;
    assert!(stage.ledger.highest("orders") > Some(highest));
    assert_eq!(stage.ledger.n_duplicates(), 0);
}

async fn a_word_about_one_sequence_outlives_a_failover(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let mut stage = stage.fencing();
    let replica = stage.start().await;
    arm(&stage).await;
    let client = replica.client();
    client.define(FEW, &json!({"max": 9999})).await;
    stage.take_slowly(&client, (FEW, 50)).await;
    stage.catch_up().await;
    stage.hold();
    let skip = ["recover", FEW, "--yes", "--skip", "1000"];
    let recovered = stage.options.run(&skip);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    wait::until("the recovery is seen", LIMIT, async || {
        (client.next(FEW).await > 1000).then_some(())
    })
    .await;
    stage.take_slowly(&client, (FEW, 50)).await;
    stage.lose_primary();
    stage.promote().await;
    assert_eq!(stage.database.number(FENCES).await, Some(0), "vacuous");
    stage.lead_to_copy();
    stage.is_served_again(&client).await;
    stage.takes_until_refused(&client, FEW).await;
    // The copy lacks the word, so the operator says only what was lost since.
    let recovered = stage.options.run(&skip);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    stage.take_slowly(&client, (FEW, 100)).await;
    assert_eq!(stage.ledger.n_duplicates(), 0);
}

async fn a_sequence_with_few_numbers_waits_for_an_operator(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let mut stage = stage.fencing();
    let replica = stage.start().await;
    arm(&stage).await;
    let client = replica.client();
    let few = json!({"max": 9999});
    client.define(FEW, &few).await;
    stage.take_slowly(&client, (FEW, 50)).await;
    stage.fail_over(&client).await;
    stage.is_served_again(&client).await;
    stage.takes_until_refused(&client, FEW).await;
    assert_eq!(went_back(&replica).await, 1.0);
    let skip = ["recover", FEW, "--yes", "--skip", "1000"];
    let recovered = stage.options.run(&skip);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    stage.take_slowly(&client, (FEW, 50)).await;
    // Another one may have been lost, too.
    let path = format!("/v1/sequences/{FEW_MORE}");
    let born = client.put(&path, &few).await.expect("a reply");
    assert_eq!(born.status, 503, "{born:?}");
    assert_eq!(went_back(&replica).await, 1.0);
    let nothing = ["recover", FEW_MORE, "--yes", "--nothing-was-lost"];
    let recovered = stage.options.run(&nothing);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    wait::until("it can be created", LIMIT, async || {
        let born = client.put(&path, &few).await.expect("a reply");
        (born.status == 201).then_some(())
    })
    .await;
    assert_eq!(client.next(FEW_MORE).await, 1);
    assert_eq!(went_back(&replica).await, 0.0);
    assert_eq!(stage.ledger.n_duplicates(), 0);
}
