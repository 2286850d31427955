//! One ordinary database: PostgreSQL, MySQL, MariaDB or SQLite.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use odometer_core::{definition::Stripe, name::SequenceName};
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Semaphore, SemaphorePermit, mpsc, oneshot, watch},
};
use tracing::Instrument as _;

use super::{
    Bounds, Contact,
    answer::{Altered, Condition, News, ServingDatabase},
    catalogue,
    change::beat::Beat,
    change::refresh::Refresher,
    change::{self, Act, Change},
    connection::monitor::Monitor,
    connection::pool,
    connection::startup,
    connection::target::Target,
    connection::{Connection, Health},
    error::{Cause, Failure, StartError, StoreError},
    journal::overlap::Overlaps,
    journal::prune::Pruner,
    journal::{Fate, Journal, Row},
    removal::Remover,
    repeat::Repeat,
    reservation::guide::Guide,
    reservation::suspect::Doubts,
    reservation::{Reservation, ReserveRequest, Reserved, Unpublished},
    settings::{DatabaseSettings, Place, Process},
    worker_lease::{self, Given, Known},
};
use crate::{
    metrics::{DatabaseMetrics, Metrics},
    sabotage::{self, Fault},
};

/// Reservations ahead of time take at most this part of the connections.
const AHEAD_PART: u32 = 2;
/// How long the start waits for the first look at the database.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// A counter as it was last seen; both only ever grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The high-water mark.
    pub next_value: i64,
    pub version: i64,
}

pub(super) struct Database {
    pub(super) connection: Arc<Connection>,
    pub(super) beat: Arc<Beat>,
    pub(super) journal: Journal,
    /// This process, as the journal calls it.
    pub(super) holder: Arc<str>,
    pub(super) place: Place,
    pub(super) settings: Bounds,
    pub(super) metrics: Arc<Metrics>,
    /// What is counted of this database alone.
    pub(super) counted: DatabaseMetrics,
    fatal: watch::Receiver<Option<StartError>>,
    /// What was found out beside the monitor.
    refused: watch::Sender<Option<StartError>>,
    /// Whether this replica counts strict order where the database has on record that all do; not
    /// known before that was read.
    pub(super) agreed: watch::Sender<Option<bool>>,
    /// An estimate of how many sequences there are; counted exactly where it decides.
    pub(super) n_sequences: AtomicU64,
    /// The same of names that live in other stores.
    pub(super) n_claims: AtomicU64,
    /// What is not known of writes that got no answer.
    pub(super) doubts: Doubts,
    /// Worker ids that were leased of late.
    pub(super) given: Given,
    /// Rows of worker ids as this process left them.
    pub(super) known: Known,
    /// Turns of reservations that nobody waits for: they leave connections to those of callers.
    ahead: Semaphore,
    in_flight: AtomicUsize,
    peak_in_flight: AtomicUsize,
    /// Which numbers of each sequence are counted here.
    pub(super) stripe: Stripe,
    /// Held as long as this process may write the SQLite file.
    lock: Option<super::file_lock::FileLock>,
}

impl Database {
    pub(super) async fn connect(
        settings: DatabaseSettings,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        let place = settings.place.clone();
        let between = settings.bounds.definition_refresh / 2;
        let connecting = Self::connect_to(settings, process, tell);
        let database = connecting.await.map_err(|error| error.of(&place))?;
        let watching = worker_lease::watch(Arc::downgrade(&database), between);
        database.handle().spawn(watching);
        let counting = worker_lease::watch_fullness(Arc::downgrade(&database), between);
        database.handle().spawn(counting);
        Ok(database)
    }

