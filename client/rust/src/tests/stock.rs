//! Tests who gets which number, and the one refill in flight. No thread of a client runs: the tests
//! are the refill.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use odometer_core::block::Block;

use super::lowest;
use crate::{
    after::After,
    buffer::Run,
    definition::Definition,
    error::{Error, Refusal},
    flight::Flight,
    hooks::{DropCause, Hooks, SafeHooks},
    of_process::Renew,
    stock::{SliceGrant, Stock, StockSettings},
    waiter::{Outcome, Waiter},
};

const BUFFERED: Definition = Definition {
    is_buffered: true,
    prints_values: true,
};
const STRICT: Definition = Definition {
    is_buffered: false,
    prints_values: true,
};

type Drops = Arc<Mutex<Vec<(u64, DropCause)>>>;

struct DropHooks(Drops);

impl Hooks for DropHooks {
    fn dropped(&self, _sequence: &str, count: u64, cause: DropCause) {
        self.0.lock().unwrap().push((count, cause));
    }
}

/// A stock whose flights wait for the test.
struct Scene {
    stock: Stock,
    flights: Vec<Arc<Flight>>,
    drops: Drops,
    hooks: SafeHooks,
    now: Instant,
}

fn lost() -> Error {
    Error::Unreachable {
        endpoint: "http://a".into(),
        timed_out: false,
        detail: "no reply".into(),
    }
}

fn gone() -> Error {
    Error::Refused(Arc::new(Refusal {
        status: 410,
        code: "sequence_retired".to_owned(),
        detail: "It is.".to_owned(),
        endpoint: "http://a".into(),
        limit: None,
        retry_after: None,
    }))
}

impl Scene {
    fn new() -> Self {
        Self::of(None, Some(BUFFERED))
    }

    fn with_age(max_age: Duration) -> Self {
        Self::of(Some(max_age), Some(BUFFERED))
    }

    fn of(max_age: Option<Duration>, known: Option<Definition>) -> Self {
        let settings = StockSettings {
            initial_size: 100,
            max_age,
            uniform: lowest,
        };
        let drops = Drops::default();
        Self {
            stock: Stock::new(settings, known),
            flights: Vec::new(),
            hooks: SafeHooks::new(DropHooks(Arc::clone(&drops))),
            drops,
            now: Instant::now(),
        }
    }

    fn finish(&mut self, mut after: After) {
        self.flights.extend(after.flight.take());
        after.tell("orders", &self.hooks);
    }

    fn take(&mut self) -> Option<i64> {
        if let Some(taken) = self.stock.take_in_front() {
            if taken.low_water {
                let after = self.stock.end_piece(self.now);
                self.finish(after);
            }
            return Some(taken.value);
        }
        let (item, after) = self.stock.take(self.now);
        self.finish(after);
        item.map(|item| item.value)
    }

    fn take_slice(&mut self) -> Option<SliceGrant> {
        let (slice, after) = self.stock.take_slice(self.now);
        self.finish(after);
        slice
    }

    fn last_flight(&self) -> Arc<Flight> {
        Arc::clone(self.flights.last().unwrap())
    }

    fn wanted(&self) -> Option<u64> {
        self.stock.wanted(&self.last_flight(), self.now)
    }

    fn give(&mut self, first: i64, count: u64) {
        let run = Run {
            numbers: Block::new(first, count, 1).unwrap(),
            ids: None,
            born: self.now,
        };
        let flight = self.last_flight();
        let after = self.stock.deliver(&flight, vec![run], self.now, self.now);
        self.finish(after);
    }

    /// Gives what the flight wants, which must then be enough.
    fn deliver(&mut self, first: i64, count: u64) {
        assert!(self.wanted().is_some());
        self.give(first, count);
        assert_eq!(self.wanted(), None, "one reply was not enough");
    }

    /// Says that the sequence is strict, and gives what was asked for at some time to learn it.
    fn learn(&mut self, count: u64, asked: Instant) {
        let run = Run {
            numbers: Block::new(1, count, 1).unwrap(),
            ids: None,
            born: asked,
        };
        let flight = self.last_flight();
        let after = self.stock.learn(&flight, STRICT, vec![run], self.now);
        self.finish(after);
    }

