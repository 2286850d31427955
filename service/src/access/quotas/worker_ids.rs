//! Bounds how many worker ids are held when the callers of a role lease another one.

use tokio::sync::{Mutex, MutexGuard};

/// The most worker ids that may be held in the pools of a role.
#[derive(Debug)]
pub struct WorkerIdsQuota {
    most: u64,
    turn: Mutex<()>,
}

impl WorkerIdsQuota {
    /// Creates a quota of `most` worker ids.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            turn: Mutex::default(),
        }
    }

    /// Returns the quota, in worker ids.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Waits until no other call of this replica is between its count and its lease. Two calls that
    /// count at once could both get the last worker id.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

impl PartialEq for WorkerIdsQuota {
    fn eq(&self, other: &Self) -> bool {
        self.most == other.most
    }
}

impl Eq for WorkerIdsQuota {}
