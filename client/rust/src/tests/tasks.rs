//! Tests callers that wait as tasks.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::future::join_all;

use super::{
    stub::{Said, Stub, is_post},
    until,
};
use crate::{
    Client, Error, Kind, Sequence, SequenceOptions,
    engine::Shared,
    hooks::{DropCause, Hooks},
    wait::Wait,
    waiter::Waiter,
};

/// Remembers that it was woken.
#[derive(Default)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs a task on a runtime that knows neither time nor I/O.
fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(task)
}

fn client(stub: &Stub) -> Client {
    Client::builder().endpoints([&stub.url]).build().unwrap()
}

#[test]
fn tasks_wait_for_numbers_in_their_order() {
    let stub = Stub::start();
    let orders = client(&stub).sequence("orders").unwrap();
    let found = run(join_all((0..20).map(|_| orders.next())));
    let found: Vec<i64> = found.into_iter().map(Result::unwrap).collect();
    assert_eq!(found, (1..=20).collect::<Vec<i64>>());
    assert_eq!(stub.n_posts(), 1);
    run(orders.warm(300)).unwrap();
    let range = run(orders.range(200)).unwrap();
    assert_eq!(range.count(), 200);
    let far = run(orders.range(5_000)).unwrap();
    assert_eq!(far.count(), 5_000);
    assert_eq!(run(orders.next_id()).unwrap(), "21");
}

#[test]
fn the_future_of_a_number_can_move_between_threads() {
    fn is_send(future: impl Future + Send) {
        drop(future);
    }
    let stub = Stub::start();
    let client = client(&stub);
    let orders = client.sequence("orders").unwrap();
    is_send(orders.next());
    is_send(orders.range(1));
    is_send(orders.warm(1));
    is_send(client.stamper("billing", crate::Layout::default(), "a"));
}

#[test]
fn a_wait_that_has_ended_leaves_no_deadline_behind() {
    let stub = Stub::start();
    let (settings, hooks) = Client::builder().endpoints([&stub.url]).settings().unwrap();
    let shared = Shared::new(settings, hooks);
    let n_deadlines = || shared.engine.with(|engine| engine.timer.n_deadlines());
    let mut context = Context::from_waker(Waker::noop());
    let deadline = shared.settings.until();
    let mut wait = Wait::new(Waiter::new(), deadline, None, &shared, "orders");
    assert!(Pin::new(&mut wait).poll(&mut context).is_pending());
    assert_eq!(n_deadlines(), 1);
    drop(wait);
    assert_eq!(n_deadlines(), 0);
}

#[test]
fn a_task_gives_up_at_its_deadline() {
    let stub = Stub::start();
    let (gate, held) = mpsc::channel::<()>();
    stub.answer(move |_, _| {
        let _released = held.recv_timeout(Duration::from_secs(10));
        Said::GoOn
    });
    let client = Client::builder()
        .endpoints([&stub.url])
        .deadline(Duration::from_millis(50))
        .build()
        .unwrap();
    let orders = client.sequence("orders").unwrap();
    let error = run(orders.next()).unwrap_err();
    assert!(matches!(error, Error::DeadlinePassed { .. }), "{error}");
    drop(gate);
    until("the refill has ended", || orders.left() == 100);
    assert_eq!(run(orders.next()).unwrap(), 1);
}

#[test]
fn a_task_of_an_unbuffered_sequence_makes_a_call_in_a_thread() {
    let stub = Stub::start();
    stub.define("order", "strict");
    let orders = client(&stub).sequence("orders").unwrap();
    assert_eq!(run(orders.next()).unwrap(), 1);
    assert_eq!(run(orders.next()).unwrap(), 2);
    assert_eq!(run(orders.range(3)).unwrap().first(), 3);
    let expected = [
        "POST next",
        "POST next",
        "POST next?count=3&contiguous=true&ids=false",
    ];
    assert_eq!(stub.take_posts(), expected);
}

struct Late(mpsc::Sender<(u64, DropCause)>);

impl Hooks for Late {
    fn dropped(&self, _sequence: &str, count: u64, cause: DropCause) {
        let _sent = self.0.send((count, cause));
    }
}

