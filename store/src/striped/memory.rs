//! What a store of several databases remembers of each counter in each of them.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use odometer_core::period::CounterKey;
use parking_lot::Mutex;

use crate::rows::counter::SeenCounter;

/// Counters that are remembered; of others the next reservation reads first.
const MAX_COUNTERS: usize = 262_144;

/// One counter in one database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterView {
    /// As this process last saw it; it never falls below.
    pub(crate) seen: Option<SeenCounter>,
    pub(crate) revision: i64,
    /// The version of the definition that was read with it.
    pub(crate) definition_version: i64,
    /// Whether it is worth trying.
    pub(crate) trusted: bool,
    /// Whether returned blocks may be left to adopt.
    pub(crate) adopts: bool,
    /// In which era of the database it was brought level with the others, and at which version of
    /// the definition.
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
    /// In each database.
    spots: Box<[CounterView]>,
    /// Whose turn it was last.
    turn: usize,
}

/// What is remembered of all counters.
pub(crate) struct CounterMemory {
    counters: Mutex<HashMap<CounterKey, CounterEntry>>,
    n_databases: usize,
    /// With whom the next counter begins.
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

    /// Which database is asked first this time: each counter goes round them by itself, or names
    /// that are used in turn would meet the same one each time.
    pub(crate) fn round_robin(&self, key: &CounterKey) -> usize {
        let mut counters = self.counters.lock();
        if let Some(remembered) = counters.get_mut(key) {
            remembered.turn = remembered.turn.wrapping_add(1);
            return remembered.turn;
        }
        self.remember(&mut counters, key).turn
    }

    /// Begins to remember a counter.
    fn remember<'a>(
        &self,
        counters: &'a mut HashMap<CounterKey, CounterEntry>,
        key: &CounterKey,
    ) -> &'a mut CounterEntry {
        if !counters.contains_key(key) {
            make_room(counters);
        }
        counters.entry(key.clone()).or_insert_with(|| CounterEntry {
            spots: vec![CounterView::default(); self.n_databases].into_boxed_slice(),
            turn: self.next.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// A counter in all databases.
    pub(crate) fn all(&self, key: &CounterKey) -> Vec<CounterView> {
        let counters = self.counters.lock();
        let known = counters.get(key).map(|known| known.spots.to_vec());
        known.unwrap_or_else(|| vec![CounterView::default(); self.n_databases])
    }

    pub(crate) fn view(&self, key: &CounterKey, k: usize) -> CounterView {
        let counters = self.counters.lock();
        let known = counters.get(key);
        known
            .and_then(|known| known.spots.get(k).copied())
            .unwrap_or_default()
    }

    /// Changes what is remembered of a counter in one database.
    pub(crate) fn change(&self, key: &CounterKey, k: usize, change: impl FnOnce(&mut CounterView)) {
        let mut counters = self.counters.lock();
        let remembered = self.remember(&mut counters, key);
        if let Some(view) = remembered.spots.get_mut(k) {
            change(view);
        }
    }

    /// Whether returned blocks may be left to adopt, in whichever database.
    pub(crate) fn any_adopts(&self, key: &CounterKey) -> bool {
        let counters = self.counters.lock();
        let known = counters.get(key);
        known.is_none_or(|known| known.spots.iter().any(|view| view.adopts))
    }

    /// Returned blocks are looked for anew, wherever.
    pub(crate) fn look_for_returned(&self, key: &CounterKey) {
        if let Some(known) = self.counters.lock().get_mut(key) {
            for view in known.spots.iter_mut() {
                view.adopts = true;
            }
        }
    }
}

/// What is forgotten costs a read; by itself no safety hangs on it, because each database's beat
/// tells one that went back.
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
