//! Tests that a forked child uses nothing of its parent. The forks are only counts here;
//! `tests/clients` forks in earnest.

use std::sync::{
    Arc, Barrier,
    atomic::{AtomicU32, Ordering},
};

use crate::{
    fork,
    of_process::{OfProcess, Renew},
};

/// A value that says how many processes lie between it and the first.
struct Generation {
    depth: u32,
    n_drops: Arc<AtomicU32>,
}

impl Renew for Generation {
    fn renewed(&self) -> Self {
        Self {
            depth: self.depth + 1,
            n_drops: Arc::clone(&self.n_drops),
        }
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.n_drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn value() -> (OfProcess<Generation>, Arc<AtomicU32>) {
    let n_drops = Arc::new(AtomicU32::new(0));
    let first = Generation {
        depth: 0,
        n_drops: Arc::clone(&n_drops),
    };
    (OfProcess::new(first), n_drops)
}

#[test]
fn a_child_gets_a_value_of_its_own_and_keeps_it() {
    let (value, _n_drops) = value();
    let here = fork::n_forks();
    assert_eq!(value.with(|it| it.depth), 0);
    let child = value.after_forks(here + 1, Arc::clone);
    assert_eq!(child.depth, 1);
    assert!(value.after_forks(here + 1, |it| Arc::ptr_eq(it, &child)));
    assert_eq!(value.after_forks(here + 2, |it| it.depth), 2);
}

#[test]
fn threads_of_a_child_share_one_value() {
    let (value, _n_drops) = value();
    let here = fork::n_forks();
    let all = Barrier::new(8);
    let values: Vec<Arc<Generation>> = std::thread::scope(|scope| {
        let take = || {
            all.wait();
            value.after_forks(here + 1, Arc::clone)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(values.iter().all(|it| Arc::ptr_eq(it, &values[0])));
}

#[test]
fn what_another_process_uses_is_never_dropped_here() {
    let (value, n_drops) = value();
    // To this process, what the child made is another one's.
    value.after_forks(fork::n_forks() + 1, |it| assert_eq!(it.depth, 1));
    drop(value);
    assert_eq!(
        n_drops.load(Ordering::Relaxed),
        1,
        "its own value is dropped"
    );
}
