//! What numbers and time-ordered ids cost in process, on one thread and on two, next to a bare
//! `fetch_add`, which nothing that two threads share can undercut: `cargo bench -p odometer-core`.
//!
//! Two threads on fewer than two free cores measure the scheduler.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use odometer_core::block::{Block, MAX_COUNT};
use odometer_core::cursor::Cursor;
use odometer_core::snowflake::{High, Layout, Moment, Ticker};

const BATCH: u64 = 100;

fn main() {
    // Short, so that the blocks of one cursor last for it.
    let warm_up = Duration::from_millis(500);
    let mut criterion = Criterion::default()
        .warm_up_time(warm_up)
        .measurement_time(Duration::from_secs(3))
        .sample_size(30)
        .configure_from_args();
    for (n_threads, threads) in [(1, "one thread"), (2, "two threads")] {
        singles(&mut criterion, n_threads, threads);
        batches(&mut criterion, n_threads, threads);
    }
    criterion.final_summary();
}

fn singles(criterion: &mut Criterion, n_threads: u32, threads: &str) {
    let mut group = criterion.benchmark_group(format!("a number, {threads}"));
    group.throughput(Throughput::Elements(u64::from(n_threads)));
    let bare = || Bare(AtomicU64::new(0));
    measure(&mut group, "fetch_add", n_threads, bare, |bare| {
        black_box(bare.0.fetch_add(1, Ordering::AcqRel));
        true
    });
    measure(&mut group, "cursor", n_threads, filled, |cursor| {
        black_box(cursor.take()).is_some()
    });
    ids(&mut group, n_threads, |ticker, clock| {
        black_box(ticker.take(clock)).is_ok()
    });
    group.finish();
}

fn batches(criterion: &mut Criterion, n_threads: u32, threads: &str) {
    let mut group = criterion.benchmark_group(format!("{BATCH} ids, {threads}"));
    group.throughput(Throughput::Elements(u64::from(n_threads) * BATCH));
    ids(&mut group, n_threads, |ticker, clock| {
        black_box(ticker.take_batch(BATCH, false, clock)).is_ok()
    });
    group.finish();
}

/// Measures both layouts, and the one that keeps to the clock with the machine's, too.
fn ids(
    group: &mut BenchmarkGroup<'_, WallTime>,
    n_threads: u32,
    take: impl Fn(&Ticker, fn() -> Moment) -> bool + Sync,
) {
    let (counted, by_the_clock) = (|| opened(High::Worker), || opened(High::Time));
    measure(group, "ticker, worker high", n_threads, counted, |ticker| {
        take(ticker, still)
    });
    measure(
        group,
        "ticker, time high",
        n_threads,
        by_the_clock,
        |ticker| take(ticker, still),
    );
    let name = "ticker, time high, real clock";
    measure(group, name, n_threads, by_the_clock, |ticker| {
        take(ticker, of_now)
    });
}

/// A clock that costs nothing.
fn still() -> Moment {
    Moment {
        tick: 0,
        ahead: u64::MAX,
        batch_ahead: u64::MAX,
    }
}

fn of_now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    Moment {
        tick: Layout::default().tick_at(now_ms).unwrap_or(0),
        ..still()
    }
}

/// What the others are measured against, on a cache line of its own as their words are.
#[repr(align(64))]
struct Bare(AtomicU64);

/// A cursor with all the numbers that it has room for, which are more than a sample takes.
fn filled() -> Cursor {
    let cursor = Cursor::new();
    let mut next = 0;
    while let Ok(block) = Block::new(next, MAX_COUNT, 1)
        && cursor.fill(block, 0).is_ok()
    {
        next = block.end();
    }
    cursor
}

/// A ticker that nothing bounds but the time that one id takes: a million ids a millisecond.
fn opened(high: High) -> Ticker {
    let layout = Layout {
        high,
        time: 42,
        worker: 1,
        sequence: 20,
        ..Layout::default()
    };
    let ticker = Ticker::new(&layout);
    assert_eq!(ticker.open(0, 0, layout.end_tick(), 0), Ok(()));
    ticker
}

/// Measures `work` on what `make` makes for each sample, shared by all threads; none may fail.
fn measure<T: Sync>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    n_threads: u32,
    make: impl Fn() -> T,
    work: impl Fn(&T) -> bool + Sync,
) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|n_times| {
            let shared = make();
            lasted(n_threads, n_times, || work(&shared))
        });
    });
}

/// How long it takes until each thread has done `work` so often; their start does not count.
fn lasted(n_threads: u32, n_times: u64, work: impl Fn() -> bool + Sync) -> Duration {
    let barrier = Barrier::new(usize::try_from(n_threads).unwrap_or(1));
    let run = || {
        barrier.wait();
        let start = Instant::now();
        let n_done: u64 = (0..n_times).map(|_| u64::from(work())).sum();
        (n_done, start, Instant::now())
    };
    let runs: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .flat_map(thread::ScopedJoinHandle::join)
            .collect()
    });
    let n_done: u64 = runs.iter().map(|run| run.0).sum();
    assert_eq!(
        n_done,
        u64::from(n_threads) * n_times,
        "something was refused"
    );
    let start = runs.iter().map(|run| run.1).min();
    let end = runs.iter().map(|run| run.2).max();
    let span = start.zip(end).map(|(start, end)| end - start);
    span.unwrap_or_default()
}
