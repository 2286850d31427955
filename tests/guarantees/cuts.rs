//! Connections to the database are cut in the middle of a request: before it arrives, before its
//! reply, and within its reply.
//!
//! Every reply of the program arrives. So each reserved number is issued, returned, or counted as
//! abandoned.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::support::{
    Answer, Backend, Client, CutPoint, Ledger, Options, Program, Proxy, Range, Scrape, Server,
    TestDatabase, dice, for_each_server, settings, wait,
};

const N_CALLERS: usize = 8;
const N_SEQUENCES: usize = 4;
/// The largest block, and the most numbers that one call asks for.
const MAX_AT_ONCE: u64 = 20;
/// The promised bound of the loss: "At most two blocks a cut."
const BLOCKS_A_CUT: u64 = 2;
/// How many numbers are issued between two cuts, so that every name reserves again.
const BETWEEN_CUTS: u64 = 400;
/// The most attempts to cut while a reservation is under way.
const MAX_TRIES: usize = 50;
/// The most requests before a cut. It is low, so that a cut can meet the requests by which a start
/// adopts returned blocks.
const MAX_PASSED: usize = 12;

for_each_server!(every_number_lost_to_a_cut_is_counted);

async fn every_number_lost_to_a_cut_is_counted(backend: Backend) {
    for point in points() {
        let run = Run::new(1, point, size());
        let outcome = run.cuts(backend, &Program::options()).await;
        println!("{point:?}: {outcome}");
        outcome.check();
        // No other replica uses the counter, so the program knows exactly what became of the block.
        assert_eq!(outcome.n_lost, outcome.n_counted, "{point:?}: {outcome}");
    }
}

for_each_server!(replicas_whose_connections_are_cut_count_no_less_than_is_lost);

async fn replicas_whose_connections_are_cut_count_no_less_than_is_lost(backend: Backend) {
    for point in points() {
        let run = Run::new(2, point, size());
        let outcome = run.cuts(backend, &Program::options()).await;
        println!("{point:?}: {outcome}");
        outcome.check();
        assert!(outcome.n_lost <= outcome.n_counted, "{point:?}: {outcome}");
    }
}

for_each_server!(without_its_conditions_cuts_repeat_numbers);

async fn without_its_conditions_cuts_repeat_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-conditions");
    let run = Run::new(2, CutPoint::BeforeReply, 2);
    let outcome = run.cuts(backend, &options).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome}"
    );
}

for_each_server!(numbers_lost_and_not_counted_are_found_out);

async fn numbers_lost_and_not_counted_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("uncounted");
    let mut run = Run::new(1, CutPoint::BeforeReply, 10);
    // With this fault the program does not count lost numbers, so an uncertain outcome shows that
    // the cut met a reservation.
    run.met = Met::Uncertain;
    let outcome = run.cuts(backend, &options).await;
    assert!(
        outcome.n_lost > outcome.n_counted,
        "the check finds nothing: {outcome}"
    );
}

fn points() -> [CutPoint; 3] {
    // A reply's header has four or five bytes. The cut is within the header or behind it.
    let n_bytes = dice::roll(1..=10);
    [
        CutPoint::BeforeForwarding,
        CutPoint::BeforeReply,
        CutPoint::WithinReply(n_bytes),
    ]
}

/// Returns how many cuts must meet a reservation, for each point.
fn size() -> usize {
    settings::at_size(2, 20)
}

#[derive(Default)]
struct Outcome {
    ledger: Ledger,
    /// Answers that were neither a number nor 503.
    failures: Vec<String>,
    n_cuts: usize,
    /// Cuts that met a reservation.
    n_met: usize,
    /// Numbers that were neither issued nor returned.
    n_lost: u64,
    /// Numbers that the program counted as abandoned.
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
        assert!(self.n_adopted > 0, "vacuous: {self}");
        let most = u64::try_from(self.n_cuts).expect("few") * BLOCKS_A_CUT * MAX_AT_ONCE;
        assert!(self.n_lost <= most, "{self}");
    }

    /// Stops a replica, and adds the numbers that it counted as abandoned.
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

