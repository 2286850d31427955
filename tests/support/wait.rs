//! Waiting for something to become true, with a deadline: never a sleep and a hope.

use std::time::{Duration, Instant};

const BETWEEN_TWO_POLLS: Duration = Duration::from_millis(20);

/// Polls `probe` until it gives a value.
///
/// # Panics
/// When `limit` has passed; the message names `what` was waited for.
pub async fn until<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            started.elapsed() < limit,
            "waited {limit:?} in vain until {what}"
        );
        tokio::time::sleep(BETWEEN_TWO_POLLS).await;
    }
}
