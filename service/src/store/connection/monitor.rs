//! Watches whether the database is there: at the start, after a loss, and now and then.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use ::metrics::Gauge;
use futures_util::{StreamExt, stream::FuturesUnordered};
use migration::Migrated;
use parking_lot::Mutex;
use sea_orm::{Database, DatabaseConnection, DbBackend, DbErr};
use tokio::{
    sync::watch,
    time::{sleep, sleep_until, timeout, timeout_at},
};

use crate::store::{
    Bounds,
    backoff::Backoff,
    change::refresh::Refresher,
    connection::complaint::Complaint,
    connection::pool,
    connection::probe,
    connection::startup::{self, Verdict},
    connection::target::Target,
    connection::{Connection, Health},
    error::StartError,
    settings::Place,
};

/// Between two looks at a database that answers.
const QUIET_INTERVAL: Duration = Duration::from_secs(5);
/// A look that takes longer is reason for a second one on a new connection.
const ALARM_AFTER: Duration = Duration::from_secs(1);
/// Looks under way while the database is away; the time that a connection may take is shared out
/// among them.
const LOOKS_AT_ONCE: u8 = 4;

/// What a look by the serving pool came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolLook {
    Well,
    /// No connection could be had.
    Unreached,
    Unwell,
}

/// What the database's settings would let a crash of it forget, as it was last seen.
struct Weakness {
    gauge: Gauge,
    store: Arc<str>,
    said: Mutex<Option<String>>,
}

impl Weakness {
    /// Says what is new of it.
    fn tell(&self, found: Option<String>) {
        self.gauge.set(f64::from(u8::from(found.is_some())));
        let mut said = self.said.lock();
        if *said == found {
            return;
        }
        match &found {
            Some(found) => tracing::warn!(store = &*self.store, "{found}"),
            None => tracing::info!(
                store = &*self.store,
                "a crash of the database server forgets no commit any more"
            ),
        }
        *said = found;
    }
}

/// The task that finds out whether numbers can be reserved.
pub(in crate::store) struct Monitor {
    connection: Arc<Connection>,
    target: Target,
    settings: Bounds,
    place: Place,
    up: Gauge,
    weakness: Arc<Weakness>,
    fatal: watch::Sender<Option<StartError>>,
}

impl Monitor {
    /// Starts it; the receiver tells of what waiting does not mend.
    pub(in crate::store) fn start(
        connection: Arc<Connection>,
        target: Target,
        settings: &Bounds,
        place: Place,
        (up, durability_weak): (Gauge, Gauge),
        refresher: Refresher,
    ) -> watch::Receiver<Option<StartError>> {
        let (fatal, receiver) = watch::channel(None);
        let monitor = Self {
            connection: Arc::clone(&connection),
            target,
            settings: settings.clone(),
            weakness: Arc::new(Weakness {
                gauge: durability_weak,
                store: Arc::clone(&place.store),
                said: Mutex::default(),
            }),
            place,
            up,
            fatal,
        };
        connection.handle().spawn(monitor.watch(refresher));
        receiver
    }

    async fn watch(self, mut refresher: Refresher) {
        while let Err(error) = self.first_contact(&mut refresher).await {
            self.fatal.send_replace(Some(error));
            self.connection.has_looked.send_replace(true);
            // Usually the program ends; where other databases serve, it may still be mended.
            sleep(QUIET_INTERVAL).await;
        }
        self.connection.handle().spawn(refresher.run());
        loop {
            self.up.set(1.0);
            self.connection.set_health(Health::Up);
            self.connection.has_looked.send_replace(true);
            let alarm = timeout(QUIET_INTERVAL, self.connection.went_down.notified()).await;
            if self.answers(alarm.is_ok()).await {
                continue;
            }
            self.connection.set_health(Health::Down);
            self.up.set(0.0);
            self.wait_for_return().await;
        }
    }

