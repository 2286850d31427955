//! One ordinary database: PostgreSQL, MySQL, MariaDB or SQLite.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use odometer_core::definition::Stripe;
use odometer_database::{
    connection::{Connection, Health},
    file_lock::FileLock,
    fitness::fitness_of,
    label::DatabaseLabel,
    monitor::Monitor,
    pool,
    settings::StatementBounds,
    start_error::StartError,
    target::Target,
};
use odometer_process::{
    faults::{self, Fault},
    metrics::{DatabaseMetrics, Metrics},
};
use tokio::{
    runtime::{Handle, Runtime},
    sync::{Semaphore, mpsc, watch},
};

use crate::{
    change::refresh::Refresher,
    fitness::MonitoredTables,
    heartbeat::Heartbeat,
    identity::DatabaseIdentity,
    journal::{overlap::Overlaps, prune::Pruner, writer::Journal},
    outcome::{Contact, News, ServingDatabase},
    removal::Remover,
    reservation::uncertain_writes::UncertainWrites,
    rows::block::{BlockFate, JournalRow},
    settings::{DatabaseSettings, Process, StoreLimits},
    worker_lease::{
        fullness,
        row_cache::LeaseRowCache,
        unconfirmed::{self, UnconfirmedLeases},
    },
};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::database";

/// Reservations ahead of time take at most this part of the connections.
const AHEAD_PART: u32 = 2;
/// How long the start waits for the first look at the database.
const FIRST_LOOK: Duration = Duration::from_secs(2);

pub(crate) struct Database {
    pub(crate) connection: Arc<Connection>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) journal: Journal,
    /// This process, as the journal calls it.
    pub(crate) holder: Arc<str>,
    pub(crate) identity: DatabaseIdentity,
    pub(crate) settings: StoreLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// What is counted of this database alone.
    pub(crate) counted: DatabaseMetrics,
    fatal: watch::Receiver<Option<StartError>>,
    /// What was found out beside the monitor.
    refused: watch::Sender<Option<StartError>>,
    /// Whether this replica counts strict order where the database has on record that all do; not
    /// known before that was read.
    pub(crate) agreed: watch::Sender<Option<bool>>,
    /// An estimate of how many sequences there are; counted exactly where it decides.
    pub(crate) n_sequences: AtomicU64,
    /// The same of names that live in other stores.
    pub(crate) n_claims: AtomicU64,
    /// What is not known of writes that got no answer.
    pub(crate) uncertain_writes: UncertainWrites,
    /// Worker ids that were leased of late.
    pub(crate) given: UnconfirmedLeases,
    /// Rows of worker ids as this process left them.
    pub(crate) known: LeaseRowCache,
    /// Turns of reservations that nobody waits for: they leave connections to those of callers.
    pub(crate) ahead: Semaphore,
    pub(crate) in_flight: AtomicUsize,
    pub(crate) peak_in_flight: AtomicUsize,
    /// Which numbers of each sequence are counted here.
    pub(crate) stripe: Stripe,
    /// Held as long as this process may write the SQLite file.
    lock: Option<FileLock>,
}

impl Database {
    pub(crate) async fn connect(
        settings: DatabaseSettings,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        let identity = settings.identity.clone();
        let between = settings.bounds.definition_refresh / 2;
        let connecting = Self::connect_to(settings, process, tell);
        let database = connecting
            .await
            .map_err(|error| error.of(&identity.label))?;
        let watching = unconfirmed::watch(Arc::downgrade(&database), between);
        database.handle().spawn(watching);
        let counting = fullness::watch_fullness(Arc::downgrade(&database), between);
        database.handle().spawn(counting);
        Ok(database)
    }

