//! Merges what the databases of a store have of one counter.

use std::sync::Arc;

use odometer_core::{definition::Definition, period::Period};

use super::{prepared::Prepared, request::Act};
use crate::reservation::stripe_constraints::counts_alike;

/// The state of one counter in all members together.
#[derive(Debug)]
pub(crate) struct MergedCounter {
    pub(crate) next_value: i64,
    pub(crate) floor: i64,
    pub(crate) rate: f64,
    pub(crate) is_removed: bool,
    /// Whether no member has the counter yet.
    pub(crate) is_new: bool,
}

impl MergedCounter {
    pub(crate) fn of(parts: &[Prepared], definition: &Arc<Definition>, period: &Period) -> Self {
        let mut together = Self {
            next_value: definition.start,
            floor: definition.start,
            rate: 0.0,
            is_removed: false,
            is_new: true,
        };
        for part in parts {
            let is_of_it = part
                .row
                .as_ref()
                .is_some_and(|row| counts_alike(&row.definition, definition));
            let reached = |next_value| part.stripe.reached(definition, next_value);
            let Some(counter) = part.counter.filter(|_| is_of_it) else {
                let counted = part.stripe.view(definition);
                let first = part.baseline.first_in(&counted, period);
                together.next_value = together.next_value.max(reached(first));
                continue;
            };
            together.is_new = false;
            together.next_value = together.next_value.max(reached(counter.seen.next_value));
            together.floor = together.floor.max(counter.floor);
            together.rate = together.rate.max(counter.rate);
            together.is_removed |= counter.is_removed;
        }
        together
    }

    /// Says whether a member has what earlier acts of this kind did to the counter. An act that
    /// stopped between two commits has not reached all members.
    pub(crate) fn is_as_in(&self, part: &Prepared, act: &Act, definition: &Definition) -> bool {
        let is_of_counters = matches!(act, Act::Advance { .. } | Act::RemovePeriod { .. });
        match part.counter {
            _ if !is_of_counters => true,
            Some(counter) if self.is_removed => counter.is_removed,
            Some(counter) => counter.floor == self.floor,
            None => self.is_new || !(self.is_removed || self.floor > definition.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use odometer_core::definition::Stripe;

    use super::*;
    use crate::rows::{
        counter::{CounterRow, SeenCounter, WindowRow},
        creation_baseline::CreationBaseline,
        row_count::RowCount,
    };

    fn part(k: u16, counter: Option<(i64, bool)>) -> Prepared {
        let counter = counter.map(|(floor, is_removed)| CounterRow {
            seen: SeenCounter {
                next_value: floor,
                version: 0,
            },
            revision: 0,
            floor,
            rate: 0.0,
            paced_until_us: 0,
            must_recover: false,
            is_removed,
            window: WindowRow::default(),
        });
        Prepared {
            stripe: Stripe::new(k, 2).unwrap_or(Stripe::WHOLE),
            row: None,
            counter,
            baseline: CreationBaseline::default(),
            definitions_version: 0,
            sequences: RowCount::default(),
            last_seen: None,
            is_held: true,
        }
    }

    #[test]
    fn an_act_of_a_period_that_not_all_have_is_written_again() {
        let definition = Definition::default();
        let together = |floor, is_removed| MergedCounter {
            next_value: 1,
            floor,
            rate: 0.0,
            is_removed,
            is_new: false,
        };
        let removal = Act::RemovePeriod {
            period: Period::none(),
        };
        let advanced = together(500, false);
        let removed = together(1, true);
        for (what, counted, part, is_caught_up) in [
            ("floor", &advanced, part(0, Some((500, false))), true),
            ("no floor", &advanced, part(0, Some((1, false))), false),
            ("not there", &advanced, part(0, None), false),
            ("removed", &removed, part(0, Some((1, true))), true),
            ("not removed", &removed, part(0, Some((1, false))), false),
            ("never made", &removed, part(0, None), false),
        ] {
            let found = counted.is_as_in(&part, &removal, &definition);
            assert_eq!(found, is_caught_up, "{what}");
        }
    }
}