    /// Until the database can be used, or it is clear that waiting does not help.
    async fn first_contact(&self, refresher: &mut Refresher) -> Result<(), StartError> {
        let mut backoff = Backoff::new(&self.settings);
        let mut schema_wrong_since: Option<Instant> = None;
        let mut complaint = Complaint::default();
        for warning in &self.target.warnings {
            tracing::warn!("{}", self.place.name_in(warning));
        }
        loop {
            let mut verdict = self.look().await;
            if matches!(verdict, Verdict::Schema(_)) && self.migrates() {
                verdict = self.migrate().await;
            }
            // Before anything is written there.
            verdict = startup::at_start(verdict, self.settings.durability);
            if let Verdict::Good { .. } = verdict
                && let Err(failure) = refresher.meet().await
            {
                verdict = startup::verdict_of(&failure);
            }
            let reason = match verdict {
                Verdict::Good { weakness } => {
                    self.weakness.tell(weakness);
                    tracing::info!(store = &*self.place.store, "the database answers");
                    return Ok(());
                }
                Verdict::Wrong(reason) => return Err(StartError::Configuration(reason)),
                Verdict::Schema(reason) => {
                    self.connection.set_health(Health::WrongSchema);
                    let since = *schema_wrong_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= self.settings.schema_wait {
                        return Err(StartError::Configuration(reason));
                    }
                    reason
                }
                Verdict::Away(reason) => {
                    self.connection.set_health(Health::NoContact);
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
                store = &*self.place.store,
                "waiting for the database: {}",
                self.place.name_in(reason)
            );
        }
    }

    fn migrates(&self) -> bool {
        self.settings.migrate || self.target.backend == DbBackend::Sqlite
    }

    async fn migrate(&self) -> Verdict {
        match migrate(&self.target, self.settings.acquire).await {
            Ok(migrated) => {
                if migrated.before != migrated.after {
                    tracing::info!(
                        store = &*self.place.store,
                        "{}",
                        self.place.name_in(&startup::migrated_sentence(migrated))
                    );
                }
                self.look().await
            }
            Err(StartError::Configuration(reason)) => Verdict::Wrong(reason),
            Err(error) => Verdict::Away(error.to_string()),
        }
    }

    async fn look(&self) -> Verdict {
        let was_pooled = self.target.route.is_pooled();
        if let Err(failure) = probe::reach(&self.target, self.settings.acquire).await {
            return startup::verdict_of(&failure);
        }
        if self.target.route.is_pooled() != was_pooled {
            self.connection.renew();
        }
        let until = Instant::now() + self.settings.timeout + self.settings.acquire;
        let place = self.place.clone();
        let look = self
            .connection
            .run(until, |database| startup::inspect(database, place));
        look.await
            .unwrap_or_else(|failure| startup::verdict_of(&failure))
    }

    /// Whether the database answers, on a connection of the pool or on a new one.
    ///
    /// A pool's connections may be dead while the database is there, and a database that has no
    /// connection to spare may answer those that it has.
    async fn answers(&self, is_alarm: bool) -> bool {
        let started = Instant::now();
        // Silence alone may be a slow database, which need not answer many questions in time.
        let is_silent = is_alarm && self.connection.health() == Health::Up;
        let mut by_pool = pin!(self.look_by_pool(is_silent));
        let mut of_pool = None;
        // As long as all is quiet one look is enough.
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
        if matches!(found, Verdict::Good { .. }) {
            if of_pool == Some(PoolLook::Unreached) {
                // The database is there, and no connection of the pool leads to it.
                self.connection.renew();
            }
            return true;
        }
        let left = self.settings.acquire.saturating_sub(started.elapsed());
        of_pool.is_none() && timeout(left, by_pool).await == Ok(PoolLook::Well)
    }

    /// Whether a connection of the pool answers well, or answers at all where that is the question.
    async fn look_by_pool(&self, is_silent: bool) -> PoolLook {
        let connection = Arc::clone(&self.connection);
        let (place, weakness) = (self.place.clone(), Arc::clone(&self.weakness));
        let until = Instant::now() + self.settings.timeout + self.settings.acquire;
        // A task of its own: it is watched to its end, also when nobody waits for it any more.
        let look = self.connection.handle().spawn(async move {
            let answer = connection.run(until, async move |database| {
                if is_silent {
                    return Box::pin(database.ping()).await.map(|()| true);
                }
                let Verdict::Good { weakness: found } = startup::inspect(database, place).await?
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

    /// Looks by a connection of its own. A dropped look ends with its connection.
    async fn look_apart(&self) -> Verdict {
        // A pooler may have been put in between since.
        if let Err(failure) = probe::reach(&self.target, self.settings.acquire).await {
            return startup::verdict_of(&failure);
        }
        let doors = self.target.looking_doors(&self.settings);
        let patience = self.settings.acquire + self.settings.timeout;
        let place = self.place.clone();
        let look = |database| startup::inspect(database, place);
        match pool::once(&doors, patience, look).await {
            Ok(Some(verdict)) => verdict,
            Ok(None) => Verdict::Away("it got no reply".to_owned()),
            Err(error) => startup::verdict_of(&error.into()),
        }
    }

    /// A look that got no reply is not waited for before the next one: what was sent into a cut
    /// network is lost, and the first look after its end is the one that is answered.
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
                    Verdict::Good { weakness } => {
                        tracing::info!(store = &*self.place.store, "the database is back");
                        self.weakness.tell(weakness);
                        self.connection.renew_after_outage();
                        return;
                    }
                    Verdict::Away(reason) | Verdict::Schema(reason) | Verdict::Wrong(reason) => {
                        self.complain(&mut complaint, &reason);
                    }
                }
            }
            sleep_until(until).await;
        }
    }
}

/// Brings the schema of `target` up to this program, on a connection of its own.
pub(in crate::store) async fn migrate(
    target: &Target,
    acquire: Duration,
) -> Result<Migrated, StartError> {
    let reached = probe::reach(target, acquire).await;
    reached.map_err(|failure| startup::verdict_of(&failure))?;
    // Migrations run in one transaction of PostgreSQL, which a pooler leaves on one connection, so
    // they may be prepared there.
    let database = Box::pin(Database::connect(target.single(acquire)))
        .await
        .map_err(|error| startup::verdict_of(&error.into()))?;
    let outcome = migrate_on(&database).await;
    // Nothing was left on the connection that closing could lose.
    let _closed = database.close().await;
    let migrated = outcome.map_err(|error| startup::verdict_of_migration(&error.into()))?;
    match startup::unfit_schema(migrated.after) {
        // A newer version was here, and left nothing that this one can work with.
        Some(reason) => Err(StartError::Configuration(reason)),
        None => Ok(migrated),
    }
}

async fn migrate_on(database: &DatabaseConnection) -> Result<Migrated, DbErr> {
    #[cfg(feature = "sabotage")]
    if crate::sabotage::is(crate::sabotage::Fault::NextSchema) {
        return migration::run_next(database).await;
    }
    migration::run(database).await
}
