//! Removes periods of the calendar that are older than their sequence retains them, a bounded
//! number at a time.
//!
//! First `periods_removed_through` is raised: no period at or below it is created from then on.
//! Only then are the counters deleted. A period that was created again would repeat its numbers.
//! Every replica does this work: each can end what another has begun, and a second run changes
//! nothing.
//!
//! `periods_removed_through` is raised no further than to the youngest period that is too old and
//! has a counter. A period without a counter has no numbers to repeat. So a clock that is ahead for
//! a time, even the database's clock as well, forbids no period that is yet to come.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use entity::{counter, sequence};
use odometer_core::{
    definition::Definition,
    period::{Calendar, Period},
};
use odometer_database::{
    database_clock,
    failure::{Cause, StatementFailure},
    session::DatabaseConnection,
};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::{
    database::Database,
    guard::HeartbeatGuard,
    housekeeping::{Chore, PassFailure, jittered},
    rows::catalog::{self, NO_PERIOD},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::removal";

/// Sets the wait before the first pass and after a failed pass, and the wait between two passes. A
/// random half to all of it is waited.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(10);
const BETWEEN_PASSES: Duration = Duration::from_secs(600);
/// Bounds how many sequences one step reads.
const PAGE: u64 = 1000;
/// Bounds how many counters one statement deletes.
const STEP: u64 = 500;
const BETWEEN_STEPS: Duration = Duration::from_millis(100);

pub(crate) struct Remover;

/// A sequence with counters that are too old.
#[derive(Clone, Debug)]
struct Due {
    /// The row of the sequence as it was read. What the sequence retains may have changed since.
    row: sequence::Model,
    /// The last period that is too old. In a removal, the last of these periods that has a counter.
    through: Period,
}

impl Chore for Remover {
    async fn pass(&mut self, database: &Arc<Database>) -> Result<Duration, PassFailure> {
        match remove_all(database).await {
            Ok(None) => Ok(jittered(BETWEEN_PASSES)),
            Ok(Some(put_off)) => Err((put_off, jittered(BETWEEN_PASSES))),
            Err(failure) => Err((failure, jittered(FIRST_WAIT))),
        }
    }

    fn warn(&self, cause: &str) {
        tracing::warn!(
            target: TARGET,
            error = cause,
            "old periods cannot be removed for now; it is tried again"
        );
    }
}

/// Looks at all sequences once. Returns why one of them was put off, if one was.
async fn remove_all(database: &Database) -> Result<Option<StatementFailure>, StatementFailure> {
    // The slower clock decides: periods that are kept too long can still be removed.
    let clock = database.step(|database| async move { database_clock::read(&database).await });
    let now_ms = Ord::min(now_ms(), clock.await?);
    let mut put_off = None;
    let mut after = Some(String::new());
    while let Some(begin) = after {
        let end = database.step(|database| page_end(database, begin.clone()));
        let end = end.await?;
        let page = (begin, end.clone());
        let rows = database.step(|database| calendars(database, page)).await?;
        for due in due(database, &rows, now_ms).await? {
            match remove(database, due).await {
                Ok(()) => {}
                // One sequence that is always in use must not keep the others from being looked
                // at.
                Err(failure) if is_of_one_sequence(&failure) => put_off = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        after = end;
        tokio::time::sleep(BETWEEN_STEPS).await;
    }
    Ok(put_off)
}

/// Returns the sequences with counters that are too old. Counters that an earlier removal left
/// are among them.
async fn due(
    database: &Database,
    rows: &[sequence::Model],
    now_ms: i64,
) -> Result<Vec<Due>, StatementFailure> {
    let mut by_period: BTreeMap<Period, Vec<Due>> = BTreeMap::new();
    for row in rows {
        if let Some(due) = too_old(row, now_ms) {
            by_period.entry(due.through.clone()).or_default().push(due);
        }
    }
    let mut all = Vec::new();
    for (through, group) in by_period {
        let names: Vec<String> = group.iter().map(|due| due.row.name.clone()).collect();
        let mut youngest = database
            .step(|database| with_counters(database, names, through))
            .await?;
        all.extend(group.into_iter().filter_map(|due| {
            let through = youngest.remove(&due.row.name)?;
            Some(Due { through, ..due })
        }));
    }
    Ok(all)
}

async fn remove(database: &Database, due: Due) -> Result<(), StatementFailure> {
    let Ok(guard) = database.heartbeat.guard() else {
        // The store went back. Until a recovery has run, nothing here is trusted.
        return Ok(());
    };
    if due.row.periods_removed_through.as_str() < due.through.as_str()
        && !faults::is(Fault::RemoveUnannounced)
    {
        let (announced, guard_copy) = (due.clone(), guard.clone());
        let is_announced = database
            .step(|database| announce(database, announced, guard_copy))
            .await?;
        if !is_announced {
            // Another replica was faster, or the sequence was changed. The next pass looks
            // again.
            return Ok(());
        }
        if faults::is(Fault::RemovalDies) {
            std::process::abort();
        }
    }
    let mut n_removed: u64 = 0;
    loop {
        let (due, guard) = (due.clone(), guard.clone());
        let deleted = database
            .step(|database| delete(database, due, guard))
            .await?;
        database.metrics.periods_removed.increment(deleted);
        n_removed = n_removed.saturating_add(deleted);
        if deleted < STEP {
            break;
        }
        tokio::time::sleep(BETWEEN_STEPS).await;
    }
    if n_removed > 0 {
        tracing::info!(
            target: TARGET,
            sequence = due.row.name,
            through = due.through.as_str(),
            periods = n_removed,
            "periods that are older than the sequence retains them were removed"
        );
    }
    Ok(())
}

/// Returns up to which period a sequence is too old. `None` if the sequence has no periods of the
/// calendar, or if all of them are young.
fn too_old(row: &sequence::Model, now_ms: i64) -> Option<Due> {
    // A definition that cannot be read is reported where it is used.
    let definition = Definition::from_stored(&row.definition).ok()?;
    let calendar = Calendar::of(&definition)?;
    let removed = Period::from_stored(&row.periods_removed_through);
    let through = calendar.removable_through(now_ms, definition.retain);
    // The sequence may retain periods for longer by now. What was removed stays removed.
    let through = through.map_or_else(|| removed.clone(), |through| through.max(removed.clone()));
    (!through.is_none()).then(|| Due {
        row: row.clone(),
        through,
    })
}

/// Returns the last name of the page that begins after a name. `None` if this page is the last one.
async fn page_end(database: DatabaseConnection, after: String) -> Result<Option<String>, DbErr> {
    sequence::Entity::find()
        .select_only()
        .column(sequence::Column::Name)
        .filter(sequence::Column::Name.gt(after))
        .order_by_asc(sequence::Column::Name)
        .offset(PAGE - 1)
        .limit(1)
        .into_tuple()
        .one(&database)
        .await
}

/// Returns the sequences of a page that may have periods of the calendar.
///
/// Most sequences have none, and the text of their definition shows this: the program writes
/// definitions without spaces, and escapes quotation marks inside other fields. A definition that
/// is written in another way is read.
async fn calendars(
    database: DatabaseConnection,
    (after, end): (String, Option<String>),
) -> Result<Vec<sequence::Model>, DbErr> {
    let mut find = catalog::living_here()
        .filter(sequence::Column::Name.gt(after))
        .filter(sequence::Column::Definition.not_like("%\"period\":\"none\"%"))
        .filter(sequence::Column::Definition.not_like("%\"period\":\"keyed\"%"));
    if let Some(end) = end {
        find = find.filter(sequence::Column::Name.lte(end));
    }
    find.all(&database).await
}

/// Returns whether a failure at one sequence says nothing about the other sequences, because other
/// transactions were in the way.
fn is_of_one_sequence(failure: &StatementFailure) -> bool {
    matches!(
        failure.cause(),
        Cause::Contention | Cause::Interrupted | Cause::Silent
    )
}

/// Returns which sequences have counters of the period `through` or of an earlier one, each with
/// its youngest such period.
async fn with_counters(
    database: DatabaseConnection,
    names: Vec<String>,
    through: Period,
) -> Result<HashMap<String, Period>, DbErr> {
    let youngest: Vec<(String, String)> = counter::Entity::find()
        .select_only()
        .column(counter::Column::Sequence)
        .column_as(counter::Column::Period.max(), "youngest")
        .filter(counter::Column::Sequence.is_in(names))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        .filter(counter::Column::Period.lte(through.as_str()))
        .group_by(counter::Column::Sequence)
        .into_tuple()
        .all(&database)
        .await?;
    let youngest = youngest.into_iter();
    Ok(youngest
        .map(|(name, period)| (name, Period::from_stored(&period)))
        .collect())
}

/// Announces in the sequence's row that its periods are removed. Returns false if the row has
/// changed, or says so already.
///
/// A transaction that creates a period's counter holds this row. So the counter is created before
/// this write and deleted after it, or it is not created at all.
async fn announce(
    database: DatabaseConnection,
    due: Due,
    guard: HeartbeatGuard,
) -> Result<bool, DbErr> {
    let announced = sequence::Entity::update_many()
        .col_expr(
            sequence::Column::PeriodsRemovedThrough,
            Expr::val(due.through.as_str()),
        )
        .filter(sequence::Column::Name.eq(due.row.name))
        .filter(sequence::Column::Version.eq(due.row.version))
        .filter(sequence::Column::PeriodsRemovedThrough.lt(due.through.as_str()))
        .filter(guard.holds())
        .exec(&database)
        .await?;
    Ok(announced.rows_affected == 1)
}

/// Deletes the oldest counters that are too old, and returns how many.
async fn delete(
    database: DatabaseConnection,
    due: Due,
    guard: HeartbeatGuard,
) -> Result<u64, DbErr> {
    let oldest: Vec<String> = counter::Entity::find()
        .select_only()
        .column(counter::Column::Period)
        .filter(counter::Column::Sequence.eq(due.row.name.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        .filter(counter::Column::Period.lte(due.through.as_str()))
        .order_by_asc(counter::Column::Period)
        .limit(STEP)
        .into_tuple()
        .all(&database)
        .await?;
    let Some(last) = oldest.last() else {
        return Ok(0);
    };
    let mut deletion = counter::Entity::delete_many()
        .filter(counter::Column::Sequence.eq(due.row.name.as_str()))
        .filter(counter::Column::Period.gt(NO_PERIOD))
        .filter(counter::Column::Period.lte(last.as_str()))
        .filter(guard.holds());
    if !faults::is(Fault::RemoveUnannounced) {
        deletion = deletion.filter(is_announced(&due.row.name, last));
    }
    Ok(deletion.exec(&database).await?.rows_affected)
}

/// Returns the condition that the sequence's row announces the removal of a period. The condition
/// is checked in the very state of the database that is changed.
fn is_announced(name: &str, period: &str) -> Expr {
    Expr::exists(
        Query::select()
            .expr(Expr::val(1))
            .from(sequence::Entity)
            .and_where(Expr::col((sequence::Entity, sequence::Column::Name)).eq(name))
            .and_where(
                Expr::col((sequence::Entity, sequence::Column::PeriodsRemovedThrough)).gte(period),
            )
            .to_owned(),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use odometer_core::{definition::Span, format::Format, period::PeriodKind};

    use super::*;

    /// 20 November 2026, 12:00 UTC.
    const NOW_MS: i64 = 1_795_176_000_000;

    fn row(definition: &Definition, removed_through: &str) -> sequence::Model {
        sequence::Model {
            name: "orders".to_owned(),
            definition: definition.to_stored(),
            state: "live".to_owned(),
            periods_removed_through: removed_through.to_owned(),
            version: 1,
            created_at: 0,
            changed_at: 0,
        }
    }

    fn kept_for(days: u32) -> Definition {
        Definition {
            period: PeriodKind::Day,
            retain: Span::from_days(days),
            format: Format::WITH_PERIOD.to_owned(),
            ..Definition::default()
        }
    }

    #[test]
    fn what_ended_before_it_is_retained_is_too_old() {
        let through = |definition: &Definition, removed: &str| {
            too_old(&row(definition, removed), NOW_MS).map(|due| due.through.to_string())
        };
        assert_eq!(through(&kept_for(3), "").as_deref(), Some("20261116"));
        assert_eq!(
            through(&kept_for(3), "20260101").as_deref(),
            Some("20261116")
        );
        // What was removed once stays removed.
        assert_eq!(
            through(&kept_for(9), "20261116").as_deref(),
            Some("20261116")
        );
        for period in [PeriodKind::None, PeriodKind::Keyed] {
            let definition = Definition {
                period,
                ..kept_for(3)
            };
            assert_eq!(through(&definition, ""), None);
        }
    }

    #[test]
    fn only_what_others_were_in_the_way_of_is_put_off() {
        for cause in [Cause::Contention, Cause::Interrupted] {
            assert!(is_of_one_sequence(&StatementFailure::NotCommitted(cause)));
        }
        assert!(is_of_one_sequence(&StatementFailure::MayHaveCommitted(
            Cause::Silent
        )));
        for cause in [Cause::Busy, Cause::DiskFull(String::new())] {
            assert!(!is_of_one_sequence(&StatementFailure::NotCommitted(cause)));
        }
    }

    #[test]
    fn a_definition_without_calendar_is_told_by_its_text() {
        for (period, told) in [(PeriodKind::None, "none"), (PeriodKind::Keyed, "keyed")] {
            let definition = Definition {
                period,
                ..Definition::default()
            };
            let text = format!("\"period\":\"{told}\"");
            assert!(definition.to_stored().contains(&text));
        }
        let described = Definition {
            description: "\"period\":\"none\"".to_owned(),
            ..kept_for(3)
        };
        assert!(!described.to_stored().contains("\"period\":\"none\""));
    }
}
