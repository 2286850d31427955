//! One mixed load goes on while its database fails over to a copy that lags for a known time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::json;

use super::fenced::{FENCES, arm};
use super::load::{self, Call, Load, Wanted, Work, at};
use super::lossless;
use super::stage::Stage;
use crate::support::{Backend, Options, Program, Range, dice, for_each_server, run, settings};

/// How far the copies lag behind.
const LAGS_MS: [u64; 5] = [0, 100, 1_000, 5_000, 30_000];
/// How long the load runs before the copy lags.
const BEFORE: Duration = Duration::from_secs(5);
/// How long after the promotion numbers may be missing, and ids without a living lease.
const LONGEST: Duration = Duration::from_secs(10);
const LONGEST_FOR_IDS: Duration = Duration::from_secs(75);
/// The replica that runs before the failover, and the one that starts afterwards.
const OLD: usize = 0;
const FRESH: usize = 1;
/// A lag with which numbers of all kinds are lost.
const LAG: Duration = Duration::from_secs(1);
/// How long two primaries take writes.
const APART: Duration = Duration::from_secs(5);

/// Starts a replica, and defines what the calls need.
async fn start(stage: &Stage) -> Program {
    let program = stage.start().await;
    let often = json!({"rate": 10_000, "burst": 1_000_000});
    Work::define(&program.client(), Some(often)).await;
    program
}

/// Returns how long after the promotion a replica may give nothing. Only the one that starts
/// afterwards has no lease.
fn longest(pair: (usize, Work)) -> Duration {
    match pair {
        (FRESH, Work::Moments) => LONGEST_FOR_IDS,
        _ => LONGEST,
    }
}

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
    let old = start(&stage).await;
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
    let old = start(&stage).await;
    arm(&stage).await;
    let load = Load::new();
    let mut callers = load.call(OLD, &old);
    tokio::time::sleep(BEFORE).await;
    stage.catch_up().await;
    stage.hold();
    tokio::time::sleep(LAG).await;
    stage.promote().await;
    let promoted = Instant::now();
    load.moves();
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
        let (ledger, lost) = (load::ledger(&self.calls), self.n_lost());
        println!(
            "lag {lag:?}: {} numbers of {} counters, {lost:?} lost, {} twice, {} out of order",
            ledger.n_numbers(),
            ledger.sequences().count(),
            ledger.n_duplicates(),
            load::n_out_of_order(&self.calls),
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
    assert_eq!(load::n_out_of_order(&outcome.calls), 0, "{}", outcome.log);
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
    assert!(load::n_out_of_order(&outcome.calls) > 0, "nothing is found");
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
    let old = start(&stage).await;
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
    let mut ledger = load::ledger(&outcome.calls);
    ledger.merge(stage.ledger);
    assert_eq!(ledger.n_duplicates(), 0);
    assert_eq!(load::n_out_of_order(&outcome.calls), 0);
    assert_eq!(outcome.n_fences, Some(0));
}
