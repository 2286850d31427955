//! One mixed load goes on while its database fails over to a copy that lags for a known time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::task::JoinHandle;

use super::fenced::{FENCES, arm};
use super::stage::{MOMENTS, Stage};
use super::{WENT_BACK, is_passing, lossless};
use crate::guarantees::order;
use crate::support::{
    Backend, Client, Ledger, Options, Program, Range, dice, for_each_server, run, settings, wait,
};

/// How far the copies lag behind.
const LAGS_MS: [u64; 5] = [0, 100, 1_000, 5_000, 30_000];
/// How long the load runs before the copy lags, and how long after all are served again.
const BEFORE: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(5);
/// How long after the promotion numbers may be missing, and ids without a living lease.
const LONGEST: Duration = Duration::from_secs(10);
const LONGEST_FOR_IDS: Duration = Duration::from_secs(75);
/// How long a caller waits between two calls.
const PAUSE: Duration = Duration::from_millis(20);
/// The replica that runs before the failover, and the one that starts afterwards.
const OLD: usize = 0;
const FRESH: usize = 1;
/// A lag with which numbers of all kinds are lost.
const LAG: Duration = Duration::from_secs(1);
/// How long two primaries take writes.
const APART: Duration = Duration::from_secs(5);
/// A block that lasts for all calls of a test.
const STOCK: u32 = 50_000;
/// The most numbers of a call.
const MAX_AT_ONCE: u64 = 30;
/// How long a name or a key is the youngest one.
const BETWEEN_BIRTHS_MS: u128 = 250;

/// What a caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Work {
    /// Single numbers of a name.
    Singles,
    /// Several numbers of a name at once.
    Several,
    /// Blocks of a name, from the database itself.
    Blocks,
    /// Numbers in strict order.
    Strict,
    /// Numbers of a name that is as old as this call, or older.
    Births,
    /// Numbers of a key that is as old as this call, or older.
    Keys,
    /// Numbers of the present day.
    Days,
    /// Numbers of a block that lasts longer than the test.
    Stock,
    /// Ids that begin with the time.
    Moments,
}

impl Work {
    /// What a failover loses.
    const LOST: [Self; 7] = [
        Self::Singles,
        Self::Several,
        Self::Blocks,
        Self::Strict,
        Self::Births,
        Self::Keys,
        Self::Days,
    ];

    /// All that a replica with a lease gives soon.
    fn all() -> impl Iterator<Item = Self> + Clone {
        let held = [Self::Stock, Self::Moments];
        Self::LOST.into_iter().chain(held)
    }

    /// All that a replica without a lease gives soon.
    fn soon() -> impl Iterator<Item = Self> + Clone {
        Self::LOST.into_iter().chain([Self::Stock])
    }

    /// Returns the name of a sequence, and how it is asked for numbers. The load runs for `age`.
    fn call(self, age: Duration) -> (String, String) {
        let youngest = age.as_millis() / BETWEEN_BIRTHS_MS;
        // Half of the calls ask for the youngest.
        let one_of = || dice::roll(0..=2 * youngest + 1).min(youngest);
        let n = dice::roll(1..=MAX_AT_ONCE);
        match self {
            Self::Singles => ("orders".to_owned(), "next".to_owned()),
            Self::Several => ("invoices".to_owned(), format!("next?count={n}")),
            Self::Blocks => ("parts".to_owned(), format!("blocks?size={n}")),
            Self::Strict => ("tickets".to_owned(), "next".to_owned()),
            Self::Births => (format!("born-{}", one_of()), "next".to_owned()),
            Self::Keys => ("keyed".to_owned(), format!("next?period=k-{}", one_of())),
            Self::Days => ("daily".to_owned(), "next".to_owned()),
            Self::Stock => ("stock".to_owned(), "next".to_owned()),
            Self::Moments => (MOMENTS.to_owned(), "next".to_owned()),
        }
    }

    /// Starts a replica, and defines what the calls need.
    async fn start(stage: &Stage) -> Program {
        let program = stage.start().await;
        let client = program.client();
        let often = json!({"rate": 10_000, "burst": 1_000_000});
        let keyed = json!({"period": "keyed", "format": "{period}-{value}", "limit": often});
        client.define("keyed", &keyed).await;
        client.define("daily", &json!({"period": "day"})).await;
        let stock = json!({"block": {"min": STOCK, "max": STOCK}});
        client.define("stock", &stock).await;
        program
    }

