//! Tests the numbers that no cursor has yet.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use odometer_core::block::Block;

use crate::buffer::{Buffer, Item, Run};

fn run(first: i64, step: i64, count: u64, born: Instant) -> Run {
    Run {
        numbers: Block::new(first, count, step).unwrap(),
        ids: None,
        born,
    }
}

fn printed(first: i64, ids: &[&str], born: Instant) -> Run {
    let ids: VecDeque<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let count = u64::try_from(ids.len()).unwrap();
    Run {
        ids: Some(ids),
        ..run(first, 1, count, born)
    }
}

fn taken(buffer: &mut Buffer) -> Vec<i64> {
    std::iter::from_fn(|| buffer.take().map(|item| item.value)).collect()
}

#[test]
fn numbers_come_in_the_order_of_their_replies() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    buffer.add(vec![run(1, 1, 2, now), run(11, 1, 1, now)]);
    buffer.add(vec![run(5, 1, 2, now)]);
    assert_eq!(buffer.left(), 5);
    assert_eq!(taken(&mut buffer), [1, 2, 11, 5, 6]);
    assert_eq!((buffer.left(), buffer.take()), (0, None));
}

#[test]
fn steps_and_the_highest_numbers_are_counted_right() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    let highest = i64::MAX - 7;
    buffer.add(vec![run(highest - 14, 7, 3, now)]);
    assert_eq!(taken(&mut buffer), [highest - 14, highest - 7, highest]);
}

#[test]
fn each_number_has_its_printed_form() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    buffer.add(vec![
        printed(1, &["a", "b", "c", "d"], now),
        printed(9, &["e"], now),
    ]);
    let item = |value, id: &str| Item {
        value,
        id: Some(id.to_owned()),
    };
    assert_eq!(buffer.take(), Some(item(1, "a")));
    let range = buffer.take_range(2).unwrap();
    assert_eq!((range.first(), range.last()), (2, 3));
    assert_eq!(buffer.take(), Some(item(4, "d")));
    assert_eq!(buffer.take_piece(1), None, "it has a printed form");
    assert_eq!(buffer.take(), Some(item(9, "e")));
}

#[test]
fn a_range_that_does_not_fit_takes_nothing() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    buffer.add(vec![run(1, 1, 5, now)]);
    buffer.add(vec![run(7, 1, 5, now)]);
    assert_eq!((buffer.take_range(6), buffer.left()), (None, 10));
}

#[test]
fn a_range_leaves_the_rest_of_a_smaller_run() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    buffer.add(vec![run(1, 2, 3, now), run(101, 2, 8, now)]);
    let values = |range: Option<Block>| range.unwrap().values().collect::<Vec<i64>>();
    assert_eq!(values(buffer.take_range(4)), [101, 103, 105, 107]);
    assert_eq!(values(buffer.take_range(3)), [1, 3, 5]);
    assert_eq!(taken(&mut buffer), [109, 111, 113, 115]);
}

#[test]
fn what_is_put_back_comes_first_and_joins_what_follows() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    buffer.add(vec![run(5, 1, 5, now)]);
    buffer.put_back(Block::new(3, 2, 1).unwrap(), now);
    assert_eq!(buffer.take_range(7).unwrap().first(), 3);
    buffer.add(vec![run(20, 1, 2, now)]);
    buffer.put_back(Block::new(11, 1, 1).unwrap(), now);
    assert_eq!(buffer.left(), 3);
    assert_eq!(taken(&mut buffer), [11, 20, 21]);
}

#[test]
fn no_number_is_taken_twice_whatever_the_calls() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    let mut seen = Vec::new();
    for at in 0..50 {
        buffer.add(vec![
            run(at * 100, 1, 7, now),
            run(at * 100 + 50, 3, 9, now),
        ]);
        for count in [3, 8, 1, 5] {
            seen.extend(buffer.take_range(count).iter().flat_map(Block::values));
        }
        if let Some(piece) = buffer.take_piece(4) {
            let (kept, given) = piece.split_front(2);
            seen.extend(given.iter().flat_map(Block::values));
            buffer.put_back(kept.unwrap(), now);
        }
        seen.extend(buffer.take().map(|item| item.value));
    }
    seen.extend(taken(&mut buffer));
    let distinct: BTreeSet<i64> = seen.iter().copied().collect();
    assert_eq!((seen.len(), distinct.len()), (50 * 16, 50 * 16));
}

#[test]
fn old_numbers_are_dropped_and_counted() {
    let (mut buffer, now) = (Buffer::default(), Instant::now());
    let later = now + Duration::from_secs(10);
    buffer.add(vec![run(1, 1, 5, now)]);
    buffer.add(vec![run(6, 1, 5, later)]);
    buffer.take();
    assert_eq!(buffer.drop_older(now), 0);
    assert_eq!(buffer.drop_older(later), 4);
    assert_eq!((buffer.left(), buffer.take()), (5, Some(Item::plain(6))));
    assert_eq!((buffer.clear(), buffer.left()), (4, 0));
}
