//! Periods change under load, on replicas whose clocks disagree. No number of a period is issued
//! twice, and each period counts from its start. Ids are printed for the period that counts.

mod count;
mod moments;
mod stage;

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::task::JoinSet;

use self::{
    count::Count,
    moments::{MOMENTS, Moment, NEW_YEAR, STEPPED, UNSKEWED},
    stage::{Replica, Seen, Stage},
};
use crate::support::{
    Backend, Options, Program, Scrape, SteppedClock, TestDatabase, clock::now_ms, for_each_backend,
    for_each_server, settings, wait,
};

/// How long the tests wait for a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many calls must be answered after a moment, for each sequence at each replica. With fewer,
/// the moment was not met.
const CALLS_AFTER: u64 = 20;

/// How far clocks are stepped, in hours. The number of steps is no multiple of the number of
/// replicas.
const STEPS_H: [i64; 7] = [26, -26, 13, 0, -13, 24, 0];
/// How long before its moment a replica starts, at first. Half of this time is for the callers.
const LEAD_MS: i64 = 4_000;
/// How long before a cut-over replicas start, in milliseconds, so that they have reserved ahead by
/// then. A slow machine needs longer.
const LEADS_MS: [i64; 3] = [10_000, 20_000, 60_000];

/// More numbers than a replica gives in a minute or two.
const BLOCK_LENGTH: u64 = 2_000_000;

const HOUR_MS: i64 = 3_600_000;

for_each_backend!(replicas_with_wrong_clocks_repeat_no_number_of_a_period);

async fn replicas_with_wrong_clocks_repeat_no_number_of_a_period(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    for moment in MOMENTS {
        let seen = cross(&database, &Program::options(), moment).await;
        seen.check(&database, moment.counts).await;
        assert_eq!(seen.without_the_first(), Vec::<&str>::new());
        for count in moment.counts {
            let met = seen.periods_at(0, count.name);
            let mut expected = vec![count.before, count.after];
            expected.dedup();
            assert_eq!(met, expected, "{}: {}", moment.at, count.name);
            for place in 1..backend.replicas(moment.skews_ms.len()) {
                let met = seen.periods_at(place, count.name);
                assert!(!met.is_empty(), "vacuous: {place} gave no {}", count.name);
            }
        }
    }
}

for_each_server!(one_row_that_is_reset_at_a_cut_over_repeats_numbers);

async fn one_row_that_is_reset_at_a_cut_over_repeats_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("one-row,no-went-back-checks");
    let seen = cross(&database, &options, &NEW_YEAR).await;
    assert!(seen.ledger.n_duplicates() > 0, "the check finds nothing");
}

for_each_server!(clocks_that_are_stepped_repeat_no_number_of_a_period);

async fn clocks_that_are_stepped_repeat_no_number_of_a_period(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let clocks = [(); 3].map(|()| SteppedClock::right());
    let right_ms = STEPPED.ms() - now_ms();
    let mut programs = Vec::new();
    let mut replicas = Vec::new();
    for clock in &clocks {
        clock.step_to(right_ms);
        let options = Program::options().database(&database.url).clock(clock);
        let program = options.start_ready().await;
        replicas.push(Replica::new(&program, right_ms));
        programs.push(program);
    }
    for count in STEPPED.counts {
        let client = programs[0].client();
        client.define(count.name, &count.definition()).await;
    }
    let stage = Stage::new(replicas, STEPPED.counts, true);
    let seen = stage
        .play(async {
            stage.everywhere(CALLS_AFTER).await;
            for round in 0..settings::at_size(10, 300) {
                let place = round % clocks.len();
                let offset_ms = right_ms + STEPS_H[round % STEPS_H.len()] * HOUR_MS;
                let step = || clocks[place].step_to(offset_ms);
                stage.replica(place).step(offset_ms, step);
                stage.everywhere(CALLS_AFTER).await;
            }
        })
        .await;
    for program in programs {
        program.stop().await;
    }
    seen.check(&database, STEPPED.counts).await;
    let met = (0..clocks.len()).map(|place| seen.periods_at(place, "day").len());
    let n_met: usize = met.sum();
    assert!(n_met > clocks.len() + 2, "vacuous: {n_met} days were met");
}

for_each_server!(nobody_waits_where_the_next_period_was_prefetched);

