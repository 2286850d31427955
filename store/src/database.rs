//! Holds all that this process has of one database: PostgreSQL, MySQL, MariaDB or SQLite.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
    time::{Duration, Instant},
};

use odometer_core::{definition::Stripe, name::SequenceName, period::CounterKey};
use odometer_database::{
    connection::{Connection, Contact},
    failure::StatementFailure,
    file_lock::FileLock,
    fitness::{DatabaseFitness, fitness_of},
    monitor::Monitor,
    probe,
    retry::AttemptError,
    route::RouteOptions,
    session::DatabaseConnection,
    settings::StatementBounds,
    start_error::StartError,
    target::Target,
    tasks::Tasks,
};
use odometer_process::{
    faults::{self, Fault},
    metrics::{DatabaseMetrics, Metrics},
};
use sea_orm::DbErr;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::{
    change::refresh::Refresher,
    error::{Attempted, StoreError},
    fitness::{self, MonitoredTables},
    guard::{GuardRead, GuardVerdict, HeartbeatGuard},
    heartbeat::Heartbeat,
    identity::DatabaseIdentity,
    journal::writer::Journal,
    lineage::StampVerdict,
    outcome::{DatabaseHealth, News},
    reservation::uncertain_writes::UncertainWrites,
    rows::counter::GuardedCounter,
    schema,
    settings::{DatabaseSettings, OpenFor, Process, StoreLimits},
    stamp_check::{COPIED, PROMOTED, RESTARTED, StampCheck},
    worker_lease::{row_cache::LeaseRowCache, unconfirmed::UnconfirmedLeases},
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::database";

/// Reservations ahead of need take at most one connection of so many.
const AHEAD_PART: u32 = 2;
/// Bounds how long the start waits for the first look at the database.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// Bounds one statement of a chore, or one step, the wait for a connection included.
const CHORE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Database {
    pub(crate) connection: Arc<Connection>,
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) journal: Journal,
    /// The name of this process in the journal.
    pub(crate) holder: Arc<str>,
    pub(crate) identity: DatabaseIdentity,
    pub(crate) settings: StoreLimits,
    pub(crate) metrics: Arc<Metrics>,
    /// The metrics of this database alone.
    pub(crate) counted: DatabaseMetrics,
    /// A problem that does not pass by waiting.
    fatal: watch::Sender<Option<StartError>>,
    /// Whether the record in the database names the Redis servers and the fallback of this replica.
    /// `None` before the record was read.
    pub(crate) agreed: watch::Sender<Option<bool>>,
    /// An estimate of how many sequences may still be created. If few may be, they are counted.
    pub(crate) sequences_left: AtomicU64,
    /// The same of claims: names that live in other stores.
    pub(crate) claims_left: AtomicU64,
    /// Uncertain writes that are not settled yet.
    pub(crate) uncertain_writes: UncertainWrites,
    /// Leases of worker ids that are remembered until a loss of them would show.
    pub(crate) unconfirmed_leases: UnconfirmedLeases,
    /// The rows of worker ids as this process left them.
    pub(crate) known: LeaseRowCache,
    /// Permits for reservations ahead of need. They leave connections for the reservations of
    /// callers.
    pub(crate) ahead: Semaphore,
    pub(crate) in_flight: AtomicUsize,
    /// The highest number of reservations that were under way at once since the start.
    pub(crate) peak_in_flight: AtomicUsize,
    /// The numbers of each sequence that this database counts.
    pub(crate) stripe: Stripe,
    /// Why replicas do not fence this database by themselves. `None` if they do.
    pub(crate) unfenced: Option<&'static str>,
    /// The lock of the SQLite file, held for as long as this process may write the file.
    lock: Option<FileLock>,
}