    /// Returns whether a refusal says that the database is away, or that the numbers rest.
    fn may_wait(self, code: &str) -> bool {
        let rests = self == Self::Moments && code == "clock_behind";
        rests || is_passing(code) || code == WENT_BACK
    }
}

/// Returns how long after the promotion a replica may give nothing. Only the one that starts
/// afterwards has no lease.
fn longest(pair: (usize, Work)) -> Duration {
    match pair {
        (FRESH, Work::Moments) => LONGEST_FOR_IDS,
        _ => LONGEST,
    }
}

/// What is waited for: each kind of work at each of the replicas.
type Wanted = Vec<(usize, Work)>;

fn at(replica: usize, works: impl Iterator<Item = Work>) -> Wanted {
    works.map(|work| (replica, work)).collect()
}

/// A call, and what came of it.
struct Call {
    replica: usize,
    work: Work,
    sent: Instant,
    answered: Instant,
    /// The sequence and the period, and the numbers; or the code of the refusal.
    outcome: Result<(String, Vec<Range>), String>,
}

impl Call {
    /// Returns the sequence and the period, if numbers were given.
    fn key(&self) -> Option<&str> {
        let (key, _ranges) = self.outcome.as_ref().ok()?;
        Some(key)
    }
}

/// A load that callers share.
struct Load {
    begun: Instant,
    is_over: AtomicBool,
    /// How many times the callers met another server.
    n_moves: AtomicUsize,
    /// What each replica served by a call that was sent since the last move.
    served: Mutex<BTreeSet<(usize, Work)>>,
}

impl Load {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            is_over: AtomicBool::new(false),
            n_moves: AtomicUsize::new(0),
            served: Mutex::default(),
        })
    }

    /// Starts a caller for each kind of work.
    fn call(self: &Arc<Self>, replica: usize, program: &Program) -> Callers {
        let client = program.client();
        let start = |work| {
            let caller = Arc::clone(self).call_until_over(replica, client.clone(), work);
            tokio::spawn(caller)
        };
        Work::all().map(start).collect()
    }

    async fn call_until_over(
        self: Arc<Self>,
        replica: usize,
        client: Client,
        work: Work,
    ) -> Vec<Call> {
        let mut calls = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let n_moves = self.n_moves.load(Ordering::SeqCst);
            let (sequence, end) = work.call(self.begun.elapsed());
            let path = format!("/v1/sequences/{sequence}/{end}");
            let sent = Instant::now();
            let reply = client.post(&path).await;
            let answered = Instant::now();
            let reply = reply.unwrap_or_else(|error| panic!("{replica}: {path}: {error}"));
            let outcome = if reply.status == 200 {
                let period = &reply.json()["period"];
                let key = format!("{sequence}/{}", period.as_str().unwrap_or_default());
                self.note((replica, work), n_moves);
                Ok((key, reply.numbers()))
            } else {
                let code = reply.code().unwrap_or_default();
                let is_waiting = reply.status == 503 && work.may_wait(&code);
                assert!(is_waiting, "{replica}: {path}: {reply:?}");
                Err(code)
            };
            calls.push(Call {
                replica,
                work,
                sent,
                answered,
                outcome,
            });
            tokio::time::sleep(PAUSE).await;
        }
        calls
    }

    fn served(&self) -> MutexGuard<'_, BTreeSet<(usize, Work)>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was served by a call that was sent after `n_moves` moves.
    fn note(&self, served: (usize, Work), n_moves: usize) {
        let mut all = self.served();
        if self.n_moves.load(Ordering::SeqCst) == n_moves {
            all.insert(served);
        }
    }

    /// Forgets what was served by the server before.
    fn moves(&self) {
        let mut all = self.served();
        self.n_moves.fetch_add(1, Ordering::SeqCst);
        all.clear();
    }

    /// Waits until all these are served after the last move, or until a caller panics.
    async fn serves(&self, wanted: &Wanted, callers: &Callers) {
        let limit = LONGEST_FOR_IDS + LONGEST;
        wait::until("all are served again", limit, async || {
            let are_all_served = wanted.iter().all(|pair| self.served().contains(pair));
            let is_given_up = callers.iter().any(JoinHandle::is_finished);
            (are_all_served || is_given_up).then_some(())
        })
        .await;
    }

    async fn end(&self, callers: Callers) -> Vec<Call> {
        tokio::time::sleep(AFTER).await;
        self.is_over.store(true, Ordering::Relaxed);
        let mut calls = Vec::new();
        for caller in callers {
            calls.extend(caller.await.expect("a caller does not panic"));
        }
        calls
    }
}

