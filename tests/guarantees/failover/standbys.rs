//! A PostgreSQL standby is promoted.

use serde_json::json;

use super::{
    LIMIT, SKIP, WENT_BACK, block, costs_nothing, is_passing, lossless, recover, repeats_numbers,
    stage::{MOMENTS, N_AFTER, N_BEFORE, Stage},
};
use crate::support::{Backend, Options, Program, run, wait};

/// Reads a hash of what the stamp says of the server.
const STAMP: &str = "SELECT CAST(hashtext(server || started) AS BIGINT) FROM lineage";

async fn new(options: Options) -> Stage {
    Stage::new(Backend::Postgres, options).await
}

#[test]
fn a_standby_that_lost_commits_is_refused_until_it_is_recovered() {
    run(async {
        is_refused_until_it_is_recovered(new(Program::options()).await).await;
    });
}

#[test]
fn a_standby_that_lost_commits_is_refused_through_a_pooler_too() {
    run(async {
        let (stage, _pooler) = new(Program::options()).await.pooled().await;
        is_refused_until_it_is_recovered(stage).await;
    });
}

/// Fails over under a replica, and starts another one afterwards.
async fn is_refused_until_it_is_recovered(mut stage: Stage) {
    let old = stage.start().await;
    stage.fail_over(&old.client()).await;
    let fresh = stage.options.start().await;
    stage.is_refused(&old.client()).await;
    stage.is_refused(&fresh.client()).await;
    // The replica that ran before has a lease, and gives ids of it.
    let moment = format!("/v1/sequences/{MOMENTS}/next");
    assert_eq!(
        block(&fresh.client(), &moment).await,
        Err(WENT_BACK.to_owned())
    );
    assert_eq!(stage.ledger.n_duplicates(), 0);
    stage.recover(&[&old, &fresh]).await;
    assert_eq!(stage.ledger.n_duplicates(), 0);
}

#[test]
fn a_second_standby_that_lost_commits_is_refused_too() {
    run(async {
        let mut stage = new(Program::options()).await;
        let old = stage.start().await;
        stage.fail_over(&old.client()).await;
        stage.is_refused(&old.client()).await;
        stage.recover(&[&old]).await;

        stage = stage.follow_again().await;
        let between = stage.options.start_ready().await;
        stage.fail_over(&old.client()).await;
        let fresh = stage.options.start().await;
        for replica in [&old, &between, &fresh] {
            stage.is_refused(&replica.client()).await;
        }
        assert_eq!(stage.ledger.n_duplicates(), 0);
        stage.recover(&[&old, &between, &fresh]).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

/// A base backup that is promoted while its former primary runs on is a restored backup.
#[test]
fn a_backup_on_another_timeline_is_refused_until_it_is_recovered() {
    run(async {
        let mut stage = new(Program::options()).await;
        let old = stage.start().await;
        stage.take(&old.client(), N_BEFORE).await;
        stage.catch_up().await;
        stage.hold();
        stage.take(&old.client(), N_AFTER).await;
        let n_lost = stage.promote().await;
        assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
        stage.lead_to_copy();
        let fresh = stage.options.start().await;
        stage.is_refused(&fresh.client()).await;
        stage.recover(&[&fresh]).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

#[test]
fn a_connection_to_a_standby_is_not_trusted_after_its_promotion() {
    run(async {
        let mut stage = new(Program::options()).await;
        let old = stage.start().await;
        stage.lose_commits(&old.client()).await;
        stage.lead_to_copy();
        let fresh = stage.options.start().await;
        wait::until("both wait for the standby", LIMIT, async || {
            let is_told = |log: String| log.contains("standby in recovery");
            (is_told(fresh.log()) && stage.copy().n_connections().await > 1).then_some(())
        })
        .await;
        let n_lost = stage.promote().await;
        assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
        stage.is_refused(&old.client()).await;
        stage.is_refused(&fresh.client()).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
        stage.recover(&[&old, &fresh]).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

#[test]
fn without_its_stamp_a_standby_that_lost_commits_repeats_numbers() {
    run(async {
        repeats_numbers(new(Program::options().without_guards("no-stamp")).await).await;
    });
}

#[test]
fn a_failover_that_loses_nothing_by_declaration_costs_nothing() {
    run(async {
        costs_nothing(new(lossless()).await, STAMP).await;
    });
}

#[test]
fn an_operator_may_say_that_nothing_was_lost() {
    run(async {
        let mut stage = new(Program::options()).await;
        let old = stage.start().await;
        stage.switch_over(&old).await;
        let fresh = stage.options.start().await;
        stage.is_refused(&old.client()).await;
        stage.is_refused(&fresh.client()).await;
        let kept = stage.reserved().await;
        let stamp = stage.database.number(STAMP).await;

        // What changes the copy is refused, and what only reads it is not.
        for replica in [&old, &fresh] {
            let body = json!({"description": "late"});
            let code = wait::until("an answer", LIMIT, async || {
                let reply = replica.client().put("/v1/sequences/orders", &body).await;
                let code = reply.expect("a reply").code();
                let is_told = code.as_deref().is_none_or(|code| !is_passing(code));
                is_told.then_some(code)
            })
            .await;
            assert_eq!(code.as_deref(), Some(WENT_BACK));
        }
        let version = "SELECT version FROM sequence WHERE name = 'orders'";
        let unchanged = stage.database.number(version).await;
        let applied = stage.apply(&[]);
        assert_ne!(applied.code, Some(0), "{applied}");
        let _refused_or_not = stage.apply(&["--dry-run"]);
        assert_eq!(stage.database.number(version).await, unchanged);
        let rehearsed = stage.options.run(&["recover", "--dry-run", "--skip", SKIP]);
        assert_eq!(rehearsed.code, Some(0), "{rehearsed}");
        assert_eq!(stage.reserved().await, kept);
        assert_eq!(stage.database.number(STAMP).await, stamp);
        stage.is_refused(&fresh.client()).await;

        // A replica that sees the recovery reserves again.
        for replica in [&old, &fresh] {
            stage.database.stop(replica).await;
        }
        recover(&stage.options, &["--nothing-was-lost"]);
        assert_eq!(stage.reserved().await, kept);
        for replica in [&old, &fresh] {
            replica.thaw();
            stage.is_served_again(&replica.client()).await;
            stage.take(&replica.client(), N_BEFORE).await;
        }
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}
