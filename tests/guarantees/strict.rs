//! Numbers of a strict sequence ascend over all replicas in real time: whoever was answered before
//! another one called has the lower number.

use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Link, Options, Program, Proxy, Range, Scrape, Server,
    TestDatabase, for_each_server, settings, wait,
};

const SEQUENCE: &str = "strict";
const N_REPLICAS: usize = 2;
const N_CALLERS: usize = 32;
/// The most that one call asks for, as `count` and as `size`.
const MOST_AT_ONCE: u64 = 20;
/// Calls for one update, at least.
const MIN_SHARED: f64 = 4.0;
/// A replica that hears of its writes so much later than the other one.
const FAR: Duration = Duration::from_millis(20);
/// How long anything that has to come may take.
const LIMIT: Duration = Duration::from_secs(60);
const BETWEEN_KILLS: Duration = Duration::from_millis(700);

for_each_server!(a_strict_sequence_ascends_over_replicas_in_real_time);

async fn a_strict_sequence_ascends_over_replicas_in_real_time(backend: Backend) {
    let n_calls = settings::at_size(20_000, 500_000);
    let database = TestDatabase::prepared(backend).await;
    let outcome = at_one_distance(&database, Program::options(), "strict", n_calls).await;
    outcome.assert_sound();
    let n_shared = outcome.n_calls_for_one_update();
    assert!(n_shared >= MIN_SHARED, "too many updates: {outcome}");
    println!("{backend:?}: {outcome}, {n_shared:.1} calls for each update");
}

for_each_server!(a_strict_sequence_ascends_where_one_replica_is_far_from_its_database);

async fn a_strict_sequence_ascends_where_one_replica_is_far_from_its_database(backend: Backend) {
    let n_calls = settings::at_size(3_000, 50_000);
    let outcome = at_two_distances(backend, Program::options(), n_calls).await;
    outcome.assert_sound();
    println!("{backend:?}: {outcome}");
}

for_each_server!(a_relaxed_sequence_does_not_ascend_over_replicas);

async fn a_relaxed_sequence_does_not_ascend_over_replicas(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let outcome = at_one_distance(&database, Program::options(), "relaxed", 2_000).await;
    assert_eq!(outcome.refusals, Vec::<String>::new());
    assert!(outcome.n_violations > 0, "the check finds nothing");
}

for_each_server!(callers_that_share_a_write_sent_before_they_came_are_found_out);

async fn callers_that_share_a_write_sent_before_they_came_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("strict-shares-late");
    let outcome = at_two_distances(backend, options, 3_000).await;
    assert_eq!(outcome.ledger.n_duplicates(), 0, "{outcome}");
    assert!(outcome.n_violations > 0, "the check finds nothing");
    println!("{backend:?}: {outcome}");
}

for_each_server!(a_strict_sequence_ascends_while_replicas_are_killed);

async fn a_strict_sequence_ascends_while_replicas_are_killed(backend: Backend) {
    let n_kills = settings::at_size(5, 100);
    let outcome = killed(backend, Program::options(), n_kills).await;
    outcome.assert_sound();
    println!("{backend:?}: {outcome}, {n_kills} kills");
}

for_each_server!(without_its_conditions_a_strict_sequence_repeats_numbers);

async fn without_its_conditions_a_strict_sequence_repeats_numbers(backend: Backend) {
    let options = Program::options().without_guards("no-conditions");
    let outcome = killed(backend, options, 1).await;
    assert!(outcome.ledger.n_duplicates() > 0, "the check finds nothing");
    assert!(outcome.n_violations > 0, "the check finds nothing");
}

for_each_server!(a_strict_write_nobody_heard_of_costs_its_numbers_only);

async fn a_strict_write_nobody_heard_of_costs_its_numbers_only(backend: Backend) {
    let n_cuts = settings::at_size(4, 100);
    let (outcome, n_abandoned) = cut(backend, Program::options(), n_cuts).await;
    outcome.assert_sound();
    let n_missing = outcome.n_missing();
    assert!(n_missing > 0, "vacuous: no number is missing: {outcome}");
    assert!(
        n_abandoned >= f64::from(n_missing),
        "{n_missing} missing, {n_abandoned} counted: {outcome}"
    );
    println!("{backend:?}: {outcome}, {n_missing} missing, {n_abandoned} counted");
}

