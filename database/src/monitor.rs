//! Watches whether the database is there: at the start, after a loss, and every few seconds.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use ::metrics::Gauge;
use futures_util::{StreamExt, stream::FuturesUnordered};

use parking_lot::Mutex;
use sea_orm::DbErr;
use tokio::{
    sync::watch,
    time::{sleep, sleep_until, timeout, timeout_at},
};

use crate::{
    backoff::Backoff,
    complaint::Complaint,
    connection::{Connection, Contact},
    failure::StatementFailure,
    fitness::{DatabaseFitness, fitness_of},
    pool, probe,
    session::DatabaseConnection,
    settings::StatementBounds,
    start_error::StartError,
    target::Target,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::connection::monitor";

/// Sets the time between two looks at a database that answers.
const QUIET_INTERVAL: Duration = Duration::from_secs(5);
/// Sets the time after which a look calls for a second look, on a new connection.
const ALARM_AFTER: Duration = Duration::from_secs(1);
/// Bounds how many looks are under way while the database is away. They share the time that making
/// a connection may take.
const LOOKS_AT_ONCE: u8 = 4;

/// Answers what a monitor asks about the tables.
pub trait Tables: Send + Sync + 'static {
    /// Looks whether the tables can be used. Changes nothing.
    ///
    /// # Errors
    /// What the database says.
    fn inspect(
        &self,
        database: DatabaseConnection,
    ) -> impl Future<Output = Result<DatabaseFitness, DbErr>> + Send + 'static + use<Self>;

    /// Returns what `found` means before anything was written.
    fn at_start(&self, found: DatabaseFitness) -> DatabaseFitness;

    /// Returns whether this program may bring a schema up to date that does not fit.
    fn migrates(&self) -> bool;

    /// Brings the schema up to date. Returns a sentence if the schema changed.
    ///
    /// # Errors
    /// Why the schema was not brought up to date.
    fn migrate(&self) -> impl Future<Output = Result<Option<String>, StartError>> + Send;
}

/// Keeps knowledge of a database up to date for as long as the database answers.
pub trait Refresh: Send + 'static {
    /// Takes a first look, before anything is reserved.
    ///
    /// # Errors
    /// The database did not answer. The monitor calls this again.
    fn meet(&mut self) -> impl Future<Output = Result<(), StatementFailure>> + Send;

    /// Looks again and again until the program ends.
    fn run(self) -> impl Future<Output = ()> + Send + 'static;
}

/// The result of a look through the pool that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolLook {
    Well,
    /// There was no connection.
    Unreached,
    Unwell,
}

/// The settings of a database that let a crash forget commits, as they were last seen.
struct Weakness {
    gauge: Gauge,
    store: Arc<str>,
    said: Mutex<Option<String>>,
}

impl Weakness {
    /// Shows what was found, and logs it if it is new.
    fn tell(&self, found: Option<String>) {
        self.gauge.set(f64::from(u8::from(found.is_some())));
        let mut said = self.said.lock();
        if *said == found {
            return;
        }
        match &found {
            Some(found) => tracing::warn!(target: TARGET, store = &*self.store, "{found}"),
            None => tracing::info!(
                target: TARGET,
                store = &*self.store,
                "a crash of the database server forgets no commit any more"
            ),
        }
        *said = found;
    }
}

/// The task that finds out whether numbers can be reserved.
pub struct Monitor<T> {
    connection: Arc<Connection>,
    target: Target,
    settings: StatementBounds,
    tables: Arc<T>,
    up: Gauge,
    weakness: Arc<Weakness>,
    fatal: watch::Sender<Option<StartError>>,
}

impl<T: Tables> Monitor<T> {
    /// Starts the monitor. `fatal` gets a problem that does not pass by waiting, with the name of the
    /// database.
    pub fn start(
        connection: Arc<Connection>,
        target: Target,
        settings: &StatementBounds,
        fatal: watch::Sender<Option<StartError>>,
        (up, durability_weak): (Gauge, Gauge),
        tables: T,
        refresher: impl Refresh,
    ) {
        let store = Arc::clone(&connection.label().store);
        let monitor = Self {
            connection: Arc::clone(&connection),
            target,
            settings: settings.clone(),
            weakness: Arc::new(Weakness {
                gauge: durability_weak,
                store,
                said: Mutex::default(),
            }),
            tables: Arc::new(tables),
            up,
            fatal,
        };
        connection.tasks().spawn(monitor.watch(refresher));
    }

