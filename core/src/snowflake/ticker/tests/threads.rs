//! Tests takers and an owner on real threads: no id is issued twice or past a limit, and each
//! taker's ids ascend.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::super::super::layout::{High, Layout};
use super::super::{IdBatch, Moment, Refused, Ticker};
use crate::tests::seed_for;

const N_THREADS: u64 = 4;

/// Sets how many ids one tick of the injected clock has. With more ids the ids run ahead of the
/// clock, with fewer there are gaps.
const IDS_A_TICK: u64 = 2_000;

/// A small random generator (xorshift64*). Two runs differ only by their seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn of(thread: u64) -> Self {
        Self(seed_for(thread))
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % sides
    }
}

/// Returns how many ids are taken: the number for each commit, or the number for the guarantee at
/// full size.
#[expect(
    clippy::disallowed_methods,
    reason = "how much is tested is no configuration of the program"
)]
fn n_ids() -> u64 {
    match std::env::var_os("ODOMETER_TESTS_FULL").is_some_and(|full| full == "1") {
        true => 100_000_000,
        false => 5_000_000,
    }
}

fn layout(high: High) -> Layout {
    Layout {
        high,
        ..Layout::default()
    }
}

/// The ids that were seen: one bit for each position of one worker id. The ids of 4 threads would
/// fill the memory as numbers.
struct Seen {
    layout: Layout,
    worker: u32,
    words: Vec<AtomicU64>,
    n_seen: AtomicU64,
    n_twice: AtomicU64,
}

impl Seen {
    fn up_to(layout: Layout, worker: u32, tick: u64) -> Self {
        let n_words = usize::try_from((tick << layout.sequence) / 64).unwrap();
        Self {
            layout,
            worker,
            words: (0..n_words).map(|_| AtomicU64::new(0)).collect(),
            n_seen: AtomicU64::new(0),
            n_twice: AtomicU64::new(0),
        }
    }

    fn note(&self, id: i64) {
        let parts = self.layout.read(id).unwrap();
        assert_eq!(parts.worker, self.worker);
        let position = (parts.tick << self.layout.sequence) | parts.counter;
        let bit = 1 << (position % 64);
        let word = &self.words[usize::try_from(position / 64).unwrap()];
        let before = word.fetch_or(bit, Ordering::Relaxed);
        self.n_twice
            .fetch_add(u64::from(before & bit != 0), Ordering::Relaxed);
    }

    fn check(self, n_expected: u64) {
        let (n_seen, n_twice) = (self.n_seen.into_inner(), self.n_twice.into_inner());
        assert_eq!(n_twice, 0, "{n_twice} ids were issued twice");
        assert!(n_seen >= n_expected, "only {n_seen} ids: nothing was tried");
        let n_bits: u64 = self
            .words
            .into_iter()
            .map(|word| u64::from(word.into_inner().count_ones()))
            .sum();
        assert_eq!(n_bits, n_seen);
    }
}

/// Takes `n_ids` ids, single ids and batches at random. `stamp` takes one of them.
fn taker(
    seen: &Seen,
    n_ids: u64,
    mut dice: Dice,
    stamp: impl Fn(u64, &mut Dice) -> Result<Vec<i64>, Refused>,
) {
    let mut last = -1;
    let mut n_taken = 0;
    while n_taken < n_ids {
        let count = match dice.roll(8) {
            0 => 1 + dice.roll(20),
            _ => 1,
        };
        match stamp(count, &mut dice) {
            Ok(ids) => {
                for id in ids {
                    assert!(id > last, "{id} came after {last}");
                    seen.note(id);
                    last = id;
                    n_taken += 1;
                }
            }
            Err(Refused::Limit | Refused::Ahead { .. }) => thread::yield_now(),
            Err(refused) => panic!("{refused:?}"),
        }
    }
    seen.n_seen.fetch_add(n_taken, Ordering::Relaxed);
}

fn take(ticker: &Ticker, count: u64, moment: Moment) -> Result<Vec<i64>, Refused> {
    if count == 1 {
        return Ok(vec![ticker.take(|| moment)?]);
    }
    let stamped: IdBatch = ticker.take_batch(count, false, || moment)?;
    Ok(stamped.ids().collect())
}

/// Reads a clock that goes on with the ids that are asked for.
///
/// The clock is also set back and forth by up to four ticks.
fn moment(clock: &AtomicU64, count: u64, dice: &mut Dice) -> Moment {
    let n_asked = clock.fetch_add(count, Ordering::Relaxed);
    Moment {
        tick: (n_asked / IDS_A_TICK + dice.roll(5)).saturating_sub(dice.roll(5)),
        ahead: 8,
        batch_ahead: 8,
    }
}

