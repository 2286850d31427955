//! How a reservation goes, for whoever asked for it.

use tracing::Span;

/// What is known of a reservation under way beside its outcome.
#[derive(Debug)]
pub struct Course {
    call: Span,
}

impl Course {
    /// Of a reservation for this call; `Span::none()` where it is done ahead of time.
    pub fn of(call: Span) -> Self {
        Self { call }
    }

    /// The call for which it is done, as the log names it.
    pub fn call(&self) -> Span {
        self.call.clone()
    }
}

impl Default for Course {
    /// For nobody.
    fn default() -> Self {
        Self::of(Span::none())
    }
}
