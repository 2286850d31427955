//! Takes numbers from a cursor, for a test that counts what one of them costs.
//!
//! `cargo run --release -p odometer-core --example takes -- single 1000` (what, how often).

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use odometer_core::block::{Block, MAX_COUNT};
use odometer_core::cursor::Cursor;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let Some(times) = arguments.next().and_then(|text| text.parse::<u64>().ok()) else {
        eprintln!("takes single|batch|dearer TIMES");
        return ExitCode::from(64);
    };
    let cursor = Cursor::new();
    let Ok(block) = Block::new(1, MAX_COUNT, 1) else {
        return ExitCode::FAILURE;
    };
    if cursor.fill(block, 0).is_err() {
        return ExitCode::FAILURE;
    }
    let n_taken = match what.as_str() {
        "single" => n_done(times, || cursor.take().is_some()),
        "batch" => n_done(times, || cursor.take_batch(100, false).is_some()),
        // What a test must find out: a lock and an allocation on the way.
        "dearer" => {
            let locked = Mutex::new(cursor);
            n_done(times, || {
                let cursor = locked.lock().unwrap_or_else(PoisonError::into_inner);
                black_box(Box::new(cursor.take())).is_some()
            })
        }
        _ => 0,
    };
    if n_taken == times {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[inline(always)]
fn n_done(times: u64, take: impl Fn() -> bool) -> u64 {
    (0..times).map(|_| u64::from(black_box(take()))).sum()
}