/// Runs four takers, and an owner that extends the time by a few ticks at a time.
fn run(high: High) {
    let layout = layout(high);
    let n_ids = n_ids() / N_THREADS;
    let most_ticks = 8 * N_THREADS * n_ids / IDS_A_TICK + 1_000;
    let seen = Seen::up_to(layout, 3, most_ticks);
    let (ticker, clock) = (Ticker::new(&layout), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    ticker.open(3, 0, 1, 0).unwrap();
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let now = clock.load(Ordering::Relaxed) / IDS_A_TICK;
                let until = ticker.next_tick().max(now) + 3;
                assert!(ticker.extend(3, until.min(most_ticks)));
                thread::yield_now();
            }
        });
        let takers: Vec<_> = (1..=N_THREADS)
            .map(|n| {
                let (seen, ticker, clock) = (&seen, &ticker, &clock);
                scope.spawn(move || {
                    taker(seen, n_ids, Dice::of(n), |count, dice| {
                        take(ticker, count, moment(clock, count, dice))
                    });
                })
            })
            .collect();
        for taker in takers {
            taker.join().unwrap();
        }
        stop.store(true, Ordering::Release);
        owner.join().unwrap();
    });
    seen.check(N_THREADS * n_ids);
}

#[test]
fn four_threads_never_share_an_id_of_counted_ones() {
    run(High::Worker);
}

#[test]
fn four_threads_never_share_an_id_of_those_that_keep_to_the_clock() {
    run(High::Time);
}

#[test]
#[should_panic(expected = "were issued twice")]
fn the_check_finds_an_id_issued_twice() {
    let layout = layout(High::Worker);
    let seen = Seen::up_to(layout, 3, 10);
    for at in [0, 1, 1, 2] {
        seen.note(layout.compose(3, 1, at));
    }
    seen.check(4);
}

/// Runs two tickers, as two processes would. Only one of them has the worker id at a time, and late
/// takers still move the words of both.
#[test]
fn takers_never_share_an_id_with_a_close_and_the_next_opening() {
    for high in [High::Time, High::Worker] {
        let layout = layout(high);
        let (n_openings, most_openings) = (5_000, 50_000_000);
        let (enough_ticks, enough_ids) = (1_000, 10_000);
        let seen = Seen::up_to(layout, 3, 200_000);
        let tickers = [Ticker::new(&layout), Ticker::new(&layout)];
        let stop = AtomicBool::new(false);
        let now = AtomicU64::new(0);
        thread::scope(|scope| {
            for n in 0..N_THREADS {
                let (seen, tickers, stop, now) = (&seen, &tickers, &stop, &now);
                scope.spawn(move || late_taker(seen, tickers, stop, now, Dice::of(n)));
            }
            let (mut from, mut dice) = (0, Dice::of(N_THREADS));
            for n in 0..most_openings {
                // On a busy machine, takers may get no processor for a while. So openings go on
                // until enough was taken.
                let n_seen = seen.n_seen.load(Ordering::Relaxed);
                if n >= n_openings && from > enough_ticks && n_seen >= enough_ids {
                    break;
                }
                let ticker = &tickers[usize::from(n % 3 == 0)];
                ticker.open(3, from, from + 1 + n % 3, 0).unwrap();
                pause(&mut dice);
                assert!(ticker.extend(3, from + 3));
                pause(&mut dice);
                from = ticker.close().unwrap().first_unused_tick;
                now.store(from, Ordering::Release);
            }
            stop.store(true, Ordering::Release);
        });
        assert!(now.into_inner() > enough_ticks, "nothing was tried");
        seen.check(enough_ids);
    }
}

/// Lets takers take, mostly without giving up the processor core.
fn pause(dice: &mut Dice) {
    if dice.roll(50) == 0 {
        thread::yield_now();
    }
    (0..dice.roll(2_000)).for_each(|_| std::hint::spin_loop());
}

fn late_taker(
    seen: &Seen,
    tickers: &[Ticker; 2],
    stop: &AtomicBool,
    now: &AtomicU64,
    mut dice: Dice,
) {
    while !stop.load(Ordering::Acquire) {
        let ticker = &tickers[usize::from(dice.roll(2) == 0)];
        let count = 1 + dice.roll(3) * dice.roll(3) * 500;
        let moment = Moment {
            tick: now.load(Ordering::Acquire),
            ahead: 8,
            batch_ahead: 8,
        };
        match take(ticker, count, moment) {
            Ok(ids) => {
                ids.iter().for_each(|id| seen.note(*id));
                let n_taken = u64::try_from(ids.len()).unwrap();
                seen.n_seen.fetch_add(n_taken, Ordering::Relaxed);
            }
            Err(Refused::Closed | Refused::Limit | Refused::Ahead { .. }) => {}
            Err(refused) => panic!("{refused:?}"),
        }
    }
}
