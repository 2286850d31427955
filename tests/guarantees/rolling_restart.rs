//! Replicas behind balancers stop one after the other, under load, and start again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{task::JoinHandle, time::MissedTickBehavior};

use crate::support::{
    Backend, Balancer, Ledger, Options, Program, Range, Reply, Scrape, Spreads, TestDatabase, dice,
    for_each_backend, for_each_server, raw::Connection, run, settings, wait,
};

const N_SEQUENCES: usize = 10;
const N_REPLICAS: usize = 3;
/// How many callers each of the two balancers has. Each caller has a connection of its own.
const N_CALLERS: usize = 48;
const BETWEEN_TWO_CALLS: Duration = Duration::from_millis(60);
/// How many numbers are issued between two restarts, so that each restart happens under load.
const BETWEEN_RESTARTS: u64 = 5_000;
/// How long a replica waits before it stops. Balancers notice the stop far sooner.
const READY_WAIT: &str = "5s";
/// How long a call may take. This is longer than a balancer waits.
const REPLY_LIMIT: Duration = Duration::from_secs(40);
/// How many requests each balancer must send to replicas that are stopping. With fewer, the test
/// has not met what it is about. A connection that its reply ends is one request.
const SENT_WHILE_STOPPING: u64 = 10;

for_each_backend!(
    a_rolling_restart_loses_no_number_and_no_call,
    without_a_wait_for_balancers_calls_fail_but_no_number_is_lost,
    without_the_return_of_rests_the_same_run_finds_gaps,
);

async fn a_rolling_restart_loses_no_number_and_no_call(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let restarts = Restarts {
        n_rounds: settings::at_size(2, 20),
        ..Restarts::of(Program::options())
    };
    let outcome = restarts.run(&database).await;
    let warnings = outcome.warnings.join("\n");
    assert_eq!(outcome.failures, Vec::<String>::new(), "{warnings}");
    assert_eq!(outcome.ledger.n_duplicates(), 0);
    assert_eq!(outcome.n_abandoned, 0.0, "by metrics and log");
    assert_eq!(outcome.unaccounted(&database).await, Vec::<String>::new());
    assert_eq!(outcome.n_cut_short, 0, "gone before they were left");
    let n_given = outcome.ledger.n_numbers().to_string();
    assert_eq!(outcome.n_issued.to_string(), n_given, "by the metrics");
    // Only a single replica leaves its balancers without a replica to send calls to.
    let is_single = backend.replicas(N_REPLICAS) == 1;
    assert_eq!(outcome.n_turned_away > 0, is_single, "turned away");
    let n_sent = outcome.n_sent_while_stopping;
    let is_met = n_sent.iter().all(|n| *n >= SENT_WHILE_STOPPING);
    assert!(is_met, "vacuous: sent while stopping: {n_sent:?}");
    assert!(outcome.n_returned > 0, "vacuous: nothing was ever returned");
    assert!(outcome.n_adopted > 0, "vacuous: nothing was ever adopted");
}

async fn without_a_wait_for_balancers_calls_fail_but_no_number_is_lost(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let restarts = Restarts {
        ready_wait: "0s",
        ..Restarts::of(Program::options())
    };
    let outcome = restarts.run(&database).await;
    assert_ne!(outcome.failures, Vec::<String>::new());
    // A request that was read was answered, and a request that failed was not read.
    assert_eq!(outcome.ledger.n_duplicates(), 0);
    assert_eq!(outcome.n_abandoned, 0.0, "by metrics and log");
    assert_eq!(outcome.unaccounted(&database).await, Vec::<String>::new());
}

async fn without_the_return_of_rests_the_same_run_finds_gaps(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let restarts = Restarts::of(Program::options().without_guards("no-return"));
    let outcome = restarts.run(&database).await;
    assert_eq!(outcome.failures, Vec::<String>::new());
    assert!(!outcome.unaccounted(&database).await.is_empty());
}

#[test]
fn replicas_that_keep_their_stop_to_themselves_are_found_out() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let restarts = Restarts::of(Program::options().without_guards("silent-drain"));
        let outcome = restarts.run(&database).await;
        assert_ne!(outcome.failures, Vec::<String>::new());
        assert!(outcome.n_cut_short > 0, "they were left in time");
    });
}

for_each_server!(replicas_that_are_killed_instead_are_found_out);

async fn replicas_that_are_killed_instead_are_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let restarts = Restarts {
        are_killed: true,
        ..Restarts::of(Program::options())
    };
    let outcome = restarts.run(&database).await;
    assert_ne!(outcome.failures, Vec::<String>::new());
    let unaccounted = outcome.unaccounted(&database).await;
    // These are the blocks of killed replicas, and their numbers, which nobody will ever get.
    for sign in ["fate: \"held\"", "neither given nor returned"] {
        let is_found = unaccounted.iter().any(|found| found.contains(sign));
        assert!(is_found, "{sign}: {unaccounted:?}");
    }
}

