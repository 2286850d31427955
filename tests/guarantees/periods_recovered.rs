//! An older dump is restored under replicas that count in periods. After `odometer recover` every
//! period goes on above all issued numbers, also if the dump does not know the period.

use std::time::Duration;

use odometer_core::{
    definition::Definition,
    period::{Calendar, PeriodKind},
};
use reqwest::Method;
use serde_json::json;

use crate::support::{
    Backend, Client, Ledger, Options, Program, TestDatabase, clock::now_ms, for_each_server, wait,
};

/// The limit for events that take two polls of a second each.
const LIMIT: Duration = Duration::from_secs(90);
const BLOCK: u64 = 50;
const AT_ONCE: u64 = 40;
/// How many steps `recover` skips. This is above all that is reserved here.
const SKIP: i64 = 100_000;
const DAY_MS: i64 = 86_400_000;

for_each_server!(a_restored_dump_repeats_no_number_of_any_period);

async fn a_restored_dump_repeats_no_number_of_any_period(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database, "no-stamp");
    let (mut outcome, survivor) = restore_and_recover(&database, &options).await;
    serve_again(&survivor, &mut outcome).await;
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome:?}");
    // A period that the dump does not know goes on above all numbers that may have been issued,
    // too.
    for (period, first) in &outcome.firsts_afterwards {
        assert!(*first > SKIP, "{period} begins at {first}");
    }
}

for_each_server!(periods_that_begin_at_their_start_after_a_recovery_repeat_numbers);

async fn periods_that_begin_at_their_start_after_a_recovery_repeat_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database, "no-stamp,recreated-at-start");
    // The replica that lived on refuses a period that began again below what it has seen. So only
    // the replica that started afterwards is asked.
    let (outcome, _survivor) = restore_and_recover(&database, &options).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome:?}"
    );
}

/// Returns the options of replicas that do not compare the stamp of the database: their heartbeats
/// show that a dump was restored.
fn options(database: &TestDatabase, faults: &str) -> Options {
    Program::options()
        .without_guards(faults)
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", BLOCK)
}

#[derive(Debug, Default)]
struct Outcome {
    ledger: Ledger,
    /// The sequences and their periods.
    periods: Vec<(&'static str, String)>,
    /// The first number of each period from a replica that started after the recovery.
    firsts_afterwards: Vec<(String, i64)>,
}

/// Restores a dump under a replica, recovers the database, and takes numbers from a replica that
/// starts afterwards. Returns the replica that lived through it, too.
async fn restore_and_recover(database: &TestDatabase, options: &Options) -> (Outcome, Program) {
    let mut outcome = Outcome::default();
    let program = options.start_ready().await;
    let client = program.client();
    client.define("days", &json!({"period": "day"})).await;
    client.define("batches", &json!({"period": "keyed"})).await;
    let [today, tomorrow] = days();
    let before = [("days", today.as_str()), ("batches", "before")];
    let later = [("days", tomorrow.as_str()), ("batches", "later")];
    for (sequence, period) in before {
        take(&client, sequence, period, &mut outcome.ledger).await;
    }
    let removed = "/v1/sequences/batches/periods/removed";
    let removal = client.send(Method::DELETE, removed, &[], None).await;
    assert_eq!(removal.expect("a reply").status, 204);

    let dump = database.dump();
    next_beat(database).await;
    for (sequence, period) in before.into_iter().chain(later) {
        for _ in 0..4 {
            take(&client, sequence, period, &mut outcome.ledger).await;
        }
    }
    if backend_replaces_tables_one_by_one(database) {
        database.execute("DELETE FROM replica").await;
    }
    database.restore(&dump);
    for (sequence, period) in before.into_iter().chain(later) {
        until(&client, sequence, period, "store_went_back").await;
    }
    let finished = options.run(&["recover", "--yes", "--skip", &SKIP.to_string()]);
    assert_eq!(finished.code, Some(0), "{finished}");

    let fresh = options.start_ready().await;
    for (sequence, period) in before.into_iter().chain(later) {
        for n in 0..4 {
            let first = take(&fresh.client(), sequence, period, &mut outcome.ledger).await;
            if n == 0 {
                let counter = format!("{sequence}/{period}");
                outcome.firsts_afterwards.push((counter, first));
            }
        }
    }
    // A tombstone stays a tombstone.
    until(&fresh.client(), "batches", "removed", "period_removed").await;
    fresh.stop().await;
    let periods = before.into_iter().chain(later);
    outcome.periods = periods
        .map(|(sequence, period)| (sequence, period.to_owned()))
        .collect();
    (outcome, program)
}

/// Waits until the replica that lived through the recovery serves each period again.
async fn serve_again(survivor: &Program, outcome: &mut Outcome) {
    let client = survivor.client();
    for (sequence, period) in &outcome.periods {
        wait::until("it is served again", LIMIT, async || {
            let reply = client.post(&path(sequence, period)).await.expect("a reply");
            (reply.status == 200).then(|| {
                let counter = format!("{sequence}/{period}");
                outcome.ledger.record(&counter, &reply.numbers());
            })
        })
        .await;
    }
}

/// Returns today and tomorrow, as periods are printed.
fn days() -> [String; 2] {
    let calendar = Calendar::of(&Definition {
        period: PeriodKind::Day,
        ..Definition::default()
    });
    let calendar = calendar.expect("days have a calendar");
    let now_ms = now_ms();
    [now_ms, now_ms + DAY_MS].map(|at_ms| calendar.at(at_ms).period.to_string())
}

/// Returns whether a restore replaces one table after the other, as `mariadb-dump` writes it.
/// Tables that are not yet restored then stand next to restored ones.
fn backend_replaces_tables_one_by_one(database: &TestDatabase) -> bool {
    database.backend == Backend::MariaDb
}

fn path(sequence: &str, period: &str) -> String {
    format!("/v1/sequences/{sequence}/next?period={period}&count={AT_ONCE}&ids=false")
}

/// Takes numbers, and returns the first of them.
async fn take(client: &Client, sequence: &str, period: &str, ledger: &mut Ledger) -> i64 {
    let reply = client.post(&path(sequence, period)).await;
    let ranges = reply.expect("a reply").numbers();
    ledger.record(&format!("{sequence}/{period}"), &ranges);
    ranges[0].first
}

/// Asks until the answer is this refusal. Numbers in memory are issued before that.
async fn until(client: &Client, sequence: &str, period: &str, code: &str) {
    wait::until(&format!("{sequence}/{period}: {code}"), LIMIT, async || {
        let path = format!("/v1/sequences/{sequence}/blocks?size=1&period={period}");
        let reply = client.post(&path).await.expect("a reply");
        (reply.code().as_deref() == Some(code)).then_some(())
    })
    .await;
}

/// Waits until the replica has raised its row. From then on, the replica notices for all names that
/// earlier commits are lost.
async fn next_beat(database: &TestDatabase) {
    let beat = async || {
        database
            .number("SELECT MAX(beat) FROM replica")
            .await
            .unwrap_or_default()
    };
    let before = beat().await;
    wait::until("the row is raised", LIMIT, async || {
        (beat().await > before).then_some(())
    })
    .await;
}
