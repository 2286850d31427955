//! A clock that never steps, and that runs on while the machine sleeps where the system has one.
//!
//! The end of a lease is counted on it: the database goes on counting while this machine sleeps.

/// Returns the nanoseconds since the machine was started.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
pub(crate) fn now() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// Returns the nanoseconds since the first call. On this system, the clock may stand still while
/// the machine sleeps. Then only the time that is reserved with a worker id bounds its ids.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[inline]
pub(crate) fn now() -> u64 {
    use std::{sync::LazyLock, time::Instant};

    static ANCHOR: LazyLock<Instant> = LazyLock::new(Instant::now);
    // One nanosecond more, because 0 stands for no time at all.
    let elapsed = ANCHOR.elapsed().as_nanos().saturating_add(1);
    u64::try_from(elapsed).unwrap_or(u64::MAX)
}
