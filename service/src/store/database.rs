//! One ordinary database: PostgreSQL, MySQL, MariaDB or SQLite.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant, UNIX_EPOCH},
};

use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period},
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch};

use super::{
    StoreSettings,
    answer::{Altered, Condition, JournalBlock, Listed, News, Page},
    catalogue,
    change::beat::Beat,
    change::refresh::Refresher,
    change::{self, Act, Change},
    connection::monitor::Monitor,
    connection::session::DatabaseConnection,
    connection::target::Target,
    connection::{Connection, Health},
    error::{Cause, Failure, StartError, StoreError},
    journal::overlap::Overlaps,
    journal::prune::Pruner,
    journal::recent,
    journal::{Fate, Journal, Row},
    near,
    removal::Remover,
    reservation::suspect::Doubts,
    reservation::{Reservation, ReserveRequest, Unpublished},
};
use crate::metrics::Metrics;

/// One database shares its sequences with none.
pub(super) const STRIPE_COUNT: i32 = 1;
/// Reservations ahead of time take at most this part of the connections.
const AHEAD_PART: u32 = 2;
/// How long the start waits for the first look at the database.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// News that may wait until they are taken notice of.
const NEWS_AHEAD: usize = 1;
/// Rows of the journal that a description shows.
const BLOCKS_SHOWN: u64 = 100;

/// A counter as it was last seen; both only ever grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The high-water mark.
    pub next_value: i64,
    pub version: i64,
}

pub struct Database {
    pub(super) connection: Arc<Connection>,
    pub(super) beat: Arc<Beat>,
    pub(super) journal: Journal,
    /// This process, as the journal calls it.
    pub(super) holder: Arc<str>,
    pub(super) settings: StoreSettings,
    pub(super) metrics: Arc<Metrics>,
    fatal: watch::Receiver<Option<StartError>>,
    /// An estimate of how many sequences there are; counted exactly where it decides.
    pub(super) n_sequences: AtomicU64,
    /// What is not known of writes that got no answer.
    pub(super) doubts: Doubts,
    /// Turns of reservations that nobody waits for: they leave connections to those of callers.
    ahead: Semaphore,
    in_flight: AtomicUsize,
    peak_in_flight: AtomicUsize,
    /// Whoever issues from this store takes the end at which its news arrive.
    pub(super) news: Mutex<Option<mpsc::Receiver<News>>>,
    /// Held as long as this process may write the SQLite file.
    _lock: Option<super::file_lock::FileLock>,
}

