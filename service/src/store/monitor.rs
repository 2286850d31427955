//! Watches whether the database is there: at the start, after a loss, and now and then.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use migration::Installed;
use sea_orm::{Database, DatabaseConnection, DbBackend, DbErr};
use tokio::sync::watch;

use super::{
    StoreSettings,
    backoff::Backoff,
    connection::{Connection, Health},
    error::{Cause, StartError},
    probe,
    refresh::Refresher,
    startup::{self, Verdict},
    target::Target,
};
use crate::metrics::Metrics;

/// Between two looks at a database that answers.
const QUIET_INTERVAL: Duration = Duration::from_secs(5);

/// The task that finds out whether numbers can be reserved.
pub(super) struct Monitor {
    connection: Arc<Connection>,
    target: Target,
    settings: StoreSettings,
    metrics: Arc<Metrics>,
    fatal: watch::Sender<Option<StartError>>,
}

impl Monitor {
    /// Starts it; the receiver tells of what waiting does not mend.
    pub(super) fn start(
        connection: Arc<Connection>,
        target: Target,
        settings: &StoreSettings,
        metrics: Arc<Metrics>,
        refresher: Refresher,
    ) -> watch::Receiver<Option<StartError>> {
        let (fatal, receiver) = watch::channel(None);
        let monitor = Self {
            connection: Arc::clone(&connection),
            target,
            settings: settings.clone(),
            metrics,
            fatal,
        };
        connection.handle().spawn(monitor.watch(refresher));
        receiver
    }

    async fn watch(self, mut refresher: Refresher) {
        if let Err(error) = self.first_contact(&mut refresher).await {
            self.fatal.send_replace(Some(error));
            self.connection.has_looked.send_replace(true);
            return;
        }
        self.connection.handle().spawn(refresher.run());
        loop {
            self.metrics.store_up.set(1.0);
            self.connection.set_health(Health::Up);
            self.connection.has_looked.send_replace(true);
            let _either =
                tokio::time::timeout(QUIET_INTERVAL, self.connection.went_down.notified()).await;
            if self.answers().await {
                continue;
            }
            self.connection.set_health(Health::Down);
            self.metrics.store_up.set(0.0);
            self.wait_for_return().await;
        }
    }

    /// Until the database can be used, or it is clear that waiting does not help.
    async fn first_contact(&self, refresher: &mut Refresher) -> Result<(), StartError> {
        let mut backoff = Backoff::new(&self.settings);
        let mut schema_wrong_since: Option<Instant> = None;
        let mut said = String::new();
        for warning in &self.target.warnings {
            tracing::warn!("{warning}");
        }
        loop {
            let mut verdict = self.look().await;
            if matches!(verdict, Verdict::Schema(_)) && self.migrates() {
                verdict = self.migrate().await;
            }
            if let Verdict::Good { .. } = verdict
                && let Err(failure) = refresher.meet().await
            {
                verdict = startup::verdict_of(&failure);
            }
            let reason = match verdict {
                Verdict::Good { warnings } => {
                    for warning in warnings {
                        tracing::warn!("{warning}");
                    }
                    tracing::info!("the database answers");
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
            if said != reason {
                tracing::warn!("waiting for the database: {reason}");
                said = reason;
            }
            backoff.wait(Instant::now() + QUIET_INTERVAL).await;
        }
    }

    fn migrates(&self) -> bool {
        self.settings.migrate || self.target.backend == DbBackend::Sqlite
    }

    async fn migrate(&self) -> Verdict {
        match migrate(&self.target, self.settings.acquire).await {
            Ok(()) => self.look().await,
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
        let look = self.connection.run(until, startup::inspect);
        look.await
            .unwrap_or_else(|failure| startup::verdict_of(&failure))
    }

    /// Looks twice: the first look may have met a connection that went stale by itself.
    async fn answers(&self) -> bool {
        for _look in 0..2 {
            let until = Instant::now() + self.settings.timeout + self.settings.acquire;
            match self.connection.run(until, startup::inspect).await {
                Ok(Verdict::Good { .. }) => return true,
                // A pool at its bound is a sign of life: a silent one would have been replaced.
                Err(failure) if matches!(failure.cause(), Cause::Busy) => return true,
                // The server behind an address may be another one by now.
                Ok(_) | Err(_) => self.connection.renew(),
            }
        }
        false
    }

    async fn wait_for_return(&self) {
        let mut backoff = Backoff::new(&self.settings);
        let mut said = String::new();
        loop {
            match self.look().await {
                Verdict::Good { .. } => {
                    tracing::info!("the database is back");
                    return;
                }
                Verdict::Away(reason) | Verdict::Schema(reason) | Verdict::Wrong(reason) => {
                    if said != reason {
                        tracing::warn!("waiting for the database: {reason}");
                        said = reason;
                    }
                }
            }
            self.connection.renew();
            backoff.wait(Instant::now() + QUIET_INTERVAL).await;
        }
    }
}

/// Brings the schema of `target` up to this program, on a connection of its own.
pub(super) async fn migrate(target: &Target, acquire: Duration) -> Result<(), StartError> {
    let outcome = match probe::reach(target, acquire).await {
        Ok(()) => migrate_at_once(target, acquire).await?,
        Err(failure) => Err(startup::verdict_of(&failure)),
    };
    outcome.map_err(|verdict| match verdict {
        Verdict::Wrong(reason) => StartError::Configuration(reason),
        Verdict::Away(reason) | Verdict::Schema(reason) => StartError::Other(reason),
        Verdict::Good { .. } => StartError::Other("the migration failed".to_owned()),
    })
}

/// Migrations run in one transaction of PostgreSQL, which a pooler leaves on one connection, so
/// they may be prepared there.
async fn migrate_at_once(
    target: &Target,
    acquire: Duration,
) -> Result<Result<(), Verdict>, StartError> {
    let database = Box::pin(Database::connect(target.single(acquire)))
        .await
        .map_err(|error| super::unreadable(&error))?;
    let outcome = match migrate_on(&database).await {
        Ok(()) => Installed::read(&database).await,
        Err(error) => Err(error),
    };
    // Nothing was left on the connection that closing could lose.
    let _closed = database.close().await;
    if let Some(reason) = outcome
        .as_ref()
        .ok()
        .and_then(|installed| startup::unfit_schema(*installed))
    {
        // A newer version was here, and left nothing that this one can work with.
        return Err(StartError::Configuration(reason));
    }
    Ok(outcome
        .map(|_installed| ())
        .map_err(|error| startup::verdict_of_migration(&error.into())))
}

async fn migrate_on(database: &DatabaseConnection) -> Result<(), DbErr> {
    #[cfg(feature = "sabotage")]
    if crate::sabotage::is(crate::sabotage::Fault::NextSchema) {
        return migration::run_next(database).await;
    }
    migration::run(database).await
}
