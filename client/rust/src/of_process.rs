//! Values that each process has for itself: a forked child makes another one.
//!
//! A lock of the parent may be held for ever in the child, by a thread that is not there. So the
//! child waits for none of them. It leaves the parent's value alone, which is never used or dropped
//! there, and makes a value of its own at its first use.

use std::{mem, sync::Arc};

use arc_swap::ArcSwapOption;

use crate::fork;

/// A value that a forked child must not use as its parent left it.
pub(crate) trait Renew {
    /// Makes the value of a child. It must not wait for a lock.
    fn renewed(&self) -> Self;
}

/// A value of each process.
pub(crate) struct OfProcess<T> {
    of_maker: ProcessValue<T>,
    /// The value of a process that was forked since.
    of_child: ArcSwapOption<ProcessValue<T>>,
}

/// The value of one process.
struct ProcessValue<T> {
    /// How many forks had been noticed when it was made.
    n_forks: u64,
    value: Arc<T>,
}

impl<T: Renew> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            of_maker: ProcessValue::new(fork::n_forks(), value),
            of_child: ArcSwapOption::empty(),
        }
    }

    /// Does something with the value of this process.
    #[inline]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Arc<T>) -> R) -> R {
        self.after_forks(fork::n_forks(), work)
    }

    /// Does something with the value of the process that so many forks lead to.
    #[inline]
    pub(crate) fn after_forks<R>(&self, n_forks: u64, work: impl FnOnce(&Arc<T>) -> R) -> R {
        if self.of_maker.n_forks == n_forks {
            return work(&self.of_maker.value);
        }
        // Servers that fork do all their work in children, so this is as fast.
        if let Some(present) = self.of_child.load().as_deref()
            && present.n_forks == n_forks
        {
            return work(&present.value);
        }
        work(&self.renewed(n_forks))
    }

    /// Makes the value of a child, unless another thread has made it.
    #[cold]
    fn renewed(&self, n_forks: u64) -> Arc<T> {
        loop {
            let present = self.of_child.load_full();
            let former = present.as_deref().unwrap_or(&self.of_maker);
            if former.n_forks == n_forks {
                return Arc::clone(&former.value);
            }
            let renewed = ProcessValue::new(n_forks, former.value.renewed());
            let replaced = self
                .of_child
                .compare_and_swap(&present, Some(Arc::new(renewed)));
            // What was there is not of this process, or it is what another thread has just made.
            // Neither may be dropped here.
            mem::forget(arc_swap::Guard::into_inner(replaced));
        }
    }
}

impl<T> ProcessValue<T> {
    fn new(n_forks: u64, value: T) -> Self {
        Self {
            n_forks,
            value: Arc::new(value),
        }
    }
}

impl<T> Drop for ProcessValue<T> {
    fn drop(&mut self) {
        if self.n_forks != fork::n_forks() {
            // Another process uses it. Dropping it could wait for a lock.
            mem::forget(Arc::clone(&self.value));
        }
    }
}
