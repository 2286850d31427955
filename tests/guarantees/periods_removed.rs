//! Periods that are gone for good: periods that are too old, and keys that were removed. None of
//! them is created again, because it would repeat its numbers.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, Scrape, TestDatabase, clock::now_ms,
    for_each_backend, for_each_server, wait,
};

/// The limit for a removal. A pass of the removal begins within ten seconds of a start.
const LIMIT: Duration = Duration::from_secs(90);
/// How many days the late clocks are behind. By these clocks it is noon, in a period that is too
/// old.
const DAYS_AGO: i64 = 5;
const DAY_MS: i64 = 86_400_000;
/// The size of a block.
const BLOCK: u64 = 50;
/// How many numbers a call asks for, and how many calls there are. In all, this is more than a
/// block that may be left over.
const AT_ONCE: u64 = 30;
const CALLS: usize = 6;

for_each_backend!(a_period_that_is_too_old_is_removed_and_never_created_again);

async fn a_period_that_is_too_old_is_removed_and_never_created_again(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = outlive(&database, &options(&database)).await;
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome:?}");
    assert_eq!(outcome.refusals, ["period_removed"; CALLS]);
    // The removal goes no day further: the clock alone forbids no period that was never created.
    let through = outcome.removed_through(&database).await;
    assert_eq!(through, outcome.period, "{outcome:?}");
    // Nobody can use the returned numbers of the removed period, so its counter is deleted.
    assert_eq!(n_counters(&database).await, Some(0));
}

for_each_backend!(periods_that_are_removed_without_a_word_repeat_numbers);

async fn periods_that_are_removed_without_a_word_repeat_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("remove-unannounced");
    let outcome = outlive(&database, &options).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome:?}"
    );
}

for_each_backend!(a_removal_that_dies_half_way_is_ended_by_the_next);

async fn a_removal_that_dies_half_way_is_ended_by_the_next(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database);
    let mut outcome = begin(&options).await;
    let dying = options.clone().without_guards("removal-dies");
    let mut program = dying.start_ready().await;
    wait::until("it dies", LIMIT, async || program.has_ended().then_some(())).await;
    // The removal is on record, but nothing is deleted yet.
    assert_eq!(outcome.removed_through(&database).await, outcome.period);
    assert_eq!(n_counters(&database).await, Some(1));
    come_late(&options, &mut outcome).await;
    assert_eq!(outcome.refusals, ["period_removed"; CALLS]);
    assert_eq!(n_counters(&database).await, Some(1));
    remove(&options).await;
    assert_eq!(n_counters(&database).await, Some(0));
    come_late(&options, &mut outcome).await;
    assert_eq!(outcome.refusals, ["period_removed"; 2 * CALLS]);
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome:?}");
}

for_each_backend!(a_removed_key_repeats_no_number);

async fn a_removed_key_repeats_no_number(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let (ledger, refusals) = remove_keys(&options(&database)).await;
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    assert_eq!(refusals, ["period_removed"; 2]);
}

for_each_backend!(a_removed_key_without_a_tombstone_repeats_numbers);

async fn a_removed_key_without_a_tombstone_repeats_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("recreation");
    let (ledger, _) = remove_keys(&options).await;
    assert!(ledger.n_duplicates() > 0, "the check finds nothing");
}

for_each_server!(a_key_that_is_removed_elsewhere_is_gone_everywhere);

async fn a_key_that_is_removed_elsewhere_is_gone_everywhere(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).env("ODOMETER_DEFINITION_REFRESH", "1s");
    let (here, there) = (options.start_ready().await, options.start_ready().await);
    define_batches(&here.client()).await;
    for program in [&here, &there] {
        given(&program.client(), "batches", "period=kept&").await;
        given(&program.client(), "batches", "period=gone&").await;
    }
    for _twice in 0..2 {
        remove_key(&here.client(), "gone").await;
    }
    // The key is gone here at once, although memory has numbers. It is gone there as soon as that
    // replica knows of the removal.
    assert_eq!(
        refused(&here.client(), "batches", "gone").await,
        "period_removed"
    );
    wait::until("it is gone there", LIMIT, async || {
        let code = refused(&there.client(), "batches", "gone").await;
        (code == "period_removed").then_some(())
    })
    .await;
    for program in [here, there] {
        given(&program.client(), "batches", "period=kept&").await;
        program.stop().await;
    }
}

