//! Shows what memory alone knows of this replica and of the names in it.

use std::sync::Arc;

use odometer_core::{
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_store::StoreHealth;

use crate::{
    directory::calls::{Directory, asked_for},
    directory::period_directory::PeriodDirectory,
    directory::shared::Shared,
    error::SequenceError,
    inspection::description::{CounterStatus, LivePage, LiveSequence, Watched},
    issuer::memory::Issuer,
};

/// Bounds how many names are looked at for one page. The next page goes on after them.
const LOOKED_AT: usize = 10_000;

/// Bounds how many names and periods are looked at before other callers may run.
const LOOKED_AT_ONCE: usize = 100;

impl Directory {
    /// Returns the name of this process in the journal.
    pub fn holder(&self) -> &str {
        self.shared.store.holder()
    }

    /// Returns how many names and periods of names are in memory.
    pub fn n_live(&self) -> usize {
        self.shared
            .n_live
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the health of each store, in the order of the configuration.
    pub fn health(&self) -> Vec<StoreHealth> {
        self.shared.store.health()
    }

    /// Returns a page of the names in memory that contain a text and come after `after`. Names are
    /// in byte order.
    ///
    /// A page may have fewer than `limit` names, or none, although another page follows.
    pub async fn live(&self, contains: &str, after: &str, limit: usize) -> LivePage {
        let names = self.shared.names().await;
        let start = names.partition_point(|name| name.as_str() <= after);
        let rest = names.get(start..).unwrap_or_default();
        let mut page = LivePage::default();
        let mut n_at_once = 0;
        for (n_seen, name) in rest.iter().enumerate() {
            if n_seen >= LOOKED_AT || page.sequences.len() >= limit {
                page.next = n_seen
                    .checked_sub(1)
                    .and_then(|last| rest.get(last))
                    .cloned();
                break;
            }
            n_at_once += 1;
            if name.as_str().contains(contains) {
                let head = self.shared.names.look(name);
                let shown = head.and_then(|head| self.shared.show(&head, None).ok());
                n_at_once += shown.as_ref().and_then(|it| it.n_periods).unwrap_or(0);
                page.sequences.extend(shown);
            }
            if n_at_once >= LOOKED_AT_ONCE {
                n_at_once = 0;
                tokio::task::yield_now().await;
            }
        }
        page
    }

    /// Returns one name with its last minutes; `None` if the name is not in memory.
    ///
    /// # Errors
    /// The sequence has no such period.
    pub fn watch(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
    ) -> Result<Option<Watched>, SequenceError> {
        let Some(head) = self.shared.names.look(name) else {
            return Ok(None);
        };
        let sequence = self.shared.show(&head, period)?;
        let key = CounterKey {
            sequence: name.clone(),
            period: sequence.state.period.clone(),
        };
        Ok(Some(Watched {
            moments: self.shared.histories.of(&key),
            sequence,
        }))
    }
}

impl Shared {
    /// Returns what memory knows of a sequence, with the period that is named or the present
    /// period. `head` is the issuer under the name.
    fn show(
        &self,
        head: &Arc<Issuer>,
        period: Option<&Period>,
    ) -> Result<LiveSequence, SequenceError> {
        let name = &head.key.sequence;
        let definition = head.definition();
        let key = asked_for(name, period, &definition)?;
        let period_issuers = head.periods().map(PeriodDirectory::period_issuers);
        let state = match &period_issuers {
            // Without a named key, show the sums of all keys: no key is the present one.
            Some(period_issuers) if key.period.is_none() => sum_of(period_issuers),
            _ => self.status_of(&key),
        };
        Ok(LiveSequence {
            name: name.clone(),
            n_periods: period_issuers.map(|period_issuers| period_issuers.len()),
            is_retired: head.memory.lock().is_retired,
            state,
            definition,
        })
    }

    /// Returns the status of a counter, as far as memory knows it.
    pub(crate) fn status_of(&self, key: &CounterKey) -> CounterStatus {
        let found = self.find(key).map(|issuer| issuer.state());
        found.unwrap_or_else(|| CounterStatus {
            period: key.period.clone(),
            ..CounterStatus::default()
        })
    }
}

fn sum_of(period_issuers: &[Arc<Issuer>]) -> CounterStatus {
    CounterStatus {
        n_remaining: period_issuers
            .iter()
            .fold(0, |sum, member| sum.saturating_add(member.remaining())),
        rate: period_issuers.iter().map(|member| member.rate()).sum(),
        ..CounterStatus::default()
    }
}