async fn nobody_waits_where_the_next_period_was_prefetched(backend: Backend) {
    let n_cold = cold_at_the_cut_over(backend, &Program::options(), true).await;
    assert_eq!(n_cold, 0.0, "callers reached the actor at the cut-over");
}

for_each_server!(without_a_prefetch_callers_wait_at_the_cut_over);

async fn without_a_prefetch_callers_wait_at_the_cut_over(backend: Backend) {
    let options = Program::options().without_guards("no-prefetch");
    let n_cold = cold_at_the_cut_over(backend, &options, false).await;
    assert!(n_cold > 0.0, "the count finds nothing");
}

/// Counts the callers for whom memory had no number. The count begins shortly before a cut-over,
/// and ends when each replica counts in the next period.
async fn cold_at_the_cut_over(backend: Backend, options: &Options, is_prefetched: bool) -> f64 {
    for lead_ms in LEADS_MS {
        if let Some(n_cold) = try_cut_over(backend, options, is_prefetched, lead_ms).await {
            return n_cold;
        }
    }
    panic!("vacuous: the next period was never prefetched in time");
}

/// Tries a cut-over. Returns `None` if the cut-over came before everything was ready.
async fn try_cut_over(
    backend: Backend,
    options: &Options,
    is_prefetched: bool,
    lead_ms: i64,
) -> Option<f64> {
    let database = TestDatabase::prepared(backend).await;
    let count = UNSKEWED.counts[0];
    let mut n_cold = None;
    let options = lasting(options);
    let (programs, stage, moment_ms) = before(&database, &options, &UNSKEWED, lead_ms).await;
    let seen = stage
        .play(async {
            wait::until("the cut-over is near", PATIENCE, async || {
                (now_ms() > moment_ms - 1_500).then_some(())
            })
            .await;
            let is_ready = !is_prefetched || is_next_in_memory(&stage, &count).await;
            let n_before = cold_calls(&stage).await;
            let is_early = now_ms() < moment_ms - 300;
            if !is_early || !is_ready {
                return;
            }
            wait::until("the cut-over has come", PATIENCE, async || {
                (now_ms() > moment_ms + 500).then_some(())
            })
            .await;
            stage.everywhere(CALLS_AFTER).await;
            let n_after = cold_calls(&stage).await;
            println!("calls for which memory had no number, by replica: {n_before:?} {n_after:?}");
            n_cold = Some(n_after.iter().sum::<f64>() - n_before.iter().sum::<f64>());
        })
        .await;
    for program in programs {
        program.stop().await;
    }
    seen.check(&database, UNSKEWED.counts).await;
    if n_cold.is_some() {
        for period in [count.before, count.after] {
            let n_given = seen.n_given(count.name, period);
            assert!(n_given > 100, "vacuous: {n_given} of {period}");
        }
    }
    n_cold
}

/// Makes a block last for the whole test. Memory of a present period that runs dry while the
/// database is slow would be counted, too.
fn lasting(options: &Options) -> Options {
    let options = options
        .clone()
        .env("ODOMETER_DEFAULT__BLOCK__MAX", BLOCK_LENGTH);
    options.env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK_LENGTH)
}

/// Returns whether the memory of each replica has a block of the next period. That the database
/// has reserved it is not enough: the replica may not have heard of it yet.
async fn is_next_in_memory(stage: &Stage, count: &Count) -> bool {
    let path = format!(
        "/v1/replica/sequences/{}?period={}",
        count.name, count.after
    );
    for place in 0..UNSKEWED.skews_ms.len() {
        let reply = stage.client(place).get(&path).await.expect("a reply");
        if !reply.json()["live"]["block"].is_object() {
            return false;
        }
    }
    true
}

/// Returns for each replica how many calls memory had no number for.
async fn cold_calls(stage: &Stage) -> Vec<f64> {
    let mut n_cold = Vec::new();
    for place in 0..UNSKEWED.skews_ms.len() {
        let scrape = Scrape::of(stage.client(place)).await;
        n_cold.push(scrape.sum("odometer_cold_calls_total", &[]));
    }
    n_cold
}

