//! Decides the outcome of a change, from what all databases of a store have. It asks no database.

use std::sync::Arc;

use entity::sequence;
use odometer_core::{
    definition::{Definition, Kind},
    name::SequenceName,
    period::{Period, PeriodKind},
};
use odometer_process::faults::{self, Fault};

use super::{
    merged_counter::MergedCounter,
    prepared::{Prepared, PreparedRow},
    request::{Act, ChangeRequest},
    rules::{ChangeRules, Used},
};
use crate::{
    error::StoreError,
    outcome::{Altered, Condition, Snapshot},
    reservation::{period, stripe_constraints::counts_alike},
    rows::catalog::{self, ELSEWHERE, LIVE, RETIRED},
};

/// The outcome of a change.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) altered: Altered,
    /// Periods at or before this one are removed; empty if none is.
    pub(crate) removed_through: String,
}

/// Decides the outcome of a change.
///
/// # Errors
/// Why nothing is changed.
pub(crate) fn decide(
    change: &ChangeRequest,
    rules: &ChangeRules,
    parts: &[Prepared],
) -> Result<Decision, StoreError> {
    let Some(newest) = newest(parts) else {
        return creation(change, rules, parts);
    };
    let act = &change.act;
    let definition = Arc::clone(&newest.definition);
    let model = &newest.model;
    admit(act, change.condition, model)?;
    let period = act.period();
    let counter = MergedCounter::of(parts, &definition, &period);
    admit_period(act, &definition, &counter, parts)?;
    if !period.is_none() && counter.is_new {
        rules.admit_new_period(&definition, parts)?;
    }
    let mut without = parts.iter().filter(|part| part.row.is_none());
    // A database that lost the sequence gets it back only above what was seen in it.
    if without.any(|part| part.would_fall(&definition, &period, counter.floor)) {
        return Err(StoreError::WentBack);
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
    let mut after = after(
        &change.name,
        &before,
        act,
        rules.used(parts, &definition, &counter),
    )?;
    if after.definition != before.definition {
        rules.admit(&after.definition)?;
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
        altered: Altered {
            before: Some(before),
            after,
            is_written,
        },
        removed_through: removed_through.max().unwrap_or_default(),
    })
}

fn creation(
    change: &ChangeRequest,
    rules: &ChangeRules,
    parts: &[Prepared],
) -> Result<Decision, StoreError> {
    if !change.may_create() {
        return Err(StoreError::NotFound);
    }
    let limit = rules.max_sequences;
    let n_created = change.n_created;
    let is_full = |part: &Prepared| part.sequences.with(n_created).is_full(limit);
    if parts.iter().any(is_full) {
        return Err(StoreError::TooMany { limit });
    }
    let definition = change.act.new_definition()?;
    rules.admit(&definition)?;
    let mut next_value = definition.start;
    for part in parts {
        // A name that was seen here and is gone is created only above what was seen of it.
        if part.would_fall(&definition, &Period::none(), definition.start) {
            return Err(StoreError::WentBack);
        }
        let first = part.baseline.first(&part.stripe.view(&definition));
        next_value = next_value.max(part.stripe.reached(&definition, first));
    }
    let is_written = !change.act.is_dry_run();
    let after = Snapshot {
        is_live: true,
        version: if is_written { next_version(parts) } else { 0 },
        period: Period::none(),
        is_removed: false,
        floor: definition.start,
        next_value,
        rate: 0.0,
        definition: Arc::new(definition),
    };
    Ok(Decision {
        altered: Altered {
            before: None,
            after,
            is_written,
        },
        removed_through: String::new(),
    })
}

/// Returns whether the act changes nothing, by the sequence's locked row alone. Its counters do not
/// matter.
pub(crate) fn changes_nothing(act: &Act, row: &sequence::Model, definition: &Definition) -> bool {
    match act {
        // If no field changes, no high-water mark is in the way.
        Act::Define { change, .. } => change
            .apply(definition, definition.start, true)
            .is_ok_and(|applied| applied == *definition),
        Act::Retire => row.state == RETIRED,
        Act::Restore => row.state == LIVE,
        Act::Advance { .. } | Act::RemovePeriod { .. } => false,
    }
}

/// Checks that the act may be tried on the sequence as it is.
///
/// # Errors
/// `Elsewhere`, `Retired`, `AlreadyExists` or `VersionMismatch`.
pub(crate) fn admit(
    act: &Act,
    condition: Condition,
    row: &sequence::Model,
) -> Result<(), StoreError> {
    if row.state == ELSEWHERE {
        return Err(StoreError::Elsewhere(catalog::claimed(&row.definition)?));
    }
    let is_for_the_living = matches!(act, Act::Define { .. } | Act::Advance { .. });
    if row.state != LIVE && is_for_the_living {
        return Err(StoreError::Retired);
    }
    match condition {
        Condition::MustNotExist => Err(StoreError::AlreadyExists),
        Condition::Version(wanted) if wanted != row.version => Err(StoreError::VersionMismatch {
            current: row.version,
        }),
        Condition::Version(_) | Condition::None => Ok(()),
    }
}

