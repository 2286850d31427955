//! Lists the guards that a test may take out, to see that the test would notice.
//!
//! They can be taken out only with the cargo feature `sabotage`, which is for Odometer's own tests.

use std::sync::atomic::{AtomicBool, Ordering};

static FORKS_ARE_UNSEEN: AtomicBool = AtomicBool::new(false);
static ENDS_ARE_UNCHECKED: AtomicBool = AtomicBool::new(false);
static TIME_IS_UNCHECKED: AtomicBool = AtomicBool::new(false);

/// Lets a forked child go on with what its parent had in memory.
#[cfg(feature = "sabotage")]
pub fn take_out_fork_hook() {
    FORKS_ARE_UNSEEN.store(true, Ordering::Relaxed);
}

/// Lets stampers make ids after their lease has ended by their own clock.
#[cfg(feature = "sabotage")]
pub fn take_out_lease_end() {
    ENDS_ARE_UNCHECKED.store(true, Ordering::Relaxed);
}

/// Lets stampers make ids of time that is not reserved for them, although they lost their lease.
#[cfg(feature = "sabotage")]
pub fn take_out_reserved_time() {
    TIME_IS_UNCHECKED.store(true, Ordering::Relaxed);
}

pub(crate) fn are_forks_unseen() -> bool {
    cfg!(feature = "sabotage") && FORKS_ARE_UNSEEN.load(Ordering::Relaxed)
}

#[inline]
pub(crate) fn are_ends_unchecked() -> bool {
    cfg!(feature = "sabotage") && ENDS_ARE_UNCHECKED.load(Ordering::Relaxed)
}

pub(crate) fn is_time_unchecked() -> bool {
    cfg!(feature = "sabotage") && TIME_IS_UNCHECKED.load(Ordering::Relaxed)
}
