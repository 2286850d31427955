//! Checks the cursor with loom, in all interleavings of a few threads and all that memory may show.
//!
//! Each guarantee has a negative control: the same model with one part of the cursor made wrong. In
//! the control, loom finds the fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::thread;

use super::guess::{live, spent};
use super::slot::number;
use super::word::{after, distance, generation, offset, pack};
use super::{Claim, Cursor};
use crate::block::Block;

const SHORT_OF_THE_WRAP: u32 = (1 << 31) - 2;

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
        n_runs >= 50,
        "only {n_runs} interleavings: nothing was tried"
    );
}

fn block(first: i64, count: u64) -> Block {
    Block::new(first, count, 1).unwrap()
}

fn filled(blocks: &[(i64, u64)]) -> Arc<Cursor> {
    let cursor = Cursor::starting_at_generation(SHORT_OF_THE_WRAP);
    for (first, count) in blocks {
        cursor.fill(block(*first, *count), 0).unwrap();
    }
    Arc::new(cursor)
}

fn spawn(
    cursor: &Arc<Cursor>,
    work: impl Fn(&Cursor) -> Vec<i64> + 'static,
) -> thread::JoinHandle<Vec<i64>> {
    let cursor = Arc::clone(cursor);
    thread::spawn(move || work(&cursor))
}

fn take(cursor: &Cursor, times: usize) -> Vec<i64> {
    let taken = (0..times).filter_map(|_| cursor.take());
    taken.map(|taken| taken.value).collect()
}

fn take_batch(cursor: &Cursor, count: u64) -> Vec<i64> {
    let batch = cursor.take_batch(count, false);
    batch.map_or(Vec::new(), |batch| {
        batch.ranges.iter().flat_map(Block::values).collect()
    })
}

fn numbers(blocks: &[Block]) -> Vec<i64> {
    blocks.iter().flat_map(Block::values).collect()
}

/// Checks that each number of `filled` was given once or is left. Numbers that were abandoned may
/// be missing.
fn account(cursor: &Cursor, given: &[Vec<i64>], filled: &[i64]) {
    let mut all = given.concat();
    let given = all.len();
    all.extend(numbers(&cursor.rest()));
    let left = cursor.remaining();
    assert_eq!(u64::try_from(all.len() - given).unwrap(), left);
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0] != pair[1], "{} was given twice", pair[0]);
    }
    assert!(all.iter().all(|number| filled.contains(number)), "{all:?}");
    let lost = u64::try_from(filled.len() - all.len()).unwrap();
    assert!(lost <= cursor.take_abandoned(), "{lost} numbers lost");
}

/// Checks that the numbers that a range passed over are those that nobody got.
fn account_beyond(said: impl Fn(&Cursor, u64) -> u64 + Clone + Sync + Send + 'static) {
    model(4, move || {
        let cursor = filled(&[(1, 2), (11, 4)]);
        let other = spawn(&cursor, |cursor| take(cursor, 2));
        let (batch, n_passed) = cursor.take_beyond(3, 1).unwrap();
        let n_passed = said(&cursor, n_passed);
        let mine: Vec<i64> = batch.ranges.iter().flat_map(Block::values).collect();
        let all = [other.join().unwrap(), mine, numbers(&cursor.rest())].concat();
        let n_missing = u64::try_from(6 - all.len()).unwrap();
        assert_eq!(n_missing, n_passed + cursor.take_abandoned(), "{all:?}");
    });
}

#[test]
fn a_range_passes_over_as_many_numbers_as_it_says() {
    account_beyond(|_, n_passed| n_passed);
}

/// It says how many were there before the others took theirs.
#[test]
#[should_panic(expected = "left == right")]
fn a_range_that_looks_before_it_passes_is_found_out() {
    account_beyond(|_, _| 2);
}

#[test]
fn two_takers_never_share_a_number() {
    model(8, || {
        let cursor = filled(&[(1, 2), (11, 2)]);
        let other = spawn(&cursor, |cursor| take(cursor, 2));
        let mine = take(&cursor, 2);
        let other = other.join().unwrap();
        assert_eq!((mine.len(), other.len()), (2, 2));
        assert_eq!((cursor.issued(), cursor.take_abandoned()), (4, 0));
        account(&cursor, &[mine, other], &[1, 2, 11, 12]);
    });
}

#[test]
#[should_panic(expected = "was given twice")]
fn a_claim_in_two_steps_is_found_out() {
    model(4, || {
        let cursor = filled(&[(1, 2), (11, 2)]);
        let other = spawn(&cursor, take_in_two_steps);
        let mine = take_in_two_steps(&cursor);
        account(&cursor, &[mine, other.join().unwrap()], &[1, 2, 11, 12]);
    });
}