type Callers = Vec<JoinHandle<Vec<Call>>>;

/// What a load saw of a failover.
struct Outcome {
    calls: Vec<Call>,
    /// When the primary was lost, and when its copy began to take writes.
    lost: Instant,
    promoted: Instant,
    /// The first numbers that are not reserved on the copy, by sequence and period.
    kept: BTreeMap<String, i64>,
    n_fences: Option<i64>,
    log: String,
}

/// Runs a load through a failover to a copy that lags. It goes on until `wanted` are served.
async fn fail_over(mut stage: Stage, lag: Duration, wanted: &Wanted) -> Outcome {
    let old = Work::start(&stage).await;
    arm(&stage).await;
    let load = Load::new();
    let mut callers = load.call(OLD, &old);
    tokio::time::sleep(BEFORE).await;
    if !lag.is_zero() {
        stage.catch_up().await;
        stage.hold();
        tokio::time::sleep(lag).await;
    }
    stage.lose_primary();
    let lost = Instant::now();
    stage.promote().await;
    let promoted = Instant::now();
    let kept = counters(&stage).await;
    load.moves();
    stage.lead_to_copy();
    let fresh = stage.options.start().await;
    callers.extend(load.call(FRESH, &fresh));
    load.serves(wanted, &callers).await;
    Outcome {
        calls: load.end(callers).await,
        lost,
        promoted,
        kept,
        n_fences: stage.database.number(FENCES).await,
        log: format!("{}\n{}", old.log(), fresh.log()),
    }
}

/// Runs a load while a copy and its former primary take writes: one replica uses each of them. Then
/// the former primary is lost, and the load goes on until `wanted` are served.
async fn splits(mut stage: Stage, wanted: &Wanted) -> Outcome {
    let old = Work::start(&stage).await;
    arm(&stage).await;
    let load = Load::new();
    let mut callers = load.call(OLD, &old);
    tokio::time::sleep(BEFORE).await;
    stage.catch_up().await;
    stage.hold();
    tokio::time::sleep(LAG).await;
    stage.promote().await;
    let promoted = Instant::now();
    let kept = counters(&stage).await;
    let there = stage.options.clone().database(&stage.database.url);
    let fresh = there.start().await;
    callers.extend(load.call(FRESH, &fresh));
    load.serves(&at(FRESH, Work::LOST.into_iter()), &callers)
        .await;
    tokio::time::sleep(APART).await;
    stage.lose_primary();
    let lost = Instant::now();
    load.moves();
    stage.lead_to_copy();
    load.serves(wanted, &callers).await;
    Outcome {
        calls: load.end(callers).await,
        lost,
        promoted,
        kept,
        n_fences: stage.database.number(FENCES).await,
        log: format!("{}\n{}", old.log(), fresh.log()),
    }
}

/// Reads the first numbers that are not reserved.
async fn counters(stage: &Stage) -> BTreeMap<String, i64> {
    let query = "SELECT sequence, period, next_value FROM counter";
    let rows = stage.database.query(query).await;
    let read = rows.iter().map(|row| {
        let text = |at| -> String { row.try_get_by_index(at).expect("a text") };
        let next = row.try_get_by_index(2).expect("a number");
        (format!("{}/{}", text(0), text(1)), next)
    });
    read.collect()
}