/// Returns what an act makes of a sequence. The result equals `before` if the act changes nothing.
fn after(
    name: &SequenceName,
    before: &Snapshot,
    act: &Act,
    used: Used,
) -> Result<Snapshot, StoreError> {
    let mut after = before.clone();
    match act {
        Act::Define { change, .. } => {
            let issued = used.issued && !faults::is(Fault::FormatsRepeat);
            let definition = change.apply(&before.definition, used.highest, issued)?;
            after.definition = Arc::new(definition);
        }
        Act::Advance { .. } if before.definition.kind == Kind::Snowflake => {
            return Err(StoreError::NotForKind);
        }
        Act::Advance { floor, confirm, .. } => {
            let floor = raised_floor(before, *floor, *confirm)?;
            after.floor = before.floor.max(floor);
            after.next_value = before.next_value.max(floor);
        }
        Act::Retire => after.is_live = false,
        Act::Restore if !before.is_live => {
            after.is_live = true;
            // All numbers that a replica still holds, or has returned, are below this floor.
            after.floor = before.floor.max(before.next_value);
        }
        Act::Restore => {}
        Act::RemovePeriod { .. } => after.is_removed = true,
    }
    if after.next_value < before.next_value || after.floor < before.floor {
        return Err(StoreError::Broken(format!(
            "a change of `{name}` would take it back"
        )));
    }
    Ok(after)
}

/// Returns the lowest number of the sequence that is not below `floor`, if so many numbers may be
/// skipped.
fn raised_floor(before: &Snapshot, floor: i64, confirm: bool) -> Result<i64, StoreError> {
    let definition = &before.definition;
    let Some(floor) = definition.first_from(floor) else {
        return Err(StoreError::FloorTooHigh {
            highest: definition.end(),
            limit: definition.last(),
        });
    };
    let left = definition.left(before.next_value);
    let skipped = left.saturating_sub(definition.left(floor));
    if !confirm && skipped > left / 100 {
        return Err(StoreError::ConfirmNeeded { skipped, left });
    }
    Ok(floor)
}

/// Returns a version above all versions of the databases, so that it is new to every replica that
/// polls one of them.
fn next_version(parts: &[Prepared]) -> i64 {
    let highest = parts.iter().map(|part| {
        let row = part.row.as_ref().map(|row| row.model.version);
        part.definitions_version.max(row.unwrap_or(0))
    });
    highest.max().unwrap_or(0).saturating_add(1)
}

/// Returns the row that counts. A definition that more than half of the databases have comes first.
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

/// Says whether a database has exactly the row that counts.
fn is_as(part: &Prepared, newest: &PreparedRow) -> bool {
    part.row.as_ref().is_some_and(|row| {
        row.model.version == newest.model.version
            && row.model.state == newest.model.state
            && row.definition == newest.definition
    })
}

