//! Takes back leases that nobody has: the outcome was unknown, or the caller is gone. Without this,
//! such a lease would keep its id from everybody for as long as it was asked for.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use super::lease::{LeaseError, LeaseKey};
use crate::database::Database;

/// The target of this file's log events.
const TARGET: &str = "odometer::store::worker_lease::taking_back";

/// How long a statement that nobody waits for any more may still arrive, in multiples of
/// `store.timeout`.
const GRACE: u32 = 3;
/// The longest time between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Database {
    /// Takes a lease back in a task that nobody cancels. No id was issued under it, so all its time
    /// is free again.
    ///
    /// The task tries until it is done, or the lease has ended by itself. It also stops if it is
    /// certain that there is no such lease.
    pub(crate) fn take_back(self: &Arc<Self>, key: LeaseKey, from_ms: i64, ttl: Duration) {
        let database = Arc::downgrade(self);
        self.tasks()
            .spawn(take_back_within(database, key, from_ms, ttl));
    }
}

async fn take_back_within(database: Weak<Database>, key: LeaseKey, from_ms: i64, ttl: Duration) {
    let since = Instant::now();
    let mut longest = Duration::ZERO;
    loop {
        let Some(alive) = database.upgrade() else {
            return;
        };
        let grace = alive.settings.statement.timeout * GRACE;
        let until = Instant::now() + alive.settings.deadline;
        match alive.give_back_lease(&key, Some(from_ms), until).await {
            Ok(()) => return,
            Err(LeaseError::Lost) if since.elapsed() >= grace => return,
            Err(error) if since.elapsed() >= grace + ttl => {
                tracing::debug!(target: TARGET, %error, "a lease that nobody has ended by itself");
                return;
            }
            Err(_) => {}
        }
        longest = (longest * 2).clamp(alive.settings.statement.backoff_min, LONGEST_PAUSE);
        drop(alive);
        tokio::time::sleep(longest.mul_f64(rand::random_range(0.5..1.0))).await;
    }
}
