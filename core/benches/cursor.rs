//! The cursor against a bare `fetch_add`, with one and with two threads.
//!
//! All times are per number over all threads, so two lines of one group compare as they are. The
//! threads' start is not measured. Two threads on fewer than two free cores measure the scheduler.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use odometer_core::block::{Block, MAX_COUNT};
use odometer_core::cursor::Cursor;

/// What the cursor is measured against, on a cache line of its own as the cursor's word is.
#[repr(align(64))]
struct Bare(AtomicU64);

/// A cursor that its takers fill by themselves, with blocks of one size.
struct Filled {
    cursor: Cursor,
    next: Mutex<i64>,
    count: u64,
}

impl Filled {
    fn with_blocks_of(count: u64) -> Self {
        let filled = Self {
            cursor: Cursor::new(),
            next: Mutex::new(0),
            count,
        };
        filled.fill();
        filled
    }

    #[cold]
    #[inline(never)]
    fn fill(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        while self.cursor.room() > 0 {
            let Ok(block) = Block::new(*next, self.count, 1) else {
                return;
            };
            if self.cursor.fill(block, self.count / 2).is_ok() {
                *next = block.end();
            }
        }
    }

    #[inline]
    fn take(&self) -> i64 {
        loop {
            match self.cursor.take() {
                Some(taken) => {
                    if taken.low_water {
                        self.fill();
                    }
                    return taken.value;
                }
                None => self.fill(),
            }
        }
    }

    #[inline]
    fn take_hundred(&self) -> i64 {
        loop {
            match self.cursor.take_batch(100, false) {
                Some(batch) => {
                    if batch.low_water {
                        self.fill();
                    }
                    return batch.ranges.iter().map(Block::last).sum();
                }
                None => self.fill(),
            }
        }
    }
}

/// How long `n_threads` need to do `work` as often as asked, all together.
fn timed(n_threads: u64, times: u64, work: impl Fn() + Sync) -> Duration {
    let barrier = Barrier::new(usize::try_from(n_threads).unwrap_or(1));
    let run = || {
        barrier.wait();
        let start = Instant::now();
        for _ in 0..times.div_ceil(n_threads) {
            work();
        }
        (start, Instant::now())
    };
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(run)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.filter_map(Result::ok).collect()
    });
    let start = spans.iter().map(|span| span.0).min();
    let end = spans.iter().map(|span| span.1).max();
    start
        .zip(end)
        .map_or(Duration::ZERO, |(start, end)| end - start)
}

fn numbers(criterion: &mut Criterion) {
    for (n_threads, name) in [(1, "one thread"), (2, "two threads")] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        group.measurement_time(Duration::from_secs(5));
        group.bench_function("fetch_add", |bencher| {
            bencher.iter_custom(|times| {
                let bare = Bare(AtomicU64::new(0));
                timed(n_threads, times, || {
                    black_box(bare.0.fetch_add(1, Ordering::AcqRel));
                })
            });
        });
        for (name, count) in [
            ("take, large blocks", MAX_COUNT),
            ("take, blocks of 1000", 1000),
        ] {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|times| {
                    let filled = Filled::with_blocks_of(count);
                    timed(n_threads, times, || {
                        black_box(filled.take());
                    })
                });
            });
        }
        group.throughput(Throughput::Elements(100));
        group.bench_function("take_batch of 100", |bencher| {
            bencher.iter_custom(|times| {
                let filled = Filled::with_blocks_of(MAX_COUNT);
                timed(n_threads, times, || {
                    black_box(filled.take_hundred());
                })
            });
        });
        group.finish();
    }
}

criterion_group!(cursor, numbers);
criterion_main!(cursor);