/// Makes a wrong claim: it reads the word, and then moves the word, wherever the word is by then.
fn take_in_two_steps(cursor: &Cursor) -> Vec<i64> {
    let word = cursor.word.load();
    cursor.word.swap(word + 1);
    match cursor.redeem(word) {
        Claim::Issued(taken) => vec![taken.value],
        Claim::Overshot | Claim::Abandoned => vec![],
    }
}

#[test]
fn one_of_two_takers_gets_the_low_water_signal() {
    model(4, || {
        let cursor = filled(&[]);
        cursor.fill(block(1, 3), 1).unwrap();
        let signals = |cursor: &Cursor, times: usize| {
            let taken = (0..times).filter_map(|_| cursor.take());
            taken.filter(|taken| taken.low_water).count()
        };
        let other = {
            let cursor = Arc::clone(&cursor);
            thread::spawn(move || signals(&cursor, 2))
        };
        let mine = signals(&cursor, 2);
        assert_eq!(mine + other.join().unwrap(), 1);
    });
}

#[test]
fn takers_and_a_batch_never_share_a_number() {
    model(3, || {
        let cursor = filled(&[(1, 2), (11, 3)]);
        let batch = spawn(&cursor, |cursor| take_batch(cursor, 3));
        let other = spawn(&cursor, |cursor| take(cursor, 1));
        let mine = take(&cursor, 2);
        let (batch, other) = (batch.join().unwrap(), other.join().unwrap());
        assert!(matches!(batch.len(), 0 | 3));
        let given = mine.len() + other.len() + batch.len();
        assert_eq!(cursor.issued(), u64::try_from(given).unwrap());
        account(&cursor, &[mine, other, batch], &[1, 2, 11, 12, 13]);
    });
}

#[test]
fn takers_and_a_fill_lose_nothing() {
    model(3, || {
        let cursor = filled(&[(1, 1)]);
        let other = spawn(&cursor, |cursor| take(cursor, 2));
        cursor.fill(block(11, 1), 0).unwrap();
        cursor.fill(block(21, 1), 0).unwrap();
        let mine = take(&cursor, 1);
        let other = other.join().unwrap();
        assert!(!mine.is_empty() && !other.is_empty());
        account(&cursor, &[mine, other], &[1, 11, 21]);
    });
}

#[test]
fn takers_and_the_fill_of_an_empty_cursor_lose_nothing() {
    model(2, || {
        let cursor = filled(&[]);
        let first = spawn(&cursor, |cursor| take(cursor, 1));
        let second = spawn(&cursor, |cursor| take_batch(cursor, 2));
        cursor.fill(block(1, 2), 0).unwrap();
        let given = [first.join().unwrap(), second.join().unwrap()];
        account(&cursor, &given, &[1, 2]);
    });
}

fn model_of_a_close(close: fn(&Cursor) -> Vec<Block>) {
    model(3, move || {
        let cursor = filled(&[(1, 2), (11, 2)]);
        let first = spawn(&cursor, |cursor| take(cursor, 2));
        let second = spawn(&cursor, |cursor| take_batch(cursor, 2));
        let returned = numbers(&close(&cursor));
        assert_eq!(cursor.take(), None);
        let given = [first.join().unwrap(), second.join().unwrap()];
        let issued: usize = given.iter().map(Vec::len).sum();
        let [first, second] = given;
        account(&cursor, &[first, second, returned], &[1, 2, 11, 12]);
        assert_eq!(cursor.issued(), u64::try_from(issued).unwrap());
        assert_eq!((cursor.take_abandoned(), cursor.remaining()), (0, 0));
    });
}

#[test]
fn a_close_returns_exactly_what_no_taker_got() {
    model_of_a_close(Cursor::close);
}

#[test]
#[should_panic(expected = "was given twice")]
fn a_close_in_two_steps_is_found_out() {
    model_of_a_close(close_in_two_steps);
}

/// Makes a wrong close: it reads the word, and moves it afterwards.
fn close_in_two_steps(cursor: &Cursor) -> Vec<Block> {
    let rest = cursor.rest();
    drop(cursor.close());
    rest
}

