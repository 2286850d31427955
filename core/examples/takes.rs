//! Takes numbers from a cursor, or ids from a ticker, for a test that counts what one of them
//! costs.
//!
//! `cargo run --release -p odometer-core --example takes -- single 1000` (what, how often).

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use odometer_core::block::{Block, MAX_COUNT};
use odometer_core::cursor::Cursor;
use odometer_core::snowflake::{High, Layout, Moment, Ticker};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let Some(times) = arguments.next().and_then(|text| text.parse::<u64>().ok()) else {
        eprintln!("takes single|batch|dearer|time|time-batch|worker|worker-batch TIMES");
        return ExitCode::from(64);
    };
    let n_taken = match what.as_str() {
        "time" => ids(times, High::Time),
        "time-batch" => batches_of_ids(times, High::Time),
        "worker" => ids(times, High::Worker),
        "worker-batch" => batches_of_ids(times, High::Worker),
        _ => numbers(&what, times),
    };
    if n_taken == Some(times) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn numbers(what: &str, times: u64) -> Option<u64> {
    let cursor = Cursor::new();
    cursor.fill(Block::new(1, MAX_COUNT, 1).ok()?, 0).ok()?;
    match what {
        "single" => Some(n_done(times, || cursor.take().is_some())),
        "batch" => Some(n_done(times, || cursor.take_batch(100, false).is_some())),
        // What a test must find out: a lock and an allocation on the way.
        "dearer" => {
            let locked = Mutex::new(cursor);
            Some(n_done(times, || {
                let cursor = locked.lock().unwrap_or_else(PoisonError::into_inner);
                black_box(Box::new(cursor.take())).is_some()
            }))
        }
        _ => None,
    }
}

fn ids(times: u64, high: High) -> Option<u64> {
    let ticker = opened(high)?;
    Some(n_done(times, || black_box(ticker.take(still)).is_ok()))
}

fn batches_of_ids(times: u64, high: High) -> Option<u64> {
    let ticker = opened(high)?;
    let take = || black_box(ticker.take_batch(100, false, still)).is_ok();
    Some(n_done(times, take))
}

/// A ticker that may issue all that its layout has, of which one worker has enough.
fn opened(high: High) -> Option<Ticker> {
    let layout = Layout {
        high,
        ..Layout::default()
    };
    let ticker = Ticker::new(&layout);
    ticker.open(5, 0, layout.end_tick(), 0).ok()?;
    Some(ticker)
}

/// A clock that costs nothing, behind which ids may be as far as they like.
fn still() -> Moment {
    Moment {
        tick: black_box(0),
        ahead: u64::MAX,
        batch_ahead: u64::MAX,
    }
}

#[inline(always)]
fn n_done(times: u64, take: impl Fn() -> bool) -> u64 {
    (0..times).map(|_| u64::from(black_box(take()))).sum()
}