for_each_backend!(a_sequence_has_no_more_keys_than_are_allowed);

async fn a_sequence_has_no_more_keys_than_are_allowed(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).env("ODOMETER_LIMITS__KEYED_PERIODS", 3);
    let program = options.start_ready().await;
    let client = program.client();
    define_batches(&client).await;
    for key in ["a", "b", "c"] {
        given(&client, "batches", &format!("period={key}&")).await;
    }
    assert_eq!(refused(&client, "batches", "d").await, "too_many_periods");
    let removed = delete(&client, "batches", "d").await;
    assert_eq!(removed, (409, Some("too_many_periods".to_owned())));
    // A removed key makes room, up to ten tombstones for each key that is allowed.
    let mut last = "a".to_owned();
    for nth in 0..30 {
        remove_key(&client, &last).await;
        if nth < 29 {
            last = format!("key-{nth}");
            given(&client, "batches", &format!("period={last}&")).await;
        }
    }
    assert_eq!(refused(&client, "batches", "d").await, "too_many_periods");
    given(&client, "batches", "period=b&").await;
    // Each sequence may have this number of keys.
    client.define("others", &json!({"period": "keyed"})).await;
    given(&client, "others", "period=d&").await;
    client.define("days", &json!({"period": "day"})).await;
    let removed = delete(&client, "days", "20261120").await;
    assert_eq!(removed, (409, Some("not_for_kind".to_owned())));
    program.stop().await;
}

for_each_backend!(keys_above_their_bound_are_found_out);

async fn keys_above_their_bound_are_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).env("ODOMETER_LIMITS__KEYED_PERIODS", 3);
    let program = options.without_guards("no-bounds").start_ready().await;
    let client = program.client();
    define_batches(&client).await;
    for key in ["a", "b", "c", "d"] {
        given(&client, "batches", &format!("period={key}&")).await;
    }
}

fn options(database: &TestDatabase) -> Options {
    Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", BLOCK)
}

#[derive(Debug, Default)]
struct Outcome {
    /// How far the late clocks are ahead of the machine's clock, as a negative number.
    clock_ms: i64,
    /// The period that is too old, in the form of the replies.
    period: String,
    ledger: Ledger,
    refusals: Vec<String>,
}

impl Outcome {
    async fn removed_through(&self, database: &TestDatabase) -> String {
        let rows = database
            .query("SELECT periods_removed_through FROM sequence WHERE name = 'days'")
            .await;
        rows[0].try_get_by_index(0).expect("a text")
    }
}

/// Uses a period with a late clock, and removes the period with a right clock. Then asks for it
/// again with a late clock, on a replica that does not know of the removal.
async fn outlive(database: &TestDatabase, options: &Options) -> Outcome {
    let mut outcome = begin(options).await;
    assert_eq!(n_counters(database).await, Some(1));
    remove(options).await;
    come_late(options, &mut outcome).await;
    outcome
}

async fn begin(options: &Options) -> Outcome {
    let now_ms = now_ms();
    let noon_ms = (now_ms / DAY_MS - DAYS_AGO) * DAY_MS + DAY_MS / 2;
    let mut outcome = Outcome {
        clock_ms: noon_ms - now_ms,
        ..Outcome::default()
    };
    let program = options
        .clone()
        .clock_ahead(outcome.clock_ms)
        .start_ready()
        .await;
    let client = program.client();
    let days = json!({"period": "day", "retain": "3d", "period_back": "1d", "period_ahead": "1d"});
    client.define("days", &days).await;
    let reply = client.post("/v1/sequences/days/next").await;
    let reply = reply.expect("a reply").json();
    outcome.period = reply["period"].as_str().expect("a period").to_owned();
    for _ in 0..CALLS {
        take(&client, &mut outcome).await;
    }
    assert!(outcome.refusals.is_empty(), "{outcome:?}");
    program.stop().await;
    outcome
}