    async fn watch(self, mut refresher: impl Refresh) {
        while let Err(error) = self.first_contact(&mut refresher).await {
            let error = error.of(self.connection.label());
            self.fatal.send_replace(Some(error));
            self.connection.has_looked.send_replace(true);
            // Usually the program ends now. If other databases serve, this one may still be put
            // right.
            sleep(QUIET_INTERVAL).await;
        }
        self.connection.tasks().spawn(refresher.run());
        loop {
            self.up.set(1.0);
            self.connection.set_contact(Contact::Up);
            self.connection.has_looked.send_replace(true);
            let alarm = timeout(QUIET_INTERVAL, self.connection.went_down.notified()).await;
            if self.answers(alarm.is_ok()).await {
                continue;
            }
            self.connection.set_contact(Contact::Lost);
            self.up.set(0.0);
            self.wait_for_return().await;
        }
    }

    /// Looks until the database can be used, or until it is clear that waiting does not help.
    async fn first_contact(&self, refresher: &mut impl Refresh) -> Result<(), StartError> {
        let mut backoff = Backoff::new(&self.settings);
        let mut schema_wrong_since: Option<Instant> = None;
        let mut complaint = Complaint::default();
        for warning in &self.target.warnings {
            tracing::warn!(target: TARGET, "{}", self.connection.label().name_in(warning));
        }
        loop {
            let mut verdict = self.look().await;
            if matches!(verdict, DatabaseFitness::Schema(_)) && self.tables.migrates() {
                verdict = self.migrate().await;
            }
            // This check comes before anything is written to the database.
            verdict = self.tables.at_start(verdict);
            if let DatabaseFitness::Good { .. } = verdict
                && let Err(failure) = refresher.meet().await
            {
                verdict = fitness_of(&failure);
            }
            let reason = match verdict {
                DatabaseFitness::Good {
                    weakness, disorder, ..
                } => {
                    self.weakness.tell(weakness);
                    if let Some(disorder) = disorder {
                        tracing::warn!(target: TARGET, store = &*self.connection.label().store, "{disorder}");
                    }
                    tracing::info!(target: TARGET, store = &*self.connection.label().store, "the database answers");
                    return Ok(());
                }
                DatabaseFitness::Wrong(reason) => return Err(StartError::Configuration(reason)),
                DatabaseFitness::Schema(reason) => {
                    self.connection.set_contact(Contact::WrongSchema);
                    let since = *schema_wrong_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.settings.schema_wait {
                        return Err(StartError::Configuration(reason));
                    }
                    reason
                }
                DatabaseFitness::Away(reason) => {
                    self.connection.set_contact(Contact::None);
                    schema_wrong_since = None;
                    reason
                }
            };
            self.connection.has_looked.send_replace(true);
            self.complain(&mut complaint, &reason);
            backoff.wait(Instant::now() + QUIET_INTERVAL).await;
        }
    }

    fn complain(&self, complaint: &mut Complaint, reason: &str) {
        if complaint.is_due(reason, Instant::now()) {
            tracing::warn!(
                target: TARGET,
                store = &*self.connection.label().store,
                "waiting for the database: {}",
                self.connection.label().name_in(reason)
            );
        }
    }

    async fn migrate(&self) -> DatabaseFitness {
        match self.tables.migrate().await {
            Ok(changed) => {
                if let Some(changed) = changed {
                    tracing::info!(
                        target: TARGET,
                        store = &*self.connection.label().store,
                        "{}",
                        self.connection.label().name_in(&changed)
                    );
                }
                self.look().await
            }
            Err(StartError::Configuration(reason)) => DatabaseFitness::Wrong(reason),
            Err(error) => DatabaseFitness::Away(error.to_string()),
        }
    }

    async fn look(&self) -> DatabaseFitness {
        let was_pooled = self.target.route.is_pooled();
        if let Err(failure) = probe::reach(&self.target, self.settings.acquire).await {
            return fitness_of(&failure);
        }
        if self.target.route.is_pooled() != was_pooled {
            self.connection.renew();
        }
        let until = Instant::now() + self.settings.timeout + self.settings.acquire;
        let look = self
            .connection
            .run(until, |database| self.tables.inspect(database));
        look.await.unwrap_or_else(|failure| fitness_of(&failure))
    }

