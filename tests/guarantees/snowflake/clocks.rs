//! The wall clock of a process is stepped while the process issues, and while it restarts.

use std::time::{Duration, Instant};

use odometer_core::snowflake::Layout;

use super::stage::{Got, NAME, definition};
use crate::support::{
    Backend, Client, Options, Program, SteppedClock, TestDatabase, dice, for_each_backend,
    for_each_server, settings, wait,
};

const SECOND_MS: i64 = 1_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const PATIENCE: Duration = Duration::from_secs(30);
/// The reasons for which a process with a wrong clock may refuse.
const REASONS: [&str; 4] = [
    "clock_behind",
    "clock_ahead",
    "no_worker_id",
    "refill_timeout",
];

/// Draws how far the clock is wrong from now on.
fn offset_ms() -> i64 {
    const OFFSETS: [i64; 8] = [
        0, 0, SECOND_MS, -SECOND_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS,
    ];
    OFFSETS[dice::roll(0..OFFSETS.len())]
}

for_each_backend!(clocks_that_are_stepped_across_restarts_repeat_no_id);

async fn clocks_that_are_stepped_across_restarts_repeat_no_id(backend: Backend) {
    for high in ["time", "worker"] {
        let database = TestDatabase::prepared(backend).await;
        let clock = SteppedClock::right();
        let options = Program::options().database(&database.url).clock(&clock);
        let n_lives = settings::at_size(25, 500);
        let got = lives(&options, &clock, high, n_lives).await;
        println!(
            "{backend:?}, {high}: {} ids, {:?}",
            got.ledger.n_numbers(),
            got.refused
        );
        assert_eq!(got.ledger.n_duplicates(), 0, "{high}: ids given twice");
        got.check_refusals(&REASONS);
        let n_ids = got.ledger.n_numbers();
        assert!(n_ids > 1_000 * n_lives, "vacuous: {n_ids} ids");
    }
}

/// Starts the program again and again while its clock is stepped, and kills or stops it in turn.
async fn lives(options: &Options, clock: &SteppedClock, high: &str, n_lives: u64) -> Got {
    let mut got = Got::default();
    for life in 0..n_lives {
        clock.step_to(offset_ms());
        let mut program = options.start_ready().await;
        let client = program.client();
        if life == 0 {
            client.define(NAME, &definition(high, "2s")).await;
        }
        for _ in 0..3 {
            for _ in 0..20 {
                got.call(&client, 1).await;
                got.call(&client, 500).await;
            }
            clock.step_to(offset_ms());
        }
        if life % 2 == 0 {
            program.kill();
        } else {
            program.stop().await;
        }
    }
    got
}

for_each_server!(a_clock_that_jumped_ahead_and_back_spoils_no_worker_id);

async fn a_clock_that_jumped_ahead_and_back_spoils_no_worker_id(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clock = SteppedClock::right();
    let options = Program::options().database(&database.url).clock(&clock);
    let program = options.start_ready().await;
    let client = program.client();
    client.define(NAME, &definition("time", "10s")).await;
    let mut got = Got::default();
    let worker = worker_of(&mut got, &client).await;
    for ahead_ms in [HOUR_MS, DAY_MS] {
        clock.step_to(ahead_ms);
        assert!(!got.call(&client, 1).await, "{ahead_ms}");
        assert!(got.n_refused("clock_ahead") > 0, "{:?}", got.refused);
        clock.step_to(0);
        wait::until("ids are issued again", PATIENCE, async || {
            got.call(&client, 1).await.then_some(())
        })
        .await;
        assert_eq!(worker_of(&mut got, &client).await, worker);
    }
    assert_eq!(got.ledger.n_duplicates(), 0);
    got.check_refusals(&["clock_ahead"]);
    program.stop().await;
}

for_each_server!(a_clock_that_was_set_back_is_waited_for_or_another_worker_id_is_taken);

