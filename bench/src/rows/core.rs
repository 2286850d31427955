//! Numbers out of memory in one process: the cursor beside a bare `fetch_add` and beside CosId.
//!
//! The start of threads is not measured. Two threads on fewer than two free cores measure the
//! scheduler.

use std::{
    hint::black_box,
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use odometer_core::{
    block::{Block, MAX_COUNT},
    cursor::Cursor,
};

use super::cosid::{self, Chain};
use crate::{
    pace::{Contender, Pace},
    reading::Reading,
    row::{Bound, Row, Unit},
    stage::Stage,
};

const BARE: &str = "fetch_add";
/// Steps between two looks at the clock, about 50 µs.
const BURST: u64 = 10_000;
/// A segment of CosId that lasts, as a large block does.
const LARGE_SEGMENT: u64 = 1_000_000_000;
const SMALL: u64 = 1000;

pub(crate) fn estimate(pace: Pace) -> Duration {
    if cosid::class_path().is_none() {
        return pace.estimate(10) / 3;
    }
    pace.estimate(14) / 3 + 4 * 2 * cosid::WARM_UP
}

/// One and two threads; single numbers out of large and out of small blocks, and batches.
pub(crate) async fn core(_: &Stage, pace: Pace) -> Vec<Row> {
    let mut rows = Vec::new();
    let bounds = [(1, "one thread", 0.88, 1.25), (2, "two threads", 0.68, 1.4)];
    for (n_threads, threads, against_bare, against_chain) in bounds {
        let title = format!("in process, {threads}");
        let row = Row::new(&format!("core-{n_threads}"), &title, Unit::NumbersPerSecond);
        let row = beside(row, pace, n_threads, MAX_COUNT, LARGE_SEGMENT).await;
        let is_beside_chain = row.series.len() > 2;
        let row = row
            .target(BARE, Bound::AtLeast(against_bare))
            .target(cosid::NAME, Bound::AtLeast(against_chain));
        rows.push(if is_beside_chain {
            row
        } else {
            row.note(cosid::NOT_MEASURED)
        });
        let title = format!("in process, {threads}, blocks of {SMALL}");
        let name = format!("core-{n_threads}-small");
        let row = Row::new(&name, &title, Unit::NumbersPerSecond);
        rows.push(beside(row, pace, n_threads, SMALL, SMALL).await);
        let title = format!("in process, {threads}, batches of 100");
        let name = format!("core-{n_threads}-batch");
        let mut batches = InProcess::new("Odometer", n_threads, Work::Batch(filled(MAX_COUNT)));
        let series = pace.alternate(&mut [&mut batches]).await;
        rows.push(Row::new(&name, &title, Unit::NumbersPerSecond).series(series));
    }
    rows
}

/// `row` with the cursor over blocks of `count`, and what it is measured against.
async fn beside(row: Row, pace: Pace, n_threads: u32, count: u64, segment: u64) -> Row {
    let mut cursor = InProcess::new("Odometer", n_threads, Work::Take(filled(count)));
    let bare = Work::Bare(Bare(AtomicU64::new(0)));
    let mut bare = InProcess::new(BARE, n_threads, bare);
    let mut chain = Chain::start(segment, n_threads);
    let mut contenders: Vec<&mut dyn Contender> = vec![&mut cursor, &mut bare];
    if let Some(chain) = &mut chain {
        contenders.push(chain);
    }
    row.series(pace.alternate(&mut contenders).await)
}

/// Threads of this process that do the same work.
struct InProcess {
    name: &'static str,
    n_threads: u32,
    work: Work,
}

enum Work {
    Bare(Bare),
    Take(Box<Filled>),
    Batch(Box<Filled>),
}

impl InProcess {
    fn new(name: &'static str, n_threads: u32, work: Work) -> Self {
        Self {
            name,
            n_threads,
            work,
        }
    }
}

#[async_trait(?Send)]
impl Contender for InProcess {
    fn name(&self) -> &str {
        self.name
    }

    /// For a third of `length`, which is plenty where nothing waits.
    async fn measure(&mut self, length: Duration) -> Reading {
        let (n, length) = (self.n_threads, length / 3);
        Reading::of(match &self.work {
            Work::Bare(bare) => rate(n, length, || {
                black_box(bare.0.fetch_add(1, Ordering::AcqRel));
            }),
            Work::Take(filled) => rate(n, length, || {
                black_box(filled.take());
            }),
            Work::Batch(filled) => {
                let batches = rate(n, length, || {
                    black_box(filled.take_hundred());
                });
                batches * 100.0
            }
        })
    }
}

/// What the cursor is measured against, on a cache line of its own as the cursor's word is.
#[repr(align(64))]
struct Bare(AtomicU64);

/// A cursor that its takers fill by themselves, with blocks of one size.
struct Filled {
    cursor: Cursor,
    next: Mutex<i64>,
    count: u64,
}

fn filled(count: u64) -> Box<Filled> {
    let filled = Box::new(Filled {
        cursor: Cursor::new(),
        next: Mutex::new(0),
        count,
    });
    filled.fill();
    filled
}

impl Filled {
    #[cold]
    #[inline(never)]
    fn fill(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        while self.cursor.room() > 0 {
            let block = Block::new(*next, self.count, 1).expect("no run uses up all i64");
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

/// How often a second `n_threads` do `work`, all together.
fn rate(n_threads: u32, length: Duration, work: impl Fn() + Sync) -> f64 {
    let barrier = Barrier::new(n_threads as usize);
    let run = || {
        barrier.wait();
        let start = Instant::now();
        let mut n_done = 0_u64;
        while start.elapsed() < length {
            for _ in 0..BURST {
                work();
            }
            n_done += BURST;
        }
        (n_done, start, Instant::now())
    };
    let runs: Vec<(u64, Instant, Instant)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(run)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|run| run.expect("no work panics")).collect()
    });
    let n_done: u64 = runs.iter().map(|run| run.0).sum();
    let start = runs.iter().map(|run| run.1).min();
    let end = runs.iter().map(|run| run.2).max();
    let span = start.zip(end).map(|(start, end)| end - start);
    n_done as f64 / span.expect("there is a thread").as_secs_f64()
}
