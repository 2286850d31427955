//! Leases that nobody has are taken back: those whose outcome was not told, and those whose askers
//! are gone. Else each would keep its id from everybody for as long as it was asked for.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use super::{
    lease::{LeaseError, LeaseKey},
    uncertainty::UncertainCall,
};
use crate::database::Database;

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::worker_lease::taking_back";

/// A statement that nobody waits for any more may still arrive for so many times `store.timeout`.
const GRACE: u32 = 3;
/// Between two attempts, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Database {
    /// Takes a lease back in a task that nobody cancels; nothing was stamped under it, so all its
    /// time is free again.
    ///
    /// It is tried until it is done, or it is certain that there is no such lease, or the lease has
    /// ended by itself.
    pub(crate) fn take_back(self: &Arc<Self>, key: LeaseKey, from_ms: i64, ttl: Duration) {
        let database = Arc::downgrade(self);
        self.handle()
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
        let ending =
            alive.give_back_lease(&key, Some(from_ms), until, UncertainCall::default(), None);
        match ending.await {
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