async fn a_clock_that_was_set_back_is_waited_for_or_another_worker_id_is_taken(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clock = SteppedClock::right();
    let options = Program::options().database(&database.url).clock(&clock);
    let program = options.start_ready().await;
    let client = program.client();
    client.define(NAME, &definition("time", "10s")).await;
    let mut got = Got::default();
    let worker = worker_of(&mut got, &client).await;
    clock.step_to(-700);
    assert_eq!(
        worker_of(&mut got, &client).await,
        worker,
        "it is waited for"
    );
    clock.step_to(-HOUR_MS);
    let other = worker_of(&mut got, &client).await;
    assert_ne!(other, worker, "another one is taken");
    assert_eq!(got.ledger.n_duplicates(), 0);
    got.check_refusals(&[]);
    program.stop().await;

    // A program with only one worker id can do nothing but report the clock.
    let options = options.env("ODOMETER_WORKER", 500);
    clock.step_to(0);
    let program = options.start_ready().await;
    let client = program.client();
    assert_eq!(worker_of(&mut got, &client).await, 500);
    clock.step_to(-HOUR_MS);
    assert!(!got.call(&client, 1).await);
    got.check_refusals(&["clock_behind"]);
    clock.step_to(0);
    assert_eq!(worker_of(&mut got, &client).await, 500);
    assert_eq!(got.ledger.n_duplicates(), 0);
    program.stop().await;
}

for_each_server!(a_clock_set_back_that_is_not_waited_for_is_found_out);

async fn a_clock_set_back_that_is_not_waited_for_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clock = SteppedClock::right();
    let program = Program::options()
        .database(&database.url)
        .clock(&clock)
        .without_guards("clock-not-waited-for")
        .start_ready()
        .await;
    let client = program.client();
    client.define(NAME, &definition("time", "10s")).await;
    let mut got = Got::default();
    worker_of(&mut got, &client).await;
    for back_ms in [700, HOUR_MS] {
        clock.step_to(-back_ms);
        assert!(!got.call(&client, 1).await, "{back_ms}");
    }
    assert_eq!(got.n_refused("clock_behind"), 2, "{:?}", got.refused);
}

for_each_server!(a_worker_id_that_a_clock_ahead_has_spoilt_is_found_out);

async fn a_worker_id_that_a_clock_ahead_has_spoilt_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clock = SteppedClock::right();
    let program = Program::options()
        .database(&database.url)
        .clock(&clock)
        .without_guards("any-clock")
        .start_ready()
        .await;
    let client = program.client();
    client.define(NAME, &definition("time", "10s")).await;
    let mut got = Got::default();
    let worker = worker_of(&mut got, &client).await;
    clock.step_to(HOUR_MS);
    worker_of(&mut got, &client).await;
    clock.step_to(0);
    let other = worker_of(&mut got, &client).await;
    assert_ne!(other, worker, "of the first one an hour is used up");
}

/// Returns the worker id of the next id.
async fn worker_of(got: &mut Got, client: &Client) -> u32 {
    wait::until("an id is issued", PATIENCE, async || {
        got.call(client, 1).await.then_some(())
    })
    .await;
    let given = got.ledger.given(NAME);
    let last = given[given.len() - 1].first;
    Layout::default().read(last).expect("an id").worker
}

for_each_backend!(without_the_reserved_time_a_clock_set_back_repeats_ids);

async fn without_the_reserved_time_a_clock_set_back_repeats_ids(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clock = SteppedClock::right();
    let options = Program::options()
        .without_guards("no-reserved-until")
        .database(&database.url)
        .env("ODOMETER_WORKER", 0)
        .clock(&clock);
    assert!(
        dense(&options, &clock).await.ledger.n_duplicates() > 0,
        "the check finds nothing"
    );
}

for_each_backend!(a_clock_set_back_across_a_restart_repeats_no_id);

async fn a_clock_set_back_across_a_restart_repeats_no_id(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clock = SteppedClock::right();
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_WORKER", 0)
        .clock(&clock);
    let got = dense(&options, &clock).await;
    assert_eq!(got.ledger.n_duplicates(), 0);
    got.check_refusals(&["clock_behind"]);
    assert!(
        got.n_refused("clock_behind") > 0,
        "vacuous: {:?}",
        got.refused
    );
}

/// Takes all ids of some time, restarts with the clock set back by more than this time, and takes
/// ids again.
async fn dense(options: &Options, clock: &SteppedClock) -> Got {
    const N_CALLS: usize = 300;
    let mut got = Got::default();
    let program = options.start_ready().await;
    let client = program.client();
    client.define(NAME, &definition("time", "2s")).await;
    let started = Instant::now();
    for _ in 0..N_CALLS {
        assert!(got.call(&client, 10_000).await);
    }
    program.stop().await;
    // The clock goes back to before the first id, and the calls go on until after the last one.
    let back = started.elapsed() + Duration::from_millis(2_500);
    clock.step_to(-i64::try_from(back.as_millis()).expect("a while"));
    let stepped = Instant::now();
    let program = options.start_ready().await;
    let client = program.client();
    while stepped.elapsed() < back + Duration::from_secs(1) {
        if !got.call(&client, 10_000).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    program.stop().await;
    got
}
