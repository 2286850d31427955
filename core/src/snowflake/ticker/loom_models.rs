//! Checks the ticker with loom, in all interleavings of a few threads and all that memory may show.
//!
//! Each guarantee has a negative control: the same model with one part of the ticker made wrong. In
//! the control, loom finds the fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

use std::sync::atomic::AtomicUsize;

use loom::sync::Arc;
use loom::thread;

use super::super::layout::{High, Layout};
use super::shape::{CLOSED, is_closed};
use super::{Closed, Moment, Ticker};
use crate::sync::Ordering;

/// Gives a tick two ids.
const SEQUENCE: u32 = 1;

/// The worker id and the position of an id.
type Id = (u32, u64);

/// Takes a number of ids at once, or none.
type Take = fn(&Ticker, u64) -> Vec<Id>;

/// Runs a model in all interleavings with at most `preemptions` preemptions of a thread.
fn model(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let n_runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&n_runs);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        run();
    });
    let n_runs = n_runs.load(Ordering::Relaxed);
    println!("{n_runs} interleavings");
    assert!(
        n_runs >= 20,
        "only {n_runs} interleavings: nothing was tried"
    );
}

/// Returns a ticker whose worker id 1 may issue the ticks from 10 up to `until`, which is excluded.
fn opened(high: High, until: u64) -> Arc<Ticker> {
    let ticker = Ticker::new(&Layout {
        high,
        time: 40,
        worker: 2,
        sequence: SEQUENCE,
        ..Layout::default()
    });
    ticker.open(1, 10, until, 0).unwrap();
    Arc::new(ticker)
}

fn take(ticker: &Ticker, count: u64) -> Vec<Id> {
    let moment = Moment {
        tick: 10,
        ahead: 100,
        batch_ahead: 100,
    };
    let ids: Vec<i64> = match count {
        1 => ticker.take(|| moment).into_iter().collect(),
        _ => match ticker.take_batch(count, false, || moment) {
            Ok(stamped) => stamped.ids().collect(),
            Err(_) => vec![],
        },
    };
    let parts = ids.iter().map(|id| ticker.layout().read(*id).unwrap());
    parts
        .map(|parts| (parts.worker, (parts.tick << SEQUENCE) | parts.counter))
        .collect()
}

fn spawn<T: 'static>(
    ticker: &Arc<Ticker>,
    work: impl FnOnce(&Ticker) -> T + 'static,
) -> thread::JoinHandle<T> {
    let ticker = Arc::clone(ticker);
    thread::spawn(move || work(&ticker))
}

/// Checks that each id was issued once, and lies in ticks that its worker id was allowed.
fn account(given: &[Vec<Id>], allowed: &[(u32, u64, u64)]) {
    let mut all = given.concat();
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0] != pair[1], "{:?} was issued twice", pair[0]);
    }
    for (worker, position) in all {
        let tick = position >> SEQUENCE;
        let is_allowed = allowed
            .iter()
            .any(|(of, from, until)| *of == worker && (*from..*until).contains(&tick));
        assert!(
            is_allowed,
            "{worker}'s tick {tick} was not reserved: {allowed:?}"
        );
    }
}

fn model_of_takes(high: High, take: Take) {
    model(4, move || {
        let ticker = opened(high, 20);
        let other = spawn(&ticker, move |ticker| {
            [take(ticker, 1), take(ticker, 2)].concat()
        });
        let mine = [take(&ticker, 1), take(&ticker, 1)].concat();
        let other = other.join().unwrap();
        assert_eq!((mine.len(), other.len()), (2, 3));
        assert!(mine.is_sorted() && other.is_sorted());
        account(&[mine, other], &[(1, 10, 20)]);
    });
}

#[test]
fn takes_and_a_batch_never_share_an_id() {
    model_of_takes(High::Worker, take);
    model_of_takes(High::Time, take);
}

#[test]
#[should_panic(expected = "was issued twice")]
fn a_take_in_two_steps_is_found_out() {
    model_of_takes(High::Worker, |ticker, count| {
        let word = ticker.word.load();
        ticker.word.swap(word + count);
        let first = ticker.shape.position(word);
        (first..first + count)
            .map(|position| (1, position))
            .collect()
    });
}

/// Models two takers and a close. The ticks that the close calls unused go to another holder.
fn model_of_a_close(high: High, close: fn(&Ticker) -> Option<Closed>) {
    model(3, move || {
        let ticker = opened(high, 12);
        let first = spawn(&ticker, |ticker| take(ticker, 1));
        let second = spawn(&ticker, |ticker| take(ticker, 2));
        let closed = close(&ticker).unwrap();
        assert_eq!(take(&ticker, 1), []);
        let given = [first.join().unwrap(), second.join().unwrap()];
        account(&given, &[(1, 10, closed.first_unused_tick)]);
        assert_eq!((closed.worker, ticker.close()), (1, None));
    });
}

#[test]
fn nothing_of_what_a_close_returns_was_issued() {
    model_of_a_close(High::Worker, Ticker::close);
    model_of_a_close(High::Time, Ticker::close);
}