/// Runs a replica with a right clock until it has removed the period.
async fn remove(options: &Options) {
    let program = options.start_ready().await;
    let client = program.client();
    wait::until("the period is removed", LIMIT, async || {
        let scrape = Scrape::of(&client).await;
        let n_removed = scrape.sum("odometer_periods_removed_total", &[]);
        (n_removed >= 1.0).then_some(())
    })
    .await;
    program.stop().await;
}

async fn come_late(options: &Options, outcome: &mut Outcome) {
    let program = options
        .clone()
        .clock_ahead(outcome.clock_ms)
        .start_ready()
        .await;
    for _ in 0..CALLS {
        take(&program.client(), outcome).await;
    }
    program.stop().await;
}

async fn take(client: &Client, outcome: &mut Outcome) {
    let path = format!("/v1/sequences/days/next?count={AT_ONCE}&ids=false");
    match client.ask(&path).await {
        Answer::Given(ranges) => outcome.ledger.record("days", &ranges),
        Answer::Refused(reply) => outcome.refusals.push(reply.code().expect("a problem")),
        Answer::NoReply(error) => panic!("{path}: {error}"),
    }
}

/// Returns how many counters the periods of `days` have.
async fn n_counters(database: &TestDatabase) -> Option<i64> {
    let query = "SELECT COUNT(*) FROM counter WHERE sequence = 'days' AND period <> ''";
    database.number(query).await
}

/// Uses one key, and removes this key and an unused one. Then asks for both after a restart.
/// Returns the issued numbers and the refusals.
async fn remove_keys(options: &Options) -> (Ledger, Vec<String>) {
    let mut ledger = Ledger::default();
    let program = options.start_ready().await;
    let client = program.client();
    define_batches(&client).await;
    for _ in 0..CALLS {
        let ranges = given(&client, "batches", "period=used&").await;
        ledger.record("used", &ranges);
    }
    for key in ["used", "unused"] {
        remove_key(&client, key).await;
    }
    program.stop().await;
    let program = options.start_ready().await;
    let client = program.client();
    let mut refusals = Vec::new();
    for key in ["used", "unused"] {
        for _ in 0..CALLS {
            let path = format!("/v1/sequences/batches/next?period={key}&count={AT_ONCE}&ids=false");
            match client.ask(&path).await {
                Answer::Given(ranges) => ledger.record(key, &ranges),
                Answer::Refused(reply) => {
                    assert_eq!(reply.status, 410, "{reply:?}");
                    refusals.push(reply.code().expect("a problem"));
                    break;
                }
                Answer::NoReply(error) => panic!("{path}: {error}"),
            }
        }
    }
    program.stop().await;
    (ledger, refusals)
}

async fn define_batches(client: &Client) {
    client.define("batches", &json!({"period": "keyed"})).await;
}

async fn given(client: &Client, sequence: &str, query: &str) -> Vec<Range> {
    let path = format!("/v1/sequences/{sequence}/next?{query}count={AT_ONCE}&ids=false");
    client.post(&path).await.expect("a reply").numbers()
}

async fn refused(client: &Client, sequence: &str, key: &str) -> String {
    let path = format!("/v1/sequences/{sequence}/next?period={key}");
    let reply = client.post(&path).await.expect("a reply");
    reply.code().unwrap_or(reply.body)
}

async fn remove_key(client: &Client, key: &str) {
    assert_eq!(delete(client, "batches", key).await, (204, None));
}

async fn delete(client: &Client, sequence: &str, key: &str) -> (u16, Option<String>) {
    let path = format!("/v1/sequences/{sequence}/periods/{key}");
    let reply = client.send(Method::DELETE, &path, &[], None).await;
    let reply = reply.expect("a reply");
    (reply.status, reply.code())
}
