//! Makes a change of a sequence: of its definition, of a floor, of its state, or of a period.
//!
//! Each change is one transaction. It locks the sequence's row and raises its counters, so that
//! remembered values conflict everywhere. Then it checks, writes, and raises `definitions_version`,
//! by which other replicas learn of the change.

use std::sync::Arc;

use entity::{meta, sequence};
use odometer_core::{
    definition::{Definition, DefinitionError, Kind, Stripe},
    name::SequenceName,
    period::{CounterKey, Period},
};
use odometer_database::session::{DatabaseConnection, DatabaseTransaction};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter};

pub(crate) use crate::change::counters;
use crate::change::{
    act::Act,
    counters::{Used, WholeSequence},
};
use crate::creation;
use crate::error::StoreError;
use crate::heartbeat::HeartbeatGuard;
use crate::outcome::{Altered, Condition, Snapshot};
use crate::rows::{
    catalog::{self, ELSEWHERE, LIVE, RETIRED, one_more},
    counter::{CounterRow, SeenCounter},
    creation_baseline::CreationBaseline,
    sequence::SequenceRow,
};

/// An act on one sequence, and the conditions for it.
#[derive(Clone, Debug)]
pub(crate) struct ChangeRequest {
    pub(crate) name: SequenceName,
    pub(crate) act: Act,
    pub(crate) condition: Condition,
    /// The limit of sequences. No sequence is created if it is reached.
    pub(crate) max_sequences: u64,
    /// The limit of keys of one sequence. No counter is created for a further key if it is reached.
    pub(crate) keyed_periods: u64,
    /// The guard that the store has not gone back. It is `None` for a dry run, and for a command.
    pub(crate) guard: Option<HeartbeatGuard>,
    /// The counter of the act's period as this process last saw it. The counter never falls below
    /// this.
    pub(crate) last_seen: Option<SeenCounter>,
    /// The name of the store in which the change is made.
    pub(crate) store: Arc<str>,
}

impl ChangeRequest {
    /// Returns whether the store has forgotten what this process has seen of the sequence.
    pub(crate) fn went_back(&self, next_value: i64, version: Option<i64>) -> bool {
        let is_below = self.last_seen.is_some_and(|seen| {
            next_value < seen.next_value || version.is_some_and(|version| version < seen.version)
        });
        is_below && !faults::is(Fault::NoWentBackChecks)
    }
}

