//! Replicas whose reads are always out of date when their writes come: other writers of the counter
//! stand in the queue of its lock without end.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sea_orm::{ConnectionTrait, Database, DatabaseConnection};
use tokio::task::JoinHandle;

use crate::support::{
    Answer, Backend, Options, Program, Range, Scrape, TestDatabase, for_each_server,
};

/// The writers that are in the way.
const N_RIVALS: usize = 3;
const N_REPLICAS: usize = 2;
/// The numbers of a block, and the numbers that each replica gives: some blocks.
const BLOCK: u32 = 10;
const N_CALLS: usize = 40;
/// With fewer conflicts, nothing was in the way of the replicas.
const MIN_CONFLICTS: f64 = 12.0;

for_each_server!(a_replica_that_is_always_outrun_gets_its_numbers);

async fn a_replica_that_is_always_outrun_gets_its_numbers(backend: Backend) {
    let outcome = outrun(backend, Program::options()).await;
    assert_eq!(outcome.refused, Vec::<String>::new());
    assert!(outcome.n_conflicts >= MIN_CONFLICTS, "vacuous: {outcome:?}");
    let numbers: BTreeSet<i64> = outcome.numbers.iter().copied().collect();
    assert_eq!(numbers.len(), N_REPLICAS * N_CALLS, "{outcome:?}");
}

for_each_server!(without_an_addition_a_replica_that_is_always_outrun_times_out);

async fn without_an_addition_a_replica_that_is_always_outrun_times_out(backend: Backend) {
    let options = Program::options().without_guards("no-addition");
    let outcome = outrun(backend, options).await;
    let is_late = |code: &String| code == "refill_timeout";
    assert!(outcome.refused.iter().any(is_late), "{outcome:?}");
}

#[derive(Default, Debug)]
struct Outcome {
    numbers: Vec<i64>,
    /// The codes of the calls that were refused. After the first one a replica is not called again.
    refused: Vec<String>,
    n_conflicts: f64,
}

/// Takes numbers from replicas, while others write their counter all the time.
async fn outrun(backend: Backend, options: Options) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let options = options
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", BLOCK)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", BLOCK);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.clone().start_ready().await);
    }
    // The counter exists before anything is in its way.
    let mut outcome = Outcome::default();
    take(&programs[0], 1, &mut outcome).await;
    outcome.numbers.clear();

    let over = Arc::new(AtomicBool::new(false));
    let mut rivals: Vec<JoinHandle<()>> = Vec::new();
    for _ in 0..N_RIVALS {
        let connection = Box::pin(Database::connect(database.url.clone())).await;
        let connection = connection.expect("the test's database answers");
        rivals.push(tokio::spawn(write(connection, backend, Arc::clone(&over))));
    }
    let (first, second) = tokio::join!(taken(&programs[0]), taken(&programs[1]));
    over.store(true, Ordering::Relaxed);
    for rival in rivals {
        rival.await.expect("a rival writes");
    }
    for of_replica in [first, second] {
        outcome.numbers.extend(of_replica.numbers);
        outcome.refused.extend(of_replica.refused);
    }
    for program in programs {
        let scrape = Scrape::of(&program.client()).await;
        outcome.n_conflicts += scrape.n_reservations("conflict");
        program.stop().await;
    }
    outcome
}

async fn taken(program: &Program) -> Outcome {
    let mut outcome = Outcome::default();
    take(program, N_CALLS, &mut outcome).await;
    outcome
}

/// Takes numbers one by one, until a call is refused.
async fn take(program: &Program, n_calls: usize, outcome: &mut Outcome) {
    let client = program.client();
    for _ in 0..n_calls {
        match client.ask("/v1/sequences/orders/next").await {
            Answer::Given(ranges) => {
                let values = ranges.iter().flat_map(Range::values);
                outcome.numbers.extend(values);
            }
            Answer::Refused(reply) => {
                outcome.refused.push(reply.code().unwrap_or(reply.body));
                return;
            }
            Answer::NoReply(error) => panic!("no reply: {error:?}"),
        }
    }
}

/// Writes the counter again and again, and keeps its lock for a moment each time.
async fn write(connection: DatabaseConnection, backend: Backend, over: Arc<AtomicBool>) {
    let pause = match backend {
        Backend::Postgres => "SELECT pg_sleep(0.02)",
        Backend::MariaDb | Backend::Sqlite => "DO SLEEP(0.02)",
    };
    let statements = format!(
        "BEGIN; UPDATE counter SET next_value = next_value + {BLOCK}, version = version + 1 \
         WHERE sequence = 'orders' AND period = ''; {pause}; COMMIT"
    );
    while !over.load(Ordering::Relaxed) {
        connection
            .execute_unprepared(&statements)
            .await
            .unwrap_or_else(|error| panic!("{statements}: {error}"));
    }
    connection.close().await.expect("a connection closes");
}