#[test]
#[should_panic(expected = "was not reserved")]
fn a_close_in_two_steps_is_found_out() {
    model_of_a_close(High::Worker, |ticker| {
        let position = ticker.shape.position(ticker.word.load());
        let closed = ticker.close()?;
        Some(Closed {
            first_unused_tick: position.div_ceil(1 << SEQUENCE),
            ..closed
        })
    });
}

/// Models late takers, while the worker id is given back, and the same or another one is opened.
fn model_of_openings(high: High, next: u32, until: u64, take: Take) {
    model(2, move || {
        let ticker = opened(high, 12);
        let first = spawn(&ticker, move |ticker| take(ticker, 1));
        let second = spawn(&ticker, move |ticker| take(ticker, 2));
        let closed = ticker.close().unwrap();
        // Another holder has the ticks in between.
        let from = 14;
        ticker.open(next, from, until, 0).unwrap();
        let mine = take(&ticker, 1);
        let given = [first.join().unwrap(), second.join().unwrap(), mine];
        let last = ticker.close().unwrap();
        assert_eq!(last.worker, next);
        let before = (closed.worker, 10, closed.first_unused_tick);
        account(&given, &[before, (next, from, last.first_unused_tick)]);
        assert!(last.first_unused_tick <= until);
    });
}

#[test]
fn a_late_taker_issues_nothing_of_a_worker_that_was_given_back() {
    for high in [High::Worker, High::Time] {
        model_of_openings(high, 2, 20, take);
        model_of_openings(high, 1, 15, take);
    }
}

#[test]
#[should_panic(expected = "was not reserved")]
fn a_taker_that_trusts_a_word_it_read_before_is_found_out() {
    model_of_openings(High::Worker, 2, 20, |ticker, count| {
        let before = ticker.word.load();
        if is_closed(before) {
            return vec![];
        }
        let worker = ticker.shape.worker(before);
        let claimed = (0..count).map(|_| ticker.word.claim() & !CLOSED);
        claimed
            .map(|word| (worker, ticker.shape.position(word)))
            .collect()
    });
}

/// Models a claim past the limit of one opening. The next opening of the same worker id has a
/// higher limit.
fn model_of_limits(take: Take) {
    model(3, move || {
        let ticker = opened(High::Worker, 11);
        let mut given = vec![self::take(&ticker, 2)];
        let late = spawn(&ticker, move |ticker| take(ticker, 1));
        let closed = ticker.close().unwrap();
        assert_eq!(closed.first_unused_tick, 11);
        // Another holder has tick 11.
        ticker.open(1, 12, 13, 0).unwrap();
        given.push(late.join().unwrap());
        account(&given, &[(1, 10, 11), (1, 12, 13)]);
    });
}

#[test]
fn a_claim_past_one_limit_is_no_id_below_the_next() {
    model_of_limits(take);
}

#[test]
#[should_panic(expected = "was not reserved")]
fn a_limit_of_another_opening_is_found_out() {
    model_of_limits(|ticker, _| {
        let word = ticker.word.claim();
        let limit = ticker.limit.load(Ordering::Acquire);
        let is_below = ticker.shape.is_below(word, limit);
        let position = ticker.shape.position(word);
        is_below.then_some((1, position)).into_iter().collect()
    });
}

/// Models an extension and a close, while a taker is past the limit.
///
/// `extend` returns the limit after the extension, if it knows the limit.
fn model_of_an_extension(extend: fn(&Ticker) -> Option<u64>) {
    model(3, move || {
        let ticker = opened(High::Worker, 11);
        let given = take(&ticker, 2);
        let late = spawn(&ticker, |ticker| take(ticker, 1));
        let extended = spawn(&ticker, extend);
        let closed = ticker.close().unwrap();
        let late = late.join().unwrap();
        account(&[given, late], &[(1, 10, closed.first_unused_tick)]);
        let limit = extended.join().unwrap();
        assert!(limit.is_none_or(|limit| ticker.limit_tick() == limit));
        ticker.open(2, 10, 11, 0).unwrap();
        assert!(!ticker.extend(1, 30));
        assert_eq!((ticker.worker(), ticker.limit_tick()), (Some(2), 11));
    });
}

#[test]
fn an_extension_raises_nothing_that_was_closed() {
    model_of_an_extension(|ticker| Some(if ticker.extend(1, 13) { 13 } else { 11 }));
}

#[test]
#[should_panic(expected = "was not reserved")]
fn an_extension_that_asks_nobody_is_found_out() {
    model_of_an_extension(|ticker| {
        let raised = ticker.shape.pack(1, ticker.shape.start_of(13));
        ticker.limit.store(raised, Ordering::Release);
        None
    });
}

#[test]
fn takers_and_an_extension_lose_no_time() {
    model(3, || {
        let ticker = opened(High::Worker, 11);
        let other = spawn(&ticker, |ticker| {
            [take(ticker, 1), take(ticker, 1)].concat()
        });
        let mine = [take(&ticker, 1), take(&ticker, 1)].concat();
        assert!(ticker.extend(1, 20));
        account(&[mine, other.join().unwrap()], &[(1, 10, 20)]);
        // Some claims were in vain, but there are ids again.
        assert_eq!(take(&ticker, 1).len(), 1);
        assert!(ticker.next_tick() <= 13);
    });
}
