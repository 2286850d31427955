//! Measures numbers from memory in one process: the cursor next to a bare `fetch_add` and next to
//! CosId.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use odometer_core::{
    block::{Block, MAX_COUNT},
    cursor::Cursor,
};

use super::{
    cosid::{self, Chain},
    in_process::{self, BARE, InProcess},
};
use crate::{
    pace::{Contender, Pace},
    row::{Bound, Row, Unit},
    stage::Stage,
};

/// A segment of CosId that is as large as a large block, so that it lasts.
const LARGE_SEGMENT: u64 = 1_000_000_000;
const SMALL: u64 = 1000;

pub(crate) fn estimate(pace: Pace) -> Duration {
    if cosid::class_path().is_none() {
        return pace.estimate(10) / 3;
    }
    pace.estimate(14) / 3 + 4 * 2 * cosid::WARM_UP
}

/// Measures one and two threads: single numbers from large and from small blocks, and batches.
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
        rows.push(row.note(if is_beside_chain {
            about_cosid()
        } else {
            cosid::NOT_MEASURED.to_owned()
        }));
        let title = format!("in process, {threads}, blocks of {SMALL}");
        let name = format!("core-{n_threads}-small");
        let row = Row::new(&name, &title, Unit::NumbersPerSecond);
        rows.push(beside(row, pace, n_threads, SMALL, SMALL).await);
        let title = format!("in process, {threads}, batches of 100");
        let name = format!("core-{n_threads}-batch");
        let filled = Filled::of(MAX_COUNT);
        let batches = InProcess::new("Odometer", n_threads, filled, |filled: &Filled| {
            black_box(filled.take_hundred());
        });
        let series = pace.alternate(&mut [&mut *batches.of_each(100.0)]).await;
        rows.push(Row::new(&name, &title, Unit::NumbersPerSecond).series(series));
    }
    rows
}

/// Returns a note that names the version of CosId.
fn about_cosid() -> String {
    let version = cosid::version().ok().flatten().unwrap_or_default();
    format!("CosId is version {version}. Its segments come out of memory, too.")
}

/// Adds the series to `row`: the cursor over blocks of `count` numbers, and its references.
async fn beside(row: Row, pace: Pace, n_threads: u32, count: u64, segment: u64) -> Row {
    let filled = Filled::of(count);
    let mut cursor = InProcess::new("Odometer", n_threads, filled, |filled: &Filled| {
        black_box(filled.take());
    });
    let mut bare = in_process::bare(n_threads);
    let mut chain = Chain::start(segment, n_threads);
    let mut contenders: Vec<&mut dyn Contender> = vec![&mut *cursor, &mut *bare];
    if let Some(chain) = &mut chain {
        contenders.push(chain);
    }
    row.series(pace.alternate(&mut contenders).await)
}

/// A cursor with blocks of one size. The threads that take numbers also fill it.
struct Filled {
    cursor: Cursor,
    next: Mutex<i64>,
    count: u64,
}

impl Filled {
    fn of(count: u64) -> Self {
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