/// The sign that a cut met a reservation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    /// A write with an unknown outcome.
    Uncertain,
    /// Such a write that was made, so that its numbers are lost.
    Abandoned,
}

struct Run {
    n_replicas: usize,
    point: CutPoint,
    met: Met,
    /// How many cuts must meet a reservation.
    n_wanted: usize,
}

impl Run {
    fn new(n_replicas: usize, point: CutPoint, n_wanted: usize) -> Self {
        let met = match point {
            CutPoint::BeforeForwarding => Met::Uncertain,
            CutPoint::BeforeReply | CutPoint::WithinReply(_) => Met::Abandoned,
        };
        Self {
            n_replicas,
            point,
            met,
            n_wanted,
        }
    }

    async fn cuts(&self, backend: Backend, options: &Options) -> Outcome {
        let server = Server::shared(backend).await;
        let proxy = Proxy::to(server.port()).await;
        let database = TestDatabase::prepared(backend).await;
        let options = options
            .clone()
            .database(&database.url_through(&proxy, server))
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 5)
            .env("ODOMETER_DEFAULT__BLOCK__MAX", MAX_AT_ONCE);
        let cuts_a_start = settings::at_size(1, 5);
        let mut outcome = Outcome::default();
        while outcome.n_met < self.n_wanted && outcome.n_cuts < MAX_TRIES * self.n_wanted {
            let n_wanted_now = (outcome.n_met + cuts_a_start).min(self.n_wanted);
            // The replicas stop and start between the cuts, so that blocks are returned and
            // adopted.
            self.start_cut_stop(&options, &proxy, n_wanted_now, &mut outcome)
                .await;
        }
        outcome.look_at(&database).await;
        outcome
    }

    async fn start_cut_stop(
        &self,
        options: &Options,
        proxy: &Proxy,
        n_wanted: usize,
        outcome: &mut Outcome,
    ) {
        let mut programs = Vec::new();
        for _ in 0..self.n_replicas {
            programs.push(options.start_ready().await);
        }
        let load = Arc::new(Load::default());
        let mut callers = Vec::new();
        for _ in 0..MAX_TRIES {
            if outcome.n_met >= n_wanted {
                break;
            }
            let n_before = self.n_met(&programs).await;
            let n_cuts = proxy.n_cuts();
            proxy.cut_after(dice::roll(0..MAX_PASSED), self.point);
            if callers.is_empty() {
                callers.extend(call(&programs, &load));
            }
            wait::until("a request is cut", Duration::from_secs(60), async || {
                (proxy.n_cuts() > n_cuts).then_some(())
            })
            .await;
            load.goes_on().await;
            outcome.n_cuts += 1;
            outcome.n_met += usize::from(self.n_met(&programs).await > n_before);
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
    }

    async fn n_met(&self, programs: &[Program]) -> u64 {
        let mut n_met = 0;
        for program in programs {
            let scrape = Scrape::of(&program.client()).await;
            n_met += to_count(match self.met {
                Met::Uncertain => scrape.n_reservations("uncertain"),
                Met::Abandoned => scrape.n_abandoned(),
            });
        }
        n_met
    }
}

fn call(programs: &[Program], load: &Arc<Load>) -> Vec<JoinHandle<(Ledger, Vec<String>)>> {
    programs
        .iter()
        .cycle()
        .take(N_CALLERS)
        .map(|program| tokio::spawn(call_until_over(program.client(), Arc::clone(load))))
        .collect()
}

#[derive(Default)]
struct Load {
    n_given: [AtomicU64; N_SEQUENCES],
    over: AtomicBool,
}

impl Load {
    /// Waits until enough more numbers of each name were issued.
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
        let number = dice::roll(0..N_SEQUENCES);
        let sequence = name(number);
        let n = dice::roll(1..=MAX_AT_ONCE);
        let path = match dice::roll(0..3) {
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

/// Converts the value of a counter to a whole number.
fn to_count(value: f64) -> u64 {
    format!("{value:.0}").parse().expect("a count")
}
