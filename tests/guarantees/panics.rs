//! Actors that panic in the middle of their work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Answer, Backend, Client, Ledger, Program, Scrape, TestDatabase, dice, for_each_backend, wait,
};

const N_CALLERS: usize = 16;
const N_SEQUENCES: usize = 5;
const N_NUMBERS: u64 = 5_000;

for_each_backend!(an_actor_that_panics_takes_no_caller_with_it);

async fn an_actor_that_panics_takes_no_caller_with_it(backend: Backend) {
    let outcome = run_with_panics(backend, "actor-panic").await;
    assert_eq!(outcome.calls.failures, Vec::<String>::new());
    assert_eq!(outcome.calls.ledger.n_duplicates(), 0);
    let n_restarts = outcome.scrape.sum("odometer_actor_restarts_total", &[]);
    assert!(n_restarts >= 10.0, "vacuous: {n_restarts} restarts");
    let n_refused = outcome.calls.n_refused;
    println!("{backend:?}: {n_restarts} restarts, {n_refused} calls refused");
    assert_eq!(n_refused, 0, "of {N_NUMBERS} calls");
}

for_each_backend!(a_new_actor_that_takes_the_dead_one_s_block_again_is_found_out);

async fn a_new_actor_that_takes_the_dead_one_s_block_again_is_found_out(backend: Backend) {
    let outcome = run_with_panics(backend, "actor-panic,takeover-keeps-block").await;
    assert!(
        outcome.calls.ledger.n_duplicates() > 0,
        "the check finds nothing"
    );
}

/// The outcome of the calls of one caller, or of all callers.
#[derive(Default)]
struct Calls {
    ledger: Ledger,
    /// Calls that got 503: no number was issued, and the caller may try again.
    n_refused: u64,
    /// Calls that got any other answer.
    failures: Vec<String>,
}

struct Outcome {
    calls: Calls,
    scrape: Scrape,
}

/// Lets callers use a few sequences until enough numbers were issued. Then each sequence must go
/// on.
async fn run_with_panics(backend: Backend, guards: &str) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .without_guards(guards)
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 50)
        .start_ready()
        .await;
    let n_given = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..N_CALLERS)
        .map(|_| tokio::spawn(call(program.client(), Arc::clone(&n_given))))
        .collect();
    let mut all = Calls::default();
    for caller in callers {
        let calls = caller.await.expect("a caller does not panic");
        all.ledger.merge(calls.ledger);
        all.n_refused += calls.n_refused;
        all.failures.extend(calls.failures);
    }
    let client = program.client();
    for sequence in (0..N_SEQUENCES).map(name) {
        let path = format!("/v1/sequences/{sequence}/next");
        let ranges = wait::until("it goes on", Duration::from_secs(20), async || match client
            .ask(&path)
            .await
        {
            Answer::Given(ranges) => Some(ranges),
            Answer::Refused(_) | Answer::NoReply(_) => None,
        })
        .await;
        all.ledger.record(&sequence, &ranges);
    }
    Outcome {
        calls: all,
        scrape: Scrape::of(&client).await,
    }
}

fn name(number: usize) -> String {
    format!("panic-{number}")
}

/// Calls until all callers together got enough numbers.
async fn call(client: Client, n_given: Arc<AtomicU64>) -> Calls {
    let mut calls = Calls::default();
    while n_given.load(Ordering::Relaxed) < N_NUMBERS {
        let sequence = name(dice::roll(0..N_SEQUENCES));
        let path = format!("/v1/sequences/{sequence}/next");
        match client.ask(&path).await {
            Answer::Given(ranges) => {
                n_given.fetch_add(1, Ordering::Relaxed);
                calls.ledger.record(&sequence, &ranges);
            }
            Answer::Refused(reply) if reply.status == 503 => calls.n_refused += 1,
            Answer::Refused(reply) => calls.failures.push(format!("{reply:?}")),
            Answer::NoReply(error) => calls.failures.push(format!("{error:?}")),
        }
    }
    calls
}