/// The way in which replicas are restarted.
struct Restarts {
    options: Options,
    ready_wait: &'static str,
    n_rounds: usize,
    /// Whether replicas are killed instead of stopped.
    are_killed: bool,
}

/// The state that the callers share with the task that restarts replicas.
struct Stage {
    balancers: [Balancer; 2],
    n_given: AtomicU64,
    over: AtomicBool,
}

#[derive(Default)]
struct Outcome {
    ledger: Ledger,
    /// Calls that reached a replica, or should have, and got no numbers.
    failures: Vec<String>,
    /// Calls that reached no replica, because none was ready.
    n_turned_away: usize,
    /// How many requests each balancer sent to replicas after their SIGTERM.
    n_sent_while_stopping: [u64; 2],
    /// Replicas that were gone or out of reach before both balancers had left them.
    n_cut_short: usize,
    /// The metrics of all other replicas, after their last request.
    n_issued: f64,
    n_abandoned: f64,
    n_returned: usize,
    n_adopted: usize,
    /// The warnings in the logs of all stopped replicas.
    warnings: Vec<String>,
}

impl Restarts {
    /// Returns one round of restarts by SIGTERM.
    fn of(options: Options) -> Self {
        Self {
            options,
            ready_wait: READY_WAIT,
            n_rounds: 1,
            are_killed: false,
        }
    }

