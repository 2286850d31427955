//! Finds what the store knows of one number: the counter, the journal rows whose range has the
//! number, and which of their holders live.

use std::{collections::HashSet, sync::Arc, time::Duration};

use entity::block;
use odometer_core::{definition::Definition, period::CounterKey};
use odometer_database::session::DatabaseConnection;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::database::Database;
use crate::error;
use crate::error::StoreError;
use crate::guard::HeartbeatGuard;
use crate::journal::holders;
use crate::meta_row;
use crate::outcome::JournalBlock;
use crate::queries;
use crate::reservation::{
    counter_read::{self, CounterRead},
    period,
};
use crate::rows::{counter::SeenCounter, creation_baseline::CreationBaseline};

/// Bounds the rows that are read below a number. Only rests that were returned and adopted can come
/// before the row of their block, the youngest rest first. Other blocks do not overlap it.
const ROWS_BELOW: u64 = 200;

/// What the store knows of one number.
#[derive(Clone, Debug)]
pub struct NumberTrace {
    pub definition: Arc<Definition>,
    /// The counter, to be compared with what was seen before.
    pub seen: SeenCounter,
    /// The first number that is not reserved, in the stripe that has this number.
    pub first_free: i64,
    /// Whether `odometer recover` ever ran here. A recovery marks blocks as abandoned whose rest
    /// may have been issued after the moment to which the store went back.
    pub was_recovered: bool,
    /// The rows whose range has the number. The youngest rest of a block comes first.
    pub rows: Vec<Traced>,
}

/// A row of the journal, and what is known of its holder.
#[derive(Clone, Debug)]
pub struct Traced {
    pub block: JournalBlock,
    pub holder: Holder,
}

/// The process that holds a block, by what is known of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The process that was asked.
    This,
    /// Another process, with a recent heartbeat.
    Living,
    /// A process without a recent heartbeat, or without any.
    Gone,
}

struct TraceRows {
    look: CounterRead,
    baseline: CreationBaseline,
    rows: Vec<block::Model>,
    living: HashSet<String>,
}

impl Database {
    /// Looks a number up.
    ///
    /// # Errors
    /// `NotFound` if there is no such sequence, and `PeriodRemoved` if its period is removed. Other
    /// errors say that the database cannot answer, or that the period does not fit the sequence.
    pub(crate) async fn trace(
        &self,
        key: &CounterKey,
        value: i64,
    ) -> Result<NumberTrace, StoreError> {
        let silence = holders::longest_silence(self.settings.definition_refresh);
        let read = |database, guard| find(database, guard, key.clone(), value, silence);
        let reading = self.read_guarded(&key.sequence, read, |found| found.look.guard);
        let found = reading.await?;
        let entry = found.look.entry.ok_or(StoreError::NotFound)?;
        entry.check_here()?;
        if entry.has_removed(&key.period) {
            return Err(StoreError::PeriodRemoved);
        }
        let definition = self.definition_of(&entry)?;
        period::check(&key.period, &definition)?;
        // A period without a counter counts as if the counter were created now.
        let baseline = found.baseline;
        let seen = match entry.counter() {
            Some(counter) => counter.seen,
            None if key.period.is_none() => return Err(error::without_counter(&key.sequence)),
            None => SeenCounter {
                next_value: baseline.first_in(&self.stripe.view(&definition), &key.period),
                version: baseline.version(),
            },
        };
        let rows = found.rows.into_iter().map(|row| Traced {
            holder: if *row.holder == *self.holder {
                Holder::This
            } else if found.living.contains(&row.holder) {
                Holder::Living
            } else {
                Holder::Gone
            },
            block: queries::journal_block(row),
        });
        Ok(NumberTrace {
            definition,
            seen,
            first_free: seen.next_value,
            was_recovered: baseline.was_recovered(),
            rows: rows.collect(),
        })
    }
}

/// Reads the rows, and after them the counter together with the heartbeat. The heartbeat shows that
/// the store had not gone back when any of this was read.
async fn find(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    key: CounterKey,
    value: i64,
    silence: Duration,
) -> Result<TraceRows, DbErr> {
    let mut rows = block::Entity::find()
        .filter(block::Column::Sequence.eq(key.sequence.as_str()))
        .filter(block::Column::Period.eq(key.period.as_str()))
        .filter(block::Column::First.lte(value))
        .order_by_desc(block::Column::First)
        .order_by_desc(block::Column::ReservedAt)
        .order_by_desc(block::Column::Id)
        .limit(ROWS_BELOW)
        .all(&database)
        .await?;
    rows.retain(|row| holds(row, value));
    let living = holders::living(&database, &rows, &guard.holder, silence).await?;
    // Read after the rows: if there is no recovery now, there was none when the rows were read.
    let meta = meta_row::read(meta_row::plain(), &database).await?;
    let baseline = CreationBaseline::of(&database, &meta, &key.sequence).await?;
    let look = counter_read::look(database, guard, key).await?;
    Ok(TraceRows {
        look,
        baseline,
        rows,
        living,
    })
}

/// Returns whether `value` is one of a block's numbers.
fn holds(row: &block::Model, value: i64) -> bool {
    let offset = value.checked_sub(row.first);
    value <= row.last && offset.is_some_and(|offset| offset.checked_rem(row.step) == Some(0))
}