impl Outcome {
    fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for call in &self.calls {
            if let Ok((key, ranges)) = &call.outcome {
                ledger.record(key, ranges);
            }
        }
        ledger
    }

    /// Returns how many numbers of each kind of work were given before the promotion, and have no
    /// reservation on the copy.
    fn n_lost(&self) -> BTreeMap<Work, usize> {
        let mut lost = BTreeMap::new();
        for call in &self.calls {
            let is_before = call.answered < self.promoted && call.work != Work::Moments;
            let (true, Ok((key, ranges))) = (is_before, &call.outcome) else {
                continue;
            };
            let kept = self.kept.get(key).copied().unwrap_or(1);
            let values = ranges.iter().flat_map(Range::values);
            let n_lost = values.filter(|value| *value >= kept).count();
            *lost.entry(call.work).or_default() += n_lost;
        }
        lost
    }

    /// Returns how many calls of the strict sequence got a lower number than an earlier call.
    fn n_out_of_order(&self) -> usize {
        let strict = self.calls.iter().filter_map(|call| {
            let (Work::Strict, Ok((_, ranges))) = (call.work, &call.outcome) else {
                return None;
            };
            Some(order::Call {
                replica: call.replica,
                sent: call.sent,
                answered: call.answered,
                first: ranges.first()?.first,
                last: ranges.last()?.last(),
            })
        });
        order::n_violations(&strict.collect::<Vec<_>>())
    }

    fn of(&self, (replica, work): (usize, Work)) -> impl DoubleEndedIterator<Item = &Call> + Clone {
        let is_it = move |call: &&Call| call.replica == replica && call.work == work;
        self.calls.iter().filter(is_it)
    }

    /// Checks that all these were served again soon after the promotion: from then on nothing is
    /// refused, and new names and keys are served, too.
    fn is_served_in_time(&self, wanted: &Wanted) {
        let given = |call: &&Call| call.answered < self.promoted;
        let given = self.calls.iter().filter(given).filter_map(Call::key);
        let known: BTreeSet<&str> = given.collect();
        for pair in wanted.iter().copied() {
            let is_young = matches!(pair.1, Work::Births | Work::Keys);
            let counts = |key: &str| !is_young || !known.contains(key);
            let mut after = self.of(pair).filter(|call| call.sent >= self.promoted);
            let first = after.find(|call| call.key().is_some_and(counts));
            let first = first.expect("it is served").answered;
            let last = self.of(pair).rfind(|call| call.outcome.is_err());
            let served = last.map_or(first, |last| first.max(last.answered));
            let lasted = served.saturating_duration_since(self.promoted);
            println!("{pair:?}: {} ms after the promotion", lasted.as_millis());
            let is_soon = lasted < longest(pair);
            assert!(is_soon, "{pair:?} after {lasted:?}\n{}", self.log);
        }
    }

    /// Checks that memory served while the database did not.
    fn is_served_from_memory(&self) {
        let from_memory = || self.of((OLD, Work::Stock));
        assert!(
            from_memory().all(|call| call.outcome.is_ok()),
            "{}",
            self.log
        );
        let mut blocks = self
            .of((OLD, Work::Blocks))
            .filter(|call| call.sent >= self.promoted);
        let first = blocks
            .find(|call| call.outcome.is_ok())
            .expect("it is served");
        let is_between = |call: &&Call| call.sent > self.lost && call.answered < first.answered;
        let n_between = from_memory().filter(is_between).count();
        println!("{n_between} numbers from memory meanwhile");
        assert!(n_between > 0, "vacuous");
    }

    /// Checks that numbers of each kind are lost, if the lag is long enough. Returns how many were
    /// given twice.
    fn n_twice(&self, lag: Duration) -> u64 {
        let (ledger, lost) = (self.ledger(), self.n_lost());
        println!(
            "lag {lag:?}: {} numbers of {} counters, {lost:?} lost, {} twice, {} out of order",
            ledger.n_numbers(),
            ledger.sequences().count(),
            ledger.n_duplicates(),
            self.n_out_of_order(),
        );
        let n_lost = |work: Work| lost.get(&work).copied().unwrap_or_default();
        if lag >= LAG {
            assert!(
                Work::LOST.into_iter().all(|work| n_lost(work) > 0),
                "vacuous"
            );
        } else if !lag.is_zero() {
            assert!(lost.values().sum::<usize>() > 0, "vacuous");
        }
        ledger.n_duplicates()
    }
}

/// Checks that a load goes through a failover to a copy that lags.
async fn goes_through(stage: Stage, lag: Duration, wanted: &Wanted) {
    let outcome = fail_over(stage.fencing_by_default(), lag, wanted).await;
    let n_twice = outcome.n_twice(lag);
    assert_eq!(n_twice, 0, "{}", outcome.log);
    assert_eq!(outcome.n_out_of_order(), 0, "{}", outcome.log);
    assert_eq!(outcome.n_fences, Some(1), "{}", outcome.log);
    outcome.is_served_in_time(wanted);
    outcome.is_served_from_memory();
}

