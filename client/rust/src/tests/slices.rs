//! Tests the numbers that a thread counts for itself.

use std::{collections::BTreeSet, thread};

use super::{
    stub::{Said, Stub, is_post, refusal},
    until,
};
use crate::{Client, Error, Sequence};

fn orders(size: u64) -> (Stub, Sequence) {
    let stub = Stub::start();
    let client = Client::builder()
        .endpoints([&stub.url])
        .initial_size(size)
        .build()
        .unwrap();
    let orders = client.sequence("orders").unwrap();
    orders.warm_blocking(size).unwrap();
    (stub, orders)
}

#[test]
fn a_slice_has_a_small_part_of_a_block_and_ascends() {
    let (_stub, orders) = orders(6_400);
    let mut slice = orders.local();
    let numbers: Vec<i64> = (0..100).map(|_| slice.take().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert_eq!(orders.left(), 6_300, "1/64 of the block");
    drop(slice);
    assert_eq!(orders.left(), 6_300, "nothing is left of it");
}

#[test]
fn a_slice_has_1024_numbers_at_most() {
    let (_stub, orders) = orders(1_000_000);
    let mut slice = orders.local();
    slice.take().unwrap();
    assert_eq!(orders.left(), 1_000_000 - 1_024);
}

#[test]
fn a_dropped_slice_leaves_its_rest_to_the_next() {
    let (_stub, orders) = orders(6_400);
    let mut first = orders.local();
    let last = (0..40).map(|_| first.take().unwrap()).last();
    drop(first);
    assert_eq!(orders.left(), 6_360);
    let mut second = orders.local();
    assert_eq!(Some(second.take().unwrap() - 1), last);
}

#[test]
fn what_a_dropped_slice_leaves_can_also_be_taken() {
    let (stub, orders) = orders(6_400);
    stub.answer(|_, _| refusal(503, "store_unavailable"));
    let mut slice = orders.local();
    slice.take().unwrap();
    drop(slice);
    let found: BTreeSet<i64> = (0..6_399).map(|_| orders.take().unwrap()).collect();
    assert_eq!((found.len(), orders.left()), (6_399, 0));
}

#[test]
fn what_a_slice_did_not_use_does_not_count_in_the_rate() {
    let (_stub, orders) = orders(6_400);
    for _ in 0..100 {
        orders.local().take().unwrap();
    }
    assert!(orders.rate() <= 99.0, "{}", orders.rate());
}

#[test]
fn a_slice_takes_no_printed_form_away() {
    let stub = Stub::start();
    stub.define("format", "#{value}");
    let client = Client::builder().endpoints([&stub.url]).initial_size(640);
    let client = client.build().unwrap();
    let orders = client.sequence("orders").unwrap();
    orders.warm_blocking(640).unwrap();
    let mut slice = orders.local();
    assert_eq!(slice.take().unwrap(), 1);
    drop(slice);
    assert_eq!(orders.take_id().unwrap(), "#2");
}

#[test]
fn slices_and_takes_share_all_numbers_and_repeat_none() {
    let (_stub, orders) = orders(20_000);
    let take = || {
        let mut given = Vec::new();
        let mut slice = orders.local();
        for _ in 0..1_000 {
            given.extend([slice.take().unwrap(), orders.take().unwrap()]);
            given.extend(orders.range_blocking(3).unwrap().values());
        }
        given
    };
    let all: Vec<i64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    let distinct: BTreeSet<i64> = all.iter().copied().collect();
    assert_eq!((all.len(), distinct.len()), (10_000, 10_000));
}

#[test]
fn the_last_numbers_of_a_block_are_taken_too() {
    let (stub, orders) = orders(100);
    stub.answer(|_, call| {
        if is_post(call) {
            return refusal(503, "store_unavailable");
        }
        Said::GoOn
    });
    let mut slice = orders.local();
    let found: BTreeSet<i64> = (0..100).map(|_| slice.take().unwrap()).collect();
    assert_eq!(found, (1..=100).collect());
    assert_eq!(slice.take().unwrap_err().code(), "empty");
}

#[test]
fn an_empty_memory_is_an_error_and_starts_a_refill() {
    let stub = Stub::start();
    let client = Client::builder().endpoints([&stub.url]).build().unwrap();
    let orders = client.sequence("orders").unwrap();
    let mut slice = orders.local();
    let error = slice.take().unwrap_err();
    assert!(matches!(error, Error::Empty { .. }), "{error}");
    until("the refill has ended", || orders.left() > 0);
    assert!(slice.take().is_ok());
}

#[test]
fn what_a_slice_has_is_forgotten_with_the_rest() {
    let (_stub, orders) = orders(6_400);
    let (mut forgotten, mut other) = (orders.local(), orders.local());
    forgotten.take().unwrap();
    other.take().unwrap();
    orders.forget();
    drop(other);
    orders.warm_blocking(100).unwrap();
    assert!(forgotten.take().unwrap() > 6_400);
}

#[test]
fn what_another_sequence_forgets_costs_a_slice_nothing() {
    let (stub, orders) = orders(6_400);
    let mut slice = orders.local();
    let first = slice.take().unwrap();
    let client = Client::builder().endpoints([&stub.url]).build().unwrap();
    client.sequence("others").unwrap().forget();
    assert_eq!(slice.take().unwrap(), first + 1);
}
