//! Waits for a condition with a deadline. A test never sleeps and hopes.

use std::time::Duration;

const BETWEEN_TWO_POLLS: Duration = Duration::from_millis(20);

/// Polls `probe` until it returns a value.
///
/// `limit` bounds the whole wait. A probe that is under way at the limit counts for nothing.
///
/// # Panics
/// If `limit` has passed; the message has `what`.
pub async fn until<T>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let polled = async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(BETWEEN_TWO_POLLS).await;
        }
    };
    match tokio::time::timeout(limit, polled).await {
        Ok(value) => value,
        Err(_) => panic!("waited {limit:?} in vain until {what}"),
    }
}

#[tokio::test]
#[should_panic(expected = "waited 10ms in vain until a probe ends")]
async fn a_probe_that_never_ends_is_given_up_as_well() {
    until("a probe ends", Duration::from_millis(10), async || {
        std::future::pending::<Option<()>>().await
    })
    .await;
}
