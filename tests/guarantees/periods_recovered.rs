//! An older dump is restored under replicas that count in periods: after `odometer recover` every
//! period goes on above all that was issued, also such as the dump knows nothing of.

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

/// How long something may take that takes two polls of a second each.
const LIMIT: Duration = Duration::from_secs(90);
const BLOCK: u64 = 50;
const AT_ONCE: u64 = 40;
/// Steps that `recover` skips: above all that is reserved here.
const SKIP: i64 = 100_000;
const DAY_MS: i64 = 86_400_000;

for_each_server!(a_restored_dump_repeats_no_number_of_any_period);

async fn a_restored_dump_repeats_no_number_of_any_period(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = restore_and_recover(&database, &options(&database)).await;
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome:?}");
    // What was never counted in before goes on above what may have been counted, too.
    for (period, first) in &outcome.firsts_afterwards {
        assert!(*first > SKIP, "{period} begins at {first}");
    }
}

for_each_server!(periods_that_begin_at_their_start_after_a_recovery_repeat_numbers);

async fn periods_that_begin_at_their_start_after_a_recovery_repeat_numbers(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = options(&database).without_guards("reborn-at-start");
    let outcome = restore_and_recover(&database, &options).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome:?}"
    );
}

fn options(database: &TestDatabase) -> Options {
    Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", BLOCK)
}

#[derive(Debug, Default)]
struct Outcome {
    ledger: Ledger,
    /// The first number of each period that a replica gave which knows only of the time after.
    firsts_afterwards: Vec<(String, i64)>,
}

async fn restore_and_recover(database: &TestDatabase, options: &Options) -> Outcome {
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
    // A tombstone stays one.
    until(&fresh.client(), "batches", "removed", "period_removed").await;
    for (sequence, period) in before.into_iter().chain(later) {
        wait::until("it is served again", LIMIT, async || {
            let reply = client.post(&path(sequence, period)).await.expect("a reply");
            (reply.status == 200).then(|| {
                let counter = format!("{sequence}/{period}");
                outcome.ledger.record(&counter, &reply.numbers());
            })
        })
        .await;
    }
    program.stop().await;
    fresh.stop().await;
    outcome
}

/// Today and tomorrow, as they are printed.
fn days() -> [String; 2] {
    let calendar = Calendar::of(&Definition {
        period: PeriodKind::Day,
        ..Definition::default()
    });
    let calendar = calendar.expect("days have a calendar");
    let now_ms = now_ms();
    [now_ms, now_ms + DAY_MS].map(|at_ms| calendar.at(at_ms).period.to_string())
}

/// `mariadb-dump` writes a restore that shows sound tables beside restored ones.
fn backend_replaces_tables_one_by_one(database: &TestDatabase) -> bool {
    database.backend == Backend::MariaDb
}

fn path(sequence: &str, period: &str) -> String {
    format!("/v1/sequences/{sequence}/next?period={period}&count={AT_ONCE}&ids=false")
}

/// The first of the numbers given.
async fn take(client: &Client, sequence: &str, period: &str, ledger: &mut Ledger) -> i64 {
    let reply = client.post(&path(sequence, period)).await;
    let ranges = reply.expect("a reply").numbers();
    ledger.record(&format!("{sequence}/{period}"), &ranges);
    ranges[0].first
}

/// Asks until the answer is this refusal: what is in memory is given before.
async fn until(client: &Client, sequence: &str, period: &str, code: &str) {
    wait::until(&format!("{sequence}/{period}: {code}"), LIMIT, async || {
        let path = format!("/v1/sequences/{sequence}/blocks?size=1&period={period}");
        let reply = client.post(&path).await.expect("a reply");
        (reply.code().as_deref() == Some(code)).then_some(())
    })
    .await;
}

/// Waits until the replica has raised its row: from then on the loss of what came before is
/// noticed for all names.
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
