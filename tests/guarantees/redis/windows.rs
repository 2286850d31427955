//! The guards of a window besides its identity. The row must name the window, and a new ceiling
//! must go on from the end of the window's range.

use serde_json::json;

use super::{N_REPLICAS, Stage, n_steps};
use crate::support::{Backend, Options, Program, for_each_server};

const SEQUENCE: &str = "windows";

for_each_server!(a_window_that_the_row_does_not_name_is_not_stepped_in);

async fn a_window_that_the_row_does_not_name_is_not_stepped_in(backend: Backend) {
    let (before, after) = late_install(backend, Program::options()).await;
    assert!(after > before, "{after} after {before}");
}

for_each_server!(without_asking_the_row_an_earlier_window_loses_the_order);

async fn without_asking_the_row_an_earlier_window_loses_the_order(backend: Backend) {
    let options = Program::options().without_guards("no-row-check");
    let (before, after) = late_install(backend, options).await;
    assert!(
        after < before,
        "the check finds nothing: {after} after {before}"
    );
}

/// Returns a number of a later window, and the next number after the earlier window was written
/// into the emptied Redis. The write stands for a command of the earlier opener that arrives late.
async fn late_install(backend: Backend, options: Options) -> (i64, i64) {
    let stage = Stage::new(backend, "none").await;
    let programs = stage.start(options).await;
    let (first, second) = (programs[0].client(), programs[1].client());
    first
        .define(SEQUENCE, &json!({"order": "strict", "block": {"min": 100}}))
        .await;
    first.next(SEQUENCE).await;
    let key = the_key(&stage);
    let earlier = fields(&stage, &key);
    stage.redis.ask(&["FLUSHALL"]);
    let before = first.next(SEQUENCE).await;
    assert_ne!(fields(&stage, &key), earlier, "vacuous: no later window");
    stage.redis.ask(&["FLUSHALL"]);
    let mut set = vec!["HSET", &key];
    set.extend(earlier.iter().map(String::as_str));
    stage.redis.ask(&set);
    stage.redis.ask(&["HSET", &key, "used", "0"]);
    // This replica has not used the sequence yet.
    let after = second.next(SEQUENCE).await;
    (before, after)
}

for_each_server!(a_ceiling_goes_on_only_from_where_its_window_ends);

async fn a_ceiling_goes_on_only_from_where_its_window_ends(backend: Backend) {
    let (taken, given) = raised_beside(backend, Program::options()).await;
    let twice: Vec<_> = given.iter().filter(|given| taken.contains(given)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

for_each_server!(a_ceiling_taken_from_the_row_repeats_numbers);

async fn a_ceiling_taken_from_the_row_repeats_numbers(backend: Backend) {
    let options = Program::options().without_guards("ceiling-from-row");
    let (taken, given) = raised_beside(backend, options).await;
    assert!(
        given.iter().any(|given| taken.contains(given)),
        "the check finds nothing: {given:?}"
    );
}

/// Takes numbers from the row next to an open window, as a program does that knows of no windows.
/// Returns these numbers, and those that were issued afterwards.
async fn raised_beside(backend: Backend, options: Options) -> (std::ops::Range<i64>, Vec<i64>) {
    let stage = Stage::new(backend, "none").await;
    let programs = stage.start(options).await;
    let clients: Vec<_> = programs.iter().map(Program::client).collect();
    clients[0]
        .define(SEQUENCE, &json!({"order": "strict", "block": {"min": 10}}))
        .await;
    clients[0].next(SEQUENCE).await;
    let first = super::counted(&stage.database, "next_value", SEQUENCE).await;
    let taken = first..first + 20;
    let add = "UPDATE counter SET next_value = next_value + 20, version = version + 1 \
               WHERE sequence = 'windows'";
    stage.database.execute(add).await;
    let mut given = Vec::new();
    for call in 0..60 {
        given.push(clients[call % N_REPLICAS].next(SEQUENCE).await);
    }
    assert!(n_steps(&programs).await >= 60.0, "vacuous: no steps");
    (taken, given)
}

fn the_key(stage: &Stage) -> String {
    let keys = stage.redis.keys("odometer:*:windows:*");
    assert_eq!(keys.len(), 1, "one counter, one key: {keys:?}");
    keys[0].clone()
}

/// Returns the fields of a key, each followed by its value.
fn fields(stage: &Stage, key: &str) -> Vec<String> {
    let fields = stage.redis.ask(&["HGETALL", key]);
    fields.lines().map(str::to_owned).collect()
}
