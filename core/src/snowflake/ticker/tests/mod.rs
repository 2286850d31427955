//! Tests what a ticker promises, on one thread and on several.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod evenness;
mod model;
mod threads;

use super::super::layout::{HEADROOM, High, Layout, Parts};
use super::{Closed, Moment, NotOpened, Refused, Ticker};

const WORKER: u32 = 5;

/// Returns a layout with four ids for each tick.
fn layout(high: High) -> Layout {
    Layout {
        high,
        time: 40,
        worker: 3,
        sequence: 2,
        ..Layout::default()
    }
}

/// Returns a ticker of worker id 5 that may issue the ticks from 100 up to 200, which is excluded.
fn opened(high: High) -> Ticker {
    let ticker = Ticker::new(&layout(high));
    ticker.open(WORKER, 100, 200, 90).unwrap();
    ticker
}

fn at(tick: u64) -> Moment {
    Moment {
        tick,
        ahead: 1,
        batch_ahead: 3,
    }
}

fn no_clock() -> Moment {
    panic!("the clock was read")
}

/// Takes an id, and returns its tick and counter.
fn take(ticker: &Ticker, now: u64) -> Result<(u64, u64), Refused> {
    let id = ticker.take(|| at(now))?;
    let Parts {
        tick,
        worker,
        counter,
    } = ticker.layout().read(id).unwrap();
    assert_eq!(Some(worker), ticker.worker());
    Ok((tick, counter))
}

fn batch(ticker: &Ticker, count: u64, now: u64) -> Result<Vec<(u64, u64)>, Refused> {
    let stamped = ticker.take_batch(count, false, || at(now))?;
    let ids: Vec<i64> = stamped.ids().collect();
    assert!(ids.is_sorted() && stamped.count() == count);
    assert_eq!(
        (ids[0], ids[ids.len() - 1]),
        (stamped.first(), stamped.last())
    );
    let ranged = stamped
        .ranges()
        .flat_map(|(first, n)| first..first + n.cast_signed());
    assert!(ranged.eq(ids.iter().copied()));
    let last = ticker.layout().read(stamped.last()).unwrap();
    assert_eq!(last.worker, stamped.worker());
    let parts = ids.iter().map(|id| ticker.layout().read(*id).unwrap());
    Ok(parts.map(|parts| (parts.tick, parts.counter)).collect())
}

#[test]
fn a_ticker_has_its_word_on_a_cache_line_of_its_own() {
    assert!(size_of::<Ticker>() <= 192, "{}", size_of::<Ticker>());
    assert_eq!(align_of::<Ticker>(), 64);
}

#[test]
fn a_new_ticker_is_closed() {
    for high in [High::Time, High::Worker] {
        let ticker = Ticker::new(&layout(high));
        assert_eq!(take(&ticker, 1), Err(Refused::Closed));
        assert_eq!(batch(&ticker, 2, 1), Err(Refused::Closed));
        assert!(!ticker.extend(0, 10));
        assert_eq!((ticker.close(), ticker.worker()), (None, None));
        assert!(!ticker.is_open());
    }
}

#[test]
fn counted_ids_never_ask_the_clock() {
    let ticker = opened(High::Worker);
    let first = ticker.take(no_clock).unwrap();
    assert_eq!(ticker.layout().read(first).unwrap().tick, 100);
    assert_eq!(ticker.take(no_clock), Ok(first + 1));
    let stamped = ticker.take_batch(10, false, no_clock).unwrap();
    assert_eq!(stamped.ranges().collect::<Vec<_>>(), [(first + 2, 10)]);
    assert_eq!(ticker.next_tick(), 103);
}

#[test]
fn counted_ids_begin_with_the_clock_where_that_is_later() {
    let ticker = Ticker::new(&layout(High::Worker));
    ticker.open(WORKER, 100, 200, 150).unwrap();
    assert_eq!(take(&ticker, 0), Ok((150, 0)));
    assert_eq!((ticker.is_open(), ticker.limit_tick()), (true, 200));
}

#[test]
fn the_counter_goes_on_from_tick_to_tick_and_from_opening_to_opening() {
    let ticker = opened(High::Time);
    assert_eq!(take(&ticker, 110), Ok((110, 0)));
    assert_eq!(take(&ticker, 120), Ok((120, 1)));
    assert_eq!(take(&ticker, 130), Ok((130, 2)));
    assert!(ticker.close().is_some());
    ticker.open(2, 140, 200, 0).unwrap();
    assert_eq!(take(&ticker, 140), Ok((140, 3)));
    // A carry of the counter raises the tick.
    assert_eq!(take(&ticker, 140), Ok((141, 0)));
}