/// Returns the lags of this run: one that is drawn, or all.
fn lags() -> impl Iterator<Item = Duration> {
    let drawn = dice::roll(0..LAGS_MS.len());
    let lags = settings::at_size(&LAGS_MS[drawn..=drawn], &LAGS_MS[..]);
    lags.iter().copied().map(Duration::from_millis)
}

for_each_server!(a_mixed_load_goes_through_a_failover);

async fn a_mixed_load_goes_through_a_failover(backend: Backend) {
    let wanted = [at(OLD, Work::all()), at(FRESH, Work::all())].concat();
    for lag in lags() {
        let stage = Stage::new(backend, Program::options()).await;
        goes_through(stage, lag, &wanted).await;
    }
}

#[test]
fn a_mixed_load_goes_through_a_failover_behind_a_pooler() {
    run(async {
        let wanted = [at(OLD, Work::all()), at(FRESH, Work::soon())].concat();
        for lag in lags() {
            let stage = Stage::new(Backend::Postgres, Program::options()).await;
            let (stage, _pooler) = stage.pooled().await;
            goes_through(stage, lag, &wanted).await;
        }
    });
}

fn without_fence() -> Options {
    Program::options().without_guards("no-fence")
}

for_each_server!(a_mixed_load_without_a_fence_repeats_numbers);

async fn a_mixed_load_without_a_fence_repeats_numbers(backend: Backend) {
    let stage = Stage::new(backend, without_fence()).await;
    // The replica that ran before compares its counters.
    let wanted = at(FRESH, Work::LOST.into_iter());
    let outcome = fail_over(stage.fencing_by_default(), LAG, &wanted).await;
    assert!(outcome.n_twice(LAG) > 0, "nothing is found");
    assert!(outcome.n_out_of_order() > 0, "nothing is found");
}

for_each_server!(two_primaries_at_once_repeat_nothing);

async fn two_primaries_at_once_repeat_nothing(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let wanted = [OLD, FRESH].map(|replica| at(replica, Work::soon()));
    let outcome = splits(stage.fencing_by_default(), &wanted.concat()).await;
    let is_apart = |call: &&Call| call.sent > outcome.promoted && call.answered < outcome.lost;
    for replica in [OLD, FRESH] {
        let mut strict = outcome.of((replica, Work::Strict)).filter(is_apart);
        assert!(strict.any(|call| call.outcome.is_ok()), "vacuous");
    }
    assert_eq!(outcome.n_twice(LAG), 0, "{}", outcome.log);
}

for_each_server!(two_primaries_at_once_without_a_fence_repeat_numbers);

async fn two_primaries_at_once_without_a_fence_repeat_numbers(backend: Backend) {
    let stage = Stage::new(backend, without_fence()).await;
    // The replica of the former primary compares its counters.
    let wanted = at(FRESH, Work::LOST.into_iter());
    let outcome = splits(stage.fencing_by_default(), &wanted).await;
    assert!(outcome.n_twice(LAG) > 0, "nothing is found");
}

for_each_server!(a_switch_under_load_keeps_strict_order);

/// The copy has all commits.
async fn a_switch_under_load_keeps_strict_order(backend: Backend) {
    let mut stage = Stage::new(backend, lossless()).await;
    let old = Work::start(&stage).await;
    let load = Load::new();
    let mut callers = load.call(OLD, &old);
    stage.switch_over(&old).await;
    load.moves();
    let fresh = stage.options.start_ready().await;
    callers.extend(load.call(FRESH, &fresh));
    let wanted = [at(OLD, Work::all()), at(FRESH, Work::all())].concat();
    load.serves(&wanted, &callers).await;
    let promoted = Instant::now();
    let outcome = Outcome {
        calls: load.end(callers).await,
        lost: promoted,
        promoted,
        kept: BTreeMap::new(),
        n_fences: stage.database.number(FENCES).await,
        log: old.log(),
    };
    let mut ledger = outcome.ledger();
    ledger.merge(stage.ledger);
    assert_eq!(ledger.n_duplicates(), 0);
    assert_eq!(outcome.n_out_of_order(), 0);
    assert_eq!(outcome.n_fences, Some(0));
}