    /// Returns whether the database answers, on a connection of the pool or on a new one.
    ///
    /// A pool's connections may be dead although the database is there. And a database that has no
    /// connection to spare may still answer on the connections that it has.
    async fn answers(&self, is_alarm: bool) -> bool {
        let started = Instant::now();
        // Silence alone may mean a slow database, which need not answer many questions in time.
        // Then only a ping is sent.
        let is_silent = is_alarm && self.connection.contact() == Contact::Up;
        let mut by_pool = pin!(self.look_by_pool(is_silent));
        let mut of_pool = None;
        // While there is no alarm, one look is enough.
        if !is_alarm {
            of_pool = timeout(ALARM_AFTER, &mut by_pool).await.ok();
        }
        let mut apart = pin!(self.look_apart());
        let found = loop {
            if of_pool == Some(PoolLook::Well) {
                return true;
            }
            tokio::select! {
                biased;
                look = &mut by_pool, if of_pool.is_none() => of_pool = Some(look),
                found = &mut apart => break found,
            }
        };
        if matches!(found, DatabaseFitness::Good { .. }) {
            if of_pool == Some(PoolLook::Unreached) {
                // The database is there, and no connection of the pool leads to it.
                self.connection.renew();
            }
            return true;
        }
        let left = self.settings.acquire.saturating_sub(started.elapsed());
        of_pool.is_none() && timeout(left, by_pool).await == Ok(PoolLook::Well)
    }

    /// Returns whether a connection of the pool answers well. If `is_silent`, any answer is good
    /// enough.
    async fn look_by_pool(&self, is_silent: bool) -> PoolLook {
        let connection = Arc::clone(&self.connection);
        let (tables, weakness) = (Arc::clone(&self.tables), Arc::clone(&self.weakness));
        let until = Instant::now() + self.settings.timeout + self.settings.acquire;
        // The look is a task of its own: it is watched to its end even if no caller waits for it
        // any more.
        let look = self.connection.tasks().spawn(async move {
            let answer = connection.run(until, async move |database| {
                if is_silent {
                    return Box::pin(database.ping()).await.map(|()| true);
                }
                let DatabaseFitness::Good {
                    weakness: found, ..
                } = tables.inspect(database).await?
                else {
                    return Ok(false);
                };
                weakness.tell(found);
                Ok(true)
            });
            match answer.await {
                Ok(true) => PoolLook::Well,
                Ok(false) => {
                    // The server behind an address may be another one by now.
                    connection.renew();
                    PoolLook::Unwell
                }
                Err(failure) if failure.is_away() => PoolLook::Unreached,
                Err(_) => PoolLook::Unwell,
            }
        });
        look.await.unwrap_or(PoolLook::Unwell)
    }

    /// Looks through a connection of its own. A look that is dropped ends with its connection.
    async fn look_apart(&self) -> DatabaseFitness {
        // A pooler may have been put in between since.
        if let Err(failure) = probe::reach(&self.target, self.settings.acquire).await {
            return fitness_of(&failure);
        }
        let doors = self.target.read_only_route_options(&self.settings);
        let time_limit = self.settings.acquire + self.settings.timeout;
        let look = |database| self.tables.inspect(database);
        match pool::once(&doors, time_limit, look).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) => DatabaseFitness::Away("it got no reply".to_owned()),
            Err(error) => fitness_of(&error.into()),
        }
    }

    /// Waits until the database answers again. A look that gets no reply does not hold up the next
    /// look, because what was sent into a cut network is lost. The first look after the end of the
    /// cut is the one that is answered.
    async fn wait_for_return(&self) {
        let mut looks = FuturesUnordered::new();
        let mut complaint = Complaint::default();
        loop {
            if looks.len() < usize::from(LOOKS_AT_ONCE) {
                looks.push(self.look_apart());
            }
            let jitter = rand::random_range(0.5..1.0);
            let pause = (self.settings.acquire / u32::from(LOOKS_AT_ONCE)).mul_f64(jitter);
            let until = tokio::time::Instant::now() + pause;
            while let Ok(Some(found)) = timeout_at(until, looks.next()).await {
                match found {
                    DatabaseFitness::Good { weakness, .. } => {
                        tracing::info!(target: TARGET, store = &*self.connection.label().store, "the database is back");
                        self.weakness.tell(weakness);
                        self.connection.renew_after_outage();
                        return;
                    }
                    DatabaseFitness::Away(reason)
                    | DatabaseFitness::Schema(reason)
                    | DatabaseFitness::Wrong(reason) => {
                        self.complain(&mut complaint, &reason);
                    }
                }
            }
            sleep_until(until).await;
        }
    }
}
