//! Replicas are asked to stop one after the other, under load, and start again.

use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, Scrape, TestDatabase,
    for_each_backend, settings, wait,
};

const N_CALLERS: usize = 8;
const N_SEQUENCES: usize = 10;
const N_REPLICAS: usize = 3;
/// Numbers given between two restarts, so that each restart happens under load.
const BETWEEN_RESTARTS: u64 = 5_000;

for_each_backend!(a_rolling_restart_loses_no_number_and_no_call);

async fn a_rolling_restart_loses_no_number_and_no_call(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = rolling_restart(&database, &Program::options()).await;
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert_eq!(outcome.ledger.n_duplicates(), 0);
    assert_eq!(outcome.n_abandoned, 0.0, "by the metric");
    assert_eq!(outcome.unaccounted(&database).await, Vec::<String>::new());
    assert!(outcome.n_returned > 0, "vacuous: nothing was ever returned");
    assert!(outcome.n_adopted > 0, "vacuous: nothing was ever adopted");
}

for_each_backend!(without_the_return_of_rests_the_same_run_finds_gaps);

async fn without_the_return_of_rests_the_same_run_finds_gaps(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("no-return");
    let outcome = rolling_restart(&database, &options).await;
    assert!(!outcome.unaccounted(&database).await.is_empty());
}

#[derive(Default)]
struct Outcome {
    ledger: Ledger,
    /// Calls that failed at a replica that was not asked to stop.
    failures: Vec<String>,
    n_abandoned: f64,
    n_returned: usize,
    n_adopted: usize,
}

impl Outcome {
    /// Numbers that were reserved, but neither given to a caller nor wait in the store for an
    /// adopter, and rows of the journal that say otherwise. Every reply that was lost shows here,
    /// because the number in it does.
    async fn unaccounted(&self, database: &TestDatabase) -> Vec<String> {
        let mut found = Vec::new();
        for sequence in (0..N_SEQUENCES).map(name) {
            let journal = database.journal(&sequence).await;
            let next_value = database.next_value(&sequence).await.expect("it was used");
            let mut accounted = Ledger::default();
            let mut covered = Ledger::default();
            for row in &journal {
                if !matches!(row.fate.as_str(), "spent" | "returned" | "adopted") {
                    found.push(format!("{sequence}: {row:?}"));
                }
                covered.record(&sequence, &[Range::between(row.first, row.last)]);
                if row.fate == "returned" && row.next_unissued <= row.last {
                    accounted.record(&sequence, &[Range::between(row.next_unissued, row.last)]);
                }
            }
            accounted.record(&sequence, self.ledger.given(&sequence));
            let whole = Range::between(1, next_value - 1);
            for gap in accounted.gaps(&sequence, whole) {
                found.push(format!("{sequence}: neither given nor returned: {gap:?}"));
            }
            for gap in covered.gaps(&sequence, whole) {
                found.push(format!("{sequence}: not in the journal: {gap:?}"));
            }
            if accounted.n_duplicates() > 0 {
                found.push(format!("{sequence}: given and returned: {accounted:?}"));
            }
        }
        found
    }
}

/// One start of a replica, as the callers see it.
struct Incarnation {
    client: Client,
    /// Set before it is asked to stop: from then on it may refuse.
    stopping: AtomicBool,
}

struct Stage {
    replicas: Vec<RwLock<Arc<Incarnation>>>,
    n_given: AtomicU64,
    over: AtomicBool,
}

