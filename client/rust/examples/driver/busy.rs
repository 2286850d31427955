//! Threads that take numbers in every way, while the process forks.

use std::{
    sync::{
        Barrier, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use odometer_client::Sequence;

use crate::{child, given::Given};

/// The pause between two rounds of a thread. It bounds how many numbers there are.
const BETWEEN_ROUNDS: Duration = Duration::from_micros(100);
const N_EACH_ROUND: u64 = 10;

/// Forks again and again while other threads take, refill and forget. Returns what all of them got.
pub(crate) fn forks(sequence: &Sequence, n_forks: u64, count: u64) -> String {
    let (is_over, whole) = (AtomicBool::new(false), Mutex::new(Given::default()));
    let join = |part: Given| {
        let mut whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.join(part);
    };
    let repeat = |round: &dyn Fn() -> Given| {
        let mut given = Given::default();
        while !is_over.load(Ordering::Relaxed) {
            given.join(round());
            thread::sleep(BETWEEN_ROUNDS);
        }
        join(given);
    };
    let rounds: [fn(&Sequence) -> Given; 4] = [one_by_one, one_by_one, in_a_slice, in_a_range];
    // A child that begins while a thread starts may be unable to start threads.
    let have_begun = Barrier::new(rounds.len() + 1);
    thread::scope(|scope| {
        let (have_begun, repeat, join) = (&have_begun, &repeat, &join);
        for round in rounds {
            scope.spawn(move || {
                join(round(sequence));
                have_begun.wait();
                repeat(&|| round(sequence));
            });
        }
        have_begun.wait();
        for _ in 0..n_forks {
            let taken = child::in_both(|| Given::by(count, || sequence.next_blocking()));
            join(taken.unwrap_or_else(|error| Given::failed(&error.to_string())));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    whole.into_inner().unwrap_or_default().to_string()
}

fn one_by_one(sequence: &Sequence) -> Given {
    Given::by(N_EACH_ROUND, || sequence.next_blocking())
}

fn in_a_slice(sequence: &Sequence) -> Given {
    let mut slice = sequence.local();
    Given::by(N_EACH_ROUND, || {
        slice.take().or_else(|_| sequence.next_blocking())
    })
}

/// Takes a range. Forgets what is in memory now and then, so that there are refills.
fn in_a_range(sequence: &Sequence) -> Given {
    let mut given = Given::default();
    match sequence.range_blocking(N_EACH_ROUND) {
        Ok(range) => range.values().for_each(|value| given.add(Ok(value))),
        Err(error) => given.add(Err(error)),
    }
    if given.ends_with_zero() {
        sequence.forget();
    }
    given
}
