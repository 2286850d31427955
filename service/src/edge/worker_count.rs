//! Says how many threads serve the connections of a listener.

use std::num::NonZeroUsize;

/// The most threads that actix can have.
const MAX_WORKERS: usize = 512;

/// Returns how many threads serve a listener for callers: as many as are configured, or one for each
/// core.
pub(crate) fn worker_count(configured: Option<usize>) -> usize {
    let of_cores = || std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    configured.unwrap_or_else(of_cores).clamp(1, MAX_WORKERS)
}
