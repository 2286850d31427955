//! Bounds how many names and keys there are when the callers of a role create another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

/// How long a count can be used. Other replicas create names meanwhile.
const COUNT_LASTS: Duration = Duration::from_secs(10);

/// How long a count that found no room can be used.
const REFUSAL_LASTS: Duration = Duration::from_secs(1);

/// The part of the room that this replica uses before it counts again. So each other replica can
/// take all of them above the quota by this part at most.
const PART_OF_ROOM: u64 = 8;

/// The most names and keys that there may be among those that a role can create.
///
/// They live in a database, so they have to be counted there. A count is used for a while.
#[derive(Debug)]
pub struct NamesQuota {
    most: u64,
    last: Mutex<Option<NameCount>>,
    /// Creations that are under way, so that a count may not see them.
    n_underway: Arc<AtomicU64>,
    turn: AsyncMutex<()>,
}

/// A count that is under way.
#[derive(Clone, Copy, Debug)]
pub struct BegunCount {
    at: Instant,
    /// The creations that were under way when it began.
    n_underway: u64,
}

/// What was counted, and what was created since.
#[derive(Clone, Copy, Debug)]
struct NameCount {
    at: Instant,
    n: u64,
    n_created: u64,
}

/// Whether another name may be created.
#[derive(Debug)]
pub enum Room {
    Free(Creation),
    Full,
    /// The names have to be counted first.
    Unknown,
}

/// A creation that is under way, until this is dropped.
#[derive(Debug)]
pub struct Creation(Arc<AtomicU64>);

impl NamesQuota {
    /// Creates a quota of `most` names and keys.
    pub fn new(most: u64) -> Self {
        Self {
            most,
            last: Mutex::default(),
            n_underway: Arc::default(),
            turn: AsyncMutex::default(),
        }
    }

    /// Returns the quota, in names and keys.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Says from the last count whether another name may be created at the time `now`.
    pub fn room(&self, now: Instant) -> Room {
        let mut last = self.last.lock();
        let Some(count) = last.as_mut() else {
            return Room::Unknown;
        };
        let age = now.saturating_duration_since(count.at);
        let room = self.most.saturating_sub(count.n);
        if room == 0 && age < REFUSAL_LASTS {
            return Room::Full;
        }
        if age >= COUNT_LASTS || count.n_created >= room / PART_OF_ROOM {
            return Room::Unknown;
        }
        count.n_created = count.n_created.saturating_add(1);
        Room::Free(self.creation())
    }

    /// Waits until no other call counts. Callers that find [`Room::Unknown`] wait for this, and ask
    /// again before they count.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Begins a count at the time `now`.
    pub fn begin_count(&self, now: Instant) -> BegunCount {
        BegunCount {
            at: now,
            n_underway: self.n_underway.load(Ordering::Acquire),
        }
    }

    /// Says after a count of `n` names and keys whether another name may be created. `None` if there
    /// is no room. Creations that were under way when the count began count besides.
    pub fn room_after(&self, count: BegunCount, n: u64) -> Option<Creation> {
        let mut last = self.last.lock();
        let n = n.saturating_add(count.n_underway);
        let has_room = n < self.most;
        *last = Some(NameCount {
            at: count.at,
            n,
            n_created: u64::from(has_room),
        });
        has_room.then(|| self.creation())
    }

    fn creation(&self) -> Creation {
        self.n_underway.fetch_add(1, Ordering::AcqRel);
        Creation(Arc::clone(&self.n_underway))
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl PartialEq for NamesQuota {
    fn eq(&self, other: &Self) -> bool {
        self.most == other.most
    }
}

impl Eq for NamesQuota {}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(quota: &NamesQuota, n: u64, now: Instant) -> Option<Creation> {
        quota.room_after(quota.begin_count(now), n)
    }

    #[test]
    fn names_are_counted_first_and_then_now_and_then() {
        let quota = NamesQuota::new(100);
        let began = Instant::now();
        assert!(matches!(quota.room(began), Room::Unknown));
        assert!(counted(&quota, 20, began).is_some());
        // An eighth of the room of 80 is ten, with the one that was admitted after the count.
        for _ in 0..9 {
            assert!(matches!(quota.room(began), Room::Free(_)));
        }
        assert!(matches!(quota.room(began), Room::Unknown));
        assert!(counted(&quota, 30, began).is_some());
        assert!(matches!(quota.room(began + COUNT_LASTS), Room::Unknown));
        // The last ones are counted one by one.
        assert!(counted(&quota, 99, began).is_some());
        assert!(matches!(quota.room(began), Room::Unknown));
        assert!(counted(&quota, 100, began).is_none());
        assert!(matches!(quota.room(began), Room::Full));
        assert!(matches!(quota.room(began + REFUSAL_LASTS), Room::Unknown));
    }

    #[test]
    fn creations_under_way_count() {
        let quota = NamesQuota::new(10);
        let now = Instant::now();
        let first = counted(&quota, 8, now);
        let second = counted(&quota, 8, now);
        assert!(first.is_some() && second.is_some());
        assert!(counted(&quota, 8, now).is_none());
        drop(first);
        assert!(counted(&quota, 8, now).is_some());
    }

    proptest! {
        #![proptest_config(odometer_tests::settings::properties())]

        /// Each other replica may take them above the quota by an eighth of it.
        #[test]
        fn replicas_together_go_above_the_quota_by_an_eighth_each(
            most in 1_u64..200,
            turns in prop::collection::vec((0_usize..4, 0_u64..500), 1..600),
        ) {
            let replicas = [(); 4].map(|()| NamesQuota::new(most));
            let (mut now, mut n) = (Instant::now(), 0);
            for (replica, pause_ms) in turns {
                now += Duration::from_millis(pause_ms);
                let quota = &replicas[replica];
                let creation = match quota.room(now) {
                    Room::Free(creation) => Some(creation),
                    Room::Full => None,
                    Room::Unknown => counted(quota, n, now),
                };
                n += u64::from(creation.is_some());
            }
            prop_assert!(n <= most + 3 * (most / PART_OF_ROOM), "{n} above {most}");
        }
    }
}
