//! Tests what a cursor promises, on one thread and on several.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests may fail loudly"
)]

mod model;
mod threads;

use super::{Cursor, CursorFull, TakenNumber};
use crate::block::{Block, MAX_COUNT};

/// Starts two generations short of the wrap, so that the second block is the first one after the
/// wrap.
const SHORT_OF_THE_WRAP: u32 = (1 << 31) - 2;

fn block(first: i64, count: u64) -> Block {
    Block::new(first, count, 1).unwrap()
}

fn filled(blocks: &[(i64, u64)]) -> Cursor {
    let cursor = Cursor::starting_at_generation(SHORT_OF_THE_WRAP);
    for (first, count) in blocks {
        cursor.fill(block(*first, *count), 0).unwrap();
    }
    cursor
}

fn take(cursor: &Cursor) -> Option<i64> {
    cursor.take().map(|taken| taken.value)
}

fn take_batch(cursor: &Cursor, count: u64, contiguous: bool) -> Option<Vec<(i64, u64)>> {
    let batch = cursor.take_batch(count, contiguous)?;
    assert_eq!(batch.ranges.count(), count);
    let ranges = batch
        .ranges
        .iter()
        .map(|range| (range.first(), range.count()));
    Some(ranges.collect())
}

#[test]
fn a_cursor_is_no_larger_than_five_cache_lines() {
    assert!(size_of::<Cursor>() <= 320, "{}", size_of::<Cursor>());
    assert_eq!(align_of::<Cursor>(), 64);
}

#[test]
fn an_empty_cursor_has_nothing_to_give() {
    let cursor = Cursor::new();
    assert_eq!(cursor.take(), None);
    assert_eq!(cursor.take_batch(1, false), None);
    assert_eq!(cursor.remaining(), 0);
    assert_eq!(cursor.issued(), 0);
    assert_eq!(cursor.rest(), []);
    assert_eq!(cursor.close(), []);
}

#[test]
fn numbers_come_in_order_through_the_wrap_of_generations() {
    let cursor = filled(&[]);
    let mut expected = 0;
    for n in 0_i64..9 {
        cursor.fill(Block::new(n * 100, 3, 7).unwrap(), 0).unwrap();
        for offset in 0..3 {
            assert_eq!(take(&cursor), Some(n * 100 + offset * 7));
            expected += 1;
            assert_eq!(cursor.issued(), expected);
        }
        assert_eq!(take(&cursor), None);
    }
    assert_eq!(cursor.take_abandoned(), 0);
}

#[test]
fn three_blocks_fit_and_a_fourth_when_the_first_is_used_up() {
    let cursor = filled(&[]);
    for n in 0..3_i64 {
        assert_eq!(cursor.room(), usize::try_from(3 - n).unwrap());
        cursor.fill(block(n * 2, 2), 0).unwrap();
    }
    assert_eq!(cursor.room(), 0);
    assert_eq!(cursor.fill(block(6, 2), 0), Err(CursorFull));
    assert_eq!(take(&cursor), Some(0));
    assert_eq!(cursor.room(), 0);
    assert_eq!(take(&cursor), Some(1));
    assert_eq!(cursor.room(), 1);
    cursor.fill(block(6, 2), 0).unwrap();
    assert_eq!(cursor.fill(block(8, 2), 0), Err(CursorFull));
    let rest: Vec<i64> = std::iter::from_fn(|| take(&cursor)).collect();
    assert_eq!(rest, [2, 3, 4, 5, 6, 7]);
    assert_eq!(cursor.room(), 3);
}

#[test]
fn closing_returns_what_is_left_and_filling_opens_again() {
    let cursor = filled(&[(0, 3), (10, 2), (20, 1)]);
    assert_eq!(take(&cursor), Some(0));
    assert_eq!(cursor.rest(), [block(1, 2), block(10, 2), block(20, 1)]);
    assert_eq!(cursor.remaining(), 5);
    assert_eq!(cursor.close(), [block(1, 2), block(10, 2), block(20, 1)]);
    assert_eq!(take(&cursor), None);
    assert_eq!(take_batch(&cursor, 1, false), None);
    assert_eq!((cursor.issued(), cursor.remaining()), (1, 0));
    assert_eq!(cursor.close(), []);
    for first in [30, 40, 50] {
        cursor.fill(block(first, 1), 0).unwrap();
    }
    assert_eq!(cursor.close(), [block(30, 1), block(40, 1), block(50, 1)]);
    cursor.fill(block(60, 1), 0).unwrap();
    assert_eq!(take(&cursor), Some(60));
    assert_eq!((cursor.issued(), cursor.close()), (2, vec![]));
}

#[test]
fn a_contiguous_batch_does_not_go_on_into_a_block_that_is_apart() {
    let cursor = filled(&[(0, 4), (10, 4), (20, 4)]);
    assert_eq!(take_batch(&cursor, 0, false), None);
    assert_eq!(take_batch(&cursor, 3, true), Some(vec![(0, 3)]));
    assert_eq!(take_batch(&cursor, 2, true), None);
    assert_eq!(take_batch(&cursor, 2, false), Some(vec![(3, 1), (10, 1)]));
    assert_eq!(take_batch(&cursor, 3, true), Some(vec![(11, 3)]));
    assert_eq!(take_batch(&cursor, 4, true), Some(vec![(20, 4)]));
    assert_eq!(take_batch(&cursor, 1, false), None);
    assert_eq!(cursor.issued(), 12);
}

