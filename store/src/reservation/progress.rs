//! Shows how a reservation goes to the caller who asked for it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tracing::Span;

/// The progress of a reservation, which can be read while the reservation is under way.
#[derive(Debug)]
pub struct ReservationProgress {
    call: Span,
    asked: Instant,
    turn: OnceLock<Instant>,
    n_attempts: AtomicU32,
}

impl ReservationProgress {
    /// Creates the progress of a reservation for this call. The reservation counts as asked for
    /// now.
    pub fn of(call: Span) -> Self {
        Self {
            call,
            asked: Instant::now(),
            turn: OnceLock::new(),
            n_attempts: AtomicU32::new(0),
        }
    }

    /// Returns the call that the reservation is for, as the log names it.
    pub fn call(&self) -> Span {
        self.call.clone()
    }

    /// Returns how long the reservation has lasted, without the time that a prefetch waited for its
    /// permit.
    pub fn lasted(&self) -> Duration {
        self.turn.get().unwrap_or(&self.asked).elapsed()
    }

    /// Returns the number of attempts until now, in all databases.
    pub fn n_attempts(&self) -> u32 {
        self.n_attempts.load(Ordering::Relaxed)
    }

    /// Notes that a prefetch has stopped waiting for its permit. If several databases are asked,
    /// the first one counts.
    pub(crate) fn turn(&self) {
        let _first = self.turn.set(Instant::now());
    }

    pub(crate) fn count_attempt(&self) {
        self.n_attempts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Default for ReservationProgress {
    /// Creates the progress of a reservation that belongs to no call.
    fn default() -> Self {
        Self::of(Span::none())
    }
}