impl Database {
    pub(super) async fn connect(
        settings: StoreSettings,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, StartError> {
        let target = Target::parse(&settings.url)?;
        let lock = target
            .file
            .as_deref()
            .map(super::file_lock::FileLock::take)
            .transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("odometer-store")
            .enable_all()
            .build()
            .map_err(|error| StartError::Other(error.to_string()))?;
        let connection = Connection::new(runtime, target.pool(&settings), settings.timeout)
            .await
            .map_err(|error| super::unreadable(&error))?;
        let connection = Arc::new(connection);
        let holder: Arc<str> = super::holder_name().into();
        let beat = Arc::new(Beat::new(Arc::clone(&holder), Arc::clone(&metrics)));
        let journal = Journal::start(
            Arc::clone(&connection),
            Arc::clone(&beat),
            holder.to_string(),
            settings.journal_queue,
            Arc::clone(&metrics),
        );
        let n_ahead = usize::try_from(settings.pool_max / AHEAD_PART)
            .unwrap_or(1)
            .max(1);
        let (tell, news) = mpsc::channel(NEWS_AHEAD);
        tidy_up(&connection, &beat, &settings, &metrics);
        let mut has_looked = connection.has_looked.subscribe();
        let fatal = Monitor::start(
            Arc::clone(&connection),
            target,
            &settings,
            Arc::clone(&metrics),
            Refresher::new(Arc::clone(&connection), Arc::clone(&beat), &settings, tell),
        );
        // A database that is there answers the very first call; one that is away is not waited for.
        let looked = has_looked.wait_for(|looked| *looked);
        let _in_time = tokio::time::timeout(FIRST_LOOK, looked).await;
        if let Some(error) = fatal.borrow().clone() {
            return Err(error);
        }
        Ok(Arc::new(Self {
            connection,
            beat,
            journal,
            holder,
            settings,
            metrics,
            fatal,
            n_sequences: AtomicU64::new(0),
            doubts: Doubts::default(),
            ahead: Semaphore::new(n_ahead),
            in_flight: AtomicUsize::new(0),
            peak_in_flight: AtomicUsize::new(0),
            news: Mutex::new(Some(news)),
            _lock: lock,
        }))
    }

    pub(super) fn health(&self) -> Health {
        self.connection.health()
    }

    /// Resolves when the database turned out to be one that waiting does not mend.
    pub(super) async fn fatal(&self) -> StartError {
        let mut fatal = self.fatal.clone();
        let found = fatal.wait_for(Option::is_some).await;
        match found.map(|error| error.clone()) {
            Ok(Some(error)) => error,
            // The monitor ends with the store: nothing will be found any more.
            _ => std::future::pending().await,
        }
    }

    /// Reserves in a task that nobody cancels.
    ///
    /// A block that arrives when the receiver is gone is abandoned, counted.
    pub(super) fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        let (answer, receiver) = oneshot::channel();
        let database = Arc::clone(self);
        self.connection.handle().spawn(async move {
            let started = Instant::now();
            let turn = database.turn_ahead(&request).await;
            let flight = InFlight::enter(&database);
            let outcome = Reservation::new(&database, request).run().await;
            drop((flight, turn));
            database
                .metrics
                .reservation_duration
                .record(started.elapsed().as_secs_f64());
            let metrics = Arc::clone(&database.metrics);
            let outcome = outcome.map(|reserved| Unpublished::new(reserved, metrics));
            // Dropped with a block in it, the outcome counts the block as abandoned.
            let _gone = answer.send(outcome);
        });
        receiver
    }