async fn rolling_restart(database: &TestDatabase, options: &Options) -> Outcome {
    let options = options.clone().database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..database.backend.replicas(N_REPLICAS) {
        programs.push(options.start_ready().await);
    }
    let stage = Arc::new(Stage {
        replicas: programs
            .iter()
            .map(|program| RwLock::new(incarnation(program)))
            .collect(),
        n_given: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let callers: Vec<_> = (0..N_CALLERS)
        .map(|_| tokio::spawn(call_until_over(Arc::clone(&stage))))
        .collect();

    let mut outcome = Outcome::default();
    for _ in 0..settings::at_size(2, 20) {
        // The oldest is the next to go; its successor takes the last place.
        for replica in 0..programs.len() {
            stage.wait_for_load().await;
            stage
                .current(replica)
                .stopping
                .store(true, Ordering::SeqCst);
            outcome.stop(programs.remove(0)).await;
            let successor = options.start_ready().await;
            stage.replace(replica, incarnation(&successor));
            programs.push(successor);
        }
    }
    stage.over.store(true, Ordering::Relaxed);
    for caller in callers {
        let (given, failed) = caller.await.expect("a caller does not panic");
        outcome.ledger.merge(given);
        outcome.failures.extend(failed);
    }
    for program in programs {
        outcome.stop(program).await;
    }
    for row in database.query("SELECT fate FROM block").await {
        let fate: String = row.try_get_by_index(0).expect("a text");
        outcome.n_returned += usize::from(fate == "returned");
        outcome.n_adopted += usize::from(fate == "adopted");
    }
    outcome
}

impl Outcome {
    /// Stops a replica and notes what it says of numbers it had to abandon.
    async fn stop(&mut self, program: Program) {
        let scrape = Scrape::of(&program.client()).await;
        self.n_abandoned += scrape.n_abandoned();
        let log = program.stop().await;
        let counts: Vec<f64> = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|line| line.get("abandoned")?.as_f64())
            .collect();
        assert!(!counts.is_empty(), "no word of abandoned numbers:\n{log}");
        self.n_abandoned += counts.iter().sum::<f64>();
    }
}

fn name(number: usize) -> String {
    format!("rolling-{number}")
}

fn incarnation(program: &Program) -> Arc<Incarnation> {
    Arc::new(Incarnation {
        client: program.client(),
        stopping: AtomicBool::new(false),
    })
}

impl Stage {
    fn current(&self, replica: usize) -> Arc<Incarnation> {
        Arc::clone(
            &self.replicas[replica]
                .read()
                .expect("nobody panics with it"),
        )
    }

    fn replace(&self, replica: usize, by: Arc<Incarnation>) {
        *self.replicas[replica]
            .write()
            .expect("nobody panics with it") = by;
    }

    async fn wait_for_load(&self) {
        let wanted = self.n_given.load(Ordering::Relaxed) + BETWEEN_RESTARTS;
        wait::until("there is load", Duration::from_secs(60), async || {
            (self.n_given.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }
}

async fn call_until_over(stage: Arc<Stage>) -> (Ledger, Vec<String>) {
    let mut ledger = Ledger::default();
    let mut failures = Vec::new();
    while !stage.over.load(Ordering::Relaxed) {
        let replica = stage.current(rand::random_range(0..stage.replicas.len()));
        let sequence = name(rand::random_range(0..N_SEQUENCES));
        let n = rand::random_range(1..=20);
        let path = match rand::random_range(0..8) {
            0 => format!("/v1/sequences/{sequence}/blocks?size={n}"),
            1 => format!("/v1/sequences/{sequence}/next?count={n}"),
            _ => format!("/v1/sequences/{sequence}/next"),
        };
        match replica.client.ask(&path).await {
            Answer::Given(ranges) => {
                let n_given = ranges.iter().map(|range| range.count).sum();
                stage.n_given.fetch_add(n_given, Ordering::Relaxed);
                ledger.record(&sequence, &ranges);
                continue;
            }
            Answer::Refused(reply) => {
                let draining = reply.status == 503
                    && reply.code().as_deref() == Some("draining")
                    && reply.header("retry-after").is_some();
                if !(draining && replica.stopping.load(Ordering::SeqCst)) {
                    failures.push(format!("{path}: {reply:?}"));
                }
            }
            // Refused before it was read: a call that was read gets its reply, or its number is
            // missed in the end.
            Answer::NoReply(error) => {
                if error.is_timeout() || !replica.stopping.load(Ordering::SeqCst) {
                    failures.push(format!("{path}: {error:?}"));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (ledger, failures)
}
