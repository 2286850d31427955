//! Bounds what this process remembers.

use std::{collections::HashMap, hash::Hash};

/// The part of the entries, one of so many, that a full map forgets at once.
const FORGOTTEN_PART: usize = 64;

/// A map of at most `MAX` entries, which forgets some of them when it is full. Which entries it
/// forgets is arbitrary.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V, const MAX: usize> {
    entries: HashMap<K, V>,
}

impl<K, V, const MAX: usize> Default for BoundedMap<K, V, MAX> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V, const MAX: usize> BoundedMap<K, V, MAX> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Returns the entry of a key. If there is none, it is made, and a full map forgets others.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.make_room_for(key);
        self.entries.entry(key.clone()).or_insert_with(make)
    }

    /// Sets the entry of a key. A full map forgets others for a new key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.make_room_for(&key);
        self.entries.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.entries.remove(key)
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain(keep);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn make_room_for(&mut self, key: &K) {
        if self.entries.len() < MAX || self.entries.contains_key(key) {
            return;
        }
        let n_forgotten = (MAX / FORGOTTEN_PART).max(1);
        let keys: Vec<K> = self.entries.keys().take(n_forgotten).cloned().collect();
        for key in keys {
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_forgets_some_of_its_entries() {
        let mut map = BoundedMap::<_, _, 128>::default();
        for number in 0..128 {
            map.get_or_insert_with(&number, || number);
        }
        assert_eq!(*map.get_or_insert_with(&7, || 0), 7);
        assert_eq!(map.iter().count(), 128);
        map.get_or_insert_with(&128, || 128);
        assert_eq!((map.iter().count(), map.get(&128)), (127, Some(&128)));
        assert_eq!(*map.get_or_insert_with(&129, || 1), 1);
        assert_eq!(*map.get_or_insert_with(&129, || 2), 1);
        assert_eq!(map.iter().count(), 128);
    }
}
