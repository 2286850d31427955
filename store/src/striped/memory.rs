//! Remembers what a store of several databases knows: what its members agreed on about each name,
//! and each counter in each member.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use odometer_core::{definition::Definition, name::SequenceName, period::CounterKey};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::{
    bounded_map::BoundedMap, heartbeat::Heartbeat, reservation::stripe_constraints::Agreed,
    rows::counter::SeenCounter,
};

/// The most names and the most counters that are remembered. For any other one, the members are
/// asked again.
const MAX_REMEMBERED: usize = 262_144;

type Remembered<K, V> = BoundedMap<K, V, MAX_REMEMBERED>;

/// What is remembered of one counter in one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterView {
    /// The counter as this process last saw it. The counter never falls below it.
    pub(crate) seen: Option<SeenCounter>,
    pub(crate) revision: i64,
    /// The version of the definition that was read with the counter.
    pub(crate) definition_version: i64,
    /// Whether `seen` is worth trying without reading first.
    pub(crate) trusted: bool,
    /// Whether there may be returned blocks to adopt.
    pub(crate) adopts: bool,
    /// How often the member had been passed over or recovered when the counter caught up with the
    /// other members, and the version of the definition then.
    pub(crate) caught_up_in: Option<(u64, i64)>,
}

impl Default for CounterView {
    fn default() -> Self {
        Self {
            seen: None,
            revision: 0,
            definition_version: -1,
            trusted: false,
            adopts: true,
            caught_up_in: None,
        }
    }
}

/// What is remembered of one counter.
struct CounterEntry {
    /// The counter in each member.
    members: Box<[CounterView]>,
    /// Which member was asked first the last time, before the remainder is taken.
    turn: usize,
}

/// What is remembered of all names and counters.
///
/// No safety depends on what is forgotten of a counter: a forgotten counter costs a read, because
/// the heartbeat in each member shows if that member went back.
pub(crate) struct CounterMemory {
    /// The heartbeats of the members.
    heartbeats: Vec<Arc<Heartbeat>>,
    agreed: Mutex<AgreedNames>,
    counters: Mutex<Remembered<CounterKey, CounterEntry>>,
    /// Which member is asked first for the next new counter, before the remainder is taken.
    next: AtomicUsize,
}

/// What the members agreed on. A recovery of any member makes this process forget all of it,
/// because what was decided may be lost.
#[derive(Default)]
struct AgreedNames {
    /// How many recoveries of all members together had been seen.
    n_recoveries: u64,
    by_name: Remembered<SequenceName, Agreed>,
}

impl CounterMemory {
    /// Makes an empty memory for the members with these heartbeats.
    pub(crate) fn new(heartbeats: Vec<Arc<Heartbeat>>) -> Self {
        Self {
            heartbeats,
            agreed: Mutex::default(),
            counters: Mutex::default(),
            next: AtomicUsize::new(0),
        }
    }

