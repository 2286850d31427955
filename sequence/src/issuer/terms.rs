//! Counts how many owners an issuer has had.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of owners that an issuer has had. This number is the term of its present owner.
#[derive(Debug, Default)]
pub(crate) struct Terms(AtomicU64);

impl Terms {
    /// Returns the term of the present owner.
    pub(crate) fn current(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Begins the term after `term`. Returns `None` if another owner was faster.
    pub(crate) fn begin_after(&self, term: u64) -> Option<u64> {
        let next = term.wrapping_add(1);
        self.0
            .compare_exchange(term, next, Ordering::AcqRel, Ordering::Acquire)
            .ok()
            .map(|_| next)
    }
}