/// Checks that the act's period is one of the sequence's periods, and not removed.
fn admit_period(
    act: &Act,
    definition: &Arc<Definition>,
    counter: &MergedCounter,
    parts: &[Prepared],
) -> Result<(), StoreError> {
    match act {
        Act::Advance { period, .. } => {
            period::check(period, definition)?;
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
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::definition::{DefinitionChange, Stripe};

    use super::*;
    use crate::rows::{counter::SeenCounter, row_count::RowCount};

    const USED: Used = Used {
        highest: 101,
        issued: true,
    };

    fn name() -> SequenceName {
        SequenceName::parse("orders").unwrap()
    }

    fn at(next_value: i64, floor: i64) -> Snapshot {
        Snapshot {
            is_live: true,
            definition: Arc::new(Definition {
                start: 1,
                step: 2,
                max: 2000,
                ..Definition::default()
            }),
            version: 7,
            period: Period::none(),
            is_removed: false,
            floor,
            next_value,
            rate: 0.0,
        }
    }

    fn advance(before: &Snapshot, floor: i64, confirm: bool) -> Result<(i64, i64), StoreError> {
        let period = Period::none();
        let advance = Act::Advance {
            period,
            floor,
            confirm,
        };
        let after = after(&name(), before, &advance, USED)?;
        Ok((after.floor, after.next_value))
    }

    #[test]
    fn a_floor_only_rises_and_lies_on_a_number() {
        let before = at(101, 51);
        for (floor, expected) in [
            (0, (51, 101)),
            (51, (51, 101)),
            // Below the high-water mark and above the old floor: numbers in memory are not issued.
            (52, (53, 101)),
            (101, (101, 101)),
            (102, (103, 103)),
        ] {
            assert_eq!(advance(&before, floor, false).unwrap(), expected, "{floor}");
        }
    }

    #[test]
    fn skipping_much_has_to_be_confirmed() {
        // 950 numbers are left: 9 may be skipped, 10 may not.
        let before = at(101, 1);
        assert_eq!(advance(&before, 119, false).unwrap(), (119, 119));
        let refused = advance(&before, 121, false).unwrap_err();
        let expected = StoreError::ConfirmNeeded {
            skipped: 10,
            left: 950,
        };
        assert_eq!(refused.to_string(), expected.to_string());
        assert_eq!(advance(&before, 121, true).unwrap(), (121, 121));
        // The number after the last one leaves no number.
        assert_eq!(advance(&before, 2000, true).unwrap(), (2001, 2001));
        for beyond in [2002, i64::MAX] {
            let refused = advance(&before, beyond, true).unwrap_err();
            assert!(
                matches!(refused, StoreError::FloorTooHigh { highest: 2001, .. }),
                "{refused}"
            );
        }
        // If no number is left, none is skipped.
        assert_eq!(advance(&at(2001, 1), 2001, false).unwrap(), (2001, 2001));
    }

    #[test]
    fn a_repeated_act_is_told_by_the_row_of_its_sequence() {
        let of = |state: &str, definition: &Definition| sequence::Model {
            name: "orders".to_owned(),
            definition: definition.to_stored(),
            state: state.to_owned(),
            periods_removed_through: String::new(),
            version: 7,
            created_at: 0,
            changed_at: 0,
        };
        let definition = Definition {
            max: 2000,
            ..Definition::default()
        };
        let says =
            |state: &str, act: &Act| changes_nothing(act, &of(state, &definition), &definition);
        assert!(says(RETIRED, &Act::Retire) && says(LIVE, &Act::Restore));
        assert!(!says(LIVE, &Act::Retire) && !says(RETIRED, &Act::Restore));
        let define = |max: i64| Act::Define {
            change: Box::new(DefinitionChange {
                max: Some(max),
                ..DefinitionChange::default()
            }),
            template: Arc::new(Definition::default()),
            dry_run: false,
        };
        assert!(says(LIVE, &define(2000)));
        assert!(!says(LIVE, &define(1999)) && !says(LIVE, &define(-1)));
    }

    #[test]
    fn a_restored_sequence_goes_on_above_all_that_was_reserved() {
        let act = |before: &Snapshot, act: Act| super::after(&name(), before, &act, USED).unwrap();
        let live = at(101, 51);
        let retired = act(&live, Act::Retire);
        assert_eq!((retired.is_live, retired.floor), (false, 51));
        assert_eq!(act(&retired, Act::Retire), retired);
        let restored = act(&retired, Act::Restore);
        assert_eq!((restored.is_live, restored.floor), (true, 101));
        assert_eq!(act(&live, Act::Restore), live);
    }

    #[test]
    fn a_database_that_lost_a_sequence_gets_it_back_only_above_what_was_seen() {
        let definition = Definition::default();
        let model = sequence::Model {
            name: "orders".to_owned(),
            definition: definition.to_stored(),
            state: LIVE.to_owned(),
            periods_removed_through: String::new(),
            version: 7,
            created_at: 0,
            changed_at: 0,
        };
        let kept = Prepared {
            row: Some(PreparedRow {
                model,
                definition: Arc::new(definition),
                highest_of_periods: None,
                has_periods_made: false,
                other_periods: RowCount::default(),
            }),
            ..Prepared::empty()
        };
        let lost = |next_value| Prepared {
            last_seen: Some(SeenCounter {
                next_value,
                version: 0,
            }),
            ..Prepared::empty()
        };
        let rules = ChangeRules {
            store: "default".into(),
            last_stripe: Stripe::new(1, 2).unwrap(),
            max_sequences: 10,
            keyed_periods: 10,
        };
        let request = ChangeRequest {
            name: name(),
            act: Act::Retire,
            condition: Condition::None,
            last_seen: None,
            n_created: 0,
        };
        let refused = decide(&request, &rules, &[kept.clone(), lost(500)]).unwrap_err();
        assert!(matches!(refused, StoreError::WentBack), "{refused}");
        assert!(
            decide(&request, &rules, &[kept, lost(1)])
                .unwrap()
                .altered
                .is_written
        );
    }
}
