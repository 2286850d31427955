//! Numbers of a strict sequence ascend over all replicas in real time. If one caller got an answer
//! before another caller asked, the first caller has the lower number.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use serde_json::json;

use super::order::{Incarnation, Outcome, SEQUENCE, Stage};
use crate::support::{
    Backend, Link, Options, Program, Proxy, Scrape, Server, TestDatabase, for_each_server,
    settings, wait,
};

const N_REPLICAS: usize = 2;
const N_CALLERS: usize = 32;
/// The least number of calls for one update.
const MIN_SHARED: f64 = 4.0;
/// The delay of the database's replies to the distant replica.
const FAR: Duration = Duration::from_millis(20);
const BETWEEN_KILLS: Duration = Duration::from_millis(700);
/// The most rounds of lost replies until one of them meets a write.
const MAX_TRIES: usize = 50;

for_each_server!(a_strict_sequence_ascends_over_replicas_in_real_time);

async fn a_strict_sequence_ascends_over_replicas_in_real_time(backend: Backend) {
    let n_calls = settings::at_size(20_000, 500_000);
    let database = TestDatabase::prepared(backend).await;
    let called = at_one_distance(&database, Program::options(), "strict", n_calls).await;
    let (outcome, n_updates) = called;
    outcome.assert_sound();
    let n_calls = u32::try_from(outcome.n_calls).expect("so many calls are not made");
    let n_shared = f64::from(n_calls) / n_updates;
    assert!(n_shared >= MIN_SHARED, "too many updates: {outcome}");
    println!("{backend:?}: {outcome}, {n_shared:.1} calls for each update");
}

for_each_server!(a_strict_sequence_ascends_where_one_replica_is_far_from_its_database);

async fn a_strict_sequence_ascends_where_one_replica_is_far_from_its_database(backend: Backend) {
    let n_calls = settings::at_size(3_000, 50_000);
    let outcome = at_two_distances(backend, Program::options(), n_calls).await;
    outcome.assert_sound();
    println!("{backend:?}: {outcome}");
}

for_each_server!(a_relaxed_sequence_does_not_ascend_over_replicas);

async fn a_relaxed_sequence_does_not_ascend_over_replicas(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let (outcome, _) = at_one_distance(&database, Program::options(), "relaxed", 2_000).await;
    assert_eq!(outcome.refusals, Vec::<String>::new());
    assert!(outcome.n_violations > 0, "the check finds nothing");
}

for_each_server!(callers_that_share_a_write_sent_before_they_came_are_found_out);

async fn callers_that_share_a_write_sent_before_they_came_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("strict-shares-late");
    let outcome = at_two_distances(backend, options, 3_000).await;
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome}");
    assert!(outcome.n_violations > 0, "the check finds nothing");
    println!("{backend:?}: {outcome}");
}

for_each_server!(a_strict_sequence_ascends_while_replicas_are_killed);

async fn a_strict_sequence_ascends_while_replicas_are_killed(backend: Backend) {
    let n_kills = settings::at_size(5, 100);
    let outcome = killed(backend, Program::options(), n_kills).await;
    outcome.assert_sound();
    println!("{backend:?}: {outcome}, {n_kills} kills");
}

for_each_server!(without_its_conditions_a_strict_sequence_repeats_numbers);

async fn without_its_conditions_a_strict_sequence_repeats_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-conditions");
    let outcome = killed(backend, options, 1).await;
    assert!(outcome.ledger.n_duplicates() > 0, "the check finds nothing");
    assert!(outcome.n_violations > 0, "the check finds nothing");
}

for_each_server!(a_strict_write_nobody_heard_of_costs_its_numbers_only);

async fn a_strict_write_nobody_heard_of_costs_its_numbers_only(backend: Backend) {
    let n_cuts = settings::at_size(4, 100);
    let (outcome, n_abandoned) = cut(backend, Program::options(), n_cuts).await;
    outcome.assert_sound();
    let n_missing = outcome.n_missing();
    assert!(n_missing > 0, "vacuous: no number is missing: {outcome}");
    assert!(
        n_abandoned >= f64::from(n_missing),
        "{n_missing} missing, {n_abandoned} counted: {outcome}"
    );
    println!("{backend:?}: {outcome}, {n_missing} missing, {n_abandoned} counted");
}

for_each_server!(numbers_a_strict_sequence_lost_uncounted_are_found_out);

async fn numbers_a_strict_sequence_lost_uncounted_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("uncounted");
    let (outcome, n_abandoned) = cut(backend, options, 4).await;
    let n_missing = outcome.n_missing();
    assert!(
        n_abandoned < f64::from(n_missing),
        "the check finds nothing: {n_missing} missing, {n_abandoned} counted"
    );
}

async fn at_one_distance(
    database: &TestDatabase,
    options: Options,
    order: &str,
    n_calls: u64,
) -> (Outcome, f64) {
    let options = options.database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.start_ready().await);
    }
    called(&programs, order, n_calls).await
}

