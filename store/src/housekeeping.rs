//! Repeats the chores of each database. A chore looks after some of the tables.
//!
//! A chore that takes long, or waits for a lock, does not hold up the others: each of them waits
//! for itself alone. Three tasks of a database are no chores, because nothing may hold them up. The
//! poll raises the heartbeat, and replicas must know a change in time. The monitor finds out
//! whether the database is there. The writer of the journal follows its queue.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use odometer_database::failure::StatementFailure;

use crate::{
    database::Database,
    journal::{
        overlap::{self, Overlaps},
        prune::{self, Pruner},
    },
    removal::{self, Remover},
    worker_lease::{fullness, unconfirmed},
};

/// Work that is repeated for as long as the database's runtime lives.
pub(crate) trait Chore: Send + 'static {
    /// Does the work once, while the database answers. Returns how long to wait before the next
    /// pass.
    fn pass(
        &mut self,
        database: &Arc<Database>,
    ) -> impl Future<Output = Result<Duration, PassFailure>> + Send;

    /// Warns that a pass failed. Of passes that fail one after the other, only the first is warned
    /// of.
    fn warn(&self, _cause: &str) {}
}

/// Why a pass did not do all of its work, and how long to wait before the next one.
pub(crate) type PassFailure = (StatementFailure, Duration);

/// A chore of worker leases, which always waits as long.
struct LeaseChore {
    between: Duration,
    work: fn(Arc<Database>) -> BoxFuture<'static, ()>,
}

impl Chore for LeaseChore {
    async fn pass(&mut self, database: &Arc<Database>) -> Result<Duration, PassFailure> {
        (self.work)(Arc::clone(database)).await;
        Ok(self.between)
    }
}

/// Starts the chores of a database.
pub(crate) fn start(database: &Arc<Database>) {
    let of_leases = |between, work| repeat(database, between, LeaseChore { between, work });
    let between_looks = database.settings.definition_refresh / 2;
    let chores = [
        repeat(database, overlap::FIRST_WAIT, Overlaps::default()),
        repeat(database, prune::FIRST_WAIT, Pruner),
        repeat(database, removal::FIRST_WAIT, Remover),
        of_leases(between_looks, |database| {
            Box::pin(unconfirmed::watch(database))
        }),
        of_leases(between_looks * fullness::LOOKS_A_COUNT, |database| {
            Box::pin(async move { database.show_fullness().await })
        }),
    ];
    // Each chore has a task of its own: a panic of one does not end the others.
    for chore in chores {
        database.tasks().spawn(chore);
    }
}

/// Repeats a chore for as long as the database is in use. At most `first` is waited before the
/// first pass, and while the database is away.
fn repeat(
    database: &Arc<Database>,
    first: Duration,
    mut chore: impl Chore,
) -> BoxFuture<'static, ()> {
    let database = Arc::downgrade(database);
    Box::pin(async move {
        let mut pause = jittered(first);
        let mut has_warned = false;
        loop {
            tokio::time::sleep(pause).await;
            let Some(database) = database.upgrade() else {
                return;
            };
            if !database.is_up() {
                pause = jittered(first);
                continue;
            }
            pause = match chore.pass(&database).await {
                Ok(pause) => {
                    has_warned = false;
                    pause
                }
                Err((failure, pause)) => {
                    if !std::mem::replace(&mut has_warned, true) {
                        chore.warn(failure.cause().text());
                    }
                    pause
                }
            };
        }
    })
}

/// Returns a random half to all of a pause, so that replicas do not do a chore at the same time.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + 0.5 * rand::random::<f64>())
}
