//! Callers' keys, more of them than memory keeps, and changes that follow each other closely.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, Reply, TestDatabase,
    for_each_backend, for_each_server,
    settings::{self, at_size},
    settled, wait,
};

/// How soon a change holds everywhere.
const REFRESH: Duration = Duration::from_secs(4);

for_each_server!(changes_of_two_replicas_within_one_poll_hide_nothing);

/// Checks that a replica learns that a key was removed elsewhere, although it made a later change
/// itself. That change is newer than its knowledge of the key.
async fn changes_of_two_replicas_within_one_poll_hide_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "4s");
    let (here, there) = (options.start_ready().await, options.start_ready().await);
    let (here_client, there_client) = (here.client(), there.client());
    let definition = json!({"period": "keyed", "block": {"min": 1000}});
    here_client.define("batches", &definition).await;
    for round in 0..3 {
        let (kept, removed) = (format!("kept-{round}"), format!("removed-{round}"));
        for key in [&kept, &removed] {
            let reply = next(&here_client, key).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        let path = format!("/v1/sequences/batches/periods/{removed}");
        let reply = there_client.send(Method::DELETE, &path, &[], None).await;
        assert_eq!(reply.expect("a reply").status, 204);
        let described = json!({"description": format!("round {round}")});
        let reply = here_client.put("/v1/sequences/batches", &described).await;
        assert_eq!(reply.expect("a reply").status, 200);
        wait::until("the key is gone everywhere", REFRESH * 3, async || {
            let reply = next(&here_client, &removed).await;
            (reply.code().as_deref() == Some("period_removed")).then_some(())
        })
        .await;
        assert_eq!(next(&here_client, &kept).await.status, 200);
    }
    here.stop().await;
    there.stop().await;
}

for_each_backend!(
    more_keys_than_memory_keeps_are_all_served,
    callers_over_very_many_keys_wait_for_a_place_and_lose_nothing,
    keys_that_leave_and_return_nothing_are_found_out,
);

async fn more_keys_than_memory_keeps_are_all_served(backend: Backend) {
    const N_KEYS: usize = 40;
    const N_ROUNDS: i64 = 3;
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_LIMITS__LIVE_PERIODS", "2")
        .start_ready()
        .await;
    let client = program.client();
    let definition = json!({"period": "keyed", "block": {"min": 10}});
    client.define("many", &definition).await;
    let mut ledger = Ledger::default();
    for _round in 0..N_ROUNDS {
        let calls: Vec<_> = (0..N_KEYS)
            .map(|key| tokio::spawn(served(client.clone(), key)))
            .collect();
        for (key, call) in calls.into_iter().enumerate() {
            let ranges = call.await.expect("no panic");
            ledger.record(&format!("key-{key}"), &ranges);
        }
    }
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
    assert_eq!(ledger.n_numbers(), 120);
    program.stop().await;
}

/// Takes a key's next number. So many calls come at once that some wait for a slot in memory.
async fn served(client: Client, key: usize) -> Vec<Range> {
    let path = format!("/v1/sequences/many/next?period=key-{key}");
    let reply = settled(|| client.post(&path)).await;
    reply.numbers()
}

async fn callers_over_very_many_keys_wait_for_a_place_and_lose_nothing(backend: Backend) {
    let crowd = Crowd::of(backend, &Program::options()).await;
    assert_eq!(crowd.ledger.n_duplicates(), 0, "{crowd:?}");
    assert!(crowd.n_refused * 1000 < crowd.n_calls, "{crowd:?}");
    assert_eq!(crowd.n_lost, 0, "{crowd:?}");
    // Otherwise no key left memory, and no caller waited for a slot.
    assert!(crowd.n_left > crowd.n_calls / 10, "vacuous: {crowd:?}");
}

async fn keys_that_leave_and_return_nothing_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("no-return");
    let crowd = Crowd::of(backend, &options).await;
    assert!(crowd.n_lost > 0, "{crowd:?}");
}

/// The outcome of more callers than memory has slots. Each caller uses another key at each call.
#[derive(Debug, Default)]
struct Crowd {
    ledger: Ledger,
    n_calls: u64,
    n_refused: u64,
    /// How many times a key left memory.
    n_left: u64,
    /// Numbers that were reserved, but neither issued nor returned.
    n_lost: u64,
}

impl Crowd {
    async fn of(backend: Backend, options: &Options) -> Self {
        const N_CALLERS: usize = 48;
        let (n_keys, n_calls) = at_size((150, 12), (5_000, 1_000));
        let database = TestDatabase::prepared(backend).await;
        let mut options = options.clone().database(&database.url);
        if !settings::full() {
            options = options
                .env("ODOMETER_LIMITS__LIVE_PERIODS", "8")
                // A database with one writer serves so many callers only as fast as its disk is.
                .env("ODOMETER_REFILL__DEADLINE", "25s");
        }
        let program = options.start_ready().await;
        let client = program.client();
        let definition = json!({"period": "keyed", "block": {"min": 10}});
        client.define("many", &definition).await;
        let calls: Vec<_> = (0..N_CALLERS)
            .map(|caller| {
                let client = client.clone();
                let keys = (0..n_calls).map(move |call| (caller * 101 + call * 37) % n_keys);
                tokio::spawn(async move { Self::called(&client, keys).await })
            })
            .collect();
        let mut crowd = Self::default();
        for call in calls {
            let one = call.await.expect("no panic");
            crowd.ledger.merge(one.ledger);
            crowd.n_calls += one.n_calls;
            crowd.n_refused += one.n_refused;
        }
        program.stop().await;
        crowd.count(&database).await;
        crowd
    }

    async fn called(client: &Client, keys: impl Iterator<Item = usize>) -> Self {
        let mut one = Self::default();
        for key in keys {
            one.n_calls += 1;
            let path = format!("/v1/sequences/many/next?period=key-{key}");
            match client.ask(&path).await {
                Answer::Given(ranges) => one.ledger.record(&format!("key-{key}"), &ranges),
                Answer::Refused(reply) => {
                    assert_eq!(reply.code().as_deref(), Some("overloaded"), "{reply:?}");
                    one.n_refused += 1;
                }
                Answer::NoReply(error) => panic!("no reply: {error:?}"),
            }
        }
        one
    }

    /// Counts what is left when the program has ended.
    async fn count(&mut self, database: &TestDatabase) {
        let counters = "SELECT next_value FROM counter WHERE sequence = 'many' AND period <> ''";
        let rows = database.query(counters).await;
        let reserved = |row: &sea_orm::QueryResult| -> i64 {
            row.try_get_by_index::<i64>(0).expect("a number") - 1
        };
        let n_reserved: i64 = rows.iter().map(reserved).sum();
        let journal = database.journal("many").await;
        // At the end the program returned the rest of one block for each key.
        self.n_left = journal.len().saturating_sub(rows.len()) as u64;
        let returned = journal.iter().filter(|row| row.fate == "returned");
        let n_returned: i64 = returned.map(|row| row.last - row.next_unissued + 1).sum();
        let n_given = i64::try_from(self.ledger.n_numbers()).expect("few");
        let n_lost = n_reserved - n_returned - n_given;
        self.n_lost = u64::try_from(n_lost).expect("none was given that was not reserved");
    }
}

async fn next(client: &Client, key: &str) -> Reply {
    let path = format!("/v1/sequences/batches/next?period={key}");
    client.post(&path).await.expect("a reply")
}
