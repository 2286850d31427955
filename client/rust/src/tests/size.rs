//! Tests the rate, the size of refills and the low-water mark.

use std::time::{Duration, Instant};

use odometer_core::block::MAX_COUNT;

use crate::size::{Rate, Size};

fn seconds(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

#[test]
fn a_steady_rate_is_measured() {
    let (mut rate, began) = (Rate::default(), Instant::now());
    for tick in 0..3000 {
        rate.note(began + Duration::from_millis(tick * 10), 1);
    }
    let found = rate.per_second(began + seconds(30.0));
    assert!((found - 100.0).abs() < 2.0, "{found}");
}

#[test]
fn a_rate_ends_with_its_numbers() {
    let (mut rate, began) = (Rate::default(), Instant::now());
    rate.note(began, 1000);
    assert_eq!(rate.per_second(began + seconds(0.5)), 999.0);
    let found = rate.per_second(began + seconds(10.0));
    assert!((found - 99.9).abs() < 0.01, "{found}");
    assert_eq!(rate.per_second(began + seconds(10.1)), 0.0);
}

#[test]
fn one_number_alone_is_no_rate() {
    let (mut rate, began) = (Rate::default(), Instant::now());
    rate.note(began, 1);
    assert_eq!(rate.per_second(began), 0.0);
}

#[test]
fn a_burst_after_a_rest_counts_at_once() {
    let (mut rate, began) = (Rate::default(), Instant::now());
    rate.note(began, 1);
    rate.note(began + seconds(3600.0), 81);
    assert_eq!(rate.per_second(began + seconds(3600.1)), 80.0);
}

#[test]
fn the_first_refill_has_the_initial_size() {
    let (mut size, began) = (Size::new(100), Instant::now());
    size.rate.note(began, 50_000);
    assert_eq!(size.next_size(began + seconds(1.0)), 100);
    size.note_refill(seconds(0.01));
    assert_eq!(size.next_size(began + seconds(1.0)), 499_990);
}

#[test]
fn a_rare_sequence_asks_for_one_number_and_none_for_more_than_a_block_holds() {
    let (mut size, began) = (Size::new(100), Instant::now());
    size.note_refill(seconds(0.01));
    assert_eq!(size.next_size(began + seconds(1e6)), 1);
    size.rate.note(began, u64::MAX);
    assert_eq!(size.next_size(began), MAX_COUNT);
}

#[test]
fn the_low_water_mark_follows_the_slowest_of_sixteen_refills() {
    let (mut size, began) = (Size::new(100), Instant::now());
    size.rate.note(began, 1001);
    let then = began + seconds(1.0);
    assert_eq!(size.low_water_mark(then, 100), 20.0);
    size.note_refill(seconds(3.0));
    for _ in 0..15 {
        size.note_refill(seconds(0.1));
    }
    assert_eq!(size.low_water_mark(then, 100), 6000.0);
    size.note_refill(seconds(0.1));
    assert_eq!(size.low_water_mark(then, 100), 200.0);
}

#[test]
fn what_was_not_used_leaves_the_rate() {
    let (mut rate, began) = (Rate::default(), Instant::now());
    rate.note(began, 1000);
    rate.note(began + seconds(5.0), 10);
    rate.take_back(500);
    let found = rate.per_second(began + seconds(10.0));
    assert!((found - 50.9).abs() < 0.01, "{found}");
    rate.take_back(1000);
    assert_eq!(rate.per_second(began + seconds(10.0)), 0.0);
    // It never falls below zero when the spans are forgotten.
    rate.note(began + seconds(11.0), 5);
    assert_eq!(rate.per_second(began + seconds(15.5)), 4.0 / 4.5);
}
