//! Decides the outcome of a change, from what all members of a store have.

use std::sync::Arc;

use odometer_core::{
    definition::{Definition, Stripe},
    name::SequenceName,
    period::{Period, PeriodKind},
};
use odometer_process::clock::now_ms;

use super::store::Striped;
use crate::{
    Act, Condition, Snapshot,
    change::{
        counters::Used,
        participant::{self, Prepared, PreparedRow},
        transaction,
    },
    error::StoreError,
    reservation::{period, stripe_constraints::counts_alike},
    rows::catalog::{self, LIVE},
};

/// The outcome of a change.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) before: Option<Snapshot>,
    pub(crate) after: Snapshot,
    pub(crate) removed_through: String,
    pub(crate) is_written: bool,
}

impl Striped {
    /// Decides the outcome of a change, from what all members have.
    pub(crate) fn decide(
        &self,
        name: &SequenceName,
        act: &Act,
        condition: Condition,
        parts: &[Prepared],
    ) -> Result<Decision, StoreError> {
        let Some(newest) = newest(parts) else {
            return self.creation(act, condition, parts);
        };
        let definition = Arc::clone(&newest.definition);
        let model = &newest.model;
        transaction::admit(act, condition, model)?;
        let period = act.period();
        let counter = MergedCounter::of(parts, &definition, &period);
        admit_period(act, &definition, model.version, &counter, parts)?;
        if !period.is_none() && counter.is_new {
            self.admit_new_period(&definition, parts)?;
        }
        let before = Snapshot {
            is_live: model.state == LIVE,
            definition: Arc::clone(&definition),
            version: model.version,
            period,
            is_removed: counter.is_removed,
            floor: counter.floor,
            next_value: counter.next_value,
            rate: counter.rate,
        };
        let mut after = transaction::act(name, &before, act, used(parts, &definition, &counter))?;
        if after.definition != before.definition {
            self.admit(&after.definition)
                .map_err(StoreError::Definition)?;
        }
        let is_caught_up = parts
            .iter()
            .all(|part| is_as(part, newest) && counter.is_as_in(part, act, &definition));
        let is_written = !act.is_dry_run() && (after != before || !is_caught_up);
        if is_written {
            after.version = next_version(parts);
        }
        let removed = parts.iter().filter_map(|part| part.row.as_ref());
        let removed_through = removed.map(|row| row.model.periods_removed_through.clone());
        Ok(Decision {
            before: Some(before),
            after,
            removed_through: removed_through.max().unwrap_or_default(),
            is_written,
        })
    }

    fn admit_new_period(
        &self,
        definition: &Definition,
        parts: &[Prepared],
    ) -> Result<(), StoreError> {
        let limit = self.bounds.keyed_periods;
        let rows = parts.iter().filter_map(|part| part.row.as_ref());
        let most = rows.map(|row| row.n_other_periods).max().unwrap_or(0);
        if definition.period == PeriodKind::Keyed && most >= limit {
            return Err(StoreError::TooManyPeriods { limit });
        }
        Ok(())
    }

    fn creation(
        &self,
        act: &Act,
        condition: Condition,
        parts: &[Prepared],
    ) -> Result<Decision, StoreError> {
        let Act::Define {
            change,
            template,
            dry_run,
        } = act
        else {
            return Err(StoreError::NotFound);
        };
        if matches!(condition, Condition::Version(_)) {
            return Err(StoreError::NotFound);
        }
        let limit = self.bounds.max_sequences;
        if parts.iter().any(|part| part.n_sequences >= limit) {
            return Err(StoreError::TooMany { limit });
        }
        let created = change.create_at(template, now_ms());
        let definition = created.map_err(StoreError::Definition)?;
        self.admit(&definition).map_err(StoreError::Definition)?;
        let reached = parts.iter().map(|part| {
            let counted = part.stripe.view(&definition);
            part.stripe
                .reached(&definition, part.baseline.first(&counted))
        });
        let next_value = reached.max().unwrap_or(definition.start);
        Ok(Decision {
            before: None,
            after: Snapshot {
                is_live: true,
                version: if *dry_run { 0 } else { next_version(parts) },
                period: Period::none(),
                is_removed: false,
                floor: definition.start,
                next_value,
                rate: 0.0,
                definition: Arc::new(definition),
            },
            removed_through: String::new(),
            is_written: !dry_run,
        })
    }
}

/// Returns a version above all versions of the members, so that it is new to every replica that
/// polls one of them.
fn next_version(parts: &[Prepared]) -> i64 {
    let highest = parts.iter().map(|part| {
        let row = part.row.as_ref().map(|row| row.model.version);
        part.definitions_version.max(row.unwrap_or(0))
    });
    highest.max().unwrap_or(0).saturating_add(1)
}

