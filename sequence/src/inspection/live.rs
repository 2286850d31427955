//! Shows what memory alone knows of this replica and of the names in it.

use std::{sync::Arc, time::Duration};

use odometer_core::{
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_process::clock;
use odometer_store::StoreHealth;

use crate::{
    directory::calls::{Directory, asked_for},
    directory::period_directory::PeriodDirectory,
    directory::shared::Shared,
    error::SequenceError,
    inspection::description::{CounterStatus, LivePage, LiveSequence, LiveSort, Watched},
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

    /// Returns a page of the names in memory that contain a text and come after `after`.
    ///
    /// A page may have fewer than `limit` names, or none, although another page follows. A page by
    /// time has the shortest times of all names that were looked at.
    pub async fn live(
        &self,
        contains: &str,
        after: &str,
        limit: usize,
        sort: LiveSort,
    ) -> LivePage {
        let names = self.shared.names().await;
        let start = names.partition_point(|name| name.as_str() <= after);
        let rest = names.get(start..).unwrap_or_default();
        let mut page = LivePage::default();
        let mut n_at_once = 0;
        for (n_seen, name) in rest.iter().enumerate() {
            let is_full = sort == LiveSort::Name && page.sequences.len() >= limit;
            if n_seen >= LOOKED_AT || is_full {
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
                keep_first(&mut page.sequences, sort, limit);
                tokio::task::yield_now().await;
            }
        }
        keep_first(&mut page.sequences, sort, limit);
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
        let mut state = match &period_issuers {
            // Without a named key, show the sums of all keys: no key is the present one.
            Some(period_issuers) if key.period.is_none() => sum_of(period_issuers),
            _ => self.status_of(&key),
        };
        state.warming_up &= self.store.can_reserve(definition.store.as_str());
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

/// Keeps the first `limit` sequences of an order. Sequences with equal times stay in the order of
/// their names.
fn keep_first(sequences: &mut Vec<LiveSequence>, sort: LiveSort, limit: usize) {
    let now_ms = clock::now_ms();
    if sort != LiveSort::Name {
        sequences.sort_by(|one, other| {
            let times = [one, other].map(|it| seconds_left(it, sort, now_ms));
            f64::total_cmp(&times[0], &times[1])
        });
    }
    sequences.truncate(limit);
}

/// Returns for how many seconds the numbers of a sequence last. The time is infinite if it is not
/// known, if numbers start again before, or if the sequence is retired.
fn seconds_left(sequence: &LiveSequence, sort: LiveSort, now_ms: i64) -> f64 {
    let state = &sequence.state;
    let seconds = match sort {
        _ if sequence.is_retired => None,
        LiveSort::Name => None,
        LiveSort::Reserve => state.reserve_seconds,
        LiveSort::Runway => state.runway.as_ref().and_then(|runway| {
            // Numbers that are used up need no rate.
            let is_over = runway.worst.numbers_left == 0;
            let period_left = state.period_until_ms.map(|until_ms| {
                Duration::from_millis(until_ms.saturating_sub(now_ms).max(0).unsigned_abs())
                    .as_secs_f64()
            });
            is_over.then_some(0.0).or(runway.seconds(period_left))
        }),
    };
    seconds.unwrap_or(f64::INFINITY)
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::{definition::Definition, runway::Runway};

    use super::*;

    /// Returns a sequence with these seconds of reserve, and this rate.
    fn sequence(name: &str, reserve_seconds: Option<f64>, rate: f64) -> LiveSequence {
        let definition = Arc::new(Definition::default());
        let runway = Runway::of(&definition, 1, rate, 0);
        LiveSequence {
            name: SequenceName::parse(name).unwrap(),
            definition,
            is_retired: false,
            n_periods: None,
            state: CounterStatus {
                reserve_seconds,
                runway: Some(runway),
                ..CounterStatus::default()
            },
        }
    }

    fn first(sort: LiveSort, limit: usize, mut sequences: Vec<LiveSequence>) -> Vec<String> {
        keep_first(&mut sequences, sort, limit);
        let names = sequences.iter().map(|it| it.name.as_str().to_owned());
        names.collect()
    }

    #[test]
    fn the_shortest_time_comes_first_and_what_is_not_known_last() {
        let all = || {
            vec![
                sequence("a", None, 0.0),
                sequence("b", Some(9.0), 2.0),
                sequence("c", Some(5.0), 1.0),
                sequence("d", Some(9.0), 3.0),
            ]
        };
        assert_eq!(first(LiveSort::Name, 9, all()), ["a", "b", "c", "d"]);
        assert_eq!(first(LiveSort::Reserve, 9, all()), ["c", "b", "d", "a"]);
        assert_eq!(first(LiveSort::Runway, 9, all()), ["d", "b", "c", "a"]);
        assert_eq!(first(LiveSort::Reserve, 2, all()), ["c", "b"]);
    }

    #[test]
    fn what_is_retired_or_starts_again_has_time() {
        let mut all = vec![
            sequence("ends", Some(1.0), 5.0),
            sequence("retired", Some(0.5), 9.0),
            sequence("short-period", Some(1.0), 9.0),
            sequence("used-up", None, 0.0),
        ];
        all[1].is_retired = true;
        all[2].state.period_until_ms = Some(clock::now_ms() + 1000);
        let definition = Definition::default();
        all[3].state.runway = Some(Runway::of(&definition, i64::MAX, 0.0, 0));
        let by_runway = ["used-up", "ends", "retired", "short-period"];
        assert_eq!(first(LiveSort::Runway, 9, all.clone()), by_runway);
        let by_reserve = ["ends", "short-period", "retired", "used-up"];
        assert_eq!(first(LiveSort::Reserve, 9, all), by_reserve);
    }
}
