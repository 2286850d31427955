//! The database commits, but its reply is lost. Nobody knows then whether a number was reserved.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Answer, Backend, Client, Ledger, Link, Options, Program, Proxy, Scrape, Server, TestDatabase,
    dice, for_each_server, settings, wait,
};

const N_CALLERS: usize = 8;
const N_SEQUENCES: usize = 8;
const N_REPLICAS: usize = 2;
/// The least number of reservations with an unknown outcome. With fewer, the run has not met what
/// it tests.
const MIN_UNCERTAIN: f64 = 10.0;
/// How many numbers are issued between two cuts, so that each cut meets reservations under way.
const BETWEEN_CUTS: u64 = 500;

for_each_server!(a_commit_nobody_heard_of_never_repeats_a_number);

async fn a_commit_nobody_heard_of_never_repeats_a_number(backend: Backend) {
    let outcome = lose_replies(backend, &Program::options(), settings::at_size(12, 200)).await;
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!(outcome.ledger.n_duplicates(), 0);
    assert!(
        outcome.n_uncertain >= MIN_UNCERTAIN,
        "vacuous: {} reservations of unknown outcome",
        outcome.n_uncertain
    );
}

for_each_server!(without_its_conditions_lost_replies_repeat_numbers);

async fn without_its_conditions_lost_replies_repeat_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-conditions");
    let outcome = lose_replies(backend, &options, 2).await;
    let n_numbers = outcome.ledger.n_numbers();
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing in {n_numbers} numbers"
    );
}

struct Outcome {
    ledger: Ledger,
    /// Answers that were neither a number nor 503.
    failures: Vec<String>,
    n_uncertain: f64,
}

async fn lose_replies(backend: Backend, options: &Options, n_cuts: usize) -> Outcome {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let through_proxy = database.url_through(&proxy, server);
    let options = options
        .clone()
        .database(&through_proxy)
        .env("ODOMETER_STORE__TIMEOUT", "300ms")
        .env("ODOMETER_REFILL__DEADLINE", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 50);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.start_ready().await);
    }
    let load = Arc::new(Load::default());
    let callers: Vec<_> = programs
        .iter()
        .cycle()
        .take(N_CALLERS)
        .map(|program| tokio::spawn(call_until_over(program.client(), Arc::clone(&load))))
        .collect();

    for cut in 0..n_cuts {
        load.goes_on().await;
        proxy.set(Link::RepliesLost);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if cut % 2 == 0 {
            // In every second round the connections are closed before the timeout closes them.
            proxy.set(Link::Cut);
        } else {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        proxy.set(Link::Whole);
    }
    load.goes_on().await;
    load.over.store(true, Ordering::Relaxed);

    let mut outcome = Outcome {
        ledger: Ledger::default(),
        failures: Vec::new(),
        n_uncertain: 0.0,
    };
    for caller in callers {
        let (given, failed) = caller.await.expect("a caller does not panic");
        outcome.ledger.merge(given);
        outcome.failures.extend(failed);
    }
    for program in &programs {
        let scrape = Scrape::of(&program.client()).await;
        outcome.n_uncertain += scrape.n_reservations("uncertain");
    }
    outcome
}

#[derive(Default)]
struct Load {
    n_given: AtomicU64,
    over: AtomicBool,
}

impl Load {
    /// Waits until `BETWEEN_CUTS` more numbers were issued.
    async fn goes_on(&self) {
        let wanted = self.n_given.load(Ordering::Relaxed) + BETWEEN_CUTS;
        wait::until(
            "numbers are given again",
            Duration::from_secs(20),
            async || (self.n_given.load(Ordering::Relaxed) >= wanted).then_some(()),
        )
        .await;
    }
}

async fn call_until_over(client: Client, load: Arc<Load>) -> (Ledger, Vec<String>) {
    let mut ledger = Ledger::default();
    let mut failures = Vec::new();
    while !load.over.load(Ordering::Relaxed) {
        let sequence = format!("lost-{}", dice::roll(0..N_SEQUENCES));
        let n = dice::roll(1..=50);
        let path = match dice::roll(0..3) {
            0 => format!("/v1/sequences/{sequence}/next"),
            1 => format!("/v1/sequences/{sequence}/next?count={n}"),
            _ => format!("/v1/sequences/{sequence}/blocks?size={n}"),
        };
        match client.ask(&path).await {
            Answer::Given(ranges) => {
                let n_given = ranges.iter().map(|range| range.count).sum();
                load.n_given.fetch_add(n_given, Ordering::Relaxed);
                ledger.record(&sequence, &ranges);
                continue;
            }
            Answer::Refused(reply) if reply.status == 503 => {}
            Answer::Refused(reply) => failures.push(format!("{path}: {reply:?}")),
            Answer::NoReply(error) => failures.push(format!("{path}: {error:?}")),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (ledger, failures)
}
