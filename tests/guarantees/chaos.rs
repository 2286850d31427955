//! Replicas are killed again and again, while callers mix all three ways to get numbers.

use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::support::{
    Answer, Backend, Client, Ledger, Options, Program, Range, Scrape, TestDatabase, dice,
    for_each_backend, for_each_server, settings,
};

const N_CALLERS: usize = 16;
const N_SEQUENCES: usize = 20;
/// The most numbers that one call asks for, as `count` and as `size`.
const MAX_AT_ONCE: u64 = 50;
const BETWEEN_KILLS: Duration = Duration::from_secs(2);
/// The least counts of a run. Below them the run has not met what it tests.
const MIN_RESERVATIONS: f64 = 1_000.0;
const MIN_CONFLICTS: f64 = 100.0;

for_each_backend!(replicas_killed_at_random_never_repeat_a_number);

async fn replicas_killed_at_random_never_repeat_a_number(backend: Backend) {
    let size = settings::at_size(Size::new(100_000, 10), Size::new(5_000_000, 200));
    let database = TestDatabase::prepared(backend).await;
    let outcome = chaos(&database, &Program::options(), size).await;

    assert_eq!(outcome.refusals, Vec::<String>::new(), "from the living");
    assert_eq!(outcome.ledger.n_duplicates(), 0, "numbers given twice");
    for (sequence, high_water_mark) in &outcome.high_water_marks {
        let highest = outcome.ledger.highest(sequence);
        assert!(
            highest < Some(*high_water_mark),
            "{sequence}: {highest:?} was given, {high_water_mark} is the first that is free"
        );
        // A replica may have reserved more since it described the sequence.
        let stored = database.next_value(sequence).await;
        assert!(stored >= Some(*high_water_mark), "{sequence}: {stored:?}");
    }
    assert_eq!(outcome.ledger.sequences().count(), N_SEQUENCES);
    assert!(
        outcome.n_reserved >= MIN_RESERVATIONS,
        "vacuous: {} reservations",
        outcome.n_reserved
    );
    assert!(
        backend == Backend::Sqlite || outcome.n_conflicts >= MIN_CONFLICTS,
        "vacuous: {} conflicts",
        outcome.n_conflicts
    );
    println!("{backend:?}: {outcome}");
}

for_each_server!(without_its_conditions_the_same_run_finds_numbers_given_twice);

async fn without_its_conditions_the_same_run_finds_numbers_given_twice(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("no-conditions");
    let outcome = chaos(&database, &options, Size::new(5_000, 1)).await;
    assert!(
        outcome.ledger.n_duplicates() > 0,
        "the check finds nothing: {outcome}"
    );
}

/// The size of a run, which is over when both counts are reached.
#[derive(Clone, Copy)]
struct Size {
    n_numbers: u64,
    n_kills: u64,
}

impl Size {
    fn new(n_numbers: u64, n_kills: u64) -> Self {
        Self { n_numbers, n_kills }
    }
}

struct Outcome {
    ledger: Ledger,
    /// Answers of live replicas other than the numbers asked for, and missing replies of replicas
    /// that were not killed.
    refusals: Vec<String>,
    high_water_marks: Vec<(String, i64)>,
    n_reserved: f64,
    n_conflicts: f64,
    n_kills: u64,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} numbers, {} twice, {} kills, at least {} reservations and {} conflicts",
            self.ledger.n_numbers(),
            self.ledger.n_duplicates(),
            self.n_kills,
            self.n_reserved,
            self.n_conflicts
        )
    }
}

/// One start of a replica, from the callers' view.
struct Incarnation {
    client: Client,
    /// Set before the replica is killed. From then on a call may get no reply.
    killed: AtomicBool,
}

/// The state that the callers share with the task that kills.
struct Stage {
    replicas: Vec<RwLock<Arc<Incarnation>>>,
    n_given: AtomicU64,
    over: AtomicBool,
}

