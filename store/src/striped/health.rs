//! Which of a store's databases are asked: those that did what they were last asked for.
//!
//! One failure is enough to pass a database over, because another one does as well. Whether it is
//! back is found out by a look in the background, not by a caller.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_database::connection::Health;
use tokio::sync::Notify;

use crate::{database::Database, installation_id};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::striped::health";

/// Between two looks at a database that fails, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a look may take; what is slower than this is of no use to a caller either.
const LOOK: Duration = Duration::from_millis(500);
/// Doublings of the pause that are told apart.
const MAX_DOUBLINGS: u32 = 10;

/// One database, and whether it is asked.
pub(crate) struct Member {
    pub(crate) database: Arc<Database>,
    is_passed_over: AtomicBool,
    /// How many times it was passed over: what was known of its counters before may be long ago.
    era: AtomicU64,
    /// Failures since it last did what it was asked for.
    n_failures: AtomicU32,
    failed: Notify,
}

impl Member {
    pub(crate) fn start(database: Arc<Database>) -> Arc<Self> {
        let handle = database.handle().clone();
        let member = Arc::new(Self {
            database,
            is_passed_over: AtomicBool::new(false),
            era: AtomicU64::new(0),
            n_failures: AtomicU32::new(0),
            failed: Notify::new(),
        });
        handle.spawn(watch(Arc::downgrade(&member)));
        member
    }

    /// Whether it is asked.
    pub(crate) fn is_well(&self) -> bool {
        !self.is_passed_over.load(Ordering::Acquire) && self.is_up()
    }

    /// Whether it answers, as far as its own monitor knows, and has not gone back.
    fn is_up(&self) -> bool {
        self.database.health() == Health::Up && !self.database.heartbeat.has_gone_back()
    }

    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// It did not do what it was asked for.
    pub(crate) fn fail(&self) {
        self.n_failures.fetch_add(1, Ordering::Relaxed);
        self.pass_over();
    }

    fn pass_over(&self) {
        if !self.is_passed_over.swap(true, Ordering::AcqRel) {
            self.era.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(
                target: TARGET,
                database = %self.database.identity,
                "a database is passed over until it answers again; the others give its part"
            );
        }
        self.failed.notify_one();
    }

    /// It was silent: it may have waited for a lock, which is no fault of its own.
    pub(crate) async fn fail_unless_it_answers(&self) {
        if !self.answers().await {
            self.fail();
        }
    }

    /// It did what it was asked for.
    pub(crate) fn succeed(&self) {
        self.n_failures.store(0, Ordering::Relaxed);
    }

    /// How long to wait before the next look: full jitter under a bound that doubles.
    fn pause(&self) -> Duration {
        let n_doublings = self.n_failures.load(Ordering::Relaxed).min(MAX_DOUBLINGS);
        let bound = self.database.settings.statement.backoff_min * (1 << n_doublings);
        bound.min(LONGEST_PAUSE).mul_f64(rand::random::<f64>())
    }

    /// Whether it answers in time.
    async fn answers(&self) -> bool {
        let until = Instant::now() + LOOK;
        let look = |database| async move { installation_id::read(&database).await };
        self.is_up() && self.database.connection.run(until, look).await.is_ok()
    }
}

/// Looks after one database for as long as the store is there.
async fn watch(member: Weak<Member>) {
    loop {
        let Some(alive) = member.upgrade() else {
            return;
        };
        let mut health = alive.database.connection.health_changes();
        if alive.is_passed_over.load(Ordering::Acquire) {
            let pause = alive.pause();
            drop(alive);
            tokio::time::sleep(pause).await;
            let Some(alive) = member.upgrade() else {
                return;
            };
            if alive.answers().await {
                alive.is_passed_over.store(false, Ordering::Release);
                tracing::info!(target: TARGET, database = %alive.database.identity, "a database is asked again");
            } else {
                alive.n_failures.fetch_add(1, Ordering::Relaxed);
            }
            continue;
        }
        drop(alive);
        // Whoever only meets it when it is back must know that it was away.
        let lost = wait_for_trouble(&member, &mut health).await;
        if let (true, Some(alive)) = (lost, member.upgrade()) {
            alive.pass_over();
        }
    }
}

/// Between two looks whether the store is still there.
const QUIET: Duration = Duration::from_secs(1);

/// Whether the database went away; it also ends when nothing happens for a while.
async fn wait_for_trouble(
    member: &Weak<Member>,
    health: &mut tokio::sync::watch::Receiver<Health>,
) -> bool {
    let Some(alive) = member.upgrade() else {
        return false;
    };
    if *health.borrow_and_update() != Health::Up {
        return true;
    }
    tokio::select! {
        changed = health.changed() => changed.is_ok() && *health.borrow() != Health::Up,
        () = alive.failed.notified() => false,
        () = tokio::time::sleep(QUIET) => false,
    }
}
