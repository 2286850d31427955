//! Tests takers and an owner on real threads: no number is given twice or lost, in any order of
//! events.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::{Cursor, SHORT_OF_THE_WRAP};
use crate::block::Block;
use crate::tests::seed_for;

/// The results of all threads of one run.
#[derive(Default)]
struct Ledger {
    /// The numbers that each taker got.
    taken: Vec<Vec<i64>>,
    /// The numbers that closes returned, and the numbers that were left at the end.
    returned: Vec<i64>,
    /// The count of the numbers that were filled: 0, 1, 2 …
    filled: i64,
    /// The low-water signals that takers got.
    signals: u64,
    n_blocks: u64,
    n_closes: u64,
}

/// A small random generator (xorshift64*). Two runs differ only by their seed.
struct Dice(u64);

impl Dice {
    fn of(thread: u64) -> Self {
        Self(seed_for(thread))
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % sides
    }
}

fn taker(cursor: &Cursor, stop: &AtomicBool, signals: &AtomicU64, mut dice: Dice) -> Vec<i64> {
    let mut numbers = Vec::new();
    loop {
        let stopping = stop.load(Ordering::Acquire);
        let mut idle = true;
        for _ in 0..100 {
            let low_water = if dice.roll(4) > 0 {
                cursor.take().map(|taken| {
                    numbers.push(taken.value);
                    taken.low_water
                })
            } else {
                let batch = cursor.take_batch(1 + dice.roll(5), dice.roll(2) == 0);
                batch.map(|batch| {
                    numbers.extend(batch.ranges.iter().flat_map(Block::values));
                    batch.low_water
                })
            };
            idle &= low_water.is_none();
            signals.fetch_add(u64::from(low_water == Some(true)), Ordering::Relaxed);
        }
        if stopping && idle {
            return numbers;
        }
        if idle {
            thread::yield_now();
        }
    }
}

/// Fills `n_blocks` blocks of at most `most` numbers, and closes the cursor at random.
fn owner(cursor: &Cursor, n_blocks: u64, most: u64, ledger: &mut Ledger, mut dice: Dice) {
    while ledger.n_blocks < n_blocks {
        if cursor.room() == 0 {
            thread::yield_now();
        } else {
            let count = 1 + dice.roll(most);
            let block = Block::new(ledger.filled, count, 1).unwrap();
            cursor.fill(block, dice.roll(most)).unwrap();
            ledger.filled = block.end();
            ledger.n_blocks += 1;
        }
        if dice.roll(32) == 0 {
            let rest = cursor.close();
            ledger.returned.extend(rest.iter().flat_map(Block::values));
            ledger.n_closes += 1;
        }
    }
}

fn observer(cursor: &Cursor, stop: &AtomicBool) {
    let mut issued = 0;
    while !stop.load(Ordering::Acquire) {
        let now = cursor.issued();
        assert!(now >= issued, "issued fell from {issued} to {now}");
        issued = now;
        let rest = cursor.rest();
        for pair in rest.windows(2) {
            assert!(pair[0].last() < pair[1].first(), "{rest:?}");
        }
        assert!(cursor.remaining() < 1 << 40);
        thread::yield_now();
    }
}

fn run(which: u64, n_blocks: u64, most: u64) -> (Cursor, Ledger) {
    let cursor = Cursor::starting_at_generation(SHORT_OF_THE_WRAP);
    let mut ledger = Ledger::default();
    let stop = AtomicBool::new(false);
    let signals = AtomicU64::new(0);
    thread::scope(|scope| {
        let takers: Vec<_> = (1..=4)
            .map(|n| {
                scope.spawn(move_taker(
                    &cursor,
                    &stop,
                    &signals,
                    Dice::of(which * 8 + n),
                ))
            })
            .collect();
        let observer = scope.spawn(|| observer(&cursor, &stop));
        owner(
            &cursor,
            n_blocks,
            most,
            &mut ledger,
            Dice::of(which * 8 + 5),
        );
        stop.store(true, Ordering::Release);
        for taker in takers {
            ledger.taken.push(taker.join().unwrap());
        }
        observer.join().unwrap();
    });
    let rest = cursor.close();
    ledger.returned.extend(rest.iter().flat_map(Block::values));
    ledger.signals = signals.into_inner();
    (cursor, ledger)
}

fn move_taker<'a>(
    cursor: &'a Cursor,
    stop: &'a AtomicBool,
    signals: &'a AtomicU64,
    dice: Dice,
) -> impl FnOnce() -> Vec<i64> + Send + 'a {
    move || taker(cursor, stop, signals, dice)
}

fn check(cursor: &Cursor, ledger: &Ledger) {
    let mut seen = vec![false; usize::try_from(ledger.filled).unwrap()];
    for number in ledger.taken.iter().flatten().chain(&ledger.returned) {
        let seen = &mut seen[usize::try_from(*number).unwrap()];
        assert!(!*seen, "{number} was given twice");
        *seen = true;
    }
    for numbers in &ledger.taken {
        assert!(numbers.is_sorted(), "a taker's numbers ascend");
    }
    let taken: usize = ledger.taken.iter().map(Vec::len).sum();
    let lost = u64::try_from(seen.iter().filter(|seen| !**seen).count()).unwrap();
    assert!(lost <= cursor.take_abandoned(), "{lost} numbers lost");
    assert_eq!(cursor.issued(), u64::try_from(taken).unwrap() + lost);
    assert!(ledger.signals <= ledger.n_blocks, "a signal came twice");
    assert!(taken > 0 && ledger.n_closes > 0, "nothing was tried");
}

#[test]
fn takers_never_share_a_number_with_each_other_or_with_a_close() {
    for (which, (n_blocks, most)) in (1..).zip([(100_000, 3), (50_000, 10), (20_000, 100)]) {
        let (cursor, ledger) = run(which, n_blocks, most);
        check(&cursor, &ledger);
    }
}

#[test]
#[should_panic(expected = "was given twice")]
fn the_check_finds_a_number_given_twice() {
    let (cursor, mut ledger) = run(9, 1_000, 10);
    let number = ledger.taken.concat()[0];
    ledger.returned.push(number);
    check(&cursor, &ledger);
}