/// Returns the row that counts. A definition that more than half of the members have comes first.
/// Next comes one of which numbers were reserved, and then the newest row.
fn newest(parts: &[Prepared]) -> Option<&PreparedRow> {
    let rows = || parts.iter().filter_map(|part| part.row.as_ref());
    let n_alike = |row: &PreparedRow| {
        rows()
            .filter(|other| counts_alike(&row.definition, &other.definition))
            .count()
    };
    let was_used = |row: &PreparedRow| {
        parts.iter().any(|part| {
            let other = part.row.as_ref();
            let of_it = other.filter(|other| counts_alike(&row.definition, &other.definition));
            let counter = part.counter.filter(|_| of_it.is_some());
            // If a sequence has periods, nothing is reserved of its counter without a period.
            of_it.is_some_and(|other| other.has_periods_made)
                || counter.is_some_and(|counter| counter.seen.version > counter.revision)
        })
    };
    let weight = |row: &PreparedRow| {
        let has_most = n_alike(row) * 2 > parts.len();
        (has_most, was_used(row), row.model.version)
    };
    // Of equal rows, the first one counts.
    rows().rev().max_by_key(|row| weight(row))
}

/// Says whether a member has exactly the row that counts.
fn is_as(part: &Prepared, newest: &PreparedRow) -> bool {
    part.row.as_ref().is_some_and(|row| {
        row.model.version == newest.model.version
            && row.model.state == newest.model.state
            && row.definition == newest.definition
    })
}

/// The state of one counter in all members together.
#[derive(Debug)]
struct MergedCounter {
    next_value: i64,
    floor: i64,
    rate: f64,
    is_removed: bool,
    /// Whether no member has the counter yet.
    is_new: bool,
}

impl MergedCounter {
    fn of(parts: &[Prepared], definition: &Arc<Definition>, period: &Period) -> Self {
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
                let first = participant::first_in(part, &counted, period);
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
    fn is_as_in(&self, part: &Prepared, act: &Act, definition: &Definition) -> bool {
        let is_of_counters = matches!(act, Act::Advance { .. } | Act::RemovePeriod { .. });
        match part.counter {
            _ if !is_of_counters => true,
            Some(counter) if self.is_removed => counter.is_removed,
            Some(counter) => counter.floor == self.floor,
            None => self.is_new || !(self.is_removed || self.floor > definition.start),
        }
    }
}

/// Returns which numbers of all counters were used, in all members.
///
/// Ids count as issued even if none was. A change may stop after part of the commits, and a replica
/// prints by the earlier definition until it hears of the change.
fn used(parts: &[Prepared], definition: &Arc<Definition>, counter: &MergedCounter) -> Used {
    if !catalog::has_periods(definition) {
        return Used {
            highest: counter.next_value,
            issued: true,
        };
    }
    let rows = parts
        .iter()
        .filter_map(|part| Some((part.stripe, part.row.as_ref()?)));
    let highest = rows.filter_map(|(stripe, row)| {
        Some(Stripe::reached(stripe, definition, row.highest_of_periods?))
    });
    Used {
        highest: highest.max().unwrap_or(definition.start),
        issued: true,
    }
}

/// Checks that the act's period is one of the sequence's periods, and not removed.
fn admit_period(
    act: &Act,
    definition: &Arc<Definition>,
    version: i64,
    counter: &MergedCounter,
    parts: &[Prepared],
) -> Result<(), StoreError> {
    match act {
        Act::Advance { period, .. } => {
            period::check(period, definition, version, None)?;
            let mut rows = parts.iter().filter_map(|part| part.row.as_ref());
            let by_age = rows
                .any(|row| catalog::is_removed_by_age(period, &row.model.periods_removed_through));
            if by_age || counter.is_removed {
                return Err(StoreError::PeriodRemoved);
            }
            Ok(())
        }
        Act::RemovePeriod { .. } if definition.period != PeriodKind::Keyed => {
            Err(StoreError::NotForKind)
        }
        Act::RemovePeriod { .. } | Act::Define { .. } | Act::Retire | Act::Restore => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeenCounter;
    use crate::rows::{
        counter::{CounterRow, WindowRow},
        creation_baseline::CreationBaseline,
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
            is_removed,
            window: WindowRow::default(),
        });
        Prepared {
            stripe: Stripe::new(k, 2).unwrap_or(Stripe::WHOLE),
            row: None,
            counter,
            baseline: CreationBaseline::default(),
            definitions_version: 0,
            n_sequences: 0,
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
