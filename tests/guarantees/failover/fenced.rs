//! Replicas go on by themselves from a copy that lost commits, and no number is given twice.

use std::time::{Duration, Instant};

use super::LIMIT;
use super::stage::{N_AFTER, Stage};
use crate::support::{Backend, Options, Program, Scrape, for_each_server, run, wait};

pub(in crate::guarantees) const FENCES: &str = "SELECT COUNT(*) FROM fence";
pub(in crate::guarantees) const ARM: &str = "UPDATE meta SET armed_at = 1, compatible_from = 7";

/// Fails over under a replica, and starts another one afterwards. Returns how many numbers were given
/// twice.
async fn goes_on(backend: Backend, options: Options, is_pooled: bool) -> u64 {
    let stage = Stage::new(backend, options).await.fencing();
    let (mut stage, _pooler) = if is_pooled {
        let (stage, pooler) = stage.pooled().await;
        (stage, Some(pooler))
    } else {
        (stage, None)
    };
    let old = stage.start().await;
    arm(&stage).await;
    stage.fail_over(&old.client()).await;
    let fresh = stage.options.start().await;
    for replica in [&fresh, &old] {
        stage.is_served_again(&replica.client()).await;
        stage.take(&replica.client(), N_AFTER).await;
    }
    assert_eq!(stage.database.number(FENCES).await, Some(1));
    is_told_by([&fresh, &old]).await;
    stage.ledger.n_duplicates()
}

/// Checks that the replica that ran before counts the fence, and that both tell who made it. The
/// other one counts it if it started before.
async fn is_told_by(replicas: [&Program; 2]) {
    let (mut holders, mut named) = (Vec::new(), Vec::new());
    for replica in replicas {
        let client = replica.client();
        let told = client.get("/v1/replica").await.expect("a reply").json();
        let recovery = &told["stores"][0]["databases"][0]["recovery"];
        assert!(recovery["lost_since"].is_string(), "{told}");
        assert!(recovery["highest_rise"].as_u64() > Some(0), "{told}");
        holders.push(told["holder"].clone());
        named.push(recovery["holder"].clone());
    }
    assert_eq!(named[0], named[1]);
    assert!(holders.contains(&named[0]), "{named:?} of {holders:?}");
    let [_, old] = replicas;
    let scrape = Scrape::of(&old.client()).await;
    assert_eq!(scrape.sum("odometer_store_fences_total", &[]), 1.0);
}

/// Arms the database. By themselves replicas do it after a minute without an older program.
pub(super) async fn arm(stage: &Stage) {
    stage.database.execute(ARM).await;
}

/// How long after its start and the promotion a replica may give nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// Fails over while no replica lives, and starts one, before the promotion or after it. Replicas have
/// the default settings.
async fn goes_on_soon(backend: Backend, is_early: bool) {
    let stage = Stage::new(backend, Program::options()).await;
    let mut stage = stage.fencing_by_default();
    let mut old = stage.start().await;
    arm(&stage).await;
    stage.lose_commits(&old.client()).await;
    old.kill();
    let early = if is_early {
        stage.lead_to_copy();
        let early = stage.options.start().await;
        wait::until("it waits for the standby", LIMIT, async || {
            early.log().contains("standby in recovery").then_some(())
        })
        .await;
        Some(early)
    } else {
        None
    };
    let n_lost = stage.promote().await;
    assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
    stage.lead_to_copy();
    let begun = Instant::now();
    let fresh = match early {
        Some(early) => early,
        None => stage.options.start().await,
    };
    stage.is_served_again(&fresh.client()).await;
    let lasted = begun.elapsed();
    println!("{}: {} ms", stage.copy().product(), lasted.as_millis());
    assert!(lasted <= LONGEST, "{lasted:?}\n{}", fresh.log());
    stage.take(&fresh.client(), N_AFTER).await;
    assert_eq!(stage.database.number(FENCES).await, Some(1));
    assert_eq!(stage.ledger.n_duplicates(), 0);
}

for_each_server!(
    numbers_go_on_by_themselves_from_a_copy_that_lost_commits,
    numbers_go_on_soon_although_no_replica_lived,
    a_fence_that_raises_nothing_repeats_numbers,
);

async fn numbers_go_on_by_themselves_from_a_copy_that_lost_commits(backend: Backend) {
    let n_twice = goes_on(backend, Program::options(), false).await;
    assert_eq!(n_twice, 0);
}

