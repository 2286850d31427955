//! Removes old rows of the journal, a bounded number at a time.
//!
//! The row of a block that can still give numbers stays, however old it is. Such blocks are rests
//! that may be adopted, and blocks in the memory of a living process. Nothing else in the program
//! depends on a row.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use entity::{block, counter, sequence};
use odometer_core::period::Period;
use odometer_database::{failure::StatementFailure, session::DatabaseConnection};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::{
    database::Database,
    housekeeping::{Chore, PassFailure, jittered},
    journal::holders,
    rows::catalog::{NO_PERIOD, REMOVED, is_removed_by_age},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::journal::prune";

/// Sets the wait before the first pass and after a failure, as [`BETWEEN_PASSES`] does between two
/// passes. The wait is half of it to all of it.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(10);
const BETWEEN_PASSES: Duration = Duration::from_secs(1200);
/// Bounds the rows that one step reads.
const STEP: u64 = 500;
const BETWEEN_STEPS: Duration = Duration::from_millis(250);

pub(crate) struct Pruner;

/// Says which rows are kept.
#[derive(Clone, Debug)]
struct RetentionRule {
    /// This process, whose blocks never count as those of a dead process.
    holder: String,
    retain: Duration,
    silence: Duration,
}

impl Chore for Pruner {
    async fn pass(&mut self, database: &Arc<Database>) -> Result<Duration, PassFailure> {
        match prune(database).await {
            Ok(()) => Ok(jittered(BETWEEN_PASSES)),
            Err(failure) => Err((failure, jittered(FIRST_WAIT))),
        }
    }

    fn warn(&self, cause: &str) {
        tracing::warn!(
            target: TARGET,
            error = cause,
            "old rows of the journal cannot be removed for now; it is tried again"
        );
    }
}

async fn prune(database: &Database) -> Result<(), StatementFailure> {
    let settings = &database.settings;
    let rule = RetentionRule {
        holder: database.holder.to_string(),
        retain: settings.journal_retain,
        silence: holders::longest_silence(settings.definition_refresh),
    };
    let mut position = None;
    loop {
        let rule = rule.clone();
        let step = database.step(|database| step(database, rule, position));
        let (n_removed, next) = step.await?;
        database.metrics.journal_rows_pruned.increment(n_removed);
        if n_removed > 0 {
            tracing::debug!(
                target: TARGET,
                rows = n_removed,
                "old rows of the journal were removed"
            );
        }
        if next.is_none() {
            return Ok(());
        }
        position = next;
        tokio::time::sleep(BETWEEN_STEPS).await;
    }
}

/// Removes rows after `after`, in the order of age. Returns how many were removed, and the last row
/// that was read. Returns `None` in its place at the end.
async fn step(
    database: DatabaseConnection,
    rule: RetentionRule,
    after: Option<block::Model>,
) -> Result<(u64, Option<block::Model>), DbErr> {
    let retain = i64::try_from(rule.retain.as_millis()).unwrap_or(i64::MAX);
    let rows = oldest(&database, now_ms().saturating_sub(retain), after).await?;
    let more = u64::try_from(rows.len()) == Ok(STEP);
    let next = rows.last().filter(|_| more).cloned();
    let living = holders::living(&database, &rows, &rule.holder, rule.silence).await?;
    let floors = floors(&database, &rows).await?;
    let (rests, others): (Vec<_>, Vec<_>) = rows
        .iter()
        .filter(|row| is_over(row, &rule, &living, &floors))
        .partition(|row| row.fate == "returned");
    // The statement checks the fate again: a block may have been returned since it was read.
    let mut n_removed: u64 = 0;
    let is_rest = block::Column::Fate.eq("returned");
    let is_none = block::Column::Fate.ne("returned");
    for (rows, still) in [(rests, is_rest), (others, is_none)] {
        if !rows.is_empty() {
            let removed = block::Entity::delete_many()
                .filter(block::Column::Id.is_in(rows.iter().map(|row| row.id)))
                .filter(still)
                .exec(&database)
                .await?;
            n_removed = n_removed.saturating_add(removed.rows_affected);
        }
    }
    Ok((n_removed, next))
}

/// Returns whether a row's block can no longer give numbers.
fn is_over(
    row: &block::Model,
    rule: &RetentionRule,
    living: &HashSet<String>,
    floors: &HashMap<(String, String), i64>,
) -> bool {
    if faults::is(Fault::PruneAll) {
        return true;
    }
    match row.fate.as_str() {
        "spent" | "adopted" | "abandoned" => true,
        "held" => row.holder != rule.holder && !living.contains(&row.holder),
        // A floor never falls. Nothing below it is adopted, and nothing of a removed period.
        "returned" => floors
            .get(&(row.sequence.clone(), row.period.clone()))
            .is_some_and(|floor| row.last < *floor),
        // A later version wrote this fate, so this version does not judge it.
        _ => false,
    }
}

/// Returns the oldest rows after a position.
async fn oldest(
    database: &DatabaseConnection,
    before: i64,
    after: Option<block::Model>,
) -> Result<Vec<block::Model>, DbErr> {
    let mut find = block::Entity::find()
        .filter(block::Column::ReservedAt.lt(before))
        .order_by_asc(block::Column::ReservedAt)
        .order_by_asc(block::Column::Id)
        .limit(STEP);
    if let Some(after) = after {
        let later = Condition::any()
            .add(block::Column::ReservedAt.gt(after.reserved_at))
            .add(block::Column::Id.gt(after.id));
        find = find
            .filter(block::Column::ReservedAt.gte(after.reserved_at))
            .filter(later);
    }
    find.all(database).await
}

/// Returns the floors of the counters that returned rows belong to. The floor of a removed period
/// is above all numbers.
async fn floors(
    database: &DatabaseConnection,
    rows: &[block::Model],
) -> Result<HashMap<(String, String), i64>, DbErr> {
    let returned: Vec<_> = rows.iter().filter(|row| row.fate == "returned").collect();
    if returned.is_empty() {
        return Ok(HashMap::new());
    }
    let names: HashSet<&str> = returned.iter().map(|row| row.sequence.as_str()).collect();
    let periods: HashSet<&str> = returned.iter().map(|row| row.period.as_str()).collect();
    let sequences = sequence::Entity::find()
        .filter(sequence::Column::Name.is_in(names.iter().copied()))
        .filter(sequence::Column::PeriodsRemovedThrough.gt(NO_PERIOD))
        .all(database)
        .await?;
    let removed_through: HashMap<String, String> = sequences
        .into_iter()
        .map(|row| (row.name, row.periods_removed_through))
        .collect();
    let mut floors: HashMap<(String, String), i64> = returned
        .iter()
        .filter(|row| {
            let period = Period::from_stored(&row.period);
            let removed_through = removed_through.get(&row.sequence);
            removed_through.is_some_and(|through| is_removed_by_age(&period, through))
        })
        .map(|row| ((row.sequence.clone(), row.period.clone()), i64::MAX))
        .collect();
    let counters = counter::Entity::find()
        .filter(counter::Column::Sequence.is_in(names))
        .filter(counter::Column::Period.is_in(periods))
        .all(database)
        .await?;
    for row in counters {
        let floor = if row.state == REMOVED {
            i64::MAX
        } else {
            row.floor
        };
        floors.entry((row.sequence, row.period)).or_insert(floor);
    }
    Ok(floors)
}