#[test]
fn a_cursor_closed_and_filled_again_loses_nothing() {
    model(3, || {
        let cursor = filled(&[(1, 1), (11, 1)]);
        let other = spawn(&cursor, |cursor| take(cursor, 2));
        let returned = numbers(&cursor.close());
        cursor.fill(block(21, 1), 0).unwrap();
        cursor.fill(block(31, 1), 0).unwrap();
        let mine = take(&cursor, 1);
        let other = other.join().unwrap();
        account(&cursor, &[mine, other, returned], &[1, 11, 21, 31]);
    });
}

#[test]
fn what_was_issued_never_falls_while_a_close_is_under_way() {
    model(3, || {
        let cursor = filled(&[(1, 2)]);
        let observer = spawn(&cursor, |cursor| {
            let issued = [cursor.issued(), cursor.issued()];
            assert!(issued[0] <= issued[1], "{issued:?}");
            vec![]
        });
        let taker = spawn(&cursor, |cursor| take(cursor, 1));
        let returned = cursor.close();
        observer.join().unwrap();
        let taken = taker.join().unwrap();
        let left: u64 = returned.iter().map(Block::count).sum();
        assert_eq!(cursor.issued() + left, 2);
        account(&cursor, &[taken, numbers(&returned)], &[1, 2]);
    });
}

/// Models one taker whose guess may be a block behind. The owner goes so far that the slot of the
/// claimed block is written again.
fn model_of_slot_reuse(taker: fn(&Cursor) -> Vec<i64>) {
    model(2, move || {
        let cursor = filled(&[(1, 1), (11, 2)]);
        let first = take_batch(&cursor, 1);
        let taker = spawn(&cursor, taker);
        let owner = spawn(&cursor, |cursor| {
            let mut given = take_batch(cursor, 1);
            given.extend(numbers(&cursor.close()));
            cursor.fill(block(21, 2), 0).unwrap();
            given.extend(numbers(&cursor.close()));
            // This block goes into the slot that had 11 and 12.
            cursor.fill(block(31, 2), 0).unwrap();
            given
        });
        let given = [first, taker.join().unwrap(), owner.join().unwrap()];
        account(&cursor, &given, &[1, 11, 12, 21, 22, 31, 32]);
    });
}

#[test]
fn a_slot_used_again_gives_no_number_twice() {
    model_of_slot_reuse(|cursor| take(cursor, 1));
}

#[test]
#[should_panic(expected = "was given twice")]
fn a_claim_trusted_whatever_its_generation_is_found_out() {
    model_of_slot_reuse(|cursor| take_as_read(cursor, |guessed, _| guessed));
}

#[test]
#[should_panic(expected = "was given twice")]
fn a_slot_read_without_its_generation_is_found_out() {
    model_of_slot_reuse(|cursor| take_as_read(cursor, |_, claimed| claimed));
}

/// Takes like [`Cursor::take`], but trusts a slot without a check.
///
/// `choose` gets the guessed and the claimed generation. The slot of the chosen generation is
/// believed to hold that generation's block.
fn take_as_read(cursor: &Cursor, choose: fn(u64, u64) -> u64) -> Vec<i64> {
    let Some(guessed) = cursor.guess.worth_a_claim() else {
        return vec![];
    };
    let before = cursor.slot(guessed).glance();
    let claimed = cursor.word.claim();
    let slot = if choose(guessed, generation(claimed)) == guessed {
        before
    } else {
        cursor.slot(generation(claimed)).glance()
    };
    let number = number(slot.first, slot.step, offset(claimed));
    // The model knows an empty generation from a block, because this is not the fault that it
    // tests.
    let is_block = cursor.slot(generation(claimed)).read(generation(claimed));
    if is_block.is_some_and(|view| offset(claimed) >= view.count) {
        return vec![];
    }
    vec![number]
}

#[test]
fn the_guess_never_goes_back() {
    model(3, || {
        let cursor = filled(&[(1, 1), (11, 1)]);
        let first = generation(cursor.word.load());
        let next = after(first, 1);
        let other = spawn(&cursor, |cursor| take(cursor, 2));
        let mine = take(&cursor, 1);
        let other = other.join().unwrap();
        assert_eq!(mine.len() + other.len(), 2);
        assert_eq!(cursor.take(), None);
        // All is used up, and a take has looked. A guess that is learnt late does not undo this.
        cursor.guess.learn(live(first));
        cursor.guess.learn(live(next));
        cursor.guess.learn(spent(first));
        assert_eq!(cursor.guess.worth_a_claim(), None);
        let claims = offset(cursor.word.load());
        assert!(distance(first, generation(cursor.word.load())) == 1 && claims <= 3);
        assert!(cursor.word.load() >= pack(next, 1));
    });
}
