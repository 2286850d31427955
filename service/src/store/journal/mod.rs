//! The journal: one row a block, written behind the numbers, never before them.
//!
//! Rows go through a bounded queue to one writer, which writes many at once and
//! tries again until the database has them. Every statement can be repeated
//! without harm: rows are inserted only where their id is unknown, and a fate
//! is changed only from `held`.

pub(in crate::store) mod holders;
pub(in crate::store) mod overlap;
pub(in crate::store) mod pairs;
pub(in crate::store) mod prune;
pub(in crate::store) mod recent;
pub(in crate::store) mod trace;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use entity::block;
use odometer_core::{block::Block, period::CounterKey};
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{CaseStatement, Expr, ExprTrait, OnConflict},
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::metrics::{AbandonedCause, Metrics};
use crate::store::{
    change::beat::Beat,
    connection::{Connection, session::DatabaseConnection},
    error::Failure,
    settings::Source,
};

/// Rows of one statement; ten columns each stay far below every database's bound of parameters.
const ROWS_AT_ONCE: usize = 500;
/// Between two attempts while the database is away.
const BACKOFF: Duration = Duration::from_millis(250);
/// For one statement and its turn; whoever waits for the end of the journal has a deadline of their own.
const PATIENCE: Duration = Duration::from_secs(60);

/// A block as the journal knows it.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: Uuid,
    pub key: CounterKey,
    pub block: Block,
    /// Whose journal it belongs to.
    pub source: Source,
    /// Milliseconds since the Unix epoch.
    pub reserved_at: i64,
}

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Held,
    /// All of it was issued, or handed over.
    Spent,
    /// From `next_unissued` on it may be adopted by another replica.
    Returned {
        next_unissued: i64,
    },
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Fate::Held => "held",
            Fate::Spent => "spent",
            Fate::Returned { .. } => "returned",
        }
    }

    fn next_unissued(self, block: Block) -> i64 {
        match self {
            Fate::Held => block.first(),
            Fate::Spent => block.end(),
            Fate::Returned { next_unissued } => next_unissued,
        }
    }
}

enum Entry {
    Write(Row, Fate),
    /// Answered when everything queued before it is in the database.
    Flush(oneshot::Sender<()>),
}

/// The sending end of the queue.
pub(in crate::store) struct Journal {
    entries: mpsc::UnboundedSender<Entry>,
    n_queued: Arc<AtomicUsize>,
    n_returning: Arc<AtomicU64>,
    capacity: usize,
    metrics: Arc<Metrics>,
}

impl Journal {
    /// Starts the writer on the connection's runtime.
    pub(in crate::store) fn start(
        connection: Arc<Connection>,
        beat: Arc<Beat>,
        holder: String,
        capacity: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (entries, queue) = mpsc::unbounded_channel();
        let n_queued = Arc::new(AtomicUsize::new(0));
        let n_returning = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            connection: Arc::clone(&connection),
            beat,
            holder,
            n_queued: Arc::clone(&n_queued),
            n_returning: Arc::clone(&n_returning),
            metrics: Arc::clone(&metrics),
        };
        connection.handle().spawn(writer.write(queue));
        Self {
            entries,
            n_queued,
            n_returning,
            capacity,
            metrics,
        }
    }

    /// Queues a row. A full queue drops those of blocks in use, counted: the end of such a block,
    /// of which there are as many as blocks in memory at most, writes the row whole.
    pub(in crate::store) fn write(&self, row: Row, fate: Fate) {
        if fate == Fate::Held && self.n_queued.load(Ordering::Relaxed) >= self.capacity {
            self.metrics.journal_rows_dropped.increment(1);
            return;
        }
        let n_numbers = n_returned(&row, fate);
        self.n_queued.fetch_add(1, Ordering::Relaxed);
        self.n_returning.fetch_add(n_numbers, Ordering::Relaxed);
        if self.entries.send(Entry::Write(row, fate)).is_err() {
            self.n_queued.fetch_sub(1, Ordering::Relaxed);
            self.metrics.journal_rows_dropped.increment(1);
        }
    }

    /// Numbers that wait to be given back.
    pub(in crate::store) fn n_returning(&self) -> u64 {
        self.n_returning.load(Ordering::Relaxed)
    }

    /// Waits until all that was queued is in the database. Cancelling it loses nothing.
    pub(in crate::store) async fn flush(&self) {
        let (done, waiting) = oneshot::channel();
        if self.entries.send(Entry::Flush(done)).is_ok() {
            // The writer is gone only when the runtime is, and then nothing is left to wait for.
            let _gone = waiting.await;
        }
    }

    pub(in crate::store) fn n_queued(&self) -> usize {
        self.n_queued.load(Ordering::Relaxed)
    }
}

struct Writer {
    connection: Arc<Connection>,
    beat: Arc<Beat>,
    holder: String,
    n_queued: Arc<AtomicUsize>,
    n_returning: Arc<AtomicU64>,
    metrics: Arc<Metrics>,
}

