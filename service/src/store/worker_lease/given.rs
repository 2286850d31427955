//! What this process remembers of leases that it gave or renewed, until a loss of them would show.
//!
//! A database that loses its last commits may lose a lease and keep the beat that was confirmed
//! before it. So each lease is remembered until a beat that was sent after it is confirmed *and* the
//! row is seen to be there: whatever loses the lease from then on loses that beat, too.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use entity::worker_lease;
use parking_lot::Mutex;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use super::{LeaseKey, Pool};
use crate::sabotage::{self, Fault};
use crate::store::{
    change::beat::Beat,
    connection::{Health, session::DatabaseConnection},
    database::Database,
};

/// Leases that are remembered: far more than are given between two beats.
const MOST: usize = 65_536;
/// Rows of one statement.
const AT_ONCE: usize = 500;

/// Leases given and renewed of late.
#[derive(Debug, Default)]
pub(in crate::store) struct Given {
    leases: Mutex<HashMap<(String, i32), Remembered>>,
    /// Counts what is noted.
    n_noted: AtomicU64,
    /// Whether the schema was seen to have leases.
    knows_schema: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    version: i64,
    /// The last beat that was sent before.
    beat: i64,
    /// Of which recovery on: one voids all leases before it.
    era: u64,
    noted: Moment,
}

/// A moment between two notes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment(u64);

impl Given {
    pub(super) fn knows_schema(&self) -> bool {
        self.knows_schema.load(Ordering::Acquire)
    }

    pub(super) fn note_schema(&self) {
        self.knows_schema.store(true, Ordering::Release);
    }

    pub(super) fn forget_schema(&self) {
        self.knows_schema.store(false, Ordering::Release);
    }

    /// Now: to be had before a look is sent, which bears out only what was noted before.
    pub(super) fn now(&self) -> Moment {
        Moment(self.n_noted.load(Ordering::Acquire))
    }

    /// The database has said that it has this lease.
    pub(super) fn note(&self, key: &LeaseKey, beat: &Beat) {
        let remembered = Remembered {
            version: key.version,
            beat: beat.last_sent(),
            era: beat.era(),
            noted: Moment(self.n_noted.fetch_add(1, Ordering::AcqRel) + 1),
        };
        let mut leases = self.leases.lock();
        if leases.len() >= MOST {
            // None of them was confirmed for long: the database is away, and nothing is given.
            leases.clear();
        }
        let id = (key.pool.key(), signed(key.worker));
        let known = leases.entry(id).or_insert(remembered);
        if known.version <= remembered.version || known.era < remembered.era {
            *known = remembered;
        }
    }

    /// What was known of the row of an id at a moment; 0 where nothing was. What another call has
    /// written since is no contradiction to a look that was sent then.
    pub(super) fn version(&self, pool: &Pool, worker: u32, at: Moment, beat: &Beat) -> i64 {
        let era = beat.era();
        let leases = self.leases.lock();
        let known = leases.get(&(pool.key(), signed(worker)));
        known
            .filter(|known| known.era == era && known.noted <= at)
            .filter(|_| !sabotage::is(Fault::NoWentBackChecks))
            .map_or(0, |known| known.version)
    }

    /// What is known of the row of a lease now.
    pub(super) fn version_of(&self, key: &LeaseKey, beat: &Beat) -> i64 {
        self.version(&key.pool, key.worker, self.now(), beat)
    }

    /// Those that a beat was confirmed after; what is older than a recovery is forgotten.
    fn due(&self, beat: &Beat) -> Vec<((String, i32), i64)> {
        let (era, confirmed) = (beat.era(), beat.last_confirmed());
        let mut leases = self.leases.lock();
        leases.retain(|_, known| known.era == era);
        leases
            .iter()
            .filter(|(_, known)| confirmed.is_some_and(|confirmed| confirmed > known.beat))
            .map(|(id, known)| (id.clone(), known.version))
            .collect()
    }

    /// It is there; what was written of it since is not forgotten.
    fn forget(&self, id: &(String, i32), version: i64) {
        let mut leases = self.leases.lock();
        if leases.get(id).is_some_and(|known| known.version <= version) {
            leases.remove(id);
        }
    }
}

fn signed(worker: u32) -> i32 {
    i32::try_from(worker).unwrap_or(i32::MAX)
}

/// Looks after what was given, for as long as the database is there.
pub(in crate::store) async fn watch(database: Weak<Database>, between: Duration) {
    loop {
        tokio::time::sleep(between).await;
        let Some(alive) = database.upgrade() else {
            return;
        };
        if alive.health() == Health::Up && !alive.beat.has_gone_back() {
            look_for(&alive).await;
        }
    }
}

/// Whether all that was given is there.
async fn look_for(database: &Arc<Database>) {
    let (era, due) = (database.beat.era(), database.given.due(&database.beat));
    let mut by_pool: HashMap<String, Vec<(i32, i64)>> = HashMap::new();
    for ((pool, worker), version) in due {
        by_pool.entry(pool).or_default().push((worker, version));
    }
    for (pool, leases) in by_pool {
        for page in leases.chunks(AT_ONCE) {
            let (name, ids) = (pool.clone(), page.iter().map(|(worker, _)| *worker));
            let ids: Vec<i32> = ids.collect();
            let until = Instant::now() + database.settings.timeout + database.settings.acquire;
            let reading = database
                .connection
                .run(until, |connection| versions(connection, name, ids));
            let Ok(found) = reading.await else {
                // The next look is soon.
                return;
            };
            let found: HashMap<i32, i64> = found.into_iter().collect();
            for (worker, version) in page {
                let is_there = found.get(worker).is_some_and(|found| found >= version);
                if is_there {
                    database.given.forget(&(pool.clone(), *worker), *version);
                } else if database.beat.era() == era {
                    database.note_lease_went_back();
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
    use ::metrics::Gauge;
    use odometer_core::name::SequenceName;

    use super::super::token::Token;
    use super::*;

    fn key(worker: u32, version: i64) -> LeaseKey {
        LeaseKey {
            pool: Pool::Named(SequenceName::parse("billing").unwrap()),
            worker,
            token: Token::draw(),
            version,
            store: 0,
        }
    }

    #[test]
    fn a_lease_is_remembered_until_a_later_beat_is_confirmed() {
        let beat = Beat::new("here".into(), "default".into(), Gauge::noop());
        let given = Given::default();
        given.note(&key(3, 7), &beat);
        assert_eq!(given.version_of(&key(3, 0), &beat), 7);
        assert!(given.due(&beat).is_empty(), "no beat was confirmed since");
        given.note(&key(3, 6), &beat);
        assert_eq!(
            given.version_of(&key(3, 0), &beat),
            7,
            "an older one says nothing"
        );
        given.forget(&(key(3, 0).pool.key(), 3), 6);
        assert_eq!(
            given.version_of(&key(3, 0), &beat),
            7,
            "it was renewed meanwhile"
        );
        given.forget(&(key(3, 0).pool.key(), 3), 7);
        assert_eq!(given.version_of(&key(3, 0), &beat), 0);
        let before = given.now();
        given.note(&key(4, 1), &beat);
        let (pool, now) = (key(4, 0).pool, given.now());
        assert_eq!(given.version(&pool, 4, now, &beat), 1);
        assert_eq!(given.version(&pool, 4, before, &beat), 0, "not known then");
        beat.recovered();
        assert!(given.due(&beat).is_empty());
        assert_eq!(
            given.version_of(&key(4, 0), &beat),
            0,
            "a recovery voids it"
        );
    }
}