#[test]
fn a_cancelled_task_costs_a_number_at_most_and_holds_nobody_up() {
    let stub = Stub::start();
    let (sender, drops) = mpsc::channel();
    let client = Client::builder()
        .endpoints([&stub.url])
        .hooks(Late(sender))
        .build()
        .unwrap();
    let orders = client.sequence("orders").unwrap();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    {
        let mut cancelled = pin!(orders.next());
        assert!(cancelled.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(run(orders.next()).unwrap(), 1, "it stands in line no more");
    // The number of a task that was woken, and cancelled before it ran.
    orders.forget();
    drops.recv_timeout(Duration::from_secs(10)).unwrap();
    flag.clear();
    let (gate, held) = mpsc::channel::<()>();
    stub.answer(move |_, _| {
        let _released = held.recv_timeout(Duration::from_secs(10));
        Said::GoOn
    });
    {
        let mut late = pin!(orders.next());
        assert!(late.as_mut().poll(&mut context).is_pending());
        drop(gate);
        until("the task is woken", || flag.is_set());
    }
    let dropped = drops.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(dropped, (1, DropCause::Late));
}

/// A strict sequence whose calls for numbers wait until the gate is dropped.
fn held_up() -> (
    Stub,
    Sequence,
    mpsc::Sender<()>,
    mpsc::Receiver<(u64, DropCause)>,
) {
    let stub = Stub::start();
    stub.define("order", "strict");
    let (sender, drops) = mpsc::channel();
    let client = Client::builder()
        .endpoints([&stub.url])
        .hooks(Late(sender))
        .build()
        .unwrap();
    let (gate, held) = mpsc::channel::<()>();
    stub.answer(move |_, call| {
        if is_post(call) {
            let _released = held.recv_timeout(Duration::from_secs(10));
        }
        Said::GoOn
    });
    (stub, client.sequence("orders").unwrap(), gate, drops)
}

#[test]
fn the_number_of_a_call_that_nobody_waits_for_is_a_gap_that_hooks_are_told_about() {
    let (stub, orders, gate, drops) = held_up();
    run(orders.warm(1)).unwrap();
    {
        let mut cancelled = pin!(orders.next());
        let mut context = Context::from_waker(Waker::noop());
        assert!(cancelled.as_mut().poll(&mut context).is_pending());
        until("the call has come", || stub.n_posts() == 1);
    }
    drop(gate);
    let dropped = drops.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(dropped, (1, DropCause::Late));
    assert_eq!(run(orders.next()).unwrap(), 2);
}

#[test]
fn what_a_call_brings_that_was_under_way_at_a_forget_is_not_given() {
    let (stub, orders, gate, drops) = held_up();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| orders.next_blocking().unwrap());
        until("the call has come", || stub.n_posts() == 1);
        orders.forget();
        drop(gate);
        assert_eq!(caller.join().unwrap(), 2);
    });
    let dropped = drops.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(dropped, (1, DropCause::Forget));
}

#[test]
fn tasks_and_threads_wait_in_one_line() {
    let stub = Stub::start();
    let options = SequenceOptions {
        kind: Some(Kind::Buffered),
        ..SequenceOptions::default()
    };
    let orders = client(&stub).sequence_with("orders", options).unwrap();
    let (gate, held) = mpsc::channel::<()>();
    stub.answer(move |_, _| {
        let _released = held.recv_timeout(Duration::from_secs(10));
        Said::GoOn
    });
    std::thread::scope(|scope| {
        let waker = Waker::noop();
        let mut context = Context::from_waker(waker);
        let mut task = pin!(orders.next());
        assert!(task.as_mut().poll(&mut context).is_pending());
        let thread = scope.spawn(|| orders.next_blocking().unwrap());
        // The thread may stand in line only later, but then it still comes after the task.
        drop(gate);
        assert_eq!(thread.join().unwrap(), 2);
        let Poll::Ready(first) = task.as_mut().poll(&mut context) else {
            panic!("the task was not served before the thread");
        };
        assert_eq!(first.unwrap(), 1);
    });
}