impl Writer {
    async fn write(self, mut queue: mpsc::UnboundedReceiver<Entry>) {
        let mut entries = Vec::with_capacity(ROWS_AT_ONCE);
        while queue.recv_many(&mut entries, ROWS_AT_ONCE).await > 0 {
            let mut flushed = Vec::new();
            let mut rows = Vec::with_capacity(entries.len());
            for entry in entries.drain(..) {
                match entry {
                    Entry::Write(row, fate) => rows.push((row, fate)),
                    Entry::Flush(done) => flushed.push(done),
                }
            }
            let n_rows = rows.len();
            let n_numbers = rows.iter().map(|(row, fate)| n_returned(row, *fate)).sum();
            self.write_until_done(Batch::of(rows, &self.holder)).await;
            self.n_queued.fetch_sub(n_rows, Ordering::Relaxed);
            self.n_returning.fetch_sub(n_numbers, Ordering::Relaxed);
            for done in flushed {
                // Whoever stopped waiting does not need to know.
                let _gone = done.send(());
            }
        }
    }

    async fn write_until_done(&self, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let batch = Arc::new(batch);
        // Each step can be repeated by itself, so that a slow database is not asked for all again.
        for step in [Step::Fresh, Step::Spent, Step::Returned] {
            self.step_until_done(&batch, step).await;
        }
        self.metrics.journal_rows_written.increment(batch.n_rows());
    }

