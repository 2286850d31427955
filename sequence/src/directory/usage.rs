//! Says how much of sequences, names and worker ids is used up, for quotas of callers.

use odometer_core::{
    definition::{DEFAULT_STORE, Definition, Kind},
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_process::clock;
use odometer_store::StoreError;

use crate::{
    directory::calls::Directory, error::SequenceError, issuer::memory::Issuer, workers::WorkerError,
};

/// How many names are counted with one statement.
const PAGE: usize = 1000;

impl Directory {
    /// Returns how many numbers a sequence has that are not reserved, in the period of a call.
    /// `None` for time-ordered ids, which have no end of this kind, and for a name that no call
    /// creates.
    ///
    /// What memory knows is enough: other replicas may have reserved more since.
    ///
    /// # Errors
    /// Memory does not know the counter, and the store did not answer or failed. Or callers may not
    /// count in this period.
    pub async fn left(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
    ) -> Result<Option<u64>, SequenceError> {
        let issuer = match self.find(name).await {
            Ok(issuer) => issuer,
            Err(SequenceError::NotFound { .. } | SequenceError::Elsewhere) => {
                let created = self.shared.settings.templates.created_with(name);
                return Ok(created.and_then(|definition| left(&definition, definition.start)));
            }
            Err(error) => return Err(error),
        };
        let definition = issuer.definition();
        let key = match issuer.periods() {
            None => issuer.key.clone(),
            Some(periods) => CounterKey {
                sequence: issuer.key.sequence.clone(),
                period: periods.choose(period, clock::now_ms())?.period,
            },
        };
        let known = self
            .shared
            .find(&key)
            .and_then(|issuer| known_next(&issuer));
        let next_value = match known {
            Some(known) => known,
            None => {
                let seen = self.waiting_for(self.seen(&key)).await?;
                seen.map_or(definition.start, |seen| seen.next_value)
            }
        };
        Ok(left(&definition, next_value))
    }

    /// Counts the live sequences that fit, and their keys. Their names begin with one of `beginnings`,
    /// of which none begins with another. Stops when there are `most`.
    ///
    /// # Errors
    /// The store did not answer in time, or failed.
    pub async fn count_names(
        &self,
        beginnings: Vec<&str>,
        fits: impl Fn(&SequenceName) -> bool,
        most: u64,
    ) -> Result<u64, SequenceError> {
        let counting = async {
            let mut n = 0;
            for beginning in beginnings {
                if n >= most {
                    break;
                }
                let mut after = String::new();
                loop {
                    let page = self.count_keys(beginning, &after).await?;
                    let fitting = page.iter().filter(|(name, _)| fits(name));
                    n += fitting.map(|(_, n_keys)| n_keys + 1).sum::<u64>();
                    let last = page.last().filter(|_| page.len() >= PAGE);
                    match last.filter(|_| n < most) {
                        Some((last, _)) => last.as_str().clone_into(&mut after),
                        None => break,
                    }
                }
            }
            Ok(n)
        };
        self.waiting_for(counting).await
    }

    async fn count_keys(
        &self,
        beginning: &str,
        after: &str,
    ) -> Result<Vec<(SequenceName, u64)>, SequenceError> {
        let counting = self.shared.store.count_keys(beginning, after, PAGE as u64);
        counting.await.map_err(|error| {
            if matches!(error, StoreError::Unavailable | StoreError::Deadline) {
                SequenceError::StoreUnavailable
            } else {
                SequenceError::Internal
            }
        })
    }

    /// Counts the worker ids that are held in pools that fit. Their names begin with one of
    /// `beginnings`, of which none begins with another.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn count_held(
        &self,
        beginnings: Vec<&str>,
        fits: impl Fn(&SequenceName) -> bool,
    ) -> Result<u64, WorkerError> {
        let mut n = 0;
        for beginning in beginnings {
            let held = self.shared.store.held_ids(DEFAULT_STORE, beginning).await?;
            let fitting = held.iter().filter(|(pool, _)| fits(pool));
            n += fitting.map(|(_, n_held)| n_held).sum::<u64>();
        }
        Ok(n)
    }
}

/// Returns how many numbers come from `next_value` on; `None` for time-ordered ids.
pub(crate) fn left(definition: &Definition, next_value: i64) -> Option<u64> {
    (definition.kind == Kind::Block).then(|| definition.left(next_value))
}

/// Returns the first number of a counter that is not reserved, as far as memory knows it.
fn known_next(issuer: &Issuer) -> Option<i64> {
    let memory = issuer.memory.lock();
    memory.known.as_ref().map(|known| known.seen.next_value)
}