    async fn connect_to(
        settings: DatabaseSettings,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        let target = Target::parse(&settings.url)?;
        let (identity, settings) = (settings.identity, settings.bounds);
        let (holder, metrics) = (Arc::clone(&process.holder), Arc::clone(&process.metrics));
        let lock = target.file.as_deref().map(FileLock::take).transpose()?;
        let counted = metrics.database(&identity.label.store, identity.source.database);
        let connection = connect(
            &target,
            &settings.statement,
            &counted,
            identity.label.clone(),
        )
        .await?;
        let (store, went_back) = (Arc::clone(&identity.label.store), counted.went_back.clone());
        let heartbeat = Arc::new(Heartbeat::new(Arc::clone(&holder), store, went_back));
        let journal = Journal::start(
            Arc::clone(&connection),
            Arc::clone(&heartbeat),
            holder.to_string(),
            settings.journal_queue,
            Arc::clone(&metrics),
        );
        tidy_up(&connection, &heartbeat, &settings, &metrics, &counted);
        let fatal = Monitor::start(
            Arc::clone(&connection),
            target.clone(),
            &settings.statement,
            identity.label.clone(),
            (counted.up.clone(), counted.durability_weak.clone()),
            MonitoredTables::new(target, identity.clone(), settings.clone()),
            Refresher::new(
                Arc::clone(&connection),
                Arc::clone(&heartbeat),
                &settings,
                &identity,
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
            heartbeat,
            journal,
            holder,
            stripe: stripe_of(identity.stripe),
            identity,
            ahead: Semaphore::new(n_ahead(settings.statement.pool_max)),
            settings,
            metrics,
            counted,
            fatal,
            refused: watch::Sender::new(None),
            agreed: watch::Sender::new(None),
            n_sequences: AtomicU64::new(0),
            n_claims: AtomicU64::new(0),
            uncertain_writes: UncertainWrites::default(),
            given: UnconfirmedLeases::default(),
            known: LeaseRowCache::default(),
            in_flight: AtomicUsize::new(0),
            peak_in_flight: AtomicUsize::new(0),
            lock,
        }))
    }

    /// How many databases share its sequences, as its counters have it.
    pub(crate) fn stripe_count(&self) -> i32 {
        i32::from(self.stripe.n())
    }

    pub(crate) fn health(&self) -> Health {
        self.connection.health()
    }

    pub(crate) fn contact(&self) -> Contact {
        match self.health() {
            Health::NoContact => Contact::None,
            Health::WrongSchema => Contact::WrongSchema,
            Health::Up => Contact::Up,
            Health::Down => Contact::Lost,
        }
    }

    /// How it is seen from outside.
    pub(crate) fn serving(&self) -> ServingDatabase {
        ServingDatabase {
            database: self.identity.label.address.to_string(),
            is_up: self.health() == Health::Up,
        }
    }

    /// Resolves when the database answers, with a schema that fits.
    pub(crate) async fn reached(&self) {
        let mut health = self.connection.health_changes();
        // The sending end lives as long as the database.
        let _up = health.wait_for(|health| *health == Health::Up).await;
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.connection.handle()
    }

    /// Resolves when the database turned out to be one that waiting does not mend.
    pub(crate) async fn fatal(&self) -> StartError {
        let (mut fatal, mut refused) = (self.fatal.clone(), self.refused.subscribe());
        tokio::select! {
            Ok(found) = fatal.wait_for(Option::is_some) => {
                if let Some(error) = found.clone() {
                    return error.of(&self.identity.label);
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
    pub(crate) fn is_file(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether this replica may count where order is strict, if that is known.
    pub(crate) fn agrees(&self) -> Option<bool> {
        *self.agreed.borrow()
    }

    /// It turned out to be one that waiting does not mend.
    pub(crate) fn refuse(&self, error: StartError) {
        self.refused.send_replace(Some(error));
    }

    /// The most reservations that were under way at once since the start.
    pub(crate) fn peak_in_flight(&self) -> usize {
        self.peak_in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn write_journal(&self, row: JournalRow, fate: BlockFate) {
        self.journal.write(row, fate);
    }

    pub(crate) fn n_journal_rows_queued(&self) -> usize {
        self.journal.n_queued()
    }

    pub(crate) fn n_numbers_returning(&self) -> u64 {
        self.journal.n_returning()
    }

    pub(crate) async fn flush_journal(&self) {
        self.journal.flush().await;
    }

    /// Tasks alive in the database's runtime.
    pub(crate) fn n_tasks(&self) -> usize {
        self.connection.n_tasks()
    }

    pub(crate) async fn close(&self, time_limit: Duration) {
        let flushed = tokio::time::timeout(time_limit / 2, self.journal.flush()).await;
        if flushed.is_err() {
            tracing::warn!(
                target: TARGET,
                rows = self.journal.n_queued(),
                "rows of the journal could not be written before the end"
            );
        }
        self.connection.close(time_limit / 2).await;
        let in_doubt = self.uncertain_writes.end();
        if in_doubt > 0 {
            tracing::warn!(
                target: TARGET,
                numbers = in_doubt,
                "whether these numbers were reserved was not found out before the end"
            );
        }
    }
}

async fn connect(
    target: &Target,
    bounds: &StatementBounds,
    counted: &DatabaseMetrics,
    label: DatabaseLabel,
) -> Result<Arc<Connection>, StartError> {
    let (pool, counted) = (target.pool(bounds), counted.connections.clone());
    let connecting = Connection::new(runtime()?, pool, bounds.timeout, counted, label);
    let connection = connecting.await;
    connection
        .map(Arc::new)
        .map_err(|error| fitness_of(&error.into()).into())
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
    if faults::is(Fault::NoOffset) {
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
    heartbeat: &Arc<Heartbeat>,
    settings: &StoreLimits,
    metrics: &Arc<Metrics>,
    counted: &DatabaseMetrics,
) {
    let n_overlaps = counted.journal_overlaps.clone();
    Overlaps::watch(Arc::clone(connection), Arc::clone(metrics), n_overlaps);
    Pruner::start(
        Arc::clone(connection),
        heartbeat.holder().to_owned(),
        settings,
        Arc::clone(metrics),
    );
    Remover::start(
        Arc::clone(connection),
        Arc::clone(heartbeat),
        Arc::clone(metrics),
    );
}
