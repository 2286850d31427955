//! Remembers the leases that this process gave or renewed, until their loss would show in another
//! way.
//!
//! A database that loses its last commits may lose a lease, and keep the heartbeat that was
//! confirmed before it. So each lease is remembered until two things are known. A heartbeat that
//! was sent after the lease is confirmed, *and* the row is seen to be there. A database that loses
//! the lease from then on loses that heartbeat, too.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use entity::worker_lease;
use odometer_database::session::DatabaseConnection;
use odometer_process::faults::{self, Fault};
use parking_lot::Mutex;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use super::lease::{LeaseKey, WorkerPool, signed};
use crate::{bounded_map::BoundedMap, database::Database, heartbeat::Heartbeat};

/// The most leases that are remembered. This is far more than are given between two heartbeats.
const MAX: usize = 65_536;
/// How many rows one statement reads.
const AT_ONCE: usize = 500;

/// The leases that were given and renewed not long ago.
#[derive(Debug, Default)]
pub(crate) struct UnconfirmedLeases {
    leases: Mutex<BoundedMap<(String, i32), UnconfirmedLease, MAX>>,
    /// Whether the log has said that the database's clock is far ahead of ours.
    has_said_ahead: AtomicBool,
}

/// What a row that was read shows, compared with what is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeaseRowCheck {
    Fits,
    /// The remembered lease may have been written after the row was read. Read the row again.
    ReadTooEarly,
    /// The row is gone or older than it was.
    WentBack,
}

#[derive(Clone, Copy, Debug)]
struct UnconfirmedLease {
    version: i64,
    /// The last heartbeat that was sent before the lease was noted.
    heartbeat: i64,
    /// How many recoveries had been seen. The next recovery voids the lease.
    n_recoveries: u64,
    /// When the lease was noted. A statement that is sent later finds it.
    noted: Instant,
}

impl UnconfirmedLeases {
    /// Says whether it is news that the database's clock is far ahead.
    pub(crate) fn note_ahead(&self, is_ahead: bool) -> bool {
        let was_said = self.has_said_ahead.swap(is_ahead, Ordering::AcqRel);
        is_ahead && !was_said
    }

    /// Notes a lease that the database has confirmed.
    pub(crate) fn note(&self, key: &LeaseKey, heartbeat: &Heartbeat) {
        let remembered = UnconfirmedLease {
            version: key.version,
            heartbeat: heartbeat.last_sent(),
            n_recoveries: key.n_recoveries,
            noted: Instant::now(),
        };
        let mut leases = self.leases.lock();
        let id = (key.pool.key(), signed(key.worker));
        let known = leases.get_or_insert_with(&id, || remembered);
        if (known.n_recoveries, known.version) <= (remembered.n_recoveries, remembered.version) {
            *known = remembered;
        }
    }

    /// Compares the version that was read of an id's row with what is remembered since the last
    /// recovery. `version` is 0 if there is no row. `sent` is a moment before the read was sent.
    pub(crate) fn judge(
        &self,
        (pool, worker): (&WorkerPool, u32),
        version: i64,
        n_recoveries: u64,
        sent: Instant,
    ) -> LeaseRowCheck {
        let leases = self.leases.lock();
        match leases.get(&(pool.key(), signed(worker))) {
            Some(known) if known.n_recoveries == n_recoveries && known.version > version => {
                if faults::is(Fault::NoWentBackChecks) {
                    LeaseRowCheck::Fits
                } else if known.noted < sent {
                    LeaseRowCheck::WentBack
                } else {
                    LeaseRowCheck::ReadTooEarly
                }
            }
            Some(_) | None => LeaseRowCheck::Fits,
        }
    }

    /// Returns the leases after which a heartbeat was confirmed. Forgets the leases from before a
    /// recovery.
    fn due(&self, heartbeat: &Heartbeat) -> Vec<((String, i32), i64)> {
        let (n_recoveries, confirmed) = (heartbeat.n_recoveries(), heartbeat.last_confirmed());
        let mut leases = self.leases.lock();
        leases.retain(|_, known| known.n_recoveries == n_recoveries);
        leases
            .iter()
            .filter(|(_, known)| confirmed.is_some_and(|confirmed| confirmed > known.heartbeat))
            .map(|(id, known)| (id.clone(), known.version))
            .collect()
    }

    /// Forgets a lease that was seen to be there, unless the lease was written again since.
    fn forget(&self, id: &(String, i32), version: i64) {
        let mut leases = self.leases.lock();
        if leases.get(id).is_some_and(|known| known.version <= version) {
            leases.remove(id);
        }
    }
}

/// Checks that the leases that were given are there.
pub(crate) async fn watch(database: Arc<Database>) {
    if database.heartbeat.has_gone_back() {
        return;
    }
    let (n_recoveries, due) = (
        database.heartbeat.n_recoveries(),
        database.unconfirmed_leases.due(&database.heartbeat),
    );
    let mut by_pool: HashMap<String, Vec<(i32, i64)>> = HashMap::new();
    for ((pool, worker), version) in due {
        by_pool.entry(pool).or_default().push((worker, version));
    }
    for (pool, leases) in by_pool {
        for page in leases.chunks(AT_ONCE) {
            let (name, ids) = (pool.clone(), page.iter().map(|(worker, _)| *worker));
            let ids: Vec<i32> = ids.collect();
            let reading = database.step(|connection| versions(connection, name, ids));
            let Ok(found) = reading.await else {
                // The next look comes soon.
                return;
            };
            let found: HashMap<i32, i64> = found.into_iter().collect();
            for (worker, version) in page {
                let is_there = found.get(worker).is_some_and(|found| found >= version);
                if is_there {
                    database
                        .unconfirmed_leases
                        .forget(&(pool.clone(), *worker), *version);
                } else {
                    database.note_lease_went_back(n_recoveries);
                    return;
                }
            }
        }
    }
}

