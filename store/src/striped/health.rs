//! Decides which members of a store are asked: those that did what they were last asked for.
//!
//! One failure is enough to pass a member over, because another member serves as well. A look in
//! the background finds out when the member is back, not a caller.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_database::connection::Contact;
use tokio::sync::watch::{self, Receiver};

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
    is_passed_over: watch::Sender<bool>,
    /// How often the member was passed over.
    n_outages: AtomicU64,
    /// How many failures there were since the member last did what it was asked for.
    n_failures: AtomicU32,
}

impl Member {
    /// Makes a member. If it is watched, a member that was passed over is asked again when it is
    /// back.
    pub(crate) fn start(database: Arc<Database>, is_watched: bool) -> Arc<Self> {
        let member = Arc::new(Self {
            database,
            is_passed_over: watch::Sender::new(false),
            n_outages: AtomicU64::new(0),
            n_failures: AtomicU32::new(0),
        });
        if is_watched {
            let is_passed_over = member.is_passed_over.subscribe();
            let contact = member.database.connection.contact_changes();
            let watching = look_after(Arc::downgrade(&member), is_passed_over, contact);
            member.database.tasks().spawn(watching);
        }
        member
    }

    /// Says whether the member is asked.
    pub(crate) fn is_well(&self) -> bool {
        !*self.is_passed_over.borrow() && self.database.can_reserve()
    }

    /// Returns how often the member was passed over, or recovered. What was known of its counters
    /// before may be old.
    pub(crate) fn n_outages(&self) -> u64 {
        let n_recoveries = self.database.heartbeat.n_recoveries();
        (self.n_outages.load(Ordering::Acquire)).saturating_add(n_recoveries)
    }

    /// Notes that the member did not do what it was asked for, and passes it over.
    pub(crate) fn fail(&self) {
        self.n_failures.fetch_add(1, Ordering::Relaxed);
        self.pass_over();
    }

    fn pass_over(&self) {
        if !self.is_passed_over.send_replace(true) {
            self.n_outages.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(
                target: TARGET,
                database = %self.database.identity,
                "a database is passed over until it answers again; the others give its part"
            );
        }
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
        self.database.can_reserve() && self.database.connection.run(until, look).await.is_ok()
    }
}

/// Looks after one member as long as the store exists.
async fn look_after(
    member: Weak<Member>,
    mut is_passed_over: Receiver<bool>,
    mut contact: Receiver<Contact>,
) {
    while let Some(alive) = member.upgrade() {
        if *is_passed_over.borrow_and_update() {
            let pause = alive.pause();
            drop(alive);
            tokio::time::sleep(pause).await;
            let Some(alive) = member.upgrade() else {
                return;
            };
            if alive.answers().await {
                alive.is_passed_over.send_replace(false);
                tracing::info!(target: TARGET, database = %alive.database.identity, "a database is asked again");
            } else {
                alive.n_failures.fetch_add(1, Ordering::Relaxed);
            }
        } else if *contact.borrow_and_update() != Contact::Up {
            // A caller that meets the member only when it is back must know that it was away.
            alive.pass_over();
        } else {
            drop(alive);
            let is_there = tokio::select! {
                changed = is_passed_over.changed() => changed.is_ok(),
                changed = contact.changed() => changed.is_ok(),
            };
            if !is_there {
                return;
            }
        }
    }
}