    async fn connect_to(
        settings: DatabaseSettings,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        let target = Target::parse(&settings.url)?;
        let (place, settings) = (settings.place, settings.bounds);
        let (holder, metrics) = (Arc::clone(&process.holder), Arc::clone(&process.metrics));
        let lock = target
            .file
            .as_deref()
            .map(super::file_lock::FileLock::take)
            .transpose()?;
        let counted = metrics.database(&place.store, place.source.database);
        let connection = connect(&target, &settings, &counted, place.clone()).await?;
        let (store, went_back) = (Arc::clone(&place.store), counted.went_back.clone());
        let beat = Arc::new(Beat::new(Arc::clone(&holder), store, went_back));
        let journal = Journal::start(
            Arc::clone(&connection),
            Arc::clone(&beat),
            holder.to_string(),
            settings.journal_queue,
            Arc::clone(&metrics),
        );
        tidy_up(&connection, &beat, &settings, &metrics, &counted);
        let fatal = Monitor::start(
            Arc::clone(&connection),
            target,
            &settings,
            place.clone(),
            (counted.up.clone(), counted.durability_weak.clone()),
            Refresher::new(
                Arc::clone(&connection),
                Arc::clone(&beat),
                &settings,
                &place,
                (tell, process.recoveries.clone()),
                counted.clone(),
            ),
        );
        first_look(&connection).await;
        if let Some(error) = fatal.borrow().clone() {
            return Err(error);
        }
        Ok(Arc::new(Self {
            connection,
            beat,
            journal,
            holder,
            stripe: stripe_of(place.stripe),
            place,
            ahead: Semaphore::new(n_ahead(settings.pool_max)),
            settings,
            metrics,
            counted,
            fatal,
            refused: watch::Sender::new(None),
            agreed: watch::Sender::new(None),
            n_sequences: AtomicU64::new(0),
            n_claims: AtomicU64::new(0),
            doubts: Doubts::default(),
            given: Given::default(),
            known: Known::default(),
            in_flight: AtomicUsize::new(0),
            peak_in_flight: AtomicUsize::new(0),
            lock,
        }))
    }

    /// How many databases share its sequences, as its counters have it.
    pub(super) fn stripe_count(&self) -> i32 {
        i32::from(self.stripe.n())
    }

    pub(super) fn health(&self) -> Health {
        self.connection.health()
    }

    pub(super) fn contact(&self) -> Contact {
        match self.health() {
            Health::NoContact => Contact::None,
            Health::WrongSchema => Contact::WrongSchema,
            Health::Up => Contact::Up,
            Health::Down => Contact::Lost,
        }
    }

    /// How it is seen from outside.
    pub(super) fn serving(&self) -> ServingDatabase {
        ServingDatabase {
            database: self.place.address.to_string(),
            is_up: self.health() == Health::Up,
        }
    }

    /// Resolves when the database answers, with a schema that fits.
    pub(super) async fn reached(&self) {
        let mut health = self.connection.health_changes();
        // The sending end lives as long as the database.
        let _up = health.wait_for(|health| *health == Health::Up).await;
    }

    pub(super) fn handle(&self) -> &Handle {
        self.connection.handle()
    }

    /// Resolves when the database turned out to be one that waiting does not mend.
    pub(super) async fn fatal(&self) -> StartError {
        let (mut fatal, mut refused) = (self.fatal.clone(), self.refused.subscribe());
        tokio::select! {
            Ok(found) = fatal.wait_for(Option::is_some) => {
                if let Some(error) = found.clone() {
                    return error.of(&self.place);
                }
            }
            Ok(found) = refused.wait_for(Option::is_some) => {
                if let Some(error) = found.clone() {
                    return error;
                }
            }
        }
        // The monitor ends with the store: nothing will be found any more.
        std::future::pending().await
    }

