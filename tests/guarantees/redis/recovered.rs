//! The database is restored from an older dump while Redis gives its numbers. Redis loses its data,
//! too.

use serde_json::json;

use super::{LIMIT, Stage, refusal, window};
use crate::{
    guarantees::went_back,
    support::{Backend, Client, Ledger, Options, Program, Range, Reply, for_each_server, wait},
};

const SEQUENCE: &str = "back";
/// How many steps `recover` skips. This is above all that is reserved.
const SKIP: &str = "1000000000";
/// How many windows a recovery skips.
const WINDOWS: i64 = 1 << 40;

for_each_server!(a_restored_database_repeats_no_number_of_a_redis_that_was_emptied);

async fn a_restored_database_repeats_no_number_of_a_redis_that_was_emptied(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    // Heartbeats show that the dump was restored, also if no stamp does.
    let options = Program::options().without_guards("no-stamp");
    let (programs, highest) = restored(&stage, options).await;
    let clients: Vec<Client> = programs.iter().map(Program::client).collect();
    for client in &clients {
        // A restore that replaces one table after the other may look like an outage at first.
        wait::until("the store is known to have gone back", LIMIT, async || {
            let code = refusal(client, SEQUENCE).await.expect("nothing is given");
            (code == "store_went_back").then_some(())
        })
        .await;
    }
    let recovered = stage
        .options(Program::options())
        .run(&["recover", "--yes", "--skip", SKIP]);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    let mut last = highest;
    for client in clients.iter().cycle().take(6) {
        let number = wait::until("it serves again", LIMIT, async || {
            let path = format!("/v1/sequences/{SEQUENCE}/next");
            let reply = client.post(&path).await.expect("a reply");
            (reply.status == 200).then(|| reply.number())
        })
        .await;
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    let window = window(&stage.database, SEQUENCE).await;
    assert!(window >= WINDOWS, "{window}");
}

for_each_server!(a_row_below_what_redis_may_give_has_gone_back);

async fn a_row_below_what_redis_may_give_has_gone_back(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let options = row_below_the_ceiling(&stage, Program::options()).await;
    let young = options.start_ready().await;
    let client = young.client();
    let code = wait::until("Redis answers", LIMIT, async || {
        let code = refusal(&client, SEQUENCE).await.expect("nothing is given");
        (code != "store_unavailable").then_some(code)
    })
    .await;
    assert_eq!(code, "store_went_back");
}

for_each_server!(without_looking_back_a_row_below_what_redis_may_give_repeats_numbers);

async fn without_looking_back_a_row_below_what_redis_may_give_repeats_numbers(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let options = Program::options().without_guards("no-went-back-checks");
    let options = row_below_the_ceiling(&stage, options).await;
    let young = options.start_ready().await;
    let client = young.client();
    let mut ledger = Ledger::default();
    wait::until("a number is given twice", LIMIT, async || {
        let path = format!("/v1/sequences/{SEQUENCE}/next?count=100");
        let reply = client.post(&path).await.expect("a reply");
        if reply.status == 200 {
            ledger.record(SEQUENCE, &reply.numbers());
        }
        (ledger.n_duplicates() > 0).then_some(())
    })
    .await;
}

/// Uses one number of a window, and lowers the row by half of the numbers that are reserved for the
/// window. Returns the options of the next replica.
async fn row_below_the_ceiling(stage: &Stage, options: Options) -> Options {
    let options = stage.options(options);
    let program = options.start_ready().await;
    let client = program.client();
    let definition = json!({"order": "strict", "block": {"min": 1000, "max": 1000}});
    client.define(SEQUENCE, &definition).await;
    client.next(SEQUENCE).await;
    program.stop().await;
    let lowered =
        format!("UPDATE counter SET next_value = next_value - 500 WHERE sequence = '{SEQUENCE}'");
    stage.database.execute(&lowered).await;
    options
}

for_each_server!(without_looking_back_an_emptied_redis_repeats_numbers);

async fn without_looking_back_an_emptied_redis_repeats_numbers(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let options = Program::options().without_guards("no-went-back-checks");
    let (programs, highest) = restored(&stage, options).await;
    let again = wait::until("it serves", LIMIT, async || {
        let path = format!("/v1/sequences/{SEQUENCE}/next");
        let reply = programs[1].client().post(&path).await.expect("a reply");
        (reply.status == 200).then(|| reply.number())
    })
    .await;
    assert!(again <= highest, "the check finds nothing: {again}");
}

for_each_server!(a_copy_gives_no_number_of_a_redis_that_was_emptied);

async fn a_copy_gives_no_number_of_a_redis_that_was_emptied(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let (options, highest) = emptied_with_a_copy(&stage, Program::options()).await;
    let young = options.start().await;
    let client = young.client();
    let code = wait::until("it is refused", LIMIT, async || {
        let code = refusal(&client, SEQUENCE).await.expect("nothing is given");
        (code != "store_unavailable").then_some(code)
    })
    .await;
    assert_eq!(code, "store_went_back");
    let recovered = options.run(&["recover", "--yes", "--skip", SKIP]);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    let path = format!("/v1/sequences/{SEQUENCE}/next");
    let number = wait::until("it serves again", LIMIT, async || {
        let reply = client.post(&path).await.expect("a reply");
        (reply.status == 200).then(|| reply.number())
    })
    .await;
    assert!(number > highest, "{number} after {highest}");
}

for_each_server!(without_its_stamp_a_copy_repeats_numbers_of_redis);

async fn without_its_stamp_a_copy_repeats_numbers_of_redis(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let options = Program::options().without_guards("no-stamp");
    let (options, highest) = emptied_with_a_copy(&stage, options).await;
    let young = options.start_ready().await;
    let again = wait::until("it serves", LIMIT, async || {
        let path = format!("/v1/sequences/{SEQUENCE}/next");
        let reply = young.client().post(&path).await.expect("a reply");
        (reply.status == 200).then(|| reply.number())
    })
    .await;
    assert!(again <= highest, "the check finds nothing: {again}");
}

/// Loses the last windows while no replica runs: the database is a copy, whose stamp another server
/// wrote, and Redis is empty. Returns the options of the next replica, and the highest number that
/// was issued.
async fn emptied_with_a_copy(stage: &Stage, options: Options) -> (Options, i64) {
    let options = stage.options(options);
    let mut program = options.start_ready().await;
    let client = program.client();
    client.define(SEQUENCE, &json!({"order": "strict"})).await;
    let first = client.next(SEQUENCE).await;
    assert_eq!(stage.redis.ask(&["FLUSHALL"]), "OK");
    let highest = wait::until("it is served from a new window", LIMIT, async || {
        let path = format!("/v1/sequences/{SEQUENCE}/next?count=1000");
        let reply = client.post(&path).await.expect("a reply");
        let last = |reply: &Reply| reply.numbers().iter().map(Range::last).max();
        (reply.status == 200).then(|| last(&reply).expect("a thousand numbers"))
    })
    .await;
    program.kill();
    for statement in [
        format!("UPDATE counter SET next_value = {first} WHERE sequence = '{SEQUENCE}'"),
        "UPDATE lineage SET server = 'another one'".to_owned(),
    ] {
        stage.database.execute(&statement).await;
    }
    assert_eq!(stage.redis.ask(&["FLUSHALL"]), "OK");
    (options, highest)
}

for_each_server!(a_recovery_closes_windows_that_redis_still_holds);

async fn a_recovery_closes_windows_that_redis_still_holds(backend: Backend) {
    let stage = Stage::new(backend, "none").await;
    let options = Program::options().env("ODOMETER_DEFINITION_REFRESH", "2s");
    let programs = stage.start(options).await;
    let (first, second) = (programs[0].client(), programs[1].client());
    first.define(SEQUENCE, &json!({"order": "strict"})).await;
    let mut last = 0;
    for client in [&first, &second, &first] {
        let number = client.next(SEQUENCE).await;
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    let recovered = stage
        .options(Program::options())
        .run(&["recover", "--yes", "--skip", SKIP]);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    let skip: i64 = SKIP.parse().expect("a number");
    for client in [&first, &second] {
        let number = wait::until("the recovery is noticed", LIMIT, async || {
            let number = client.next(SEQUENCE).await;
            (number > skip).then_some(number)
        })
        .await;
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    assert!(first.next(SEQUENCE).await > last);
}

/// Restores the database of two replicas to a state from before their last windows, and empties
/// Redis. Returns the replicas, and the highest number that was issued before.
async fn restored(stage: &Stage, options: Options) -> (Vec<Program>, i64) {
    let options = options.env("ODOMETER_DEFINITION_REFRESH", "1s");
    let programs = stage.start(options).await;
    let (first, second) = (programs[0].client(), programs[1].client());
    first.define(SEQUENCE, &json!({"order": "strict"})).await;
    for client in [&first, &second] {
        client.next(SEQUENCE).await;
    }
    let dump = stage.database.dump();
    let before = window(&stage.database, SEQUENCE).await;
    went_back::next_beats(&stage.database).await;
    let mut highest = 0;
    for _ in 0..3 {
        assert_eq!(stage.redis.ask(&["FLUSHALL"]), "OK");
        for client in [&first, &second] {
            let given = wait::until("it is served from a new window", LIMIT, async || {
                let path = format!("/v1/sequences/{SEQUENCE}/next?count=1000");
                let reply = client.post(&path).await.expect("a reply");
                (reply.status == 200).then(|| reply.numbers())
            })
            .await;
            let last = given.iter().map(|range| range.last()).max();
            highest = highest.max(last.expect("a thousand numbers"));
        }
    }
    let n_windows = window(&stage.database, SEQUENCE).await - before;
    assert!(n_windows >= 3, "vacuous: {n_windows} windows");
    if stage.database.backend == Backend::MariaDb {
        // MariaDB's restore replaces one table after the other. The replicas must notice the loss
        // before the first table changes.
        stage.database.execute("DELETE FROM replica").await;
    }
    stage.database.restore(&dump);
    assert_eq!(stage.redis.ask(&["FLUSHALL"]), "OK");
    (programs, highest)
}