for_each_server!(numbers_a_strict_sequence_lost_uncounted_are_found_out);

async fn numbers_a_strict_sequence_lost_uncounted_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("uncounted");
    let (outcome, n_abandoned) = cut(backend, options, 4).await;
    let n_missing = outcome.n_missing();
    assert!(
        n_abandoned < f64::from(n_missing),
        "the check finds nothing: {n_missing} missing, {n_abandoned} counted"
    );
}

/// One call that got numbers.
struct Call {
    replica: usize,
    sent: Instant,
    answered: Instant,
    first: i64,
    last: i64,
}

struct Outcome {
    ledger: Ledger,
    n_calls: usize,
    /// Calls that got a number below one that somebody had before they were sent.
    n_violations: usize,
    /// How often the next number up is another replica's.
    n_changes_of_replica: usize,
    refusals: Vec<String>,
    n_updates: f64,
}

impl Outcome {
    fn of(mut calls: Vec<Call>, refusals: Vec<String>, n_updates: f64) -> Self {
        let n_violations = n_violations(&calls);
        calls.sort_unstable_by_key(|call| call.first);
        let mut ledger = Ledger::default();
        for call in &calls {
            ledger.record(SEQUENCE, &[Range::between(call.first, call.last)]);
        }
        let neighbours = calls.windows(2);
        Self {
            ledger,
            n_calls: calls.len(),
            n_violations,
            n_changes_of_replica: neighbours
                .filter(|two| two[0].replica != two[1].replica)
                .count(),
            refusals,
            n_updates,
        }
    }

    fn assert_sound(&self) {
        let refusals: Vec<&String> = self.refusals.iter().take(10).collect();
        assert_eq!(refusals, Vec::<&String>::new(), "{self}");
        assert_eq!(self.ledger.n_duplicates(), 0, "numbers given twice: {self}");
        assert_eq!(self.n_violations, 0, "not in the order of time: {self}");
        assert!(
            self.n_changes_of_replica >= self.n_calls / 200,
            "vacuous: the replicas took no turns: {self}"
        );
    }

    /// Numbers below the highest given that nobody was given.
    fn n_missing(&self) -> u32 {
        let highest = self.ledger.highest(SEQUENCE).expect("numbers were given");
        let gaps = self.ledger.gaps(SEQUENCE, Range::between(1, highest));
        let n_missing: u64 = gaps.iter().map(|gap| gap.count).sum();
        u32::try_from(n_missing).expect("so many numbers are not lost")
    }

    fn n_calls_for_one_update(&self) -> f64 {
        let n_calls = u32::try_from(self.n_calls).expect("so many calls are not made");
        f64::from(n_calls) / self.n_updates
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} calls, {} numbers, {} twice, {} calls out of order, {} updates, {} changes of \
             replica",
            self.n_calls,
            self.ledger.n_numbers(),
            self.ledger.n_duplicates(),
            self.n_violations,
            self.n_updates,
            self.n_changes_of_replica
        )
    }
}

/// Calls that got a number below one that was answered before they were sent.
fn n_violations(calls: &[Call]) -> usize {
    let mut by_sent: Vec<&Call> = calls.iter().collect();
    by_sent.sort_unstable_by_key(|call| call.sent);
    let mut by_answered: Vec<&Call> = calls.iter().collect();
    by_answered.sort_unstable_by_key(|call| call.answered);
    let mut answered = by_answered.into_iter().peekable();
    let mut highest = i64::MIN;
    let mut n_violations = 0;
    for call in by_sent {
        while let Some(earlier) = answered.next_if(|earlier| earlier.answered < call.sent) {
            highest = highest.max(earlier.last);
        }
        n_violations += usize::from(call.first <= highest);
    }
    n_violations
}

#[test]
fn the_check_finds_a_number_below_one_that_was_there_before() {
    let start = Instant::now();
    let call = |sent: u64, answered: u64, first: i64, last: i64| Call {
        replica: 0,
        sent: start + Duration::from_millis(sent),
        answered: start + Duration::from_millis(answered),
        first,
        last,
    };
    // They overlap in time: either may have the lower number.
    let mut calls = vec![call(0, 10, 5, 9), call(5, 20, 1, 4), call(11, 12, 10, 10)];
    assert_eq!(n_violations(&calls), 0);
    calls.push(call(13, 14, 8, 8));
    assert_eq!(n_violations(&calls), 1);
    calls.push(call(21, 22, 11, 12));
    assert_eq!(n_violations(&calls), 1);
}