    /// Returns what was decided since the last recovery that was seen.
    fn agreed_names(&self) -> MappedMutexGuard<'_, Remembered<SequenceName, Agreed>> {
        let mut agreed = self.agreed.lock();
        let seen = self.heartbeats.iter().map(|it| it.n_recoveries());
        let n_recoveries = seen.sum();
        if agreed.n_recoveries != n_recoveries {
            agreed.n_recoveries = n_recoveries;
            agreed.by_name.clear();
        }
        MutexGuard::map(agreed, |agreed| &mut agreed.by_name)
    }

    /// Returns the definition that the members agreed on, if it is remembered.
    pub(crate) fn agreed(&self, name: &SequenceName) -> Option<Agreed> {
        self.agreed_names().get(name).cloned()
    }

    /// Remembers a newer definition of the same sequence, and returns what is remembered now. A
    /// definition with another grid is ignored.
    pub(crate) fn learn(
        &self,
        name: &SequenceName,
        definition: &Arc<Definition>,
        version: i64,
    ) -> Agreed {
        let learnt = Agreed {
            definition: Arc::clone(definition),
            version,
        };
        let mut names = self.agreed_names();
        let known = names.get_or_insert_with(name, || learnt.clone());
        if version > known.version && known.is_like(definition) {
            *known = learnt;
        }
        known.clone()
    }

    /// Forgets what the members agreed on about a name.
    pub(crate) fn forget(&self, name: &SequenceName) {
        self.agreed_names().remove(name);
    }

    /// Says whether a definition may be one of the name.
    pub(crate) fn admits(&self, name: &SequenceName, definition: &Definition) -> bool {
        let known = self.agreed(name);
        known.is_none_or(|known| known.is_like(definition))
    }

    /// Returns which member is asked first this time. Take the remainder by the number of members.
    ///
    /// Each counter goes round the members by itself. If all counters shared one round, names that
    /// are used in turn would meet the same member each time.
    pub(crate) fn round_robin(&self, key: &CounterKey) -> usize {
        self.remember(key, |remembered| {
            remembered.turn = remembered.turn.wrapping_add(1);
            remembered.turn
        })
    }

    /// Changes what is remembered of a counter in one member.
    pub(crate) fn change(&self, key: &CounterKey, k: usize, change: impl FnOnce(&mut CounterView)) {
        self.remember(key, |remembered| {
            if let Some(view) = remembered.members.get_mut(k) {
                change(view);
            }
        });
    }

    /// Changes the entry of a counter, and makes one if there is none.
    fn remember<T>(&self, key: &CounterKey, change: impl FnOnce(&mut CounterEntry) -> T) -> T {
        let mut counters = self.counters.lock();
        change(counters.get_or_insert_with(key, || CounterEntry {
            members: vec![CounterView::default(); self.heartbeats.len()].into_boxed_slice(),
            turn: self.next.fetch_add(1, Ordering::Relaxed),
        }))
    }

    /// Returns what is remembered of a counter in each member, in their order. Empty if nothing is.
    pub(crate) fn views(&self, key: &CounterKey) -> Vec<CounterView> {
        let counters = self.counters.lock();
        let known = counters.get(key).map(|known| known.members.to_vec());
        known.unwrap_or_default()
    }

    pub(crate) fn view(&self, key: &CounterKey, k: usize) -> CounterView {
        let counters = self.counters.lock();
        let known = counters.get(key);
        known
            .and_then(|known| known.members.get(k).copied())
            .unwrap_or_default()
    }

    /// Says whether any member may have returned blocks to adopt.
    pub(crate) fn any_adopts(&self, key: &CounterKey) -> bool {
        let counters = self.counters.lock();
        let known = counters.get(key);
        known.is_none_or(|known| known.members.iter().any(|view| view.adopts))
    }

    /// Lets the next reservations look for returned blocks again, in every member.
    pub(crate) fn look_for_returned(&self, key: &CounterKey) {
        if let Some(known) = self.counters.lock().get_mut(key) {
            for view in known.members.iter_mut() {
                view.adopts = true;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::trust::Met;

    fn memory(n: usize) -> CounterMemory {
        let heartbeat = || Heartbeat::unconnected("here");
        CounterMemory::new((0..n).map(|_| Arc::new(heartbeat())).collect())
    }

    #[test]
    fn a_recovery_makes_what_was_agreed_on_be_forgotten() {
        let memory = memory(2);
        let name = SequenceName::parse("orders").unwrap();
        let definition = Arc::<Definition>::default();
        memory.learn(&name, &definition, 3);
        memory.learn(&name, &definition, 2);
        assert_eq!(memory.agreed(&name).unwrap().version, 3);
        let other = Definition {
            start: 7,
            ..Definition::default()
        };
        assert!(!memory.admits(&name, &other));
        memory.learn(&name, &Arc::new(other), 4);
        assert_eq!(memory.agreed(&name).unwrap().version, 3);
        memory.heartbeats[1].recovered(Met::default(), true);
        assert!(memory.agreed(&name).is_none());
    }

    #[test]
    fn names_used_in_turn_go_round_the_databases_each() {
        let memory = memory(3);
        let names: Vec<CounterKey> = ["a", "b", "c"]
            .into_iter()
            .map(|name| CounterKey::whole(SequenceName::parse(name).unwrap()))
            .collect();
        let mut asked = HashMap::<&CounterKey, Vec<usize>>::new();
        for _round in 0..3 {
            for name in &names {
                asked
                    .entry(name)
                    .or_default()
                    .push(memory.round_robin(name) % 3);
            }
        }
        for (name, mut databases) in asked {
            databases.sort_unstable();
            assert_eq!(databases, [0, 1, 2], "{name:?}");
        }
    }
}
