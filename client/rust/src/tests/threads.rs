//! Tests the threads of a client, and the deadlines that they watch.

use std::{
    sync::{Arc, Barrier, mpsc},
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use super::until;
use crate::{
    threads::Threads,
    timer::Timer,
    waiter::{Outcome, Waiter},
};

#[test]
fn jobs_run_at_the_same_time() {
    let threads = Arc::new(Threads::default());
    let all = Arc::new(Barrier::new(9));
    for _ in 0..8 {
        let all = Arc::clone(&all);
        let job = Box::new(move || {
            all.wait();
        });
        threads.run(job).unwrap();
    }
    all.wait();
}

fn panics() {
    panic!("on purpose");
}

#[test]
fn a_thread_does_the_next_job_even_if_another_one_panicked() {
    let threads = Arc::new(Threads::default());
    threads.run(Box::new(panics)).unwrap();
    for _ in 0..100 {
        let (sender, receiver) = mpsc::channel();
        let job = Box::new(move || {
            let _sent = sender.send(());
        });
        threads.run(job).unwrap();
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}

#[test]
fn a_waiter_is_woken_at_its_deadline_and_not_before() {
    let (timer, threads) = (Arc::new(Timer::default()), Arc::new(Threads::default()));
    let began = Instant::now();
    let early = Waiter::new();
    let late = Waiter::new();
    for (waiter, after) in [(&late, 60_000), (&early, 50)] {
        let at = began + Duration::from_millis(after);
        timer.wake_at(at, waiter, &threads).unwrap();
    }
    let flag = Arc::new(super::tasks::Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let context = Context::from_waker(&waker);
    assert!(early.poll(&context).is_pending());
    until("the early one is woken", || flag.is_set());
    assert!(began.elapsed() >= Duration::from_millis(50));
    flag.clear();
    assert!(late.poll(&context).is_pending());
    late.settle(Outcome::Ready);
    late.wake();
    assert!(flag.is_set() && late.poll(&context).is_ready());
}

#[test]
fn a_waiter_is_settled_once() {
    let waiter = Waiter::new();
    assert!(!waiter.is_settled());
    assert!(waiter.settle(Outcome::Ready));
    assert!(!waiter.settle(Outcome::Failed(crate::Error::TimeEnds)) && !waiter.give_up());
    assert!(matches!(waiter.take_outcome(), Some(Outcome::Ready)));
    assert!(waiter.is_settled() && waiter.take_outcome().is_none());
    let late = Waiter::new();
    assert!(late.give_up());
    assert!(!late.settle(Outcome::Ready), "nobody would get it");
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panics();
    }
}

#[test]
fn a_waker_that_panics_harms_only_its_task() {
    let waiter = Waiter::new();
    let waker = Waker::from(Arc::new(PanickingWaker));
    assert!(waiter.poll(&Context::from_waker(&waker)).is_pending());
    waiter.settle(Outcome::Ready);
    waiter.wake();
    assert!(waiter.poll(&Context::from_waker(&waker)).is_ready());
}