async fn at_two_distances(backend: Backend, options: Options, n_calls: u64) -> Outcome {
    let server = Server::shared(backend).await;
    let database = TestDatabase::prepared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let far = options
        .clone()
        .database(&database.url_through(&proxy, server))
        .start_ready()
        .await;
    let near = options.database(&database.url).start_ready().await;
    proxy.delay_replies(FAR);
    called(&[far, near], "strict", n_calls).await.0
}

/// Lets callers call until `n_calls` calls are answered. Also returns how many updates there were.
async fn called(programs: &[Program], order: &str, n_calls: u64) -> (Outcome, f64) {
    let definition = json!({"order": order});
    programs[0].client().define(SEQUENCE, &definition).await;
    let stage = Stage::of(programs);
    let callers = stage.start_callers(N_CALLERS);
    wait::until("all are answered", settings::test_limit(), async || {
        (stage.n_answered.load(Ordering::Relaxed) >= n_calls).then_some(())
    })
    .await;
    let (calls, refusals) = callers.stop(&stage).await;
    let mut n_updates = 0.0;
    for program in programs {
        let scrape = Scrape::of(&program.client()).await;
        n_updates += scrape.n_reservations("reserved");
    }
    (Outcome::of(calls, refusals), n_updates)
}

/// Kills one replica after the other and starts it again, while callers go on.
async fn killed(backend: Backend, options: Options, n_kills: usize) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let options = options.database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.start_ready().await);
    }
    let definition = json!({"order": "strict"});
    programs[0].client().define(SEQUENCE, &definition).await;
    let stage = Stage::of(&programs);
    let callers = stage.start_callers(N_CALLERS);
    for n_kill in 0..n_kills {
        let next_kill = Instant::now() + BETWEEN_KILLS;
        tokio::time::sleep_until(next_kill.into()).await;
        let victim = n_kill % N_REPLICAS;
        stage.current(victim).killed.store(true, Ordering::SeqCst);
        programs[victim].kill();
        programs[victim] = options.start_ready().await;
        stage.replace(victim, Incarnation::of(&programs[victim]));
    }
    let next_end = Instant::now() + BETWEEN_KILLS;
    tokio::time::sleep_until(next_end.into()).await;
    let (calls, refusals) = callers.stop(&stage).await;
    Outcome::of(calls, refusals)
}

/// Loses replies of one replica's database again and again, until `n_cuts` times a write was among
/// what they answered. Also returns how many numbers were abandoned.
async fn cut(backend: Backend, options: Options, n_cuts: usize) -> (Outcome, f64) {
    let server = Server::shared(backend).await;
    let database = TestDatabase::prepared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let options = options
        .env("ODOMETER_STORE__TIMEOUT", "300ms")
        .env("ODOMETER_REFILL__DEADLINE", "1s");
    let behind = options
        .clone()
        .database(&database.url_through(&proxy, server))
        .start_ready()
        .await;
    let programs = [behind, options.database(&database.url).start_ready().await];
    let definition = json!({"order": "strict"});
    programs[0].client().define(SEQUENCE, &definition).await;
    let stage = Stage::of(&programs);
    let callers = stage.start_callers(N_CALLERS);
    for n_cut in 0..n_cuts {
        // In every second round the connections are closed before the timeout closes them.
        let then = if n_cut % 2 == 0 {
            Link::Cut
        } else {
            Link::RepliesLost
        };
        cut_until_a_write_is_uncertain(&stage, &programs[0], &proxy, then).await;
    }
    stage.goes_on().await;
    let (calls, mut refusals) = callers.stop(&stage).await;
    // These calls got no number, and their callers know that.
    refusals.retain(|refusal| refusal.status != Some(503));
    let mut n_abandoned = 0.0;
    for program in &programs {
        let scrape = Scrape::of(&program.client()).await;
        n_abandoned += scrape.n_abandoned();
    }
    (Outcome::of(calls, refusals), n_abandoned)
}

/// Loses replies until the replica does not know the outcome of a write. A round may meet no write:
/// after a conflict, the replica reads the counter before it writes again.
async fn cut_until_a_write_is_uncertain(
    stage: &Stage,
    behind: &Program,
    proxy: &Proxy,
    then: Link,
) {
    let before = n_uncertain(behind).await;
    for _ in 0..MAX_TRIES {
        stage.goes_on().await;
        proxy.set(Link::RepliesLost);
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.set(then);
        if then == Link::RepliesLost {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        proxy.set(Link::Whole);
        stage.goes_on().await;
        if n_uncertain(behind).await > before {
            return;
        }
    }
    panic!("no write was uncertain in {MAX_TRIES} rounds");
}

async fn n_uncertain(program: &Program) -> f64 {
    Scrape::of(&program.client())
        .await
        .n_reservations("uncertain")
}
