//! Says how large a call for numbers may be, as far as memory knows, and how far apart its numbers
//! are.

use odometer_core::{
    block::Block,
    definition::{Definition, Kind},
    name::SequenceName,
    period::Period,
    sizing::max_at_once,
    speed_limit::SpeedLimit,
};
use odometer_process::clock;
use odometer_store::limit_of;

use crate::{
    actor::queue::Wants, directory::calls::Directory, directory::usage::left, error::SequenceError,
    issuer::memory::Issuer,
};

/// What bounds the size of a call, besides the rights and quotas of its caller.
#[derive(Clone, Copy, Debug)]
pub struct CallBounds {
    /// How many numbers are not reserved, at most. `None` for time-ordered ids.
    pub left: Option<u64>,
    wants: Wants,
    has_blocks: bool,
    in_memory: u64,
    /// How many numbers the speed limit ever allows at once.
    burst: u64,
    /// How many ids a time-ordered sequence gives at once.
    most_ids: u64,
    /// How many databases share the numbers that are left. A range comes from one of them.
    n_databases: u64,
}

impl Directory {
    /// Returns what memory knows of the bounds of a call. A name that is not in memory counts as
    /// one that its template creates. `None` if no call creates it.
    ///
    /// Asks no store. Other replicas may have reserved more since.
    pub fn call_bounds(
        &self,
        name: &SequenceName,
        period: Option<&Period>,
        wants: Wants,
    ) -> Option<CallBounds> {
        let Some(head) = self.shared.known(name) else {
            let template = self.shared.settings.templates.created_with(name);
            return template.map(|template| self.of_definition(&template, wants));
        };
        let definition = head.definition();
        let counter = match head.periods() {
            None => Some(head),
            Some(periods) => {
                let chosen = periods.choose(period, clock::now_ms()).ok();
                chosen.and_then(|chosen| periods.member(chosen.period.as_str()))
            }
        };
        let bounds = self.of_definition(&definition, wants);
        Some(match counter {
            None => bounds,
            Some(counter) => bounds.with_counter(&definition, &counter),
        })
    }

    /// Returns how far apart the numbers of a range are: the step, times the databases that share
    /// the sequence. A name that shares the numbers of another sequence counts as that one, and a
    /// name that was never used as one that its template creates. `None` if no call creates it.
    ///
    /// # Errors
    /// The sequence is retired, or the store was asked about the name and did not answer.
    pub async fn stride(&self, name: &SequenceName) -> Result<Option<i64>, SequenceError> {
        let name = &self.source(name).await?;
        let definition = match self.find(name).await {
            Ok(issuer) => issuer.definition(),
            Err(SequenceError::NotFound { .. } | SequenceError::Elsewhere) => {
                match self.shared.settings.templates.created_with(name) {
                    Some(template) => template,
                    None => return Ok(None),
                }
            }
            Err(error) => return Err(error),
        };
        if definition.kind == Kind::Snowflake {
            return Ok(Some(1));
        }
        let n_databases = self.shared.store.n_databases(&definition.store);
        let n_databases = i64::try_from(n_databases).unwrap_or(i64::MAX);
        Ok(Some(definition.step.saturating_mul(n_databases)))
    }

    /// Returns the bounds of a counter of which nothing is reserved.
    fn of_definition(&self, definition: &Definition, wants: Wants) -> CallBounds {
        let n_databases = self.shared.store.n_databases(&definition.store);
        let burst = limit_of(definition).map_or(u64::MAX, SpeedLimit::burst);
        CallBounds {
            left: left(definition, definition.start),
            wants,
            has_blocks: definition.kind == Kind::Block,
            in_memory: 0,
            burst,
            most_ids: u64::MAX,
            n_databases: u64::try_from(n_databases).unwrap_or(u64::MAX),
        }
    }
}

impl CallBounds {
    fn with_counter(self, definition: &Definition, counter: &Issuer) -> Self {
        let snowflake = counter.snowflake();
        let contiguous = self.wants == Wants::Range;
        // A refill changes all of this under this lock, so no number counts twice.
        let memory = counter.memory.lock();
        let known = memory.known.as_ref();
        Self {
            left: known.map_or(self.left, |known| left(definition, known.seen.next_value)),
            in_memory: counter.blocks(&memory).iter().map(Block::count).sum(),
            most_ids: snowflake.map_or(u64::MAX, |ids| ids.most_at_once(contiguous)),
            ..self
        }
    }

    /// Returns the most numbers that the call can have. 0 if it can have none.
    ///
    /// How much of the speed limit is used is known to the store alone, which says it when it
    /// refuses.
    pub fn most(self) -> u64 {
        if !self.has_blocks {
            return match self.wants {
                Wants::Numbers | Wants::Range => self.most_ids,
                Wants::Block => 0,
            };
        }
        let of_left = self.left.map_or(u64::MAX, |left| {
            let of_one = left / self.n_databases.max(1);
            match self.wants {
                Wants::Numbers => left.saturating_add(self.in_memory),
                Wants::Range => of_one,
                Wants::Block => max_at_once(of_one),
            }
        });
        self.burst.min(of_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: CallBounds = CallBounds {
        left: Some(4_096_000),
        wants: Wants::Numbers,
        has_blocks: true,
        in_memory: 7,
        burst: 100_000,
        most_ids: u64::MAX,
        n_databases: 1,
    };

    fn most_of(bounds: CallBounds) -> [u64; 3] {
        let each = [Wants::Numbers, Wants::Range, Wants::Block];
        each.map(|wants| CallBounds { wants, ..bounds }.most())
    }

    #[test]
    fn the_lowest_bound_counts() {
        assert_eq!(most_of(KNOWN), [100_000, 100_000, 1_000]);
        let slow = CallBounds { burst: 9, ..KNOWN };
        assert_eq!(most_of(slow), [9, 9, 9]);
        let short = CallBounds {
            left: Some(5),
            ..KNOWN
        };
        assert_eq!(most_of(short), [12, 5, 1]);
        let ended = CallBounds {
            left: Some(0),
            ..KNOWN
        };
        assert_eq!(most_of(ended), [7, 0, 0]);
    }

    #[test]
    fn one_of_several_databases_gives_a_range() {
        let striped = CallBounds {
            left: Some(81_920),
            n_databases: 4,
            ..KNOWN
        };
        assert_eq!(most_of(striped), [81_927, 20_480, 5]);
    }

    #[test]
    fn what_is_not_limited_bounds_nothing() {
        let unlimited = CallBounds {
            left: None,
            burst: u64::MAX,
            ..KNOWN
        };
        assert_eq!(most_of(unlimited), [u64::MAX; 3]);
        let ids = CallBounds {
            has_blocks: false,
            most_ids: 4_096,
            ..unlimited
        };
        assert_eq!(most_of(ids), [4_096, 4_096, 0]);
    }
}