    /// Waits for a turn where nobody waits for the numbers, until somebody does.
    async fn turn_ahead(&self, request: &ReserveRequest) -> Option<SemaphorePermit<'_>> {
        if !request.want.is_ahead() {
            return None;
        }
        tokio::select! {
            turn = self.ahead.acquire() => turn.ok(),
            () = request.urgency.notified() => None,
        }
    }

    /// The most reservations that were under way at once since the start.
    pub(super) fn peak_in_flight(&self) -> usize {
        self.peak_in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn write_journal(&self, row: Row, fate: Fate) {
        self.journal.write(row, fate);
    }

    pub(super) async fn alter(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        last_seen: Option<Seen>,
    ) -> Result<Altered, StoreError> {
        let is_dry_run = act.is_dry_run();
        let witness = match self.beat.witness() {
            Ok(_) if is_dry_run => None,
            Ok(witness) => Some(witness),
            Err(StoreError::Unavailable) => return Err(StoreError::NotChanged),
            Err(error) => return Err(error),
        };
        let change = Change {
            name: name.clone(),
            act,
            condition,
            max_sequences: self.settings.max_sequences,
            keyed_periods: self.settings.keyed_periods,
            witness,
            last_seen,
        };
        let outcome = self
            .attempts(Repeat::NotCommitted, |database| {
                change::run(database, change.clone())
            })
            .await;
        let altered = match outcome {
            Ok(Err(StoreError::WentBack)) => {
                // The next poll looks whether it is all names, or is recovered already.
                self.beat.note_name_went_back(name);
                self.connection.refresh.notify_one();
                return Err(StoreError::WentBack);
            }
            Ok(outcome) => outcome?,
            Err(Failure::MayHaveCommitted(_)) if !is_dry_run => {
                return Err(StoreError::MayHaveChanged);
            }
            Err(Failure::NotCommitted(Cause::WentBack)) => return Err(StoreError::WentBack),
            Err(failure) => {
                // Says in the log what it was, where that is nothing that passes.
                let _told = catalogue::unexpected(name, &failure);
                return Err(StoreError::NotChanged);
            }
        };
        if altered.before.is_none() && altered.is_written {
            self.metrics.sequences_created.increment(1);
        }
        Ok(altered)
    }

    /// Names of live sequences that a caller of `name` may have meant, found in bounded time.
    pub(super) async fn names_like(&self, name: &SequenceName, patience: Duration) -> Vec<String> {
        let name = name.clone();
        let search = |database| async move { near::search(&database, name.as_str()).await };
        let until = Instant::now() + patience;
        // A suggestion is a courtesy: without the database there is none.
        self.connection.run(until, search).await.unwrap_or_default()
    }

    pub(super) async fn recently_used(&self, limit: usize) -> Result<Vec<CounterKey>, StoreError> {
        self.several_times_anonymous(|database| recent::counters(database, limit))
            .await
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: u64,
    ) -> Result<Page, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        let rows = self
            .several_times_anonymous(|database| {
                catalogue::list(
                    database,
                    prefix.clone(),
                    after.clone(),
                    limit.saturating_add(1),
                )
            })
            .await?;
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > shown;
        let mut sequences = Vec::with_capacity(rows.len());
        for row in rows.into_iter().take(shown) {
            sequences.push(listed(row)?);
        }
        let next = sequences
            .last()
            .filter(|_| more)
            .map(|last: &Listed| last.name.clone());
        Ok(Page { sequences, next })
    }

    /// A definition as it is stored, and a counter.
    pub(super) async fn look_up(
        &self,
        key: &CounterKey,
    ) -> Result<(Listed, Option<Seen>), StoreError> {
        let standing = self.standing_of(key).await?;
        let definition = Definition::from_stored(&standing.definition)
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        if standing.has_removed(&key.period) {
            return Err(StoreError::PeriodRemoved);
        }
        let seen = standing.counter().map(|counter| counter.seen);
        let listed = Listed {
            name: key.sequence.clone(),
            state: standing.state,
            definition: Arc::new(definition),
            version: standing.definition_version,
        };
        Ok((listed, seen))
    }

    /// The row of a sequence and that of a counter of it.
    async fn standing_of(&self, key: &CounterKey) -> Result<catalogue::Standing, StoreError> {
        let read = self.several_times(&key.sequence, |database| {
            let CounterKey { sequence, period } = key.clone();
            async move { catalogue::read(&database, sequence.as_str(), &period).await }
        });
        read.await?.ok_or(StoreError::NotFound)
    }

    pub(super) async fn floor_of(&self, key: &CounterKey) -> Result<Option<i64>, StoreError> {
        let standing = self.standing_of(key).await?;
        if standing.has_removed(&key.period) {
            return Ok(None);
        }
        let floor = standing.counter().map(|counter| counter.floor);
        Ok(Some(floor.unwrap_or(i64::MIN)))
    }

    pub(super) async fn blocks(
        &self,
        name: &SequenceName,
    ) -> Result<Vec<JournalBlock>, StoreError> {
        let rows = self
            .several_times(name, |database| {
                catalogue::blocks(database, name.clone(), BLOCKS_SHOWN)
            })
            .await?;
        Ok(rows.into_iter().map(journal_block).collect())
    }

    async fn several_times_anonymous<T, F, Fut>(&self, operation: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, sea_orm::DbErr>> + Send + 'static,
    {
        self.attempts(Repeat::Any, operation)
            .await
            .map_err(|failure| {
                tracing::warn!(error = failure.cause().text(), "a listing failed");
                StoreError::Unavailable
            })
    }

    pub(super) async fn several_times<T, F, Fut>(
        &self,
        name: &SequenceName,
        operation: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, sea_orm::DbErr>> + Send + 'static,
    {
        self.attempts(Repeat::Any, operation)
            .await
            .map_err(|failure| catalogue::unexpected(name, &failure))
    }

    /// Repeats what can be repeated without harm, within the deadline of one reservation.
    async fn attempts<T, F, Fut>(&self, repeat: Repeat, operation: F) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Fn(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, sea_orm::DbErr>> + Send + 'static,
    {
        let until = Instant::now() + self.settings.deadline;
        if self.health() != Health::Up {
            return Err(Failure::NotCommitted(Cause::NoConnection(
                "the database is away".to_owned(),
            )));
        }
        if repeat == Repeat::NotCommitted && self.beat.has_gone_back() {
            return Err(Failure::NotCommitted(Cause::WentBack));
        }
        let mut backoff = super::backoff::Backoff::new(&self.settings);
        loop {
            let failure = match self.connection.run(until, &operation).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let may_pass = matches!(
                failure.cause(),
                Cause::Contention | Cause::Interrupted | Cause::Duplicate | Cause::Broken(_)
            );
            let worth_it =
                may_pass && (repeat == Repeat::Any || matches!(failure, Failure::NotCommitted(_)));
            if !worth_it || Instant::now() >= until {
                return Err(failure);
            }
            backoff.wait(until).await;
        }
    }

    pub(super) async fn close(&self, patience: Duration) {
        let flushed = tokio::time::timeout(patience / 2, self.journal.flush()).await;
        if flushed.is_err() {
            tracing::warn!(
                rows = self.journal.n_queued(),
                "rows of the journal could not be written before the end"
            );
        }
        self.connection.close(patience / 2).await;
        let in_doubt = self.doubts.end();
        if in_doubt > 0 {
            tracing::warn!(
                numbers = in_doubt,
                "whether these numbers were reserved was not found out before the end"
            );
        }
    }
}

/// Starts what looks after the tables, for as long as the connection's runtime lives.
fn tidy_up(
    connection: &Arc<Connection>,
    beat: &Arc<Beat>,
    settings: &StoreSettings,
    metrics: &Arc<Metrics>,
) {
    Overlaps::watch(Arc::clone(connection), Arc::clone(metrics));
    Pruner::start(
        Arc::clone(connection),
        beat.holder().to_owned(),
        settings,
        Arc::clone(metrics),
    );
    Remover::start(
        Arc::clone(connection),
        Arc::clone(beat),
        Arc::clone(metrics),
    );
}

pub(super) fn journal_block(row: entity::block::Model) -> JournalBlock {
    JournalBlock {
        period: Period::from_stored(&row.period),
        first: row.first,
        last: row.last,
        step: row.step,
        holder: row.holder,
        reserved_at: UNIX_EPOCH
            + Duration::from_millis(u64::try_from(row.reserved_at).unwrap_or(0)),
        fate: row.fate,
        next_unissued: row.next_unissued,
    }
}

fn listed(row: entity::sequence::Model) -> Result<Listed, StoreError> {
    let broken = |error: String| StoreError::Broken(format!("sequence `{}`: {error}", row.name));
    Ok(Listed {
        name: SequenceName::parse(&row.name).map_err(|error| broken(error.to_string()))?,
        definition: Arc::new(
            Definition::from_stored(&row.definition).map_err(|error| broken(error.to_string()))?,
        ),
        state: row.state,
        version: row.version,
    })
}

/// After which failures an operation is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Any,
    /// Repeating one that may have happened would answer for the first try.
    NotCommitted,
}

/// Counts the reservations that are under way.
struct InFlight<'a> {
    database: &'a Database,
}

impl<'a> InFlight<'a> {
    fn enter(database: &'a Database) -> Self {
        let n_now = database.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        database.peak_in_flight.fetch_max(n_now, Ordering::Relaxed);
        database.metrics.reservations_in_flight.increment(1.0);
        Self { database }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.database.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.database.metrics.reservations_in_flight.decrement(1.0);
    }
}