    fn fail(&mut self, error: &Error) -> Option<Duration> {
        let flight = self.last_flight();
        let (pause, after) = self.stock.fail(&flight, error, true, self.now);
        self.finish(after);
        pause
    }

    /// Lets a caller stand in line.
    fn wait(&mut self) -> Arc<Waiter> {
        let waiter = Waiter::new();
        let (outcome, after) = self.stock.take_or_wait(&waiter, self.now);
        self.finish(after);
        assert!(outcome.is_none());
        waiter
    }

    fn forget(&mut self) {
        let after = self.stock.forget(self.now);
        self.finish(after);
    }

    fn drops(&self) -> Vec<(u64, DropCause)> {
        self.drops.lock().unwrap().clone()
    }

    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }
}

fn number(waiter: &Waiter) -> Option<i64> {
    if let Some(Outcome::Number(item)) = waiter.take_outcome() {
        Some(item.value)
    } else {
        None
    }
}

#[test]
fn a_take_from_nothing_starts_one_refill() {
    let mut scene = Scene::new();
    for _ in 0..5 {
        assert_eq!(scene.take(), None);
    }
    assert_eq!(scene.flights.len(), 1);
    scene.deliver(1, 100);
    assert_eq!(scene.take(), Some(1));
}

#[test]
fn a_prefetch_starts_below_twenty_per_cent_and_once() {
    let mut scene = Scene::new();
    scene.take();
    scene.deliver(1, 100);
    for _ in 0..80 {
        scene.take();
    }
    assert_eq!(scene.flights.len(), 1);
    scene.take();
    scene.take();
    assert_eq!(scene.flights.len(), 2);
}

#[test]
fn there_are_two_blocks_at_most() {
    let mut scene = Scene::new();
    scene.take();
    scene.deliver(1, 100);
    for _ in 0..85 {
        scene.take();
    }
    scene.deliver(101, 1);
    for _ in 0..10 {
        scene.take();
    }
    assert_eq!(scene.flights.len(), 2);
}

#[test]
fn a_small_block_behind_a_large_one_is_prefetched_in_time_too() {
    let mut scene = Scene::new();
    scene.take();
    scene.deliver(1, 6_400);
    for _ in 0..6_000 {
        scene.take();
    }
    scene.deliver(6_401, 100);
    for _ in 6_000..6_480 {
        scene.take();
    }
    assert_eq!(scene.flights.len(), 2);
    for _ in 0..3 {
        assert!(scene.take().is_some());
    }
    assert_eq!(scene.flights.len(), 3);
}

#[test]
fn numbers_come_in_order_whether_the_cursor_has_them_or_not() {
    let mut scene = Scene::new();
    scene.take();
    scene.give(1, 10_000);
    scene.give(10_001, 500);
    for expected in 1..=10_500 {
        scene.pass(0.001);
        assert_eq!(scene.take(), Some(expected));
    }
    assert_eq!(scene.take(), None);
}

#[test]
fn a_range_is_unbroken_even_if_the_cursor_has_a_part_of_it() {
    let mut scene = Scene::new();
    scene.take();
    scene.give(1, 10_000);
    assert_eq!(scene.take(), Some(1));
    let (range, after) = scene.stock.take_range(5_000, scene.now);
    scene.finish(after);
    let range = range.unwrap();
    assert_eq!((range.first(), range.count()), (2, 5_000));
    assert_eq!(scene.take(), Some(5_002));
    let (none, after) = scene.stock.take_range(5_000, scene.now);
    scene.finish(after);
    assert_eq!((none, scene.take()), (None, Some(5_003)));
}

