//! The journal: one row a block, written behind the numbers, never before them.
//!
//! Rows go through a bounded queue to one writer, which writes many at once and
//! tries again until the database has them. Every statement can be repeated
//! without harm: rows are inserted only where their id is unknown, and a fate
//! is changed only from `held`.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use entity::block;
use odometer_core::{block::Block, name::SequenceName};
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, DatabaseConnection, DbErr, EntityTrait, QueryFilter,
    sea_query::{Expr, ExprTrait, OnConflict},
};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::connection::Connection;
use crate::metrics::Metrics;

/// Rows of one statement; ten columns each stay far below every database's bound of parameters.
const ROWS_AT_ONCE: usize = 500;
/// Between two attempts while the database is away.
const BACKOFF: Duration = Duration::from_millis(250);

/// A block as the journal knows it.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: Uuid,
    pub name: SequenceName,
    pub block: Block,
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
pub(super) struct Journal {
    entries: mpsc::UnboundedSender<Entry>,
    n_queued: Arc<AtomicUsize>,
    capacity: usize,
    metrics: Arc<Metrics>,
}

impl Journal {
    /// Starts the writer on the connection's runtime.
    pub(super) fn start(
        connection: Arc<Connection>,
        holder: String,
        capacity: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (entries, queue) = mpsc::unbounded_channel();
        let n_queued = Arc::new(AtomicUsize::new(0));
        let writer = Writer {
            connection: Arc::clone(&connection),
            holder,
            n_queued: Arc::clone(&n_queued),
            metrics: Arc::clone(&metrics),
        };
        connection.handle().spawn(writer.write(queue));
        Self {
            entries,
            n_queued,
            capacity,
            metrics,
        }
    }

    /// Queues a row. A full queue drops it, counted, unless numbers are given back by it.
    pub(super) fn write(&self, row: Row, fate: Fate) {
        let is_return = matches!(fate, Fate::Returned { .. });
        if !is_return && self.n_queued.load(Ordering::Relaxed) >= self.capacity {
            self.metrics.journal_rows_dropped.increment(1);
            return;
        }
        self.n_queued.fetch_add(1, Ordering::Relaxed);
        if self.entries.send(Entry::Write(row, fate)).is_err() {
            self.metrics.journal_rows_dropped.increment(1);
        }
    }

    /// Waits until all that was queued is in the database. Cancelling it loses nothing.
    pub(super) async fn flush(&self) {
        let (done, waiting) = oneshot::channel();
        if self.entries.send(Entry::Flush(done)).is_ok() {
            // The writer is gone only when the runtime is, and then nothing is left to wait for.
            let _gone = waiting.await;
        }
    }

    pub(super) fn n_queued(&self) -> usize {
        self.n_queued.load(Ordering::Relaxed)
    }
}

struct Writer {
    connection: Arc<Connection>,
    holder: String,
    n_queued: Arc<AtomicUsize>,
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
            self.write_until_done(Batch::of(rows, &self.holder)).await;
            self.n_queued.fetch_sub(n_rows, Ordering::Relaxed);
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
        loop {
            let until = Instant::now() + Duration::from_secs(60);
            let again = Arc::clone(&batch);
            let attempt =
                self.connection.run(
                    until,
                    |database| async move { again.write(&database).await },
                );
            match attempt.await {
                Ok(()) => break,
                Err(failure) => {
                    tracing::debug!(error = failure.cause().text(), "the journal waits");
                    tokio::time::sleep(BACKOFF).await;
                }
            }
        }
        self.metrics.journal_rows_written.increment(batch.n_rows());
    }
}

/// Rows of one turn, sorted by how they are written.
#[derive(Default)]
struct Batch {
    /// Rows that the database has not seen; those spent or returned meanwhile have that fate.
    fresh: Vec<block::Model>,
    /// Ids whose row was written in an earlier turn, spent since.
    spent: Vec<block::Model>,
    /// The same, returned since.
    returned: Vec<block::Model>,
}

impl Batch {
    fn of(rows: Vec<(Row, Fate)>, holder: &str) -> Self {
        let mut batch = Self::default();
        let mut fresh: HashMap<Uuid, usize> = HashMap::new();
        for (row, fate) in rows {
            let model = model(&row, fate, holder);
            match (fresh.get(&row.id), fate) {
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
                (None, Fate::Returned { .. }) => batch.returned.push(model),
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

    /// Can be repeated as a whole at any point.
    async fn write(&self, database: &DatabaseConnection) -> Result<(), DbErr> {
        insert(&self.fresh, database).await?;
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
        for row in &self.returned {
            let changed = block::Entity::update_many()
                .col_expr(block::Column::Fate, Expr::val(row.fate.as_str()))
                .col_expr(block::Column::NextUnissued, Expr::val(row.next_unissued))
                .filter(block::Column::Id.eq(row.id))
                .filter(block::Column::Fate.eq(Fate::Held.word()))
                .exec(database)
                .await?;
            if changed.rows_affected == 0 {
                // Its `held` row was dropped from a full queue, or this is a repetition.
                insert(std::slice::from_ref(row), database).await?;
            }
        }
        Ok(())
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
        sequence: row.name.as_str().to_owned(),
        period: String::new(),
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
