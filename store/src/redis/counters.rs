//! Finds the counters of which this replica knows a window, by sequence and period.

use std::{collections::HashMap, sync::Arc};

use odometer_core::{name::SequenceName, period::CounterKey};
use parking_lot::Mutex;

use super::window::WindowEntry;

/// The most counters that are known at once. If another one comes, all are forgotten.
const MAX_COUNTERS: usize = 100_000;

/// The counters of which this replica knows a window.
#[derive(Default)]
pub(crate) struct Counters {
    by_name: Mutex<ByName>,
}

#[derive(Default)]
struct ByName {
    all: HashMap<SequenceName, HashMap<String, Arc<WindowEntry>>>,
    n_counters: usize,
}

impl Counters {
    pub(crate) fn of(&self, key: &CounterKey) -> Arc<WindowEntry> {
        let mut by_name = self.by_name.lock();
        let period = key.period.as_str();
        let known = by_name.all.get(&key.sequence);
        if let Some(counter) = known.and_then(|periods| periods.get(period)) {
            return Arc::clone(counter);
        }
        if by_name.n_counters >= MAX_COUNTERS {
            // Each counter in use is entered again, after a look at Redis and at its row.
            *by_name = ByName::default();
        }
        let counter = Arc::<WindowEntry>::default();
        let periods = by_name.all.entry(key.sequence.clone()).or_default();
        periods.insert(period.to_owned(), Arc::clone(&counter));
        by_name.n_counters += 1;
        counter
    }

    /// Returns what is known of one counter, if there is an entry for it.
    pub(crate) fn find(&self, key: &CounterKey) -> Option<Arc<WindowEntry>> {
        let by_name = self.by_name.lock();
        let periods = by_name.all.get(&key.sequence)?;
        periods.get(key.period.as_str()).cloned()
    }

    /// Forgets the windows of all counters of a changed sequence.
    pub(crate) fn forget(&self, name: &SequenceName) {
        let by_name = self.by_name.lock();
        for counter in by_name.all.get(name).into_iter().flat_map(HashMap::values) {
            counter.forget();
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<WindowEntry>> {
        let by_name = self.by_name.lock();
        let periods = by_name.all.values();
        periods.flat_map(HashMap::values).cloned().collect()
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
