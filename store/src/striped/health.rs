//! Decides which members of a store are asked: those that did what they were last asked for.
//!
//! One failure is enough to pass a member over, because another member serves as well. A look in
//! the background finds out when the member is back, not a caller.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_database::connection::Contact;
use tokio::sync::Notify;

use crate::{database::Database, installation_id};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::striped::health";

/// The longest time between two looks at a member that fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a look may take. A member that is slower is of no use to a caller either.
const LOOK: Duration = Duration::from_millis(500);
/// The most doublings of the pause.
const MAX_DOUBLINGS: u32 = 10;

/// One database of a store, and whether it is asked.
pub(crate) struct Member {
    pub(crate) database: Arc<Database>,
    is_passed_over: AtomicBool,
    /// How often the member was passed over. What was known of its counters before may be old.
    n_outages: AtomicU64,
    /// How many failures there were since the member last did what it was asked for.
    n_failures: AtomicU32,
    failed: Notify,
}

impl Member {
    /// Makes a member. If it is watched, a member that was passed over is asked again when it is
    /// back.
    pub(crate) fn start(database: Arc<Database>, is_watched: bool) -> Arc<Self> {
        let tasks = database.tasks().clone();
        let member = Arc::new(Self {
            database,
            is_passed_over: AtomicBool::new(false),
            n_outages: AtomicU64::new(0),
            n_failures: AtomicU32::new(0),
            failed: Notify::new(),
        });
        if is_watched {
            tasks.spawn(watch(Arc::downgrade(&member)));
        }
        member
    }

    /// Says whether the member is asked.
    pub(crate) fn is_well(&self) -> bool {
        !self.is_passed_over.load(Ordering::Acquire) && self.is_up()
    }

    /// Says whether the member answers, as far as its own monitor knows, and has not gone back.
    fn is_up(&self) -> bool {
        self.database.is_up() && !self.database.heartbeat.has_gone_back()
    }

    pub(crate) fn n_outages(&self) -> u64 {
        self.n_outages.load(Ordering::Acquire)
    }

    /// Notes that the member did not do what it was asked for, and passes it over.
    pub(crate) fn fail(&self) {
        self.n_failures.fetch_add(1, Ordering::Relaxed);
        self.pass_over();
    }

    fn pass_over(&self) {
        if !self.is_passed_over.swap(true, Ordering::AcqRel) {
            self.n_outages.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(
                target: TARGET,
                database = %self.database.identity,
                "a database is passed over until it answers again; the others give its part"
            );
        }
        self.failed.notify_one();
    }

    /// Passes a silent member over, unless it answers now. It may have waited for a lock, which is
    /// not its own fault.
    pub(crate) async fn fail_unless_it_answers(&self) {
        if !self.answers().await {
            self.fail();
        }
    }

    /// Notes that the member did what it was asked for.
    pub(crate) fn succeed(&self) {
        self.n_failures.store(0, Ordering::Relaxed);
    }

    /// Returns how long to wait before the next look: full jitter under a bound that doubles.
    fn pause(&self) -> Duration {
        let n_doublings = self.n_failures.load(Ordering::Relaxed).min(MAX_DOUBLINGS);
        let bound = self.database.settings.statement.backoff_min * (1 << n_doublings);
        bound.min(LONGEST_PAUSE).mul_f64(rand::random::<f64>())
    }

    /// Says whether the member answers in time.
    async fn answers(&self) -> bool {
        let until = Instant::now() + LOOK;
        let look = |database| async move { installation_id::read(&database).await };
        self.is_up() && self.database.connection.run(until, look).await.is_ok()
    }
}

/// Looks after one member as long as the store exists.
async fn watch(member: Weak<Member>) {
    loop {
        let Some(alive) = member.upgrade() else {
            return;
        };
        let mut contact = alive.database.connection.contact_changes();
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
        // A caller that meets the member only when it is back must know that it was away.
        let lost = wait_for_trouble(&member, &mut contact).await;
        if let (true, Some(alive)) = (lost, member.upgrade()) {
            alive.pass_over();
        }
    }
}

/// The time between two checks that the store still exists.
const QUIET: Duration = Duration::from_secs(1);

/// Waits until the member goes away, and says whether it did. It also ends after [`QUIET`] or after
/// a failure.
async fn wait_for_trouble(
    member: &Weak<Member>,
    contact: &mut tokio::sync::watch::Receiver<Contact>,
) -> bool {
    let Some(alive) = member.upgrade() else {
        return false;
    };
    if *contact.borrow_and_update() != Contact::Up {
        return true;
    }
    tokio::select! {
        changed = contact.changed() => changed.is_ok() && *contact.borrow() != Contact::Up,
        () = alive.failed.notified() => false,
        () = tokio::time::sleep(QUIET) => false,
    }
}
