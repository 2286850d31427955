//! Connections to the database are cut in the middle of a request: before it arrives, before its
//! reply, and within it.
//!
//! Every reply of the program arrives, so that each number reserved is given, given back, or
//! counted as abandoned.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    Answer, Backend, Client, CutPoint, Ledger, Options, Program, Proxy, Range, Scrape, Server,
    TestDatabase, for_each_server, settings, wait,
};

const N_CALLERS: usize = 8;
const N_SEQUENCES: usize = 4;
/// The largest block, and the most that one call asks for.
const MOST_AT_ONCE: u64 = 20;
/// "At most two blocks a cut."
const BLOCKS_A_CUT: u64 = 2;
/// Numbers given between two cuts, so that every name has reserved again.
const BETWEEN_CUTS: u64 = 400;
/// A cut that no reservation was under is made again, so often at most.
const MOST_TRIES: usize = 50;
/// Cuts after which a replica is stopped and started, so that blocks are returned and adopted.
const CUTS_A_START: usize = 5;

for_each_server!(every_number_lost_to_a_cut_is_counted);

async fn every_number_lost_to_a_cut_is_counted(backend: Backend) {
    for point in points() {
        let outcome = cuts(backend, &Program::options(), 1, point, size()).await;
        println!("{point:?}: {outcome}");
        outcome.check();
        // Alone with its counter, the program knows exactly what became of it.
        assert_eq!(outcome.n_lost, outcome.n_counted, "{point:?}: {outcome}");
    }
}

for_each_server!(replicas_whose_connections_are_cut_count_no_less_than_is_lost);

async fn replicas_whose_connections_are_cut_count_no_less_than_is_lost(backend: Backend) {
    for point in points() {
        let outcome = cuts(backend, &Program::options(), 2, point, size()).await;
        println!("{point:?}: {outcome}");
        outcome.check();
        assert!(outcome.n_lost <= outcome.n_counted, "{point:?}: {outcome}");
    }
}

for_each_server!(without_its_conditions_cuts_repeat_numbers);

async fn without_its_conditions_cuts_repeat_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-conditions");
    let outcome = cuts(backend, &options, 2, CutPoint::BeforeReply, 2).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome}"
    );
}

for_each_server!(numbers_lost_and_not_counted_are_found_out);

async fn numbers_lost_and_not_counted_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("uncounted");
    let outcome = cuts(backend, &options, 1, CutPoint::BeforeReply, 2).await;
    assert!(
        outcome.n_lost > outcome.n_counted,
        "the check finds nothing: {outcome}"
    );
}

fn points() -> [CutPoint; 3] {
    // A reply's header has four bytes and five; within it, and behind it.
    let n_bytes = rand::random_range(1..=10);
    [
        CutPoint::BeforeForwarding,
        CutPoint::BeforeReply,
        CutPoint::WithinReply(n_bytes),
    ]
}

/// Cuts that a reservation is under, for each point.
fn size() -> usize {
    settings::at_size(2, 20)
}

#[derive(Default)]
struct Outcome {
    ledger: Ledger,
    /// What was neither a number nor 503.
    failures: Vec<String>,
    n_cuts: usize,
    /// Cuts that a reservation was under.
    n_met: usize,
    /// Numbers neither given nor given back.
    n_lost: u64,
    /// Numbers that the program says are abandoned.
    n_counted: u64,
    n_adopted: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} numbers, {} twice, {} lost, {} counted, {} cuts of which {} met a reservation, \
             {} blocks adopted",
            self.ledger.n_numbers(),
            self.ledger.n_duplicates(),
            self.n_lost,
            self.n_counted,
            self.n_cuts,
            self.n_met,
            self.n_adopted
        )
    }
}

impl Outcome {
    fn check(&self) {
        assert_eq!(self.failures, Vec::<String>::new());
        assert_eq!(self.ledger.n_duplicates(), 0, "{self}");
        assert!(self.n_met >= size(), "vacuous: {self}");
        let most = u64::try_from(self.n_cuts).expect("few") * BLOCKS_A_CUT * MOST_AT_ONCE;
        assert!(self.n_lost <= most, "{self}");
    }

    /// Stops a replica and notes what it says of numbers it abandoned.
    async fn stop(&mut self, program: Program) {
        let scrape = Scrape::of(&program.client()).await;
        self.n_counted += to_count(scrape.n_abandoned());
        let log = program.stop().await;
        let counts: Vec<u64> = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter_map(|line| line.get("abandoned")?.as_u64())
            .collect();
        assert!(!counts.is_empty(), "no word of abandoned numbers:\n{log}");
        self.n_counted += counts.iter().sum::<u64>();
    }

