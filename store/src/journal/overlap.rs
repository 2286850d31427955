//! Checks in the background that no two blocks of the journal have numbers in common.
//!
//! A pass goes through the whole journal in the order of its numbers, a bounded number of rows in
//! each turn. If a pass takes longer than one turn, recent blocks are compared with their
//! neighbours as well. Every replica does this: the reads are few, and no replica has to be
//! elected.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use entity::block;
use odometer_database::{failure::StatementFailure, session::DatabaseConnection};
use odometer_process::clock::now_ms;
use sea_orm::{
    ColumnTrait, Condition, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select,
    sea_query::{Expr, ExprTrait},
};
use uuid::Uuid;

use crate::{
    database::Database,
    housekeeping::{Chore, PassFailure, jittered},
    journal::pairs::{OverlapPair, is_of_before, overlap, sweep},
    meta_row,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::journal::overlap";

/// Sets the time between two turns: half of it to all of it, so that replicas do not check at the
/// same time.
const INTERVAL: Duration = Duration::from_secs(12);
/// Bounds the wait before the first turn.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Bounds the rows of one statement: few enough to be read from a slow disk within `store.timeout`.
const PAGE: usize = 500;
const MAX_PAGES_A_RUN: usize = 20;
/// Sets the pause between two pages of a turn, so that a single connection is free for
/// reservations.
const BETWEEN_PAGES: Duration = Duration::from_millis(20);
/// Sets how old a recent block may be: a few turns.
const RECENT_WITHIN: Duration = Duration::from_secs(120);
/// Bounds the recent blocks that a turn compares with their neighbours.
const LATELY_A_TURN: usize = 50;
/// Bounds the neighbours below a block, adopted rests included.
const NEIGHBOURS: u64 = 50;
/// Bounds the pairs that are remembered, and those that one page may name. Pairs beyond these
/// bounds are not looked at.
const MAX_PAIRS: usize = 1000;
const MAX_PAIRS_A_PAGE: usize = 100;

#[derive(Default)]
pub(crate) struct Overlaps {
    /// The last row that was read in this pass.
    position: Option<block::Model>,
    /// The row that reaches highest, among the rows of the same counter up to `position`.
    highest: Option<block::Model>,
    pass: u64,
    /// The pairs that overlap, by their ids, with the pass that found them last.
    found: BTreeMap<(Uuid, Uuid), u64>,
}

impl Chore for Overlaps {
    async fn pass(&mut self, database: &Arc<Database>) -> Result<Duration, PassFailure> {
        if let Err(failure) = self.look_through(database).await {
            tracing::debug!(
                target: TARGET,
                error = failure.cause().text(),
                "the journal was not looked through"
            );
        }
        Ok(jittered(INTERVAL))
    }
}

impl Overlaps {
    async fn look_through(&mut self, database: &Database) -> Result<(), StatementFailure> {
        if !self.walk(database).await? {
            self.look_at_the_latest(database).await?;
        }
        Ok(())
    }

    /// Goes on with the pass. Returns true if the pass came to its end.
    async fn walk(&mut self, database: &Database) -> Result<bool, StatementFailure> {
        for _page in 0..MAX_PAGES_A_RUN {
            let position = self.position.clone();
            let rows = database.step(|database| page(database, position)).await?;
            let is_last = rows.len() < PAGE;
            let next = rows.last().cloned();
            let mut highest = self.highest.clone();
            let suspects = sweep(&mut highest, rows);
            self.judge(database, suspects).await?;
            if is_last {
                self.end_pass(database);
                return Ok(true);
            }
            (self.position, self.highest) = (next, highest);
            tokio::time::sleep(BETWEEN_PAGES).await;
        }
        Ok(false)
    }

    fn end_pass(&mut self, database: &Database) {
        (self.position, self.highest) = (None, None);
        let pass = self.pass;
        // Pairs that this pass did not find again were corrected, or pruned.
        self.found.retain(|_, seen_in| *seen_in >= pass);
        self.pass = pass.saturating_add(1);
        self.publish(database);
        database.metrics.journal_checks.increment(1);
    }

    /// Compares some of the recent blocks, each with the blocks below it.
    async fn look_at_the_latest(&mut self, database: &Database) -> Result<(), StatementFailure> {
        let latest = database.step(latest).await?;
        let from = rand::random_range(0..latest.len().max(1));
        let chosen = latest.iter().cycle().skip(from).take(latest.len());
        for row in chosen.take(LATELY_A_TURN).cloned().collect::<Vec<_>>() {
            let rows = database.step(|database| neighbours(database, row)).await?;
            let suspects = sweep(&mut None, rows.into_iter().rev());
            self.judge(database, suspects).await?;
            tokio::time::sleep(BETWEEN_PAGES).await;
        }
        Ok(())
    }

    /// Reads suspected pairs again, and notes those that overlap. One statement reads both rows,
    /// because they may have been read at two different moments.
    async fn judge(
        &mut self,
        database: &Database,
        mut suspects: Vec<OverlapPair>,
    ) -> Result<(), StatementFailure> {
        suspects.truncate(MAX_PAIRS_A_PAGE);
        if suspects.is_empty() {
            return Ok(());
        }
        let ids: Vec<Uuid> = suspects.iter().flat_map(|(a, b)| [a.id, b.id]).collect();
        let (rows, recovered_at) = database.step(|database| again(database, ids)).await?;
        for (one, other) in suspects {
            let (Some(one), Some(other)) = (rows.get(&one.id), rows.get(&other.id)) else {
                continue;
            };
            if overlap(one, other) && !is_of_before(recovered_at, one, other) {
                self.note(one, other);
            }
        }
        self.publish(database);
        Ok(())
    }

    fn note(&mut self, one: &block::Model, other: &block::Model) {
        let key = (Ord::min(one.id, other.id), Ord::max(one.id, other.id));
        if self.found.len() >= MAX_PAIRS && !self.found.contains_key(&key) {
            return;
        }
        if self.found.insert(key, self.pass).is_none() {
            tracing::error!(
                target: TARGET,
                sequence = one.sequence,
                block = %one.id,
                holder = one.holder,
                first = one.first,
                last = one.last,
                other_block = %other.id,
                other_holder = other.holder,
                other_first = other.first,
                other_last = other.last,
                "two blocks of the journal overlap, so numbers may have been given twice; \
                 see the runbook, \"Blocks that overlap\""
            );
        }
    }

    fn publish(&self, database: &Database) {
        let n_found = u32::try_from(self.found.len()).unwrap_or(u32::MAX);
        database.counted.journal_overlaps.set(f64::from(n_found));
    }
}

/// Selects the rows that still count for any number, in the order of their numbers.
fn in_order() -> Select<block::Entity> {
    let counts = Condition::any()
        .add(block::Column::Fate.is_not_in(["returned", "adopted", "abandoned"]))
        .add(Expr::col(block::Column::NextUnissued).gt(Expr::col(block::Column::First)));
    block::Entity::find()
        .filter(counts)
        .order_by_asc(block::Column::Sequence)
        .order_by_asc(block::Column::Period)
        .order_by_asc(block::Column::First)
        .order_by_asc(block::Column::Id)
}

/// Returns the rows after a position. There is one statement for each entry into the index, because
/// no database finds these entries by an `OR` of the conditions.
async fn page(
    database: DatabaseConnection,
    after: Option<block::Model>,
) -> Result<Vec<block::Model>, DbErr> {
    let Some(after) = after else {
        return in_order().limit(limit(0)).all(&database).await;
    };
    let later_there = Condition::any()
        .add(block::Column::First.gt(after.first))
        .add(block::Column::Id.gt(after.id));
    let mut rows = in_order()
        .filter(block::Column::Sequence.eq(after.sequence.clone()))
        .filter(block::Column::Period.eq(after.period.clone()))
        .filter(block::Column::First.gte(after.first))
        .filter(later_there)
        .limit(limit(0))
        .all(&database)
        .await?;
    let later_periods = block::Column::Sequence
        .eq(after.sequence.clone())
        .and(block::Column::Period.gt(after.period));
    let later_names = block::Column::Sequence.gt(after.sequence);
    for later in [later_periods, later_names] {
        if rows.len() < PAGE {
            let more = in_order().filter(later).limit(limit(rows.len()));
            rows.extend(more.all(&database).await?);
        }
    }
    Ok(rows)
}

fn limit(n_read: usize) -> u64 {
    u64::try_from(PAGE.saturating_sub(n_read)).unwrap_or_default()
}

async fn latest(database: DatabaseConnection) -> Result<Vec<block::Model>, DbErr> {
    let lately = i64::try_from(RECENT_WITHIN.as_millis()).unwrap_or_default();
    block::Entity::find()
        .filter(block::Column::ReservedAt.gte(now_ms().saturating_sub(lately)))
        .order_by_desc(block::Column::ReservedAt)
        .limit(limit(0))
        .all(&database)
        .await
}

/// Returns a block and the blocks that begin below its end, the highest first.
async fn neighbours(
    database: DatabaseConnection,
    row: block::Model,
) -> Result<Vec<block::Model>, DbErr> {
    block::Entity::find()
        .filter(block::Column::Sequence.eq(row.sequence))
        .filter(block::Column::Period.eq(row.period))
        .filter(block::Column::First.lte(row.last))
        .order_by_desc(block::Column::First)
        .limit(NEIGHBOURS)
        .all(&database)
        .await
}

/// Reads rows by their ids, and when `odometer recover` last ran.
async fn again(
    database: DatabaseConnection,
    ids: Vec<Uuid>,
) -> Result<(HashMap<Uuid, block::Model>, Option<i64>), DbErr> {
    let rows = block::Entity::find()
        .filter(block::Column::Id.is_in(ids))
        .all(&database)
        .await?;
    let meta = meta_row::read(meta_row::plain(), &database).await?;
    let rows = rows.into_iter().map(|row| (row.id, row)).collect();
    Ok((rows, meta.recovered_at))
}