/// One start of a replica, as the callers see it.
struct Incarnation {
    client: Client,
    /// Set before it is killed: from then on a call may stay without a reply.
    killed: AtomicBool,
    n_answered: AtomicU64,
}

/// What callers and the one who kills share.
struct Stage {
    replicas: Vec<RwLock<Arc<Incarnation>>>,
    n_answered: AtomicU64,
    over: AtomicBool,
}

impl Stage {
    fn of(programs: &[Program]) -> Arc<Self> {
        Arc::new(Self {
            replicas: programs
                .iter()
                .map(|program| RwLock::new(incarnation(program)))
                .collect(),
            n_answered: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    fn current(&self, replica: usize) -> Arc<Incarnation> {
        let current = self.replicas[replica].read();
        Arc::clone(&current.expect("nobody panics with it"))
    }

    /// Waits until every replica has answered some times more.
    async fn goes_on(&self) {
        for replica in &self.replicas {
            let current = Arc::clone(&replica.read().expect("nobody panics with it"));
            let wanted = current.n_answered.load(Ordering::Relaxed) + 50;
            wait::until("calls are answered", LIMIT, async || {
                (current.n_answered.load(Ordering::Relaxed) >= wanted).then_some(())
            })
            .await;
        }
    }

    fn replace(&self, replica: usize, by: Arc<Incarnation>) {
        let mut current = self.replicas[replica].write().expect("nobody panics");
        *current = by;
    }
}

fn incarnation(program: &Program) -> Arc<Incarnation> {
    Arc::new(Incarnation {
        client: program.client(),
        killed: AtomicBool::new(false),
        n_answered: AtomicU64::new(0),
    })
}

async fn at_one_distance(
    database: &TestDatabase,
    options: Options,
    order: &str,
    n_calls: u64,
) -> Outcome {
    let options = options.database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.start_ready().await);
    }
    called(&programs, order, n_calls).await
}

async fn at_two_distances(backend: Backend, options: Options, n_calls: u64) -> Outcome {
    let server = Server::shared(backend).await;
    let database = TestDatabase::prepared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let far = options
        .clone()
        .database(&database.url_through(&proxy, server))
        .start_ready()
        .await;
    let near = options.database(&database.url).start_ready().await;
    proxy.delay_replies(FAR);
    called(&[far, near], "strict", n_calls).await
}

/// Lets callers call until they have been answered `n_calls` times.
async fn called(programs: &[Program], order: &str, n_calls: u64) -> Outcome {
    let definition = json!({"order": order});
    programs[0].client().define(SEQUENCE, &definition).await;
    let stage = Stage::of(programs);
    let callers = start_callers(&stage);
    wait::until("all are answered", settings::test_limit(), async || {
        (stage.n_answered.load(Ordering::Relaxed) >= n_calls).then_some(())
    })
    .await;
    let (calls, refusals) = stop_callers(&stage, callers).await;
    let mut n_updates = 0.0;
    for program in programs {
        let scrape = Scrape::of(&program.client()).await;
        n_updates += scrape.n_reservations("reserved");
    }
    Outcome::of(calls, refusals, n_updates)
}

/// Kills one replica after the other, and starts it again, while callers go on.
async fn killed(backend: Backend, options: Options, n_kills: usize) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let options = options.database(&database.url);
    let mut programs = Vec::new();
    for _ in 0..N_REPLICAS {
        programs.push(options.start_ready().await);
    }
    let definition = json!({"order": "strict"});
    programs[0].client().define(SEQUENCE, &definition).await;
    let stage = Stage::of(&programs);
    let callers = start_callers(&stage);
    for n_kill in 0..n_kills {
        let next_kill = Instant::now() + BETWEEN_KILLS;
        tokio::time::sleep_until(next_kill.into()).await;
        let victim = n_kill % N_REPLICAS;
        stage.current(victim).killed.store(true, Ordering::SeqCst);
        programs[victim].kill();
        programs[victim] = options.start_ready().await;
        stage.replace(victim, incarnation(&programs[victim]));
    }
    let next_end = Instant::now() + BETWEEN_KILLS;
    tokio::time::sleep_until(next_end.into()).await;
    let (calls, refusals) = stop_callers(&stage, callers).await;
    Outcome::of(calls, refusals, 0.0)
}

