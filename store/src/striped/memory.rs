//! Remembers what a store of several databases knows of each counter in each member.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use odometer_core::period::CounterKey;
use parking_lot::Mutex;

use crate::rows::counter::SeenCounter;

/// The most counters that are remembered. For any other counter, the next reservation reads first.
const MAX_COUNTERS: usize = 262_144;

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
    /// How often the member had been passed over when the counter caught up with the other members,
    /// and the version of the definition then.
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

/// What is remembered of all counters.
pub(crate) struct CounterMemory {
    counters: Mutex<HashMap<CounterKey, CounterEntry>>,
    n_databases: usize,
    /// Which member is asked first for the next new counter, before the remainder is taken.
    next: AtomicUsize,
}

impl CounterMemory {
    pub(crate) fn new(n_databases: usize) -> Self {
        Self {
            counters: Mutex::default(),
            n_databases,
            next: AtomicUsize::new(0),
        }
    }

    /// Returns which member is asked first this time. Take the remainder by the number of members.
    ///
    /// Each counter goes round the members by itself. If all counters shared one round, names that
    /// are used in turn would meet the same member each time.
    pub(crate) fn round_robin(&self, key: &CounterKey) -> usize {
        let mut counters = self.counters.lock();
        if let Some(remembered) = counters.get_mut(key) {
            remembered.turn = remembered.turn.wrapping_add(1);
            return remembered.turn;
        }
        self.remember(&mut counters, key).turn
    }

    /// Returns the entry of a counter, and makes one if there is none.
    fn remember<'a>(
        &self,
        counters: &'a mut HashMap<CounterKey, CounterEntry>,
        key: &CounterKey,
    ) -> &'a mut CounterEntry {
        if !counters.contains_key(key) {
            make_room(counters);
        }
        counters.entry(key.clone()).or_insert_with(|| CounterEntry {
            members: vec![CounterView::default(); self.n_databases].into_boxed_slice(),
            turn: self.next.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Returns what is remembered of a counter in all members.
    pub(crate) fn all(&self, key: &CounterKey) -> Vec<CounterView> {
        let counters = self.counters.lock();
        let known = counters.get(key).map(|known| known.members.to_vec());
        known.unwrap_or_else(|| vec![CounterView::default(); self.n_databases])
    }

    pub(crate) fn view(&self, key: &CounterKey, k: usize) -> CounterView {
        let counters = self.counters.lock();
        let known = counters.get(key);
        known
            .and_then(|known| known.members.get(k).copied())
            .unwrap_or_default()
    }

    /// Changes what is remembered of a counter in one member.
    pub(crate) fn change(&self, key: &CounterKey, k: usize, change: impl FnOnce(&mut CounterView)) {
        let mut counters = self.counters.lock();
        let remembered = self.remember(&mut counters, key);
        if let Some(view) = remembered.members.get_mut(k) {
            change(view);
        }
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

/// Forgets 1/64 of the counters if there are too many. A forgotten counter costs a read. No safety
/// depends on this memory, because the heartbeat in each member shows if that member went back.
fn make_room(counters: &mut HashMap<CounterKey, CounterEntry>) {
    if counters.len() >= MAX_COUNTERS {
        let some = counters.keys().take(MAX_COUNTERS / 64).cloned();
        for key in some.collect::<Vec<_>>() {
            counters.remove(&key);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::name::SequenceName;

    use super::*;

    #[test]
    fn names_used_in_turn_go_round_the_databases_each() {
        let memory = CounterMemory::new(3);
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