impl Database {
    /// Opens the database. If the process serves, the database may be away, and it is connected to
    /// in the background. Otherwise it must answer now.
    ///
    /// # Errors
    /// A problem that does not pass by waiting. For a command, also that the database is away or not
    /// fit to be changed.
    pub(crate) async fn open(
        settings: DatabaseSettings,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<Arc<Self>, StartError> {
        let label = settings.identity.label.clone();
        let connected = Self::connect(settings, process).await;
        let (database, target) = connected.map_err(|error| error.of(&label))?;
        let database = Arc::new(database);
        match process.open_for {
            OpenFor::Serving => database.serve(target, process, tell).await?,
            OpenFor::Command | OpenFor::DryRun => {
                let looking = database.look_once(&target, process.open_for).await;
                looking.map_err(|error| error.of(&label))?;
            }
        }
        Ok(database)
    }

    /// Prepares the connection, and all that this process has of the database.
    async fn connect(
        settings: DatabaseSettings,
        process: &Process,
    ) -> Result<(Self, Target), StartError> {
        let (target, lock) = reserve_file(Target::parse(&settings.url)?, process.open_for)?;
        let (unfenced, left) = (settings.unfenced, settings.left_to_operators);
        let (identity, settings) = (settings.identity, settings.bounds);
        let (holder, metrics) = (Arc::clone(&process.holder), Arc::clone(&process.metrics));
        let counted = metrics.database(&identity.label.store, identity.source.database);
        let is_serving = process.open_for == OpenFor::Serving;
        // A command waits longer than the server lets a statement run, so that the server reports
        // the timeout itself.
        let longer = Duration::from_secs(if is_serving { 0 } else { 2 });
        let connecting = Connection::new(
            pool_for(process.open_for, &target, &settings.statement),
            settings.statement.timeout + longer,
            counted.pool.clone(),
            identity.label.clone(),
        );
        let connection = connecting
            .await
            .map_err(|error| fitness_of(&error.into()))?;
        let connection = Arc::new(connection);
        let (store, went_back) = (Arc::clone(&identity.label.store), counted.went_back.clone());
        let way = (target.backend, target.route.clone());
        let mut heartbeat = Heartbeat::new(Arc::clone(&holder), store, went_back, way);
        heartbeat.has_row = is_serving;
        heartbeat.file = lock.as_ref().map(|lock| Arc::clone(lock.mark()));
        let heartbeat = Arc::new(heartbeat);
        let (journal, writing) = Journal::new(
            Arc::clone(&connection),
            Arc::clone(&heartbeat),
            Arc::clone(&holder),
            settings.journal_queue,
            Arc::clone(&metrics),
        );
        if is_serving {
            connection.tasks().spawn(writing);
            if let Some(left) = left {
                tracing::info!(target: TARGET, database = %identity, "{left}");
            }
        }
        let database = Self {
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
            fatal: watch::Sender::new(None),
            agreed: watch::Sender::new(None),
            sequences_left: AtomicU64::new(0),
            claims_left: AtomicU64::new(0),
            uncertain_writes: UncertainWrites::default(),
            unconfirmed_leases: UnconfirmedLeases::default(),
            known: LeaseRowCache::default(),
            in_flight: AtomicUsize::new(0),
            peak_in_flight: AtomicUsize::new(0),
            unfenced,
            lock,
        };
        Ok((database, target))
    }

    /// Starts the monitor of a replica, and waits a little for the first look.
    ///
    /// # Errors
    /// A problem that does not pass by waiting.
    async fn serve(
        self: &Arc<Self>,
        target: Target,
        process: &Process,
        tell: mpsc::Sender<News>,
    ) -> Result<(), StartError> {
        let (settings, counted) = (&self.settings, &self.counted);
        Monitor::start(
            Arc::clone(&self.connection),
            target.clone(),
            &settings.statement,
            self.fatal.clone(),
            (counted.up.clone(), counted.durability_weak.clone()),
            MonitoredTables {
                target: target.clone(),
                identity: self.identity.clone(),
                limits: settings.clone(),
                heartbeat: Arc::clone(&self.heartbeat),
                failover_guard: counted.failover_guard.clone(),
            },
            Refresher::new(self, target, tell, process.recoveries.clone()),
        );
        first_look(&self.connection).await;
        self.fatal.borrow().clone().map_or(Ok(()), Err)
    }

    /// Looks at the database of a command, which has no monitor. Afterwards the database counts as
    /// up.
    ///
    /// # Errors
    /// The database is away, or not fit to be changed.
    async fn look_once(&self, target: &Target, open_for: OpenFor) -> Result<(), StartError> {
        let bounds = &self.settings.statement;
        if self.is_file() {
            // The schema is migrated as at every start.
            Box::pin(schema::migrate(target, bounds.acquire)).await?;
        }
        let until = Instant::now() + bounds.acquire + bounds.timeout;
        let found = if target.is_in_memory() {
            let making = self.connection.run(until, schema::create);
            making.await.map(|()| DatabaseFitness::Good {
                weakness: None,
                disorder: None,
                has_marks: true,
            })
        } else {
            let reached = Box::pin(probe::reach(target, bounds.acquire)).await;
            reached.map_err(|failure| fitness_of(&failure))?;
            let (identity, is_lossless) =
                (self.identity.clone(), self.settings.failover.is_lossless);
            let looking = self.connection.run(until, |database| {
                fitness::inspect(database, identity, false, is_lossless)
            });
            looking.await
        };
        let found = found.unwrap_or_else(|failure| fitness_of(&failure));
        match found {
            DatabaseFitness::Good { has_marks, .. } => {
                self.heartbeat.note_marks(has_marks);
                self.connection.set_contact(Contact::Up);
                self.check_stamp(open_for).await
            }
            unfit @ (DatabaseFitness::Wrong(_)
            | DatabaseFitness::Schema(_)
            | DatabaseFitness::Away(_)) => Err(unfit.into()),
        }
    }

    /// Compares the stamp of the database with its server, for a command. A dry run stamps nothing.
    ///
    /// # Errors
    /// The database is a copy, or it does not say where it stands.
    async fn check_stamp(&self, open_for: OpenFor) -> Result<(), StartError> {
        if open_for == OpenFor::DryRun {
            // It changes nothing, so it needs no guard.
            self.heartbeat.note_marks(false);
            return Ok(());
        }
        let check = StampCheck::new(
            (&self.connection, &self.heartbeat),
            (&self.settings, self.unfenced.is_none()),
            &self.counted,
        );
        let looked = check.look().await;
        let (_, verdict) = looked.map_err(|failure| StartError::from(fitness_of(&failure)))?;
        let how = match verdict {
            None => {
                self.heartbeat.fits(None);
                return Ok(());
            }
            Some(StampVerdict::Fits(branch)) => {
                self.heartbeat.fits(Some(branch));
                return Ok(());
            }
            Some(StampVerdict::Copied) => COPIED,
            Some(StampVerdict::Promoted) => PROMOTED,
            Some(StampVerdict::Restarted) => {
                return Err(StartError::Other(format!(
                    "the database may have lost commits: {RESTARTED}. Start a replica, or run \
                     `odometer recover --nothing-was-lost` if the server has its own disk"
                )));
            }
            Some(StampVerdict::Unstamped | StampVerdict::Unmarked) => {
                "the server does not say which one it is"
            }
        };
        Err(StartError::Other(format!(
            "the store went back to an earlier state: {how}. Run `odometer recover`; see the \
             runbook, \"store went back\""
        )))
    }

    /// Returns a counter of this database for statements that write it under a guard.
    pub(crate) fn guarded(&self, key: &CounterKey, guard: &HeartbeatGuard) -> GuardedCounter {
        GuardedCounter {
            key: key.clone(),
            stripe_count: i32::from(self.stripe.n()),
            guard: guard.clone(),
        }
    }

    pub(crate) fn contact(&self) -> Contact {
        self.connection.contact()
    }

    /// Returns whether the database answers.
    pub(crate) fn is_up(&self) -> bool {
        self.contact() == Contact::Up
    }

    /// Returns whether the database answers and has not gone back to an earlier state.
    pub(crate) fn can_reserve(&self) -> bool {
        self.is_up() && !self.heartbeat.has_gone_back()
    }

    /// Returns the state of the database, as callers see it.
    pub(crate) fn health(&self) -> DatabaseHealth {
        DatabaseHealth {
            database: self.identity.label.address.to_string(),
            is_up: self.is_up(),
            went_back: self.heartbeat.has_gone_back(),
            last_recovery: self.heartbeat.recoveries().last(),
        }
    }

    /// Resolves when the database answers with a schema that fits.
    pub(crate) async fn reached(&self) {
        let mut contact = self.connection.contact_changes();
        // The wait cannot fail: the sending end lives as long as the database.
        let _up = contact.wait_for(|contact| *contact == Contact::Up).await;
    }

    pub(crate) fn take_last_failure(&self) -> Option<String> {
        let (identity, cause) = (&self.identity, self.connection.take_last_failure()?);
        Some(match identity.is_only {
            true => cause,
            false => format!("{identity}: {cause}"),
        })
    }

    /// Runs one statement, or one step, of a chore.
    ///
    /// # Errors
    /// How it failed.
    pub(crate) async fn step<T, F, Fut>(&self, operation: F) -> Result<T, StatementFailure>
    where
        T: Send + 'static,
        F: FnOnce(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, DbErr>> + Send + 'static,
    {
        self.connection
            .run(Instant::now() + CHORE_TIMEOUT, operation)
            .await
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        self.connection.tasks()
    }

    /// Resolves with a problem of the database that does not pass by waiting.
    pub(crate) async fn fatal(&self) -> StartError {
        let mut fatal = self.fatal.subscribe();
        if let Ok(found) = fatal.wait_for(Option::is_some).await
            && let Some(error) = found.clone()
        {
            return error;
        }
        // The sending end lives as long as the database.
        std::future::pending().await
    }

    /// Returns whether the database is a SQLite file, which this process has for itself.
    pub(crate) fn is_file(&self) -> bool {
        self.lock.is_some()
    }

    /// Compares what a read says with what its guard demands. If the stamp does not fit, the next
    /// poll, which runs at once, finds out why.
    ///
    /// # Errors
    /// `WentBack`, or another attempt, which waits for the look.
    pub(crate) fn check(&self, guard: &HeartbeatGuard, read: GuardRead) -> Attempted<()> {
        match guard.check(read) {
            GuardVerdict::Holds => Ok(()),
            GuardVerdict::HeartbeatFell => {
                self.heartbeat.contradicted(guard);
                // An operator may have recovered the database already, so the next poll runs at
                // once.
                self.connection.refresh.notify_one();
                Err(StoreError::WentBack.into())
            }
            GuardVerdict::StampDoesNotFit => Err(self.failed(guard)),
        }
    }

    /// Notes that a guard did not hold. The next poll, which runs at once, finds out why.
    pub(crate) fn failed(&self, guard: &HeartbeatGuard) -> AttemptError<StoreError> {
        self.heartbeat.failed(guard);
        self.connection.refresh.notify_one();
        match self.heartbeat.has_gone_back() {
            true => StoreError::WentBack.into(),
            false => AttemptError::Again,
        }
    }

    /// Returns a guard. While it is looked why the stamp does not fit, waits, at most until `until`.
    ///
    /// # Errors
    /// As for [`Heartbeat::guard`].
    pub(crate) async fn guard_by(&self, until: Instant) -> Result<HeartbeatGuard, StoreError> {
        self.settled(until).await;
        self.heartbeat.guard()
    }

    /// Waits while it is looked why a guard did not hold, at most until `until`. If the database is
    /// away, no look takes place.
    pub(crate) async fn settled(&self, until: Instant) {
        if !self.heartbeat.is_doubted() {
            return;
        }
        let mut contact = self.connection.contact_changes();
        tokio::select! {
            () = self.heartbeat.settled(until) => {}
            _away = contact.wait_for(|now| *now != Contact::Up) => {}
        }
    }

    /// Reads under a guard. If the stamp does not fit, reads again after the look that tells why.
    ///
    /// # Errors
    /// `WentBack`, or why the database did not answer.
    pub(crate) async fn read_guarded<T, Fut>(
        &self,
        name: &SequenceName,
        read: impl Fn(DatabaseConnection, HeartbeatGuard) -> Fut,
        guard_read: impl Fn(&T) -> GuardRead,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, DbErr>> + Send + 'static,
    {
        let until = self.deadline();
        loop {
            let guard = self.guard_by(until).await?;
            let found = self.several_times(name, |database| read(database, guard.clone()));
            let found = found.await?;
            if self.counts(&guard, guard_read(&found), until)? {
                return Ok(found);
            }
        }
    }

    /// Returns whether a read under a guard counts. If not, the stamp did not fit, and it is worth
    /// another read before `until`.
    ///
    /// # Errors
    /// `WentBack`, or `Unavailable` if the time is over.
    pub(crate) fn counts(
        &self,
        guard: &HeartbeatGuard,
        read: GuardRead,
        until: Instant,
    ) -> Result<bool, StoreError> {
        match self.check(guard, read) {
            Ok(()) => Ok(true),
            Err(error) if Instant::now() >= until => Err(error.untried(StoreError::Unavailable)),
            Err(AttemptError::Final(error)) => Err(error),
            Err(AttemptError::Conflict | AttemptError::Again | AttemptError::Failed(_)) => {
                Ok(false)
            }
        }
    }

    /// Notes that the store went back for a name, and returns the error. The next poll, which runs
    /// at once, finds out whether all names went back, or whether the store is recovered already.
    pub(crate) fn name_went_back(&self, name: &SequenceName) -> StoreError {
        let error = self.heartbeat.name_went_back(name);
        self.connection.refresh.notify_one();
        error
    }

    /// Notes a problem of the database that does not pass by waiting.
    pub(crate) fn refuse(&self, error: StartError) {
        self.fatal.send_replace(Some(error));
    }

    pub(crate) async fn close(&self, time_limit: Duration) {
        let flushed = tokio::time::timeout(time_limit / 2, self.journal.flush()).await;
        if flushed.is_err() {
            tracing::warn!(
                target: TARGET,
                rows = self.journal.n_queued(),
                "rows of the journal could not be written before the end"
            );
        } else if self.is_up() {
            let longest = self.settings.statement.timeout;
            let ending = self
                .heartbeat
                .end(&self.connection, longest.min(time_limit / 8));
            ending.await;
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

/// Locks a SQLite file. A dry run locks nothing, and an empty database in memory stands for a file
/// that does not exist.
fn reserve_file(
    target: Target,
    open_for: OpenFor,
) -> Result<(Target, Option<FileLock>), StartError> {
    let Some(file) = &target.file else {
        return Ok((target, None));
    };
    if open_for != OpenFor::DryRun {
        let lock = FileLock::take(file)?;
        return Ok((target, Some(lock)));
    }
    let is_there = file.exists();
    Ok((
        if is_there {
            target
        } else {
            Target::in_memory()
        },
        None,
    ))
}

/// Returns the options of the pool: a command has one connection, and a dry run only looks.
fn pool_for(open_for: OpenFor, target: &Target, bounds: &StatementBounds) -> RouteOptions {
    match open_for {
        OpenFor::Serving => target.pool(bounds),
        OpenFor::Command => target.pool(&StatementBounds {
            pool_max: 1,
            ..bounds.clone()
        }),
        OpenFor::DryRun => target.read_only_route_options(bounds),
    }
}

/// Waits for the first look at the database, at most `FIRST_LOOK`. So the first call is answered if
/// the database is there, and a database that is away does not hold up the start.
async fn first_look(connection: &Connection) {
    let mut has_looked = connection.has_looked.subscribe();
    let looked = has_looked.wait_for(|looked| *looked);
    let _in_time = tokio::time::timeout(FIRST_LOOK, looked).await;
}

/// Returns the stripe to count. Under the fault `NoOffset` every database counts the first stripe.
fn stripe_of(stripe: Stripe) -> Stripe {
    if faults::is(Fault::NoOffset) {
        Stripe::new(0, stripe.n()).unwrap_or(stripe)
    } else {
        stripe
    }
}

/// Returns how many of `pool_max` connections reservations ahead of need may take: at least one.
fn n_ahead(pool_max: u32) -> usize {
    usize::try_from(pool_max / AHEAD_PART).unwrap_or(1).max(1)
}