async fn versions(
    database: DatabaseConnection,
    pool: String,
    ids: Vec<i32>,
) -> Result<Vec<(i32, i64)>, DbErr> {
    worker_lease::Entity::find()
        .select_only()
        .column(worker_lease::Column::Worker)
        .column(worker_lease::Column::Version)
        .filter(worker_lease::Column::Pool.eq(pool))
        .filter(worker_lease::Column::Worker.is_in(ids))
        .into_tuple()
        .all(&database)
        .await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::time::Duration;

    use odometer_core::name::SequenceName;

    use crate::{
        trust::Met,
        worker_lease::{token::Token, unconfirmed::*},
    };

    fn key(worker: u32, version: i64, n_recoveries: u64) -> LeaseKey {
        LeaseKey {
            pool: WorkerPool::Named(SequenceName::parse("billing").unwrap()),
            worker,
            token: Token::draw(),
            version,
            n_recoveries,
            store: 0,
        }
    }

    /// Returns the version that is remembered of an id.
    fn version(given: &UnconfirmedLeases, worker: u32, n_recoveries: u64) -> i64 {
        let leases = given.leases.lock();
        let known = leases.get(&(key(worker, 0, n_recoveries).pool.key(), signed(worker)));
        known
            .filter(|known| known.n_recoveries == n_recoveries)
            .map_or(0, |known| known.version)
    }

    #[test]
    fn a_lease_is_remembered_until_a_later_beat_is_confirmed() {
        let heartbeat = Heartbeat::unconnected("here");
        let given = UnconfirmedLeases::default();
        given.note(&key(3, 7, 0), &heartbeat);
        assert_eq!(version(&given, 3, 0), 7);
        assert!(
            given.due(&heartbeat).is_empty(),
            "no beat was confirmed since"
        );
        given.note(&key(3, 6, 0), &heartbeat);
        assert_eq!(version(&given, 3, 0), 7, "an older one says nothing");
        let id = (key(3, 0, 0).pool.key(), 3);
        given.forget(&id, 6);
        assert_eq!(version(&given, 3, 0), 7, "it was renewed meanwhile");
        given.forget(&id, 7);
        assert_eq!(version(&given, 3, 0), 0);
        given.note(&key(4, 1, 0), &heartbeat);
        heartbeat.recovered(Met::default(), true);
        assert!(given.due(&heartbeat).is_empty(), "a recovery voids it");
    }

    #[test]
    fn what_was_written_after_a_row_was_read_is_no_reason_to_distrust_it() {
        let heartbeat = Heartbeat::unconnected("here");
        let given = UnconfirmedLeases::default();
        let billing = key(3, 0, 0).pool;
        let before = Instant::now();
        given.note(&key(3, 7, 0), &heartbeat);
        let after = Instant::now() + Duration::from_millis(1);
        let judge =
            |version, n_recoveries, sent| given.judge((&billing, 3), version, n_recoveries, sent);
        assert_eq!(judge(6, 0, before), LeaseRowCheck::ReadTooEarly);
        assert_eq!(judge(6, 0, after), LeaseRowCheck::WentBack);
        assert_eq!(judge(0, 0, after), LeaseRowCheck::WentBack);
        assert_eq!(judge(7, 0, after), LeaseRowCheck::Fits);
        assert_eq!(
            judge(0, 1, after),
            LeaseRowCheck::Fits,
            "a recovery voids it"
        );
        let other = given.judge((&billing, 4), 0, 0, after);
        assert_eq!(other, LeaseRowCheck::Fits);
    }

    #[test]
    fn what_an_older_era_says_late_hides_nothing_of_a_newer_one() {
        let heartbeat = Heartbeat::unconnected("here");
        let given = UnconfirmedLeases::default();
        given.note(&key(3, 2, 1), &heartbeat);
        given.note(&key(3, 9, 0), &heartbeat);
        assert_eq!(version(&given, 3, 1), 2);
    }

    #[test]
    fn a_look_from_before_a_recovery_says_nothing_of_the_time_after_it() {
        let heartbeat = Heartbeat::unconnected("here");
        let n_recoveries = heartbeat.n_recoveries();
        heartbeat.recovered(Met::default(), true);
        heartbeat.note_went_back(n_recoveries, "a lease is gone");
        assert!(!heartbeat.has_gone_back());
        heartbeat.note_went_back(heartbeat.n_recoveries(), "a lease is gone");
        assert!(heartbeat.has_gone_back());
    }

    #[test]
    fn a_clock_far_ahead_is_said_once_until_it_is_right_again() {
        let given = UnconfirmedLeases::default();
        let said = [true, true, false, true].map(|is_ahead| given.note_ahead(is_ahead));
        assert_eq!(said, [true, false, false, true]);
    }
}
