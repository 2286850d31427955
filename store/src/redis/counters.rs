//! Finds the counters of which this replica knows a window, by sequence and period.

use std::{collections::BTreeMap, sync::Arc};

use odometer_core::{name::SequenceName, period::CounterKey};
use parking_lot::Mutex;

use super::window::WindowEntry;

/// The most counters that are known at once. If another one comes, all are forgotten.
const MAX_COUNTERS: usize = 100_000;

/// The counters of which this replica knows a window. Those of one sequence follow each other.
#[derive(Default)]
pub(crate) struct Counters(Mutex<BTreeMap<CounterKey, Arc<WindowEntry>>>);

impl Counters {
    pub(crate) fn of(&self, key: &CounterKey) -> Arc<WindowEntry> {
        let mut counters = self.0.lock();
        if counters.len() >= MAX_COUNTERS && !counters.contains_key(key) {
            // Each counter in use is entered again, after a look at Redis and at its row.
            counters.clear();
        }
        Arc::clone(counters.entry(key.clone()).or_default())
    }

    /// Returns what is known of one counter, if there is an entry for it.
    pub(crate) fn find(&self, key: &CounterKey) -> Option<Arc<WindowEntry>> {
        self.0.lock().get(key).cloned()
    }

    /// Forgets the windows of all counters of a changed sequence.
    pub(crate) fn forget(&self, name: &SequenceName) {
        let counters = self.0.lock();
        let from_first = counters.range(CounterKey::whole(name.clone())..);
        for (_, counter) in from_first.take_while(|(key, _)| key.sequence == *name) {
            counter.forget();
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<WindowEntry>> {
        self.0.lock().values().cloned().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_changed_sequence_forgets_the_windows_of_all_its_periods() {
        let counters = Counters::default();
        let name = SequenceName::parse("orders").unwrap();
        let key = CounterKey::whole(name.clone());
        let counter = counters.of(&key);
        assert!(Arc::ptr_eq(&counter, &counters.of(&key)));
        let before = counter.n_changes();
        counters.forget(&SequenceName::parse("others").unwrap());
        assert_eq!(counter.n_changes(), before);
        counters.forget(&name);
        assert_ne!(counter.n_changes(), before);
        assert_eq!(counters.all().len(), 1);
    }
}
