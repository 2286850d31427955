//! A refill, from its start to its end.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A refill. Only the stock's present flight changes the stock.
#[derive(Default)]
pub(crate) struct Flight {
    is_hurried: Mutex<bool>,
    hurried: Condvar,
}

impl Flight {
    /// Waits this long, or until somebody is in a hurry.
    pub(crate) fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut is_hurried = self
            .is_hurried
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while !*is_hurried {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.hurried.wait_timeout(is_hurried, left);
            (is_hurried, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the pause.
    pub(crate) fn hurry(&self) {
        *self
            .is_hurried
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.hurried.notify_all();
    }
}
