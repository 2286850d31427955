//! Keeps a panic in its place.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::log::TARGET;

/// Does something that may panic. `None` if it did, which is logged.
pub(crate) fn survive<T>(what: &str, work: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    if outcome.is_err() {
        tracing::error!(target: TARGET, "{what} panicked");
    }
    outcome.ok()
}