async fn numbers_go_on_soon_although_no_replica_lived(backend: Backend) {
    goes_on_soon(backend, false).await;
}

#[test]
fn numbers_go_on_soon_although_the_only_replica_started_on_a_standby() {
    run(async { goes_on_soon(Backend::Postgres, true).await });
}

#[test]
fn numbers_go_on_by_themselves_behind_a_pooler() {
    run(async {
        let n_twice = goes_on(Backend::Postgres, Program::options(), true).await;
        assert_eq!(n_twice, 0);
    });
}

async fn a_fence_that_raises_nothing_repeats_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-fence");
    let mut stage = Stage::new(backend, options).await.fencing();
    let mut old = stage.start().await;
    arm(&stage).await;
    stage.fail_over(&old.client()).await;
    // A replica that ran before compares its counters.
    old.kill();
    let fresh = stage.options.start_ready().await;
    stage.is_served_again(&fresh.client()).await;
    stage.take(&fresh.client(), N_AFTER).await;
    assert!(stage.ledger.n_duplicates() > 0, "nothing is found");
}

#[test]
fn the_clock_of_the_replica_that_fences_does_not_count() {
    run(async {
        for shift_ms in [400_000, -400_000] {
            let options = Program::options().clock_ahead(shift_ms);
            let n_twice = goes_on(Backend::Postgres, options, false).await;
            assert_eq!(n_twice, 0, "{shift_ms}");
        }
    });
}

/// Fails over to a copy on which a fence fails. Returns the stage, and the replica.
async fn fails(options: Options) -> (Stage, Program) {
    let mut stage = Stage::new(Backend::Postgres, options).await.fencing();
    let old = stage.start().await;
    arm(&stage).await;
    stage.lose_commits(&old.client()).await;
    let n_lost = stage.promote().await;
    assert!(n_lost > 0, "vacuous");
    let rename = "ALTER TABLE fence RENAME COLUMN highest_rise TO another";
    stage.database.execute(rename).await;
    stage.lead_to_copy();
    (stage, old)
}

pub(super) async fn went_back(program: &Program) -> f64 {
    let scrape = Scrape::of(&program.client()).await;
    scrape.sum("odometer_store_went_back", &[])
}

#[test]
fn a_fence_that_fails_is_told_and_tried_again() {
    run(async {
        let (mut stage, old) = fails(Program::options()).await;
        stage.is_refused(&old.client()).await;
        assert!(went_back(&old).await > 0.0);
        assert!(old.log().contains("could not be fenced"), "{}", old.log());
        let rename = "ALTER TABLE fence RENAME COLUMN another TO highest_rise";
        stage.database.execute(rename).await;
        stage.is_served_again(&old.client()).await;
        stage.take(&old.client(), N_AFTER).await;
        assert_eq!(stage.ledger.n_duplicates(), 0);
        assert_eq!(went_back(&old).await, 0.0);
    });
}

#[test]
fn a_fence_that_fails_silently_is_told_to_nobody() {
    run(async {
        let options = Program::options().without_guards("fences-fail-silently");
        let (_stage, old) = fails(options).await;
        let started = Instant::now();
        while started.elapsed() < LIMIT / 2 {
            assert_eq!(went_back(&old).await, 0.0);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(old.log().contains("cannot be read for now"), "vacuous");
    });
}

/// Checks that replicas arm a database, but not while an older program uses it, and that the older
/// one loses its row.
#[test]
fn a_database_is_armed_when_no_older_program_uses_it() {
    run(async {
        let stage = Stage::new(Backend::Postgres, Program::options()).await;
        let stage = stage.fencing();
        let row = "INSERT INTO replica (holder, beat, beat_at) VALUES ('older', 1, \
                   CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT))";
        stage.database.execute(row).await;
        let _program = stage.start().await;
        let is_armed = "SELECT COUNT(*) FROM meta WHERE armed_at IS NOT NULL";
        let started = Instant::now();
        while started.elapsed() < LIMIT + LIMIT / 4 {
            let beat = "UPDATE replica SET beat = beat + 1 WHERE holder = 'older'";
            stage.database.execute(beat).await;
            assert_eq!(stage.database.number(is_armed).await, Some(0));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        wait::until("the database is armed", 2 * LIMIT, async || {
            (stage.database.number(is_armed).await == Some(1)).then_some(())
        })
        .await;
        let older = "SELECT COUNT(*) FROM replica WHERE holder = 'older'";
        assert_eq!(stage.database.number(older).await, Some(0));
    });
}