    async fn step_until_done(&self, batch: &Arc<Batch>, step: Step) {
        let mut has_said = false;
        let mut is_in_doubt = false;
        let era = self.beat.era();
        loop {
            if is_in_doubt && (self.beat.has_gone_back() || self.beat.era() != era) {
                // What was given back before may have been adopted, and is not there to tell.
                self.abandon(batch.n_returned(step));
                return;
            }
            let until = Instant::now() + PATIENCE;
            let again = Arc::clone(batch);
            let attempt = self.connection.run(until, |database| async move {
                again.write(step, is_in_doubt, &database).await
            });
            let failure = match attempt.await {
                Ok(n_lost) => {
                    self.abandon(n_lost);
                    return;
                }
                Err(failure) => failure,
            };
            is_in_doubt |= matches!(failure, Failure::MayHaveCommitted(_));
            if !std::mem::replace(&mut has_said, true) {
                tracing::warn!(
                    error = failure.cause().text(),
                    "the journal cannot be written for now; it is tried again"
                );
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    fn abandon(&self, n_numbers: u64) {
        self.metrics
            .abandoned(AbandonedCause::Uncertain)
            .increment(n_numbers);
    }
}

/// The statements of one turn.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fresh,
    Spent,
    Returned,
}

/// Rows of one turn, sorted by how they are written.
#[derive(Default)]
struct Batch {
    /// Rows that the database has not seen; those spent meanwhile have that fate.
    fresh: Vec<block::Model>,
    /// Ids whose row was written in an earlier turn, spent since.
    spent: Vec<block::Model>,
    /// Those returned since, whenever they were written.
    returned: Vec<block::Model>,
}

impl Batch {
    fn of(rows: Vec<(Row, Fate)>, holder: &str) -> Self {
        let mut batch = Self::default();
        let mut fresh: HashMap<Uuid, usize> = HashMap::new();
        for (row, fate) in rows {
            let model = model(&row, fate, holder);
            match (fresh.get(&row.id), fate) {
                (_, Fate::Returned { .. }) => batch.returned.push(model),
                (Some(at), _) => {
                    if let Some(known) = batch.fresh.get_mut(*at) {
                        *known = model;
                    }
                }
                (None, Fate::Held) => {
                    fresh.insert(row.id, batch.fresh.len());
                    batch.fresh.push(model);
                }
                (None, Fate::Spent) => batch.spent.push(model),
            }
        }
        batch
    }

    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.spent.is_empty() && self.returned.is_empty()
    }

    fn n_rows(&self) -> u64 {
        let n_rows = self.fresh.len() + self.spent.len() + self.returned.len();
        u64::try_from(n_rows).unwrap_or(u64::MAX)
    }

    /// Numbers that a step gives back.
    fn n_returned(&self, step: Step) -> u64 {
        match step {
            Step::Fresh | Step::Spent => 0,
            Step::Returned => self.returned.iter().map(n_unissued).sum(),
        }
    }

    /// Can be repeated at any point; `is_in_doubt` says that it was, and how that ended was not
    /// told. How many numbers were not given back, because their rows are gone.
    async fn write(
        &self,
        step: Step,
        is_in_doubt: bool,
        database: &DatabaseConnection,
    ) -> Result<u64, DbErr> {
        match step {
            Step::Fresh => insert(&self.fresh, database).await.map(|()| 0),
            Step::Spent => self.write_spent(database).await.map(|()| 0),
            Step::Returned => self.write_returned(is_in_doubt, database).await,
        }
    }

    async fn write_spent(&self, database: &DatabaseConnection) -> Result<(), DbErr> {
        if !self.spent.is_empty() {
            let changed = block::Entity::update_many()
                .col_expr(block::Column::Fate, Expr::val(Fate::Spent.word()))
                .col_expr(
                    block::Column::NextUnissued,
                    Expr::col(block::Column::Last).add(Expr::col(block::Column::Step)),
                )
                .filter(block::Column::Id.is_in(self.spent.iter().map(|row| row.id)))
                .filter(block::Column::Fate.eq(Fate::Held.word()))
                .exec(database)
                .await?;
            if usize::try_from(changed.rows_affected) != Ok(self.spent.len()) {
                // Blocks that were handed over whole were never held; others are repetitions.
                insert(&self.spent, database).await?;
            }
        }
        Ok(())
    }

    /// One statement for all of them: a drain gives back many names at once.
    ///
    /// A row that was given back once may have been adopted and removed since: it is never written
    /// anew where that is in doubt, or its numbers would be adopted twice.
    async fn write_returned(
        &self,
        is_in_doubt: bool,
        database: &DatabaseConnection,
    ) -> Result<u64, DbErr> {
        if self.returned.is_empty() || self.give_back(database).await? {
            return Ok(0);
        }
        if is_in_doubt {
            return self.n_gone(database).await;
        }
        // Their `held` rows were dropped from a full queue.
        let held: Vec<block::Model> = self.returned.iter().map(as_held).collect();
        insert(&held, database).await?;
        self.give_back(database).await?;
        Ok(0)
    }

    /// Whether all rows were there, and held.
    async fn give_back(&self, database: &DatabaseConnection) -> Result<bool, DbErr> {
        let next_unissued = self
            .returned
            .iter()
            .fold(CaseStatement::new(), |cases, row| {
                cases.case(block::Column::Id.eq(row.id), row.next_unissued)
            })
            .finally(Expr::col(block::Column::NextUnissued));
        let changed = block::Entity::update_many()
            .col_expr(block::Column::Fate, Expr::val("returned"))
            .col_expr(block::Column::NextUnissued, next_unissued.into())
            .filter(block::Column::Id.is_in(self.returned.iter().map(|row| row.id)))
            .filter(block::Column::Fate.eq(Fate::Held.word()))
            .exec(database)
            .await?;
        Ok(usize::try_from(changed.rows_affected) == Ok(self.returned.len()))
    }

    /// Numbers to be given back of which the database has no row.
    async fn n_gone(&self, database: &DatabaseConnection) -> Result<u64, DbErr> {
        let there: HashSet<Uuid> = block::Entity::find()
            .select_only()
            .column(block::Column::Id)
            .filter(block::Column::Id.is_in(self.returned.iter().map(|row| row.id)))
            .into_tuple::<Uuid>()
            .all(database)
            .await?
            .into_iter()
            .collect();
        let gone = self.returned.iter().filter(|row| !there.contains(&row.id));
        Ok(gone.map(n_unissued).sum())
    }
}

fn as_held(row: &block::Model) -> block::Model {
    block::Model {
        fate: Fate::Held.word().to_owned(),
        next_unissued: row.first,
        ..row.clone()
    }
}

/// Numbers of a row that its holder did not issue.
fn n_unissued(row: &block::Model) -> u64 {
    row.last
        .checked_sub(row.next_unissued)
        .and_then(|span| span.checked_div(row.step))
        .and_then(|steps| u64::try_from(steps).ok())
        .map_or(0, |steps| steps.saturating_add(1))
}

/// How many numbers a row gives back.
fn n_returned(row: &Row, fate: Fate) -> u64 {
    match fate {
        Fate::Held | Fate::Spent => 0,
        Fate::Returned { next_unissued } => row.block.count_from(next_unissued),
    }
}

async fn insert(rows: &[block::Model], database: &DatabaseConnection) -> Result<(), DbErr> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows = rows.iter().cloned().map(active);
    block::Entity::insert_many(rows)
        .on_conflict(
            OnConflict::column(block::Column::Id)
                .do_nothing_on([block::Column::Id])
                .to_owned(),
        )
        .exec_without_returning(database)
        .await?;
    Ok(())
}

fn model(row: &Row, fate: Fate, holder: &str) -> block::Model {
    block::Model {
        id: row.id,
        sequence: row.key.sequence.as_str().to_owned(),
        period: row.key.period.as_str().to_owned(),
        first: row.block.first(),
        last: row.block.last(),
        step: row.block.step(),
        holder: holder.to_owned(),
        reserved_at: row.reserved_at,
        fate: fate.word().to_owned(),
        next_unissued: fate.next_unissued(row.block),
    }
}

fn active(row: block::Model) -> block::ActiveModel {
    block::ActiveModel {
        id: Set(row.id),
        sequence: Set(row.sequence),
        period: Set(row.period),
        first: Set(row.first),
        last: Set(row.last),
        step: Set(row.step),
        holder: Set(row.holder),
        reserved_at: Set(row.reserved_at),
        fate: Set(row.fate),
        next_unissued: Set(row.next_unissued),
    }
}
