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
pub struct ReservationProgress {
    call: Span,
    asked: Instant,
    turn: OnceLock<Instant>,
    n_attempts: AtomicU32,
}

impl ReservationProgress {
    /// Of a reservation for this call, which is asked for now.
    pub fn of(call: Span) -> Self {
        Self {
            call,
            asked: Instant::now(),
            turn: OnceLock::new(),
            n_attempts: AtomicU32::new(0),
        }
    }

    /// The call for which it is done, as the log names it.
    pub fn call(&self) -> Span {
        self.call.clone()
    }

    /// How long it has lasted, without the wait for its turn that one ahead of time has had.
    pub fn lasted(&self) -> Duration {
        self.turn.get().unwrap_or(&self.asked).elapsed()
    }

    /// Attempts until now, in all databases.
    pub fn n_attempts(&self) -> u32 {
        self.n_attempts.load(Ordering::Relaxed)
    }

    /// It has its turn now; of several databases the first counts.
    pub(crate) fn turn(&self) {
        let _first = self.turn.set(Instant::now());
    }

    pub(crate) fn count_attempt(&self) {
        self.n_attempts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for ReservationProgress {
    /// For nobody.
    fn default() -> Self {
        Self::of(Span::none())
    }
}
