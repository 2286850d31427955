//! What a store of several databases remembers of each counter in each of them.

use std::collections::HashMap;

use odometer_core::period::CounterKey;
use parking_lot::Mutex;

use crate::store::database::Seen;

/// Counters that are remembered; of others the next reservation reads first.
const MOST_COUNTERS: usize = 262_144;

/// One counter in one database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// As this process last saw it; it never falls below.
    pub(super) seen: Option<Seen>,
    pub(super) revision: i64,
    /// The version of the definition that was read with it.
    pub(super) definition_version: i64,
    /// Whether it is worth trying.
    pub(super) trusted: bool,
    /// Whether returned blocks may be left to adopt.
    pub(super) adopts: bool,
    /// In which era of the database it was brought level with the others, and at which version of
    /// the definition.
    pub(super) levelled: Option<(u64, i64)>,
}

impl Default for Spot {
    fn default() -> Self {
        Self {
            seen: None,
            revision: 0,
            definition_version: -1,
            trusted: false,
            adopts: true,
            levelled: None,
        }
    }
}

/// What is remembered of all counters.
pub(super) struct Memory {
    counters: Mutex<HashMap<CounterKey, Box<[Spot]>>>,
    n_databases: usize,
}

impl Memory {
    pub(super) fn new(n_databases: usize) -> Self {
        Self {
            counters: Mutex::default(),
            n_databases,
        }
    }

    /// A counter in all databases.
    pub(super) fn all(&self, key: &CounterKey) -> Vec<Spot> {
        let counters = self.counters.lock();
        let known = counters.get(key).map(|spots| spots.to_vec());
        known.unwrap_or_else(|| vec![Spot::default(); self.n_databases])
    }

    pub(super) fn spot(&self, key: &CounterKey, k: usize) -> Spot {
        let counters = self.counters.lock();
        let spots = counters.get(key);
        spots
            .and_then(|spots| spots.get(k).copied())
            .unwrap_or_default()
    }

    /// Changes what is remembered of a counter in one database.
    pub(super) fn change(&self, key: &CounterKey, k: usize, change: impl FnOnce(&mut Spot)) {
        let mut counters = self.counters.lock();
        if !counters.contains_key(key) {
            make_room(&mut counters);
            let spots = vec![Spot::default(); self.n_databases].into_boxed_slice();
            counters.insert(key.clone(), spots);
        }
        let spot = counters.get_mut(key).and_then(|spots| spots.get_mut(k));
        if let Some(spot) = spot {
            change(spot);
        }
    }

    /// Whether returned blocks may be left to adopt, in whichever database.
    pub(super) fn any_adopts(&self, key: &CounterKey) -> bool {
        let counters = self.counters.lock();
        let spots = counters.get(key);
        spots.is_none_or(|spots| spots.iter().any(|spot| spot.adopts))
    }

    /// Returned blocks are looked for anew, wherever.
    pub(super) fn look_for_returned(&self, key: &CounterKey) {
        if let Some(spots) = self.counters.lock().get_mut(key) {
            for spot in spots.iter_mut() {
                spot.adopts = true;
            }
        }
    }
}

/// What is forgotten costs a read; by itself no safety hangs on it, because each database's beat
/// tells one that went back.
fn make_room(counters: &mut HashMap<CounterKey, Box<[Spot]>>) {
    if counters.len() >= MOST_COUNTERS {
        let some = counters.keys().take(MOST_COUNTERS / 64).cloned();
        for key in some.collect::<Vec<_>>() {
            counters.remove(&key);
        }
    }
}
