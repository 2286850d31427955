//! Writes the journal: one row for each block. Numbers never wait for their row.
//!
//! Rows go through a bounded queue to one writer. It writes [many rows](backlog) in one
//! transaction, and tries again until the database has them. A row is inserted only if its id is
//! unknown, and a fate is changed only from `held`.
//!
//! The transaction holds the row of `meta`, so it comes wholly before or wholly after a recovery.
//! After a recovery, no row of a block from before is written. Such a block could be adopted if it
//! were returned, and other callers may have its numbers.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use entity::block;

use odometer_database::{
    connection::Connection,
    failure::{Cause, StatementFailure},
    session::DatabaseConnection,
};
use odometer_process::{
    faults::{self, Fault},
    metrics::{AbandonedCause, Metrics},
};
use parking_lot::Mutex;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, IntoActiveModel,
    QueryFilter, QuerySelect,
    sea_query::{CaseStatement, Expr, ExprTrait, OnConflict},
};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::error::StoreError;
use crate::guard::HeartbeatGuard;
use crate::heartbeat::Heartbeat;
use crate::journal::{
    backlog::{Backlog, Pace},
    queue::Queue,
};
use crate::rows::{
    block::{BlockFate, JournalRow, rest_of},
    creation_baseline::CreationBaseline,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::journal";

/// Bounds the rows of one statement. With ten columns each, they stay far below every database's
/// limit of parameters.
pub(crate) const ROWS_AT_ONCE: usize = 500;
/// Sets the pause between two attempts while the database is away.
const BACKOFF: Duration = Duration::from_millis(250);
/// Bounds one transaction and its wait for a connection. A caller that waits for the end of the
/// journal has a deadline of its own.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The sending end of the queue.
pub(crate) struct Journal {
    rows: mpsc::UnboundedSender<(JournalRow, BlockFate)>,
    /// Locked while a row is sent, so that rows are sent in the order in which they are counted.
    queue: Arc<Mutex<Queue>>,
    /// How many rows are done, of those that were queued: in the database, or dropped.
    n_done: watch::Receiver<usize>,
    metrics: Arc<Metrics>,
}

impl Journal {
    /// Makes the queue, and the task of its writer. Without this task, rows are dropped.
    pub(crate) fn new(
        connection: Arc<Connection>,
        heartbeat: Arc<Heartbeat>,
        holder: Arc<str>,
        capacity: usize,
        metrics: Arc<Metrics>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (rows, receiver) = mpsc::unbounded_channel();
        let (done, n_done) = watch::channel(0);
        let queue = Arc::new(Mutex::new(Queue::new(capacity)));
        let writer = Writer {
            connection,
            heartbeat,
            holder,
            queue: Arc::clone(&queue),
            metrics: Arc::clone(&metrics),
        };
        let journal = Self {
            rows,
            queue,
            n_done,
            metrics,
        };
        (journal, writer.write(receiver, done))
    }

    /// Queues a row.
    ///
    /// If the queue is full, the row is dropped and counted. If such a row returns numbers, these
    /// count as abandoned. The row at the end of a block is written whole, so an earlier row of the
    /// block may be missing.
    pub(crate) fn write(&self, row: JournalRow, fate: BlockFate) {
        let n_numbers = n_returned(&row, fate);
        let mut queue = self.queue.lock();
        let is_in = queue.enter(fate, n_numbers);
        if is_in && self.rows.send((row, fate)).is_ok() {
            return;
        }
        self.metrics.journal_rows_dropped.increment(1);
        if is_in {
            // The writer is gone only when the program ends, which counts the numbers that are not
            // returned.
            queue.leave(1, 0);
        } else {
            self.metrics
                .abandoned(AbandonedCause::JournalFull)
                .increment(n_numbers);
        }
    }

    /// Returns how many numbers wait to be returned.
    pub(crate) fn n_returning(&self) -> u64 {
        self.queue.lock().n_returning
    }

    /// Waits until everything that was queued is in the database. Cancelling it loses nothing.
    pub(crate) async fn flush(&self) {
        let n_queued = self.queue.lock().n_entered;
        let mut n_done = self.n_done.clone();
        // The writer is gone only if the runtime is gone, and then nothing is left to wait for.
        let _gone = n_done.wait_for(|n_done| *n_done >= n_queued).await;
    }

    pub(crate) fn n_queued(&self) -> usize {
        self.queue.lock().n_rows
    }
}

struct Writer {
    connection: Arc<Connection>,
    heartbeat: Arc<Heartbeat>,
    holder: Arc<str>,
    queue: Arc<Mutex<Queue>>,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// Writes the rows in the order in which they were sent, and counts in `done` how many are done.
    async fn write(
        self,
        mut receiver: mpsc::UnboundedReceiver<(JournalRow, BlockFate)>,
        done: watch::Sender<usize>,
    ) {
        let mut rows = Vec::with_capacity(ROWS_AT_ONCE);
        let mut pace = Pace::new();
        while receiver.recv_many(&mut rows, ROWS_AT_ONCE).await > 0 {
            let n_rows = rows.len();
            self.write_all(Backlog::of(rows.drain(..)), &mut pace).await;
            done.send_modify(|n_done| *n_done += n_rows);
        }
    }

    /// Writes all rows, several at once, and repeats each write until it succeeds.
    async fn write_all(&self, mut backlog: Backlog, pace: &mut Pace) {
        let mut has_said = false;
        loop {
            let (rows, is_in_doubt) = backlog.next(pace.n_rows());
            let n_rows = rows.len();
            if n_rows == 0 {
                return;
            }
            let n_numbers = rows.iter().map(|(row, fate)| n_returned(row, *fate)).sum();
            let batch = Arc::new(JournalWrite {
                rows: rows.into_iter().cloned().collect(),
                holder: Arc::clone(&self.holder),
                is_given_up: AtomicBool::new(false),
            });
            let failure = match self.attempt(&batch, is_in_doubt).await {
                Ok(outcome) => {
                    self.count(outcome);
                    let mut queue = self.queue.lock();
                    queue.is_failing = false;
                    queue.leave(n_rows, n_numbers);
                    drop(queue);
                    backlog.written(n_rows);
                    pace.succeeded();
                    continue;
                }
                Err(failure) => failure,
            };
            self.queue.lock().is_failing = true;
            if matches!(failure, StatementFailure::MayHaveCommitted(_)) {
                batch.is_given_up.store(true, Ordering::Release);
                self.queue.lock().leave(backlog.mark_uncertain(n_rows), 0);
            }
            if matches!(failure.cause(), Cause::Silent | Cause::Interrupted) {
                pace.took_too_long(n_rows);
            }
            if !std::mem::replace(&mut has_said, true) {
                tracing::warn!(
                    target: TARGET,
                    error = failure.cause().text(),
                    "the journal cannot be written for now; it is tried again"
                );
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    /// Makes one attempt to write the rows. Nothing is written into a store that went back.
    async fn attempt(
        &self,
        batch: &Arc<JournalWrite>,
        is_in_doubt: bool,
    ) -> Result<Outcome, StatementFailure> {
        let guard = match self.heartbeat.guard() {
            Ok(guard) => guard,
            Err(StoreError::WentBack) => return Ok(batch.forgotten()),
            Err(_) => return Err(StatementFailure::NotCommitted(Cause::Busy)),
        };
        let (again, guard_copy) = (Arc::clone(batch), guard.clone());
        let until = Instant::now() + TIMEOUT;
        let written = self.connection.run(until, |database| async move {
            again.write(&guard_copy, is_in_doubt, &database).await
        });
        if let Some(outcome) = written.await? {
            return Ok(outcome);
        }
        self.heartbeat.failed(&guard);
        self.connection.refresh.notify_one();
        if self.heartbeat.has_gone_back() {
            return Ok(batch.forgotten());
        }
        Err(StatementFailure::NotCommitted(Cause::Busy))
    }

    fn count(&self, outcome: Outcome) {
        let Outcome {
            n_rows,
            n_rows_dropped,
            n_lost,
            n_recovered,
        } = outcome;
        self.metrics.journal_rows_written.increment(n_rows);
        self.metrics.journal_rows_dropped.increment(n_rows_dropped);
        let abandoned = |cause: AbandonedCause| self.metrics.abandoned(cause);
        abandoned(AbandonedCause::Uncertain).increment(n_lost);
        abandoned(AbandonedCause::Recovered).increment(n_recovered);
        if n_recovered > 0 {
            tracing::debug!(
                target: TARGET,
                numbers = n_recovered,
                "these numbers were reserved before the store went back or was recovered: they \
                 are dropped, and not given back"
            );
        }
    }
}

/// The outcome of one write.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Rows that were written.
    n_rows: u64,
    /// Rows of blocks that were reserved before a recovery.
    n_rows_dropped: u64,
    /// Numbers of these rows that were to be returned.
    n_recovered: u64,
    /// Numbers that were not returned, because their rows are gone.
    n_lost: u64,
}

/// One write of several rows.
struct JournalWrite {
    rows: Vec<(JournalRow, BlockFate)>,
    holder: Arc<str>,
    /// Set when the writer no longer waits for the attempt. Another attempt may have been made
    /// since.
    is_given_up: AtomicBool,
}

impl JournalWrite {
    /// Returns the outcome if only these rows are written.
    fn outcome(&self, written: &Rows) -> Outcome {
        let all = Rows::of(self.rows.iter(), &self.holder);
        Outcome {
            n_rows: written.len(),
            n_rows_dropped: all.len().saturating_sub(written.len()),
            n_recovered: all.n_unissued().saturating_sub(written.n_unissued()),
            n_lost: 0,
        }
    }

    /// Returns the outcome if nothing is written, because the store is not the one that reserved
    /// these blocks.
    fn forgotten(&self) -> Outcome {
        self.outcome(&Rows::default())
    }

    /// Writes the rows in one transaction, all of them or none. Returns `None` if the store went
    /// back.
    ///
    /// `is_in_doubt` says that an earlier attempt may have been committed.
    ///
    /// # Errors
    /// The database failed, or the attempt was given up before it wrote anything.
    async fn write(
        &self,
        guard: &HeartbeatGuard,
        is_in_doubt: bool,
        database: &DatabaseConnection,
    ) -> Result<Option<Outcome>, DbErr> {
        let transaction = database.begin_read_committed().await?;
        let Some(baseline) = CreationBaseline::hold_all(&transaction, guard).await? else {
            transaction.rollback().await?;
            return Ok(None);
        };
        self.is_still_wanted()?;
        let is_since = |(row, _): &&(JournalRow, BlockFate)| {
            row.recovered_at == baseline.recovered_at(&row.key.sequence)
                || faults::is(Fault::RecoveryKeepsMemory)
        };
        let rows = Rows::of(self.rows.iter().filter(is_since), &self.holder);
        let mut outcome = self.outcome(&rows);
        if faults::is(Fault::JournalInParts) {
            transaction.rollback().await?;
            outcome.n_lost = rows.write(false, database).await?;
            return Ok(Some(outcome));
        }
        outcome.n_lost = rows.write(is_in_doubt, &transaction).await?;
        transaction.commit().await?;
        Ok(Some(outcome))
    }

    /// Fails if the attempt was given up, so that it writes nothing. The next attempt knows that
    /// this one may have written, but this one does not know of the next.
    fn is_still_wanted(&self) -> Result<(), DbErr> {
        if self.is_given_up.load(Ordering::Acquire) {
            return Err(DbErr::Custom("the attempt was given up".to_owned()));
        }
        Ok(())
    }
}

/// The rows of one write, sorted by the way in which they are written.
#[derive(Default)]
struct Rows {
    /// Rows that the database has not seen. If their block was spent meanwhile, they have this
    /// fate.
    fresh: Vec<block::Model>,
    /// Rows of spent blocks whose first row was in an earlier write.
    spent: Vec<block::Model>,
    /// Rows of returned blocks, whichever write had their first row.
    returned: Vec<block::Model>,
}

impl Rows {
    fn of<'a>(rows: impl Iterator<Item = &'a (JournalRow, BlockFate)>, holder: &str) -> Self {
        let mut sorted = Self::default();
        let mut fresh: HashMap<Uuid, usize> = HashMap::new();
        for (row, fate) in rows {
            let written = model(row, *fate, holder);
            match (fresh.get(&row.id), fate) {
                (_, BlockFate::Returned { .. }) => sorted.returned.push(written),
                (Some(at), _) => {
                    if let Some(known) = sorted.fresh.get_mut(*at) {
                        *known = written;
                    }
                }
                (None, BlockFate::Held | BlockFate::HandedOver) => {
                    fresh.insert(row.id, sorted.fresh.len());
                    sorted.fresh.push(written);
                }
                (None, BlockFate::Spent) => sorted.spent.push(written),
            }
        }
        sorted
    }

    fn len(&self) -> u64 {
        let n_rows = self.fresh.len() + self.spent.len() + self.returned.len();
        u64::try_from(n_rows).unwrap_or(u64::MAX)
    }

    /// Returns how many numbers the returned blocks give back.
    fn n_unissued(&self) -> u64 {
        self.returned.iter().map(n_unissued).sum()
    }

    /// Writes the rows. Returns how many numbers were not returned, because their rows are gone.
    async fn write(
        &self,
        is_in_doubt: bool,
        database: &impl ConnectionTrait,
    ) -> Result<u64, DbErr> {
        insert(&self.fresh, database).await?;
        self.write_spent(database).await?;
        self.write_returned(is_in_doubt, database).await
    }

    async fn write_spent(&self, database: &impl ConnectionTrait) -> Result<(), DbErr> {
        if !self.spent.is_empty() {
            let changed = block::Entity::update_many()
                .col_expr(block::Column::Fate, Expr::val(BlockFate::Spent.word()))
                .col_expr(
                    block::Column::NextUnissued,
                    Expr::col(block::Column::Last).add(Expr::col(block::Column::Step)),
                )
                .filter(block::Column::Id.is_in(ids(&self.spent)))
                .filter(block::Column::Fate.eq(BlockFate::Held.word()))
                .exec(database)
                .await?;
            if usize::try_from(changed.rows_affected) != Ok(self.spent.len()) {
                // Some rows are missing because a full queue dropped them. Others are spent by an
                // earlier attempt.
                insert(&self.spent, database).await?;
            }
        }
        Ok(())
    }

    /// Marks the blocks as returned. Returns how many numbers were not returned, because their rows
    /// are gone.
    ///
    /// One statement does it for all blocks, because a drain returns those of many names at once. A
    /// row that was returned once may have been adopted and removed since. So a missing row is not
    /// written again if an earlier attempt may have been committed. Otherwise its numbers would be
    /// adopted twice.
    async fn write_returned(
        &self,
        is_in_doubt: bool,
        database: &impl ConnectionTrait,
    ) -> Result<u64, DbErr> {
        if self.returned.is_empty() || self.give_back(database).await? {
            return Ok(0);
        }
        if is_in_doubt {
            return self.n_gone(database).await;
        }
        // A full queue dropped the `held` rows of these blocks.
        let held: Vec<block::Model> = self.returned.iter().map(as_held).collect();
        insert(&held, database).await?;
        self.give_back(database).await?;
        Ok(0)
    }

    /// Changes the fate of all rows to `returned`. Returns whether all rows were there, and held.
    async fn give_back(&self, database: &impl ConnectionTrait) -> Result<bool, DbErr> {
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
            .filter(block::Column::Id.is_in(ids(&self.returned)))
            .filter(block::Column::Fate.eq(BlockFate::Held.word()))
            .exec(database)
            .await?;
        Ok(usize::try_from(changed.rows_affected) == Ok(self.returned.len()))
    }

    /// Returns how many numbers were to be returned from rows that the database does not have.
    async fn n_gone(&self, database: &impl ConnectionTrait) -> Result<u64, DbErr> {
        let there: HashSet<Uuid> = block::Entity::find()
            .select_only()
            .column(block::Column::Id)
            .filter(block::Column::Id.is_in(ids(&self.returned)))
            .into_tuple::<Uuid>()
            .all(database)
            .await?
            .into_iter()
            .collect();
        let gone = self.returned.iter().filter(|row| !there.contains(&row.id));
        Ok(gone.map(n_unissued).sum())
    }
}

fn ids(rows: &[block::Model]) -> impl Iterator<Item = Uuid> {
    rows.iter().map(|row| row.id)
}

fn as_held(row: &block::Model) -> block::Model {
    block::Model {
        fate: BlockFate::Held.word().to_owned(),
        next_unissued: row.first,
        ..row.clone()
    }
}

/// Returns how many numbers of a row its holder did not issue.
fn n_unissued(row: &block::Model) -> u64 {
    rest_of(row).map_or(0, |rest| rest.count())
}

/// Returns how many numbers a row returns to the store.
fn n_returned(row: &JournalRow, fate: BlockFate) -> u64 {
    match fate {
        BlockFate::Held | BlockFate::Spent | BlockFate::HandedOver => 0,
        BlockFate::Returned { next_unissued } => row.block.count_from(next_unissued),
    }
}

async fn insert(rows: &[block::Model], database: &impl ConnectionTrait) -> Result<(), DbErr> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows = rows.iter().cloned();
    block::Entity::insert_many(rows.map(|row| row.into_active_model().reset_all()))
        .on_conflict(
            OnConflict::column(block::Column::Id)
                .do_nothing_on([block::Column::Id])
                .to_owned(),
        )
        .exec_without_returning(database)
        .await?;
    Ok(())
}

fn model(row: &JournalRow, fate: BlockFate, holder: &str) -> block::Model {
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use odometer_core::{block::Block, name::SequenceName, period::CounterKey};

    use super::*;
    use crate::settings::Source;

    #[test]
    fn a_flush_waits_for_the_rows_before_it_and_for_no_later_one() {
        let (rows, receiver) = mpsc::unbounded_channel();
        let (done, n_done) = watch::channel(0);
        let journal = Journal {
            rows,
            queue: Arc::new(Mutex::new(Queue::new(9))),
            n_done,
            metrics: Arc::new(Metrics::new()),
        };
        let write = || {
            let row = JournalRow {
                id: Uuid::now_v7(),
                key: CounterKey::whole(SequenceName::parse("orders").unwrap()),
                block: Block::new(1, 10, 1).unwrap(),
                source: Source::default(),
                reserved_at: 0,
                recovered_at: None,
            };
            journal.write(row, BlockFate::Held);
        };
        assert_eq!(journal.flush().now_or_never(), Some(()));
        write();
        write();
        let mut flush = pin!(journal.flush());
        assert_eq!(flush.as_mut().now_or_never(), None);
        write();
        done.send_modify(|n_done| *n_done += 1);
        assert_eq!(flush.as_mut().now_or_never(), None);
        done.send_modify(|n_done| *n_done += 1);
        assert_eq!(flush.now_or_never(), Some(()));
        // Nobody waits for a writer that is gone.
        let mut flush = pin!(journal.flush());
        assert_eq!(flush.as_mut().now_or_never(), None);
        drop((receiver, done));
        assert_eq!(flush.now_or_never(), Some(()));
    }
}
