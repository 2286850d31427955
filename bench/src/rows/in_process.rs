//! Measures threads of this process that do the same work, next to a bare `fetch_add`.
//!
//! The start of the threads is not measured. With fewer than two free cores, two threads measure
//! the scheduler.

use std::{
    hint::black_box,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{
    pace::Contender,
    reading::{Busy, Reading},
    usage,
};

pub(crate) const BARE: &str = "fetch_add";
/// Steps between two readings of the clock, about 50 µs.
const BURST: u64 = 10_000;

/// Threads that repeat `step` on the same subject. The subject is a field of this struct. So in
/// every measurement, a thread reaches its subject by exactly one pointer.
pub(crate) struct InProcess<T, F> {
    name: &'static str,
    n_threads: u32,
    /// The numbers that one step gives.
    n_each: f64,
    subject: T,
    step: F,
}

/// The counter that others are measured against. It has a cache line of its own, as their words
/// have.
#[repr(align(64))]
pub(crate) struct Bare(AtomicU64);

/// Returns a contender with threads that only count.
pub(crate) fn bare(n_threads: u32) -> Box<InProcess<Bare, impl Fn(&Bare) + Sync>> {
    let bare = Bare(AtomicU64::new(0));
    InProcess::new(BARE, n_threads, bare, |bare: &Bare| {
        black_box(bare.0.fetch_add(1, Ordering::AcqRel));
    })
}

impl<T: Sync, F: Fn(&T) + Sync> InProcess<T, F> {
    /// Makes a contender with one number for each step.
    pub(crate) fn new(name: &'static str, n_threads: u32, subject: T, step: F) -> Box<Self> {
        Box::new(Self {
            name,
            n_threads,
            n_each: 1.0,
            subject,
            step,
        })
    }

    /// Sets how many numbers each step gives.
    pub(crate) fn of_each(mut self: Box<Self>, n_each: f64) -> Box<Self> {
        self.n_each = n_each;
        self
    }
}

#[async_trait(?Send)]
impl<T: Sync, F: Fn(&T) + Sync> Contender for InProcess<T, F> {
    fn name(&self) -> &str {
        self.name
    }

    /// Measures for a third of `length`. This is enough, because nothing waits.
    async fn measure(&mut self, length: Duration) -> Reading {
        let (subject, step) = (&self.subject, &self.step);
        let make = || move || step(subject);
        measured(self.n_threads, length / 3, self.n_each, make)
    }
}

/// Measures threads that repeat what `make` makes for each of them. Each time gives `n_each`
/// numbers.
pub(crate) fn measured<W, M>(n_threads: u32, length: Duration, n_each: f64, make: M) -> Reading
where
    W: FnMut(),
    M: Fn() -> W + Sync,
{
    let before = usage::own_processor_time();
    let (steps, span) = rate(n_threads, length, make);
    let used = usage::own_processor_time().saturating_sub(before);
    let server = used.as_secs_f64() / (span.as_secs_f64() * f64::from(n_threads));
    Reading {
        busy: Some(Busy {
            server,
            client: None,
        }),
        ..Reading::of(steps * n_each)
    }
}

/// Lets each of `n_threads` threads repeat its work. Returns how often a second all of them
/// together did this, and how long they ran.
fn rate<W, M>(n_threads: u32, length: Duration, make: M) -> (f64, Duration)
where
    W: FnMut(),
    M: Fn() -> W + Sync,
{
    let barrier = Barrier::new(n_threads as usize);
    let run = || {
        let mut work = make();
        barrier.wait();
        let start = Instant::now();
        let mut n_done = 0_u64;
        while start.elapsed() < length {
            for _ in 0..BURST {
                work();
            }
            n_done += BURST;
        }
        (n_done, start, Instant::now())
    };
    let runs: Vec<(u64, Instant, Instant)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(run)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.map(|run| run.expect("no work panics")).collect()
    });
    let n_done: u64 = runs.iter().map(|run| run.0).sum();
    let start = runs.iter().map(|run| run.1).min();
    let end = runs.iter().map(|run| run.2).max();
    let span = start.zip(end).map(|(start, end)| end - start);
    let span = span.expect("there is a thread");
    (n_done as f64 / span.as_secs_f64(), span)
}