/// Makes the change, or returns why it cannot be made. If nothing changes, nothing is committed.
pub(crate) async fn run(
    database: DatabaseConnection,
    change: ChangeRequest,
) -> Result<Result<Altered, StoreError>, DbErr> {
    let transaction = database.begin().await?;
    let outcome = within(&transaction, change).await?;
    if outcome.as_ref().is_ok_and(|altered| altered.is_written) {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(outcome)
}

async fn within(
    transaction: &DatabaseTransaction,
    change: ChangeRequest,
) -> Result<Result<Altered, StoreError>, DbErr> {
    let is_dry_run = change.act.is_dry_run();
    let mut find = sequence::Entity::find_by_id(change.name.as_str().to_owned());
    // A dry run locks nothing, so that nobody waits for it.
    if !is_dry_run {
        find = transaction.holding(find);
    }
    let Some(row) = find.one(transaction).await? else {
        return create(transaction, change).await;
    };
    if let Err(error) = admit(&change.act, change.condition, &row) {
        return Ok(Err(error));
    }
    let definition = match catalog::read_definition(&row.definition, &change.store) {
        Ok(definition) => Arc::new(definition),
        Err(error) => return Ok(Err(StoreError::Broken(error.to_string()))),
    };
    let key = CounterKey {
        sequence: change.name.clone(),
        period: change.act.period(),
    };
    let changes_nothing = changes_nothing(&change.act, &row, &definition)
        || counters::is_tombstone(transaction, &change.act, &key).await?;
    // An act that changes nothing raises no counters. A sequence may have very many, and other
    // processes reserve from them meanwhile.
    if !is_dry_run && !changes_nothing {
        counters::raise(transaction, &key).await?;
    }
    let mut version = counters::ChangeVersion::default();
    let whole = WholeSequence {
        definition: &definition,
        changes_nothing,
    };
    let found = match counters::found(transaction, &change, &key, whole, &mut version).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    // This read must come after the locks. MySQL shows from here on the state at the first read
    // that takes no lock.
    let looked = CreationBaseline::read(transaction).await?;
    let before = snapshot(&row, definition, &looked, &key, &found.counter);
    let mut after = match act(&change.name, &before, &change.act, found.used) {
        Ok(after) => after,
        Err(error) => return Ok(Err(error)),
    };
    if changes_nothing && after != before {
        return Ok(Err(StoreError::Broken(format!(
            "a change of `{}` was taken for none",
            change.name
        ))));
    }
    let is_written = !is_dry_run && after != before;
    if is_written {
        after.version = version.raised(transaction).await?;
        let Some(held) = baseline(transaction, &change).await? else {
            return Ok(Err(StoreError::WentBack));
        };
        if held.recovered_at() != looked.recovered_at() {
            // A recovery ran in between, so the decision may be wrong now.
            return Ok(Err(StoreError::NotChanged));
        }
        write(transaction, &key, &after, &change.act).await?;
    }
    Ok(Ok(Altered {
        before: Some(before),
        after,
        is_written,
    }))
}

/// Returns a sequence and one of its counters as they were read.
fn snapshot(
    row: &sequence::Model,
    mut definition: Arc<Definition>,
    baseline: &CreationBaseline,
    key: &CounterKey,
    counter: &CounterRow,
) -> Snapshot {
    baseline.note_forgotten_formats(Arc::make_mut(&mut definition), row.version);
    Snapshot {
        is_live: row.state == LIVE,
        definition,
        version: row.version,
        period: key.period.clone(),
        is_removed: counter.is_removed,
        floor: counter.floor,
        next_value: counter.seen.next_value,
        rate: counter.rate,
    }
}

/// Returns whether the act changes nothing, by the sequence's locked row alone. Its counters do not
/// matter.
fn changes_nothing(act: &Act, row: &sequence::Model, definition: &Definition) -> bool {
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
pub(crate) fn act(
    name: &SequenceName,
    before: &Snapshot,
    act: &Act,
    used: Used,
) -> Result<Snapshot, StoreError> {
    let mut after = before.clone();
    match act {
        Act::Define { change, .. } => {
            let issued = used.issued && !faults::is(Fault::FormatsRepeat);
            let definition = change.apply(&before.definition, used.highest, issued);
            after.definition = Arc::new(definition.map_err(StoreError::Definition)?);
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
            limit: definition.limit(),
        });
    };
    let left = definition.left(before.next_value);
    let skipped = left.saturating_sub(definition.left(floor));
    if !confirm && skipped > left / 100 {
        return Err(StoreError::ConfirmNeeded { skipped, left });
    }
    Ok(floor)
}

async fn create(
    transaction: &DatabaseTransaction,
    change: ChangeRequest,
) -> Result<Result<Altered, StoreError>, DbErr> {
    // A sequence with periods is created with a counter that issues nothing. None of its periods is
    // used yet.
    let Act::Define {
        change: wanted,
        template,
        dry_run,
    } = &change.act
    else {
        return Ok(Err(StoreError::NotFound));
    };
    if matches!(change.condition, Condition::Version(_)) {
        return Ok(Err(StoreError::NotFound));
    }
    if catalog::count_in(transaction).await? >= change.max_sequences {
        return Ok(Err(StoreError::TooMany {
            limit: change.max_sequences,
        }));
    }
    let definition = match wanted.create_at(template, now_ms()) {
        Ok(definition) => definition,
        Err(error) => return Ok(Err(StoreError::Definition(error))),
    };
    if definition.store != *change.store {
        let (field, reason) = ("store", format!("must be \"{}\"", change.store));
        let error = DefinitionError::Invalid { field, reason };
        return Ok(Err(StoreError::Definition(error)));
    }
    let mut version = 0;
    if !dry_run {
        version = raise_definitions_version(transaction).await?;
    }
    let Some(baseline) = baseline(transaction, &change).await? else {
        return Ok(Err(StoreError::WentBack));
    };
    // A name that was seen here and is gone is created only above what was seen of it.
    if change.went_back(baseline.first(&definition), None) {
        return Ok(Err(StoreError::WentBack));
    }
    if !dry_run {
        let stripe = Stripe::WHOLE;
        creation::insert(
            transaction,
            &change.name,
            &definition,
            version,
            stripe,
            baseline,
        )
        .await?;
    }
    Ok(Ok(Altered {
        before: None,
        after: Snapshot {
            is_live: true,
            version,
            period: Period::none(),
            is_removed: false,
            floor: definition.start,
            next_value: baseline.first(&definition),
            rate: 0.0,
            definition: Arc::new(definition),
        },
        is_written: !dry_run,
    }))
}

/// Reads where new counters of the change begin. Returns `None` if the store went back.
///
/// A change that is going to write has written or locked `meta`'s row before. So no recovery can
/// happen between this read and the end.
pub(crate) async fn baseline(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
) -> Result<Option<CreationBaseline>, DbErr> {
    match &change.guard {
        Some(guard) => CreationBaseline::hold(transaction, guard).await,
        None => CreationBaseline::read(transaction).await.map(Some),
    }
}

async fn write(
    transaction: &DatabaseTransaction,
    key: &CounterKey,
    after: &Snapshot,
    act: &Act,
) -> Result<(), DbErr> {
    let row = SequenceRow {
        name: &key.sequence,
        kind: after.definition.kind,
        definition: after.definition.to_stored(),
        state: if after.is_live { LIVE } else { RETIRED },
        version: after.version,
        removed_through: None,
    };
    row.update(transaction).await?;
    counters::write(transaction, key, after).await?;
    if matches!(act, Act::Restore) {
        counters::close(transaction, &key.sequence).await?;
    }
    Ok(())
}

/// Raises `definitions_version`, and returns it. The row is locked until the transaction ends, so
/// versions become visible in their order.
pub(crate) async fn raise_definitions_version(
    transaction: &DatabaseTransaction,
) -> Result<i64, DbErr> {
    meta::Entity::update_many()
        .col_expr(
            meta::Column::DefinitionsVersion,
            one_more(meta::Column::DefinitionsVersion),
        )
        .filter(meta::Column::Id.eq(1))
        .exec(transaction)
        .await?;
    let row = meta::Entity::find_by_id(1_i16).one(transaction).await?;
    row.map(|row| row.definitions_version)
        .ok_or_else(|| DbErr::RecordNotFound("meta".to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::definition::DefinitionChange;

    use super::*;

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
        let after = act(&name(), before, &advance, USED)?;
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
        let act = |before: &Snapshot, act: Act| super::act(&name(), before, &act, USED).unwrap();
        let live = at(101, 51);
        let retired = act(&live, Act::Retire);
        assert_eq!((retired.is_live, retired.floor), (false, 51));
        assert_eq!(act(&retired, Act::Retire), retired);
        let restored = act(&retired, Act::Restore);
        assert_eq!((restored.is_live, restored.floor), (true, 101));
        assert_eq!(act(&live, Act::Restore), live);
    }
}
