//! What is left to do after a stock's lock is released.

use std::sync::Arc;

use crate::{
    flight::Flight,
    hooks::{DropCause, SafeHooks},
    waiter::Waiter,
};

/// Work that must not be done under the lock, because it runs code of the program or starts a
/// thread.
#[must_use = "callers are woken, and a refill is started, by what it says"]
#[derive(Default)]
pub(crate) struct After {
    /// A refill that is to be started.
    pub(crate) flight: Option<Arc<Flight>>,
    woken: Vec<Arc<Waiter>>,
    dropped: Vec<(u64, DropCause)>,
}

impl After {
    /// Lets a caller be woken, who is settled already.
    pub(crate) fn wake(&mut self, waiter: Arc<Waiter>) {
        self.woken.push(waiter);
    }

    /// Lets the hooks be told about numbers that are gaps now.
    pub(crate) fn drop_numbers(&mut self, count: u64, cause: DropCause) {
        if count > 0 {
            self.dropped.push((count, cause));
        }
    }

    /// Wakes callers and tells the hooks. The flight is the caller's task.
    pub(crate) fn tell(self, sequence: &str, hooks: &SafeHooks) {
        for waiter in &self.woken {
            waiter.wake();
        }
        for (count, cause) in self.dropped {
            hooks.dropped(sequence, count, cause);
        }
    }
}