#[test]
fn ids_run_ahead_of_the_clock_as_far_as_they_may() {
    let ticker = opened(High::Time);
    for n in 0..8 {
        assert_eq!(take(&ticker, 110), Ok((110 + n / 4, n % 4)));
    }
    assert_eq!(take(&ticker, 110), Err(Refused::Ahead { ticks: 1 }));
    // This is a clock that was set back.
    assert_eq!(take(&ticker, 105), Err(Refused::Ahead { ticks: 6 }));
    assert_eq!(take(&ticker, 111), Ok((112, 0)));
    assert_eq!(ticker.next_tick(), 112);
}

#[test]
fn a_batch_takes_one_range_a_tick_and_may_run_further_ahead() {
    let ticker = opened(High::Time);
    assert_eq!(take(&ticker, 110), Ok((110, 0)));
    let stamped = ticker.take_batch(9, false, || at(110)).unwrap();
    let ranges: Vec<u64> = stamped.ranges().map(|(_, n)| n).collect();
    assert_eq!(ranges, [3, 4, 2]);
    // The word is at the third id of tick 112. The first id of a batch may lie in tick 111 at most.
    assert_eq!(batch(&ticker, 2, 110), Err(Refused::Ahead { ticks: 1 }));
    assert_eq!(batch(&ticker, 15, 110), Err(Refused::TooMany { most: 14 }));
    assert_eq!(batch(&ticker, 14, 111), Err(Refused::Ahead { ticks: 1 }));
    let ids = batch(&ticker, 14, 112).unwrap();
    assert_eq!((ids[0], ids[13]), ((112, 2), (115, 3)));
}

#[test]
fn a_batch_that_fits_nothing_burns_nothing() {
    for high in [High::Time, High::Worker] {
        let ticker = opened(high);
        ticker.extend(WORKER, 102);
        assert!(ticker.close().is_some());
        ticker.open(WORKER, 100, 102, 0).unwrap();
        assert_eq!(batch(&ticker, 9, 100), Err(Refused::Limit));
        assert_eq!(batch(&ticker, 8, 100).unwrap().len(), 8);
        assert_eq!(batch(&ticker, 1, 101), Err(Refused::Limit));
    }
}

#[test]
fn nothing_is_issued_at_or_past_the_limit() {
    for high in [High::Time, High::Worker] {
        let ticker = Ticker::new(&layout(high));
        ticker.open(WORKER, 100, 101, 0).unwrap();
        for n in 0..4 {
            assert_eq!(take(&ticker, 100), Ok((100, n)));
        }
        for _ in 0..100_000 {
            assert_eq!(take(&ticker, 100), Err(Refused::Limit));
        }
        assert!(ticker.extend(WORKER, 103));
        let (tick, _) = take(&ticker, 101).unwrap();
        assert_eq!(tick, 101);
        // A clock that jumps ahead moves nothing.
        if high == High::Time {
            assert_eq!(take(&ticker, 5_000), Err(Refused::Limit));
            assert_eq!(take(&ticker, 101).unwrap().0, 101);
        }
    }
}

#[test]
fn the_limit_is_raised_for_the_worker_that_it_is_open_for_and_never_lowered() {
    let ticker = opened(High::Worker);
    assert!(!ticker.extend(WORKER + 1, 300));
    assert_eq!(ticker.limit_tick(), 200);
    assert!(ticker.extend(WORKER, 150));
    assert_eq!(ticker.limit_tick(), 200);
    assert!(ticker.extend(WORKER, 300));
    assert_eq!(ticker.limit_tick(), 300);
    assert!(ticker.close().is_some());
    assert!(!ticker.extend(WORKER, 400));
    assert_eq!(ticker.limit_tick(), 300);
}

#[test]
fn a_close_tells_the_first_tick_of_which_nothing_was_issued() {
    for high in [High::Time, High::Worker] {
        for (n_taken, first_unused_tick) in [(0, 100), (1, 101), (3, 101), (4, 101), (5, 102)] {
            let ticker = opened(high);
            for _ in 0..n_taken {
                take(&ticker, 100).unwrap();
            }
            let worker = WORKER;
            let closed = Closed {
                worker,
                first_unused_tick,
            };
            assert_eq!(ticker.close(), Some(closed), "{n_taken}");
            assert_eq!(take(&ticker, 100), Err(Refused::Closed));
            assert_eq!(ticker.close(), None);
        }
    }
    // A claim past the limit is not issued.
    let ticker = Ticker::new(&layout(High::Worker));
    ticker.open(WORKER, 100, 101, 0).unwrap();
    while take(&ticker, 0).is_ok() {}
    assert_eq!(ticker.close().unwrap().first_unused_tick, 101);
}