/// Loses the replies of one replica's database now and then; also how many numbers were abandoned.
async fn cut(backend: Backend, options: Options, n_cuts: usize) -> (Outcome, f64) {
    let server = Server::shared(backend).await;
    let database = TestDatabase::prepared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let options = options
        .env("ODOMETER_STORE__TIMEOUT", "300ms")
        .env("ODOMETER_REFILL__DEADLINE", "1s");
    let behind = options
        .clone()
        .database(&database.url_through(&proxy, server))
        .start_ready()
        .await;
    let programs = [behind, options.database(&database.url).start_ready().await];
    let definition = json!({"order": "strict"});
    programs[0].client().define(SEQUENCE, &definition).await;
    let stage = Stage::of(&programs);
    let callers = start_callers(&stage);
    for n_cut in 0..n_cuts {
        stage.goes_on().await;
        proxy.set(Link::RepliesLost);
        tokio::time::sleep(Duration::from_millis(100)).await;
        if n_cut % 2 == 0 {
            // Every other time the connections are closed before the timeout closes them.
            proxy.set(Link::Cut);
        } else {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        proxy.set(Link::Whole);
    }
    stage.goes_on().await;
    let (calls, mut refusals) = stop_callers(&stage, callers).await;
    // No number is given by these, and so they are told.
    refusals.retain(|refusal| !refusal.contains("status: 503"));
    let mut n_updates = 0.0;
    let mut n_abandoned = 0.0;
    for program in &programs {
        let scrape = Scrape::of(&program.client()).await;
        n_updates += scrape.n_reservations("reserved");
        n_abandoned += scrape.n_abandoned();
    }
    (Outcome::of(calls, refusals, n_updates), n_abandoned)
}

type Caller = tokio::task::JoinHandle<(Vec<Call>, Vec<String>)>;

fn start_callers(stage: &Arc<Stage>) -> Vec<Caller> {
    let start = |_| tokio::spawn(call_until_over(Arc::clone(stage)));
    (0..N_CALLERS).map(start).collect()
}

async fn stop_callers(stage: &Stage, callers: Vec<Caller>) -> (Vec<Call>, Vec<String>) {
    stage.over.store(true, Ordering::Relaxed);
    let mut calls = Vec::new();
    let mut refusals = Vec::new();
    for caller in callers {
        let (answered, refused) = caller.await.expect("a caller does not panic");
        calls.extend(answered);
        refusals.extend(refused);
    }
    (calls, refusals)
}

/// Calls the replicas in turns, as a service behind a load balancer does.
async fn call_until_over(stage: Arc<Stage>) -> (Vec<Call>, Vec<String>) {
    let mut calls = Vec::new();
    let mut refusals = Vec::new();
    while !stage.over.load(Ordering::Relaxed) {
        let replica = rand::random_range(0..stage.replicas.len());
        let called = stage.current(replica);
        if called.killed.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        let n = rand::random_range(1..=MOST_AT_ONCE);
        let path = match rand::random_range(0..50) {
            0 => format!("/v1/sequences/{SEQUENCE}/blocks?size={n}"),
            1..=4 => format!("/v1/sequences/{SEQUENCE}/next?count={n}"),
            5 => format!("/v1/sequences/{SEQUENCE}/next?count={n}&contiguous=true"),
            _ => format!("/v1/sequences/{SEQUENCE}/next"),
        };
        let sent = Instant::now();
        let answer = called.client.ask(&path).await;
        let answered = Instant::now();
        match answer {
            Answer::Given(ranges) => {
                for range in ranges {
                    calls.push(Call {
                        replica,
                        sent,
                        answered,
                        first: range.first,
                        last: range.last(),
                    });
                }
                called.n_answered.fetch_add(1, Ordering::Relaxed);
                stage.n_answered.fetch_add(1, Ordering::Relaxed);
            }
            Answer::Refused(reply) => refusals.push(format!("{path}: {reply:?}")),
            Answer::NoReply(error) if !called.killed.load(Ordering::SeqCst) => {
                refusals.push(format!("{path}: {error:?}"));
            }
            Answer::NoReply(_) => {}
        }
    }
    (calls, refusals)
}