#[test]
fn waiters_are_served_in_order_and_new_callers_do_not_overtake() {
    let mut scene = Scene::new();
    let waiters = [scene.wait(), scene.wait(), scene.wait()];
    scene.give(1, 2);
    let late = scene.wait();
    scene.give(3, 9);
    let found = [&waiters[0], &waiters[1], &waiters[2], &late].map(|it| number(it));
    assert_eq!(found, [Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!(scene.take(), Some(5));
}

#[test]
fn giving_up_costs_nobody_a_number_and_ends_no_refill() {
    let mut scene = Scene::new();
    let (first, second) = (scene.wait(), scene.wait());
    assert!(scene.stock.withdraw(&first));
    scene.deliver(1, 100);
    assert!(!scene.stock.withdraw(&second));
    assert_eq!((number(&first), number(&second)), (None, Some(1)));
    assert_eq!(scene.take(), Some(2));
}

#[test]
fn a_failed_refill_is_not_in_flight_any_more() {
    let mut scene = Scene::new();
    scene.take();
    let defect = Error::setting("a defect");
    for (n_flights, failure) in [(2, gone()), (3, defect)] {
        assert_eq!(scene.fail(&failure), None);
        scene.take();
        assert_eq!(scene.flights.len(), n_flights);
    }
    // However a thread ends: its flight ends with it.
    let after = scene.stock.end(&scene.last_flight(), None);
    scene.finish(after);
    scene.take();
    assert_eq!(scene.flights.len(), 4);
}

#[test]
fn without_its_end_a_flight_would_block_the_next_one() {
    let mut scene = Scene::new();
    scene.take();
    scene.pass(3600.0);
    scene.take();
    assert_eq!(scene.flights.len(), 1);
}

#[test]
fn a_refill_is_tried_again_and_ends_if_nobody_waits() {
    let mut scene = Scene::new();
    scene.take();
    let pauses: Vec<_> = (0..10).map(|_| scene.fail(&lost())).collect();
    assert!(pauses[..9].iter().all(Option::is_some));
    assert_eq!(pauses[9], None);
    let waiter = scene.wait();
    assert_eq!(scene.flights.len(), 2);
    let mut pauses = (0..25).map(|_| scene.fail(&lost()));
    assert!(pauses.all(|pause| pause.is_some()));
    assert!(!waiter.is_settled());
}

#[test]
fn a_refusal_reaches_all_who_wait() {
    let mut scene = Scene::new();
    let waiters = [scene.wait(), scene.wait(), scene.wait()];
    scene.fail(&gone());
    for waiter in waiters {
        let Some(Outcome::Failed(error)) = waiter.take_outcome() else {
            panic!("a caller was not told");
        };
        assert_eq!(error.code(), "sequence_retired");
    }
    let last = scene.stock.last_error().unwrap();
    assert_eq!(last.code(), "sequence_retired");
}

#[test]
fn what_was_on_its_way_is_dropped_by_forget() {
    let mut scene = Scene::new();
    let waiter = scene.wait();
    let early = scene.last_flight();
    scene.forget();
    assert_eq!(scene.stock.wanted(&early, scene.now), None);
    let run = Run {
        numbers: Block::new(1, 100, 1).unwrap(),
        ids: None,
        born: scene.now,
    };
    let after = scene.stock.deliver(&early, vec![run], scene.now, scene.now);
    scene.finish(after);
    assert!(!waiter.is_settled());
    assert_eq!(scene.drops(), [(100, DropCause::Forget)]);
    scene.deliver(101, 100);
    assert_eq!(number(&waiter), Some(101));
    scene.forget();
    assert_eq!(scene.drops().last(), Some(&(99, DropCause::Forget)));
    assert_eq!(scene.take(), None);
}

#[test]
fn old_numbers_are_dropped() {
    let mut scene = Scene::with_age(Duration::from_secs(10));
    scene.take();
    scene.deliver(1, 100);
    scene.pass(9.9);
    assert_eq!(scene.take(), Some(1));
    scene.pass(0.2);
    assert_eq!(scene.take(), None);
    assert_eq!(scene.drops(), [(99, DropCause::MaxAge)]);
}

#[test]
fn a_warm_start_waits_for_its_count() {
    let mut scene = Scene::new();
    let waiter = Waiter::new();
    let after = scene.stock.warm(&waiter, 250, scene.now);
    scene.finish(after);
    assert_eq!(scene.wanted(), Some(250));
    scene.give(1, 200);
    assert!(!waiter.is_settled());
    assert_eq!(scene.wanted(), Some(50));
    scene.deliver(201, 50);
    assert!(waiter.is_settled());
    let (readings, after) = scene.stock.readings(scene.now);
    scene.finish(after);
    assert_eq!(readings.left, 250);
}

#[test]
fn an_unbuffered_sequence_keeps_nothing_and_lets_nobody_wait() {
    let mut scene = Scene::of(None, None);
    let waiters = [scene.wait(), scene.wait()];
    scene.learn(1, scene.now);
    assert_eq!(number(&waiters[0]), Some(1));
    assert!(matches!(waiters[1].take_outcome(), Some(Outcome::Ready)));
    assert!(scene.stock.is_unbuffered());
    assert_eq!(scene.wanted(), None);
}

#[test]
fn the_first_numbers_of_a_strict_sequence_are_not_for_callers_who_came_after_them() {
    let mut scene = Scene::of(None, None);
    let early = scene.wait();
    let asked = scene.now;
    scene.pass(1.0);
    // Another process has got a higher number by now.
    let late = scene.wait();
    scene.learn(100, asked);
    assert_eq!(number(&early), Some(1));
    assert!(matches!(late.take_outcome(), Some(Outcome::Ready)));
    assert_eq!(scene.drops(), [(99, DropCause::Late)]);
}

#[test]
fn a_call_for_a_range_does_not_hide_why_a_refill_failed() {
    let mut scene = Scene::new();
    scene.take();
    scene.fail(&gone());
    scene.stock.note_call(None);
    let last = scene.stock.last_error().unwrap();
    assert_eq!(last.code(), "sequence_retired");
}

#[test]
fn a_child_has_no_numbers_and_waits_for_no_lock_of_its_parent() {
    let mut scene = Scene::new();
    scene.take();
    scene.deliver(1, 100);
    let child = scene.stock.while_locked(|| scene.stock.renewed());
    assert_eq!(child.definition(), Some(BUFFERED));
    assert!(child.take_in_front().is_none());
    let (item, after) = child.take(scene.now);
    assert_eq!((item, after.flight.is_some()), (None, true));
    assert!(scene.drops().is_empty());
}

#[test]
fn what_a_slice_gives_back_reaches_a_caller_who_waits() {
    let mut scene = Scene::new();
    scene.take();
    scene.deliver(1, 6_400);
    let slice = scene.take_slice().unwrap();
    assert_eq!(slice.numbers.count(), 100);
    while scene.take().is_some() {}
    let waiter = scene.wait();
    let after = scene.stock.give_back(slice, scene.now);
    scene.finish(after);
    assert_eq!(number(&waiter), Some(slice.numbers.first()));
    assert_eq!(scene.take(), Some(slice.numbers.first() + 1));
}

#[test]
fn what_a_slice_gives_back_after_a_forget_is_dropped() {
    let mut scene = Scene::new();
    scene.take();
    scene.deliver(1, 6_400);
    let slice = scene.take_slice().unwrap();
    scene.forget();
    let after = scene.stock.give_back(slice, scene.now);
    scene.finish(after);
    let forget = DropCause::Forget;
    assert_eq!(scene.drops(), [(6_300, forget), (100, forget)]);
    assert_eq!(scene.take(), None);
}

#[test]
fn a_slice_of_numbers_that_get_too_old_has_one() {
    let mut scene = Scene::with_age(Duration::from_secs(10));
    scene.take();
    scene.deliver(1, 6_400);
    let slice = scene.take_slice().unwrap();
    assert_eq!((slice.numbers.first(), slice.numbers.count()), (1, 1));
    scene.pass(10.1);
    assert!(scene.take_slice().is_none());
    assert_eq!(scene.drops(), [(6_399, DropCause::MaxAge)]);
}

#[test]
fn who_waits_through_a_forget_hears_that_each_number_is_a_call() {
    let mut scene = Scene::of(None, None);
    let waiter = scene.wait();
    let before = scene.last_flight();
    scene.forget();
    let after = scene.stock.learn(&before, STRICT, Vec::new(), scene.now);
    scene.finish(after);
    assert!(matches!(waiter.take_outcome(), Some(Outcome::Ready)));
    assert_eq!(scene.wanted(), None);
}
