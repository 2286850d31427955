//! How a reservation goes, for whoever asked for it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tracing::Span;

/// What is known of a reservation beside its outcome, also while it is under way.
#[derive(Debug)]
pub struct Course {
    call: Span,
    began: OnceLock<Instant>,
    n_attempts: AtomicU32,
}

impl Course {
    /// Of a reservation for this call, which begins now.
    pub fn of(call: Span) -> Self {
        let course = Self::ahead(call);
        course.begin();
        course
    }

    /// Of one that is done ahead of time, which begins when it is its turn.
    pub fn ahead(call: Span) -> Self {
        Self {
            call,
            began: OnceLock::new(),
            n_attempts: AtomicU32::new(0),
        }
    }

    /// The call for which it is done, as the log names it.
    pub fn call(&self) -> Span {
        self.call.clone()
    }

    /// How long it has lasted, without the wait for its turn.
    pub fn lasted(&self) -> Duration {
        self.began.get().map(Instant::elapsed).unwrap_or_default()
    }

    /// Attempts until now, in all databases.
    pub fn n_attempts(&self) -> u32 {
        self.n_attempts.load(Ordering::Relaxed)
    }

    pub(in crate::store) fn begin(&self) {
        // Of several databases the first counts.
        let _began = self.began.set(Instant::now());
    }

    pub(in crate::store) fn count_attempt(&self) {
        self.n_attempts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for Course {
    /// For nobody.
    fn default() -> Self {
        Self::of(Span::none())
    }
}