    /// Whether it is a SQLite file, which this process has for itself.
    pub(super) fn is_file(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether this replica may count where order is strict, if that is known.
    pub(super) fn agrees(&self) -> Option<bool> {
        *self.agreed.borrow()
    }

    /// It turned out to be one that waiting does not mend.
    pub(super) fn refuse(&self, error: StartError) {
        self.refused.send_replace(Some(error));
    }

    /// Reserves in a task that nobody cancels.
    ///
    /// A block that arrives when the receiver is gone is abandoned, counted.
    pub(super) fn reserve(
        self: &Arc<Self>,
        request: ReserveRequest,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>> {
        let database = Arc::clone(self);
        self.reserve_by(request, move |request| async move {
            Reservation::new(&database, request).run().await
        })
    }

    /// As [`Database::reserve`], in the way that is given.
    pub(super) fn reserve_by<F, Fut>(
        self: &Arc<Self>,
        request: ReserveRequest,
        work: F,
    ) -> oneshot::Receiver<Result<Unpublished, StoreError>>
    where
        F: FnOnce(ReserveRequest) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Reserved, StoreError>> + Send,
    {
        let (answer, receiver) = oneshot::channel();
        let database = Arc::clone(self);
        let call = request.course.call();
        let reserving = async move {
            let started = Instant::now();
            let turn = database.turn_ahead(&request).await;
            let flight = InFlight::enter(&database);
            let outcome = work(request).await;
            drop((flight, turn));
            database
                .metrics
                .reservation_duration
                .record(started.elapsed().as_secs_f64());
            let (beat, metrics) = (Arc::clone(&database.beat), Arc::clone(&database.metrics));
            let outcome = outcome.map(|reserved| Unpublished::new(reserved, beat, metrics));
            // Dropped with a block in it, the outcome counts the block as abandoned.
            let _gone = answer.send(outcome);
        };
        self.connection.handle().spawn(reserving.instrument(call));
        receiver
    }

    /// One reservation, which must be run to its end: dropped, it forgets what it may have reserved.
    pub(super) async fn reserve_guided(
        &self,
        request: ReserveRequest,
        guide: Guide,
    ) -> Result<Reserved, StoreError> {
        let _flight = InFlight::enter(self);
        Reservation::new(self, request).guided(guide).run().await
    }

    /// Waits for a turn where nobody waits for the numbers, until somebody does.
    pub(super) async fn turn_ahead(&self, request: &ReserveRequest) -> Option<SemaphorePermit<'_>> {
        if !request.want.is_ahead() {
            return None;
        }
        let turn = tokio::select! {
            turn = self.ahead.acquire() => turn.ok(),
            () = request.urgency.notified() => None,
        };
        request.course.turn();
        turn
    }

    /// The most reservations that were under way at once since the start.
    pub(super) fn peak_in_flight(&self) -> usize {
        self.peak_in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn write_journal(&self, row: Row, fate: Fate) {
        self.journal.write(row, fate);
    }

    pub(super) fn n_journal_rows_queued(&self) -> usize {
        self.journal.n_queued()
    }

    pub(super) fn n_numbers_returning(&self) -> u64 {
        self.journal.n_returning()
    }

    pub(super) async fn flush_journal(&self) {
        self.journal.flush().await;
    }

    /// Tasks alive in the database's runtime.
    pub(super) fn n_tasks(&self) -> usize {
        self.connection.n_tasks()
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
            store: Arc::clone(&self.place.store),
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

async fn connect(
    target: &Target,
    settings: &Bounds,
    counted: &DatabaseMetrics,
    place: Place,
) -> Result<Arc<Connection>, StartError> {
    let (pool, counted) = (target.pool(settings), counted.connections.clone());
    let connecting = Connection::new(runtime()?, pool, settings.timeout, counted, place);
    let connection = connecting.await;
    connection
        .map(Arc::new)
        .map_err(|error| startup::verdict_of(&error.into()).into())
}

/// Of the database's own: it outlives the threads that serve connections.
fn runtime() -> Result<Runtime, StartError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(pool::n_threads())
        .thread_name("odometer-store")
        .enable_all()
        .build()
        .map_err(|error| StartError::Other(error.to_string()))
}

/// A database that is there answers the very first call; one that is away is not waited for.
async fn first_look(connection: &Connection) {
    let mut has_looked = connection.has_looked.subscribe();
    let looked = has_looked.wait_for(|looked| *looked);
    let _in_time = tokio::time::timeout(FIRST_LOOK, looked).await;
}

/// The stripe that is counted; under its fault all databases count as the first one does.
fn stripe_of(stripe: Stripe) -> Stripe {
    if sabotage::is(Fault::NoOffset) {
        Stripe::new(0, stripe.n()).unwrap_or(stripe)
    } else {
        stripe
    }
}

/// Connections that reservations ahead of time may take, of so many; one at least.
fn n_ahead(pool_max: u32) -> usize {
    usize::try_from(pool_max / AHEAD_PART).unwrap_or(1).max(1)
}

/// Starts what looks after the tables, for as long as the connection's runtime lives.
fn tidy_up(
    connection: &Arc<Connection>,
    beat: &Arc<Beat>,
    settings: &Bounds,
    metrics: &Arc<Metrics>,
    counted: &DatabaseMetrics,
) {
    let n_overlaps = counted.journal_overlaps.clone();
    Overlaps::watch(Arc::clone(connection), Arc::clone(metrics), n_overlaps);
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