/// Plays one moment. The replicas start shortly before it, each with its own clock. Callers call
/// each replica until it is past the moment.
async fn cross(database: &TestDatabase, options: &Options, moment: &Moment) -> Seen {
    let (programs, stage, moment_ms) = before(database, options, moment, LEAD_MS).await;
    let seen = stage
        .play(async {
            wait::until("the moment has come", PATIENCE, async || {
                // The slowest clock that crosses the moment is less than a second late.
                (now_ms() > moment_ms + 1_000).then_some(())
            })
            .await;
            stage.everywhere(CALLS_AFTER).await;
        })
        .await;
    for program in programs {
        program.stop().await;
    }
    seen
}

/// Starts replicas and prepares their load. Returns when the moment is by the machine's clock. The
/// moment is far enough ahead, even if the replicas start slowly.
async fn before(
    database: &TestDatabase,
    options: &Options,
    moment: &Moment,
    lead_ms: i64,
) -> (Vec<Program>, Arc<Stage>, i64) {
    let n_replicas = database.backend.replicas(moment.skews_ms.len());
    let mut lead_ms = lead_ms;
    loop {
        let moment_ms = now_ms() + lead_ms;
        let mut programs = Vec::new();
        let mut replicas = Vec::new();
        for skew_ms in moment.skews_ms.into_iter().take(n_replicas) {
            let offset_ms = moment.ms() - moment_ms + skew_ms;
            let started = options.clone().database(&database.url);
            let program = started.clock_ahead(offset_ms).start_ready().await;
            replicas.push(Replica::new(&program, offset_ms));
            programs.push(program);
        }
        for count in moment.counts {
            let client = programs[0].client();
            client.define(count.name, &count.definition()).await;
        }
        if now_ms() + lead_ms / 2 <= moment_ms {
            let stage = Stage::new(replicas, moment.counts, moment.asks_for_blocks);
            return (programs, stage, moment_ms);
        }
        lead_ms *= 2;
        for program in programs {
            program.stop().await;
        }
    }
}

for_each_backend!(callers_who_meet_a_calendar_at_once_all_get_its_period);

/// Checks callers who ask before the replica knows that the sequence has periods. The sequence was
/// created with a counter without a period, and no caller gets a number of that counter.
async fn callers_who_meet_a_calendar_at_once_all_get_its_period(backend: Backend) {
    let found = meet_calendars(backend, &Program::options()).await;
    assert_eq!(found, None, "reserved without a period");
}

for_each_backend!(callers_who_meet_a_calendar_may_get_no_period_where_a_refusal_is_believed);

async fn callers_who_meet_a_calendar_may_get_no_period_where_a_refusal_is_believed(
    backend: Backend,
) {
    let options = Program::options().without_guards("refusal-believed");
    // One try may find nothing, because the scheduler decides whether callers meet.
    for _ in 0..10 {
        if meet_calendars(backend, &options).await.is_some() {
            return;
        }
    }
    panic!("the check finds nothing");
}

/// Lets eight callers at once use each of many daily sequences, on a replica that knows none of
/// them. Returns the first sequence whose counter without a period moved, or that gave an answer
/// without a period.
async fn meet_calendars(backend: Backend, options: &Options) -> Option<String> {
    const N_NAMES: usize = 150;
    let database = TestDatabase::prepared(backend).await;
    let options = options.clone().database(&database.url);
    let first = options.start_ready().await;
    let names: Vec<String> = (0..N_NAMES).map(|n| format!("met-{n}")).collect();
    for name in &names {
        let daily = json!({"period": "day"});
        first.client().define(name, &daily).await;
    }
    first.stop().await;
    let program = options.start_ready().await;
    for name in &names {
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let client = program.client();
            let path = format!("/v1/sequences/{name}/blocks?size=20");
            callers.spawn(async move { client.post(&path).await });
        }
        let mut are_of_a_period = true;
        for reply in callers.join_all().await {
            let reply = reply.expect("a reply");
            assert_eq!(reply.status, 200, "{reply:?}");
            are_of_a_period &= reply.json()["period"].is_string();
        }
        let whole =
            format!("SELECT next_value FROM counter WHERE sequence = '{name}' AND period = ''");
        let next_value = database.number(&whole).await;
        let next_value = next_value.expect("it was created with that counter");
        if !are_of_a_period || next_value > 1 {
            return Some(name.clone());
        }
    }
    None
}