#[test]
fn a_batch_that_goes_on_where_its_block_ends_is_one_range() {
    let cursor = filled(&[(0, 4), (4, 4), (8, 2)]);
    assert_eq!(take_batch(&cursor, 3, true), Some(vec![(0, 3)]));
    assert_eq!(take_batch(&cursor, 3, true), Some(vec![(3, 3)]));
    cursor.fill(block(20, 4), 0).unwrap();
    assert_eq!(take_batch(&cursor, 3, false), Some(vec![(6, 3)]));
    assert_eq!(take_batch(&cursor, 2, true), None);
    assert_eq!(take_batch(&cursor, 2, false), Some(vec![(9, 1), (20, 1)]));
}

#[test]
fn a_range_passes_over_a_short_rest_and_says_how_many_numbers_it_had() {
    let beyond = |cursor: &Cursor, count| {
        let (batch, n_passed) = cursor.take_beyond(count, 4)?;
        let [range] = *batch.ranges.as_slice() else {
            panic!("{batch:?}")
        };
        Some((range.first(), range.count(), n_passed))
    };
    let cursor = filled(&[(0, 4), (10, 8), (30, 3)]);
    assert_eq!(beyond(&cursor, 0), None);
    // What fits is taken from the present block.
    assert_eq!(beyond(&cursor, 1), Some((0, 1, 0)));
    // The rest is more than a fourth of the next block.
    assert_eq!(beyond(&cursor, 4), None);
    assert_eq!(take(&cursor), Some(1));
    assert_eq!(beyond(&cursor, 9), None);
    assert_eq!(beyond(&cursor, 3), Some((10, 3, 2)));
    assert_eq!((cursor.issued(), cursor.remaining()), (7, 8));
    assert_eq!(beyond(&cursor, 5), Some((13, 5, 0)));
    assert_eq!(beyond(&cursor, 4), None);
    assert_eq!(beyond(&cursor, 3), Some((30, 3, 0)));
    assert_eq!(beyond(&cursor, 1), None);
}

#[test]
fn a_batch_passes_a_block_that_is_used_up() {
    let cursor = filled(&[(0, 1), (10, 2), (20, 2)]);
    assert_eq!(take(&cursor), Some(0));
    assert_eq!(take_batch(&cursor, 3, false), Some(vec![(10, 2), (20, 1)]));
    assert_eq!(take(&cursor), Some(21));
}

#[test]
fn a_batch_never_burns_what_it_cannot_use() {
    let cursor = filled(&[(0, 2), (10, 2), (20, 100)]);
    for count in [5, 100, u64::MAX] {
        assert_eq!(take_batch(&cursor, count, false), None);
    }
    assert_eq!(cursor.remaining(), 104);
    assert_eq!(take(&cursor), Some(0));
}

#[test]
fn the_low_water_signal_comes_once_with_the_take_that_reaches_the_mark() {
    let signals = |left: u64| -> Vec<i64> {
        let cursor = Cursor::new();
        cursor.fill(block(0, 5), left).unwrap();
        let taken = std::iter::from_fn(|| cursor.take());
        let low = taken.filter(|taken| taken.low_water);
        low.map(|taken| taken.value).collect()
    };
    assert_eq!(signals(0), [4]);
    assert_eq!(signals(1), [3]);
    assert_eq!(signals(4), [0]);
    assert_eq!(signals(5), [0]);
    assert_eq!(signals(u64::MAX), [0]);
}

#[test]
fn a_batch_gives_the_low_water_signals_of_the_blocks_it_ends_in_and_leaves() {
    let cursor = Cursor::new();
    cursor.fill(block(0, 10), 5).unwrap();
    cursor.fill(block(10, 10), 5).unwrap();
    let low = |count| cursor.take_batch(count, false).unwrap().low_water;
    assert!(!low(4));
    assert!(low(4));
    assert!(!low(1));
    assert!(!low(5));
    assert!(low(1));
    assert!(!low(5));
}

#[test]
fn the_largest_block_is_used_to_its_last_number() {
    let cursor = filled(&[]);
    let first = i64::MAX - i64::try_from(MAX_COUNT).unwrap();
    cursor.fill(block(first, MAX_COUNT), 0).unwrap();
    cursor.fill(block(1, MAX_COUNT), 0).unwrap();
    let batch = take_batch(&cursor, MAX_COUNT - 1, false);
    assert_eq!(batch, Some(vec![(first, MAX_COUNT - 1)]));
    let last = TakenNumber {
        value: i64::MAX - 1,
        low_water: true,
    };
    assert_eq!(cursor.take(), Some(last));
    assert_eq!(take(&cursor), Some(1));
    assert_eq!(cursor.issued(), MAX_COUNT + 1);
    assert_eq!(cursor.close(), [block(2, MAX_COUNT - 1)]);
}

#[test]
fn a_used_up_cursor_can_be_asked_without_end() {
    let cursor = filled(&[(0, 1)]);
    assert_eq!(take(&cursor), Some(0));
    for _ in 0..100_000 {
        assert_eq!(take(&cursor), None);
    }
    // One claim overshot. The overshot offset does not count as a number.
    assert_eq!((cursor.issued(), cursor.remaining()), (1, 0));
    cursor.fill(block(1, 1), 0).unwrap();
    assert_eq!(take(&cursor), Some(1));
}
