//! Lists the guards that a test may take out, to see that the test would notice.
//!
//! They can be taken out only with the cargo feature `sabotage`, which is for Odometer's own tests.

use std::sync::atomic::{AtomicBool, Ordering};

static FORKS_ARE_UNSEEN: AtomicBool = AtomicBool::new(false);
static LEASES_ARE_UNCHECKED: AtomicBool = AtomicBool::new(false);

/// Lets a forked child go on with what its parent had in memory.
#[cfg(feature = "sabotage")]
pub fn take_out_fork_hook() {
    FORKS_ARE_UNSEEN.store(true, Ordering::Relaxed);
}

/// Lets stampers make ids after their lease has ended, and of time that is not reserved for them.
#[cfg(feature = "sabotage")]
pub fn take_out_lease_checks() {
    LEASES_ARE_UNCHECKED.store(true, Ordering::Relaxed);
}

pub(crate) fn are_forks_unseen() -> bool {
    cfg!(feature = "sabotage") && FORKS_ARE_UNSEEN.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn are_leases_unchecked() -> bool {
    cfg!(feature = "sabotage") && LEASES_ARE_UNCHECKED.load(Ordering::Relaxed)
}