    async fn run(&self, database: &TestDatabase) -> Outcome {
        let options = self.options.clone().database(&database.url);
        let options = options.env("ODOMETER_SHUTDOWN__READY_WAIT", self.ready_wait);
        let stage = Arc::new(Stage {
            balancers: [
                Balancer::start(Spreads::Requests).await,
                Balancer::start(Spreads::Connections).await,
            ],
            n_given: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let mut programs = Vec::new();
        for _ in 0..database.backend.replicas(N_REPLICAS) {
            programs.push(stage.start(&options).await);
        }
        let callers = call(&stage);
        let mut outcome = Outcome::default();
        for _ in 0..self.n_rounds * programs.len() {
            stage.wait_for_load().await;
            // The oldest replica goes next, and its successor becomes the last one.
            let mut program = programs.remove(0);
            if self.are_killed {
                program.kill();
            } else {
                outcome.stop(&mut program, &stage).await;
            }
            // Callers meet the gone replica for as long as balancers take to notice.
            stage.wait_until_left(program.address()).await;
            for balancer in &stage.balancers {
                balancer.remove(program.address());
            }
            programs.push(stage.start(&options).await);
        }
        stage.over.store(true, Ordering::Relaxed);
        for caller in callers {
            outcome.add(caller.await.expect("a caller does not panic"));
        }
        outcome.stop_all(programs).await;
        outcome.look_into(database).await;
        outcome
    }
}

impl Stage {
    /// Starts a replica and waits until both balancers use it.
    async fn start(&self, options: &Options) -> Program {
        let program = options.start_ready().await;
        for balancer in &self.balancers {
            balancer.add(program.address());
        }
        wait::until("it is used", Duration::from_secs(30), async || {
            let used = |balancer: &Balancer| balancer.uses(program.address());
            self.balancers.iter().all(used).then_some(())
        })
        .await;
        program
    }

    async fn wait_for_load(&self) {
        let wanted = self.n_given.load(Ordering::Relaxed) + BETWEEN_RESTARTS;
        wait::until("there is load", Duration::from_secs(60), async || {
            (self.n_given.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    }

    async fn wait_until_left(&self, address: &str) {
        wait::until("it is left", Duration::from_secs(60), async || {
            self.have_left(address).then_some(())
        })
        .await;
    }

    fn have_left(&self, address: &str) -> bool {
        let has_left = |balancer: &Balancer| balancer.has_left(address);
        self.balancers.iter().all(has_left)
    }

    fn n_sent_to(&self, address: &str) -> [u64; 2] {
        self.balancers
            .each_ref()
            .map(|balancer| balancer.n_sent_to(address))
    }
}

impl Outcome {
    /// Stops a replica by SIGTERM, and waits until it has ended with exit code 0.
    async fn stop(&mut self, program: &mut Program, stage: &Stage) {
        let address = program.address().to_owned();
        let before = stage.n_sent_to(&address);
        program.terminate();
        wait::until("it is left or gone", Duration::from_secs(60), async || {
            (stage.have_left(&address) || program.has_ended()).then_some(())
        })
        .await;
        let after = stage.n_sent_to(&address);
        let n_sent = after.iter().zip(before);
        for (sum, (after, before)) in self.n_sent_while_stopping.iter_mut().zip(n_sent) {
            *sum += after - before;
        }
        // These metrics are the last of this replica: nobody asks it for numbers any more.
        match program.client().get("/metrics").await {
            Ok(reply) => self.count(&Scrape::parse(&reply.body)),
            Err(_) => self.n_cut_short += 1,
        }
        self.end(program).await;
    }

    /// Stops replicas that nobody calls any more.
    async fn stop_all(&mut self, mut programs: Vec<Program>) {
        for program in &programs {
            self.count(&Scrape::of(&program.client()).await);
            program.terminate();
        }
        for program in &mut programs {
            self.end(program).await;
        }
    }

    fn count(&mut self, scrape: &Scrape) {
        self.n_issued += scrape.sum("odometer_numbers_issued_total", &[]);
        self.n_abandoned += scrape.n_abandoned();
    }

    /// Waits for the end of a replica after its SIGTERM, and adds the numbers that it had to
    /// abandon.
    async fn end(&mut self, program: &mut Program) {
        let code = program.end().await;
        let log = program.log();
        assert_eq!(code, Some(0), "it did not stop well:\n{log}");
        let warnings = log
            .lines()
            .filter(|line| line.contains(r#""level":"WARN""#));
        self.warnings.extend(warnings.map(str::to_owned));
        let counts: Vec<f64> = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|line| line.get("abandoned")?.as_f64())
            .collect();
        assert!(!counts.is_empty(), "no word of abandoned numbers:\n{log}");
        self.n_abandoned += counts.iter().sum::<f64>();
    }

    /// Adds the observations of a caller.
    fn add(&mut self, other: Self) {
        self.ledger.merge(other.ledger);
        self.failures.extend(other.failures);
        self.n_turned_away += other.n_turned_away;
    }

    async fn look_into(&mut self, database: &TestDatabase) {
        for row in database.query("SELECT fate FROM block").await {
            let fate: String = row.try_get_by_index(0).expect("a text");
            self.n_returned += usize::from(fate == "returned");
            self.n_adopted += usize::from(fate == "adopted");
        }
    }

    /// Returns reserved numbers that no caller got and that do not wait in the store for an
    /// adopter. Also returns rows of the journal with a wrong fate. Every lost reply shows here,
    /// because its number does.
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

fn name(number: usize) -> String {
    format!("rolling-{number}")
}

/// Starts the load: callers of both balancers, at even intervals, until the stage is over.
fn call(stage: &Arc<Stage>) -> Vec<JoinHandle<Outcome>> {
    let addresses = stage.balancers.iter().map(Balancer::address);
    addresses
        .flat_map(|address| [address; N_CALLERS])
        .map(|address| tokio::spawn(call_until_over(Arc::clone(stage), address.to_owned())))
        .collect()
}

async fn call_until_over(stage: Arc<Stage>, address: String) -> Outcome {
    let mut seen = Outcome::default();
    let mut kept: Option<Connection> = None;
    let mut turn = tokio::time::interval(BETWEEN_TWO_CALLS);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stage.over.load(Ordering::Relaxed) {
        turn.tick().await;
        let sequence = name(dice::roll(0..N_SEQUENCES));
        let path = some_path(&sequence);
        let mut connection = match kept.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => Connection::open(&address).await,
        };
        let request = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let reply = connection.try_exchange(request.as_bytes());
        let reply = tokio::time::timeout(REPLY_LIMIT, reply).await;
        let Ok(Some(reply)) = reply else {
            seen.failures.push(format!("{path}: no reply"));
            continue;
        };
        if reply.header("connection") != Some("close") {
            kept = Some(connection);
        }
        let n_given = seen.note(&sequence, &path, &reply);
        stage.n_given.fetch_add(n_given, Ordering::Relaxed);
    }
    seen
}

fn some_path(sequence: &str) -> String {
    let n = dice::roll(1..=20);
    match dice::roll(0..8) {
        0 => format!("/v1/sequences/{sequence}/blocks?size={n}"),
        1 => format!("/v1/sequences/{sequence}/next?count={n}"),
        _ => format!("/v1/sequences/{sequence}/next"),
    }
}

impl Outcome {
    /// Classifies the reply to one call, and returns how many numbers it gave.
    fn note(&mut self, sequence: &str, path: &str, reply: &Reply) -> u64 {
        if reply.status == 200 {
            let ranges = reply.numbers();
            self.ledger.record(sequence, &ranges);
            return ranges.iter().map(|range| range.count).sum();
        }
        if reply.header("balancer") == Some("none-ready") {
            self.n_turned_away += 1;
        } else {
            self.failures.push(format!("{path}: {reply:?}"));
        }
        0
    }
}
