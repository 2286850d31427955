//! Tests the threads of a client, and the deadlines that they watch.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Barrier, RwLock,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    task::{Context, Wake, Waker},
    thread::ThreadId,
    time::{Duration, Instant},
};

use super::{stampers::Workers, stub::Stub, tasks::Flag, until};
use crate::{
    Client, Error, Layout, SequenceOptions,
    threads::{Job, MAX_THREADS, Threads, spawn},
    timer::Timer,
    waiter::{Outcome, Waiter},
};

#[test]
fn jobs_run_at_the_same_time() {
    let threads = Arc::new(Threads::new(spawn));
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
    let threads = Arc::new(Threads::new(spawn));
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
fn there_are_so_many_threads_at_most_and_jobs_wait_for_them() {
    let threads = Arc::new(Threads::new(spawn));
    let gate = Arc::new(RwLock::new(()));
    let held = gate.write().unwrap();
    let (sender, receiver) = mpsc::channel();
    let n_jobs = MAX_THREADS + 40;
    for _ in 0..n_jobs {
        let (gate, sender) = (Arc::clone(&gate), sender.clone());
        let job = Box::new(move || {
            let _open = gate.read().unwrap();
            sender.send(std::thread::current().id()).unwrap();
        });
        threads.run(job).unwrap();
    }
    drop(held);
    let limit = Duration::from_secs(10);
    let ids = (0..n_jobs).map(|_| receiver.recv_timeout(limit).unwrap());
    let distinct: HashSet<ThreadId> = ids.collect();
    assert_eq!(distinct.len(), MAX_THREADS);
}

#[test]
fn what_lasts_takes_no_thread_away_from_other_jobs() {
    let threads = Arc::new(Threads::new(spawn));
    let gate = Arc::new(RwLock::new(()));
    let held = gate.write().unwrap();
    for _ in 0..MAX_THREADS {
        let gate = Arc::clone(&gate);
        let job = Box::new(move || drop(gate.read().unwrap()));
        threads.start(job).unwrap();
    }
    let (sender, receiver) = mpsc::channel();
    let job = Box::new(move || sender.send(()).unwrap());
    threads.run(job).unwrap();
    receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    drop(held);
}

/// How many threads the system does not give yet. One test alone uses it, in one thread.
static N_REFUSED: AtomicU32 = AtomicU32::new(0);

fn spawn_later(job: Job) -> io::Result<()> {
    let n_refused = N_REFUSED.load(Ordering::Acquire);
    if n_refused == 0 {
        return spawn(job);
    }
    N_REFUSED.store(n_refused - 1, Ordering::Release);
    Err(io::Error::from(io::ErrorKind::WouldBlock))
}

#[test]
fn callers_are_told_if_there_is_no_thread_and_the_next_ones_get_one() {
    let stub = Stub::start();
    Workers::of(&stub);
    let builder = Client::builder().endpoints([&stub.url]);
    let (mut settings, hooks) = builder.settings().unwrap();
    settings.spawn = spawn_later;
    let client = Client::new(settings, hooks);
    let orders = client.sequence("orders").unwrap();
    let strict = SequenceOptions {
        period: Some("2026".to_owned()),
        ..SequenceOptions::default()
    };
    let strict = client.sequence_with("orders", strict).unwrap();
    let is_refused = |error: Error| matches!(error, Error::NoThread { .. });
    for _ in 0..2 {
        N_REFUSED.store(1, Ordering::Release);
        assert!(is_refused(orders.next_blocking().unwrap_err()));
        N_REFUSED.store(1, Ordering::Release);
        assert!(is_refused(strict.next_blocking().unwrap_err()));
        // Of a stamper it is the thread of its lease, and then the one that watches its deadline.
        N_REFUSED.store(2, Ordering::Release);
        let layout = Layout::default();
        let stamper = client.stamper_blocking("billing", layout, "billing-7");
        assert!(is_refused(stamper.unwrap_err()));
    }
    assert_eq!(orders.next_blocking().unwrap(), 1);
    let ids = client.stamper_blocking("billing", Layout::default(), "billing-7");
    assert!(ids.unwrap().take().is_ok());
}

#[test]
fn a_waiter_is_woken_at_its_deadline_and_not_before() {
    let (timer, threads) = (Arc::new(Timer::default()), Arc::new(Threads::new(spawn)));
    let flags = [(); 3].map(|()| Arc::new(Flag::default()));
    let waiters = flags.clone().map(|flag| {
        let (waiter, waker) = (Waiter::new(), Waker::from(flag));
        assert!(waiter.poll(&Context::from_waker(&waker)).is_pending());
        waiter
    });
    let began = Instant::now();
    let times = [60_000, 40, 50].map(|after_ms| began + Duration::from_millis(after_ms));
    let [_late, cancelled, _early] = [0, 1, 2].map(|at: usize| {
        let set = timer.wake_at(times[at], &waiters[at], &threads);
        set.unwrap()
    });
    timer.cancel(cancelled);
    until("the early one is woken", || flags[2].is_set());
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert!(!flags[0].is_set() && !flags[1].is_set());
    assert_eq!(timer.n_deadlines(), 1);
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
