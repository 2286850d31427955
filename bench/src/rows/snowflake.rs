//! Measures time-ordered ids from memory in one process, for both layouts, next to a bare
//! `fetch_add`.

use std::{
    hint::black_box,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use odometer_core::snowflake::{High, Layout, Moment, Ticker};

use super::in_process::{self, InProcess};
use crate::{
    pace::Pace,
    row::{Row, Unit},
    stage::Stage,
};

const THREADS: [(u32, &str); 2] = [(1, "one thread"), (2, "two threads")];

pub(crate) fn estimate(pace: Pace) -> Duration {
    // Each subject is measured in a pair with the reference.
    pace.estimate(2 * 6) / 3
}

/// Measures with one and with two threads.
pub(crate) async fn snowflake(_: &Stage, pace: Pace) -> Vec<Row> {
    let mut rows = Vec::new();
    for (n_threads, threads) in THREADS {
        let counted = Subject::new("worker", "`high: worker`", High::Worker);
        let by_the_clock = "`high: time`, a clock that costs nothing";
        let by_the_clock = Subject::new("time", by_the_clock, High::Time);
        let by_a_real_clock = "`high: time`, the machine's clock";
        let by_a_real_clock = Subject::new("clock", by_a_real_clock, High::Time);
        rows.extend([
            counted.beside_bare(pace, n_threads, threads, still).await,
            by_the_clock
                .beside_bare(pace, n_threads, threads, still)
                .await,
            by_a_real_clock
                .beside_bare(pace, n_threads, threads, of_now)
                .await,
        ]);
    }
    rows
}

/// One layout with one clock.
struct Subject {
    name: &'static str,
    title: &'static str,
    high: High,
}

impl Subject {
    fn new(name: &'static str, title: &'static str, high: High) -> Self {
        Self { name, title, high }
    }

    async fn beside_bare(
        self,
        pace: Pace,
        n_threads: u32,
        threads: &str,
        clock: impl Fn() -> Moment + Sync,
    ) -> Row {
        let ticker = opened(self.high);
        let mut ids = InProcess::new("Odometer", n_threads, ticker, move |ticker: &Ticker| {
            let id = ticker.take(&clock);
            black_box(id.expect("the time that is reserved lasts for any run"));
        });
        let mut bare = in_process::bare(n_threads);
        let series = pace.alternate(&mut [&mut *ids, &mut *bare]).await;
        let name = format!("snowflake-{}-{n_threads}", self.name);
        let title = format!("time-ordered ids in process, {threads}, {}", self.title);
        Row::new(&name, &title, Unit::NumbersPerSecond).series(series)
    }
}

/// Returns a ticker that only the time for one id limits. Its layout has a million ids a
/// millisecond.
fn opened(high: High) -> Ticker {
    let layout = Layout {
        high,
        time: 42,
        worker: 1,
        sequence: 20,
        ..Layout::default()
    };
    let ticker = Ticker::new(&layout);
    let opened = ticker.open(0, 0, layout.end_tick(), 0);
    opened.expect("a new ticker can be opened");
    ticker
}

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