    async fn look_at(&mut self, database: &TestDatabase) {
        for sequence in (0..N_SEQUENCES).map(name) {
            let next_value = database.next_value(&sequence).await.expect("it was used");
            let mut accounted = Ledger::default();
            accounted.record(&sequence, self.ledger.given(&sequence));
            for row in database.journal(&sequence).await {
                self.n_adopted += usize::from(row.fate == "adopted");
                if row.fate == "returned" && row.next_unissued <= row.last {
                    accounted.record(&sequence, &[Range::between(row.next_unissued, row.last)]);
                }
            }
            let gaps = accounted.gaps(&sequence, Range::between(1, next_value - 1));
            self.n_lost += gaps.iter().map(|gap| gap.count).sum::<u64>();
        }
    }
}

async fn cuts(
    backend: Backend,
    options: &Options,
    n_replicas: usize,
    point: CutPoint,
    n_wanted: usize,
) -> Outcome {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let options = options
        .clone()
        .database(&database.url_through(&proxy, server))
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 5)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", MOST_AT_ONCE);
    let mut outcome = Outcome::default();
    while outcome.n_met < n_wanted {
        let mut programs = Vec::new();
        for _ in 0..n_replicas {
            programs.push(options.start_ready().await);
        }
        let load = Arc::new(Load::default());
        let callers: Vec<_> = programs
            .iter()
            .cycle()
            .take(N_CALLERS)
            .map(|program| tokio::spawn(call_until_over(program.client(), Arc::clone(&load))))
            .collect();
        let n_wanted_now = (outcome.n_met + CUTS_A_START).min(n_wanted);
        for _ in 0..MOST_TRIES {
            if outcome.n_met >= n_wanted_now {
                break;
            }
            let n_before = n_uncertain(&programs).await;
            cut(&proxy, point).await;
            load.goes_on().await;
            outcome.n_cuts += 1;
            outcome.n_met += usize::from(n_uncertain(&programs).await > n_before);
        }
        load.over.store(true, Ordering::Relaxed);
        for caller in callers {
            let (given, failed) = caller.await.expect("a caller does not panic");
            outcome.ledger.merge(given);
            outcome.failures.extend(failed);
        }
        for program in programs {
            outcome.stop(program).await;
        }
        if outcome.n_cuts >= MOST_TRIES * n_wanted {
            break;
        }
    }
    outcome.look_at(&database).await;
    outcome
}

/// Cuts one connection at `point`, and waits until it is.
async fn cut(proxy: &Proxy, point: CutPoint) {
    let n_before = proxy.n_cuts();
    proxy.cut_next(point);
    wait::until("a request is cut", Duration::from_secs(20), async || {
        (proxy.n_cuts() > n_before).then_some(())
    })
    .await;
}

async fn n_uncertain(programs: &[Program]) -> u64 {
    let mut n_uncertain = 0;
    for program in programs {
        let scrape = Scrape::of(&program.client()).await;
        n_uncertain += to_count(scrape.n_reservations("uncertain"));
    }
    n_uncertain
}

#[derive(Default)]
struct Load {
    n_given: [AtomicU64; N_SEQUENCES],
    over: AtomicBool,
}

impl Load {
    /// Waits until enough more numbers were given of each name.
    async fn goes_on(&self) {
        for n_given in &self.n_given {
            let wanted = n_given.load(Ordering::Relaxed) + BETWEEN_CUTS / 4;
            wait::until(
                "numbers are given again",
                Duration::from_secs(60),
                async || (n_given.load(Ordering::Relaxed) >= wanted).then_some(()),
            )
            .await;
        }
    }
}

fn name(number: usize) -> String {
    format!("cut-{number}")
}

async fn call_until_over(client: Client, load: Arc<Load>) -> (Ledger, Vec<String>) {
    let mut ledger = Ledger::default();
    let mut failures = Vec::new();
    while !load.over.load(Ordering::Relaxed) {
        let number = rand::random_range(0..N_SEQUENCES);
        let sequence = name(number);
        let n = rand::random_range(1..=MOST_AT_ONCE);
        let path = match rand::random_range(0..3) {
            0 => format!("/v1/sequences/{sequence}/next"),
            1 => format!("/v1/sequences/{sequence}/next?count={n}"),
            _ => format!("/v1/sequences/{sequence}/blocks?size={n}"),
        };
        match client.ask(&path).await {
            Answer::Given(ranges) => {
                let n_given = ranges.iter().map(|range| range.count).sum();
                if let Some(sum) = load.n_given.get(number) {
                    sum.fetch_add(n_given, Ordering::Relaxed);
                }
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

/// A counter of whole things.
fn to_count(value: f64) -> u64 {
    format!("{value:.0}").parse().expect("a count")
}