async fn chaos(database: &TestDatabase, options: &Options, size: Size) -> Outcome {
    let options = options
        .clone()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", MAX_AT_ONCE);
    let mut programs = Vec::new();
    for _ in 0..database.backend.replicas(3) {
        programs.push(options.start_ready().await);
    }
    let stage = Arc::new(Stage {
        replicas: programs
            .iter()
            .map(|p| RwLock::new(incarnation(p)))
            .collect(),
        n_given: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let callers: Vec<_> = (0..N_CALLERS)
        .map(|_| tokio::spawn(call_until_over(Arc::clone(&stage))))
        .collect();

    let mut n_kills = 0;
    let mut n_reserved = 0.0;
    let mut n_conflicts = 0.0;
    while n_kills < size.n_kills || stage.n_given.load(Ordering::Relaxed) < size.n_numbers {
        let next_kill = Instant::now() + BETWEEN_KILLS;
        tokio::time::sleep_until(next_kill.into()).await;
        let victim = dice::roll(0..programs.len());
        let scrape = Scrape::of(&programs[victim].client()).await;
        n_reserved += scrape.n_reservations("reserved");
        n_conflicts += scrape.n_reservations("conflict");
        stage.current(victim).killed.store(true, Ordering::SeqCst);
        programs[victim].kill();
        n_kills += 1;
        programs[victim] = options.start_ready().await;
        stage.replace(victim, incarnation(&programs[victim]));
    }
    stage.over.store(true, Ordering::Relaxed);

    let mut ledger = Ledger::default();
    let mut refusals = Vec::new();
    for caller in callers {
        let (given, refused) = caller.await.expect("a caller does not panic");
        ledger.merge(given);
        refusals.extend(refused);
    }
    let mut high_water_marks = Vec::new();
    for sequence in ledger.sequences() {
        let description = programs[0].client().describe(sequence).await;
        let mark = Range::identifier(&description["state"]["high_water_mark"]);
        high_water_marks.push((sequence.to_owned(), mark));
    }
    for program in &programs {
        let scrape = Scrape::of(&program.client()).await;
        n_reserved += scrape.n_reservations("reserved");
        n_conflicts += scrape.n_reservations("conflict");
    }
    Outcome {
        ledger,
        refusals,
        high_water_marks,
        n_reserved,
        n_conflicts,
        n_kills,
    }
}

fn incarnation(program: &Program) -> Arc<Incarnation> {
    Arc::new(Incarnation {
        client: program.client(),
        killed: AtomicBool::new(false),
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
}

async fn call_until_over(stage: Arc<Stage>) -> (Ledger, Vec<String>) {
    let mut ledger = Ledger::default();
    let mut refusals = Vec::new();
    while !stage.over.load(Ordering::Relaxed) {
        let replica = stage.current(dice::roll(0..stage.replicas.len()));
        if replica.killed.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let sequence = format!("chaos-{}", dice::roll(0..N_SEQUENCES));
        let n = dice::roll(1..=MAX_AT_ONCE);
        let (n, path) = match dice::roll(0..3) {
            0 => (1, format!("/v1/sequences/{sequence}/next")),
            1 => (n, format!("/v1/sequences/{sequence}/next?count={n}")),
            _ => (n, format!("/v1/sequences/{sequence}/blocks?size={n}")),
        };
        match replica.client.ask(&path).await {
            Answer::Given(ranges) => {
                let n_given: u64 = ranges.iter().map(|range| range.count).sum();
                if n_given != n {
                    refusals.push(format!("{path}: {ranges:?}"));
                }
                stage.n_given.fetch_add(n_given, Ordering::Relaxed);
                ledger.record(&sequence, &ranges);
            }
            Answer::Refused(reply) => refusals.push(format!("{path}: {reply:?}")),
            Answer::NoReply(error) if !replica.killed.load(Ordering::SeqCst) => {
                refusals.push(format!("{path}: {error:?}"));
            }
            Answer::NoReply(_) => {}
        }
    }
    (ledger, refusals)
}