#[test]
fn a_ticker_is_opened_where_time_is_left_and_for_a_worker_that_there_is() {
    for high in [High::Time, High::Worker] {
        let ticker = Ticker::new(&layout(high));
        let no_time = |tick, until_tick| Err(NotOpened::NoTime { tick, until_tick });
        assert_eq!(ticker.open(0, 10, 10, 0), no_time(10, 10));
        assert_eq!(ticker.open(0, 10, 20, 30), no_time(30, 20));
        let (worker, workers) = (8, 8);
        assert_eq!(
            ticker.open(8, 1, 2, 0),
            Err(NotOpened::Worker { worker, workers })
        );
        assert_eq!(ticker.open(7, 1, 2, 0), Ok(()));
        assert_eq!(ticker.open(6, 1, 2, 0), Err(NotOpened::Open));
        assert!(ticker.close().is_some());
        let ends = ticker.layout().end_tick();
        assert_eq!(ticker.open(7, ends, u64::MAX, 0), Err(NotOpened::TimeEnds));
        assert_eq!(ticker.open(7, 0, 5, u64::MAX), Err(NotOpened::TimeEnds));
    }
}

#[test]
fn time_that_ends_is_an_error_and_spares_the_worker() {
    for high in [High::Time, High::Worker] {
        let ticker = Ticker::new(&layout(high));
        let ends = ticker.layout().end_tick();
        assert_eq!(ends, (1 << 40) - HEADROOM / 4);
        ticker.open(7, ends - 1, u64::MAX, 0).unwrap();
        for n in 0..4 {
            assert_eq!(take(&ticker, ends - 1), Ok((ends - 1, n)));
        }
        for now in [ends - 1, ends, u64::MAX] {
            for _ in 0..100_000 {
                assert_eq!(take(&ticker, now), Err(Refused::TimeEnds));
            }
            assert_eq!(batch(&ticker, 2, now), Err(Refused::TimeEnds));
        }
        assert!(ticker.extend(7, u64::MAX));
        assert_eq!(take(&ticker, ends), Err(Refused::TimeEnds));
        assert_eq!((ticker.worker(), ticker.limit_tick()), (Some(7), ends));
        let most = ends * 4;
        if high == High::Worker {
            assert_eq!(batch(&ticker, most + 1, 0), Err(Refused::TooMany { most }));
        }
    }
}

fn unbroken(ticker: &Ticker, count: u64, now: u64) -> Result<Vec<(i64, u64)>, Refused> {
    let stamped = ticker.take_batch(count, true, || at(now))?;
    Ok(stamped.ranges().collect())
}

#[test]
fn an_unbroken_range_is_of_one_tick() {
    let ticker = opened(High::Time);
    let layout = *ticker.layout();
    let id = |tick, counter| layout.compose(WORKER, tick, counter);
    assert_eq!(take(&ticker, 110), Ok((110, 0)));
    assert_eq!(unbroken(&ticker, 3, 110), Ok(vec![(id(110, 1), 3)]));
    assert_eq!(unbroken(&ticker, 2, 110), Ok(vec![(id(111, 0), 2)]));
    // The tick has two ids left, which are too few.
    assert_eq!(unbroken(&ticker, 3, 110), Ok(vec![(id(112, 0), 3)]));
    assert_eq!(unbroken(&ticker, 4, 120), Ok(vec![(id(121, 0), 4)]));
    let too_many = Err(Refused::TooMany { most: 4 });
    assert_eq!(unbroken(&ticker, 5, 120), too_many);
    // The ids may run ahead as far as a batch may reach, and no further.
    assert_eq!(unbroken(&ticker, 4, 119), Ok(vec![(id(122, 0), 4)]));
    let behind = Err(Refused::Ahead { ticks: 1 });
    assert_eq!(unbroken(&ticker, 4, 119), behind);
    assert_eq!(unbroken(&ticker, 1, 199), Ok(vec![(id(199, 0), 1)]));
    // The next tick is not reserved.
    assert_eq!(unbroken(&ticker, 4, 199), Err(Refused::Limit));
    assert_eq!(take(&ticker, 199), Ok((199, 1)));
}

#[test]
fn an_unbroken_range_of_counted_ids_is_a_batch() {
    let ticker = opened(High::Worker);
    let first = unbroken(&ticker, 3, 0).unwrap()[0].0;
    assert_eq!(unbroken(&ticker, 10, 0), Ok(vec![(first + 3, 10)]));
}
