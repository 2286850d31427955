//! Makes sure that all replicas count in the same servers, and fall back in the same way. The
//! database has the list and the fallback on record, and a replica with another configuration is
//! refused.
//!
//! Replicas with different lists would look for a sequence in different places, and open windows
//! against each other. With different fallbacks, one replica would step without the lease that
//! another replica waits for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use entity::{counter, replica};
use odometer_database::{
    connection::Contact, database_clock, failure::StatementFailure, session::DatabaseConnection,
    start_error::StartError,
};
use odometer_process::{
    faults::{self, Fault},
    secret::Secret,
};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{Expr, ExprTrait, Query},
};

use super::server::Address;
use crate::{
    database::Database,
    identity::DatabaseIdentity,
    rows::counter::outdate,
    settings::{DatabaseSettings, Fallback, RedisSettings},
};

/// The target of this file's log events.
const TARGET: &str = "odometer::store::redis::agreement";

/// The record while the list or the fallback changes. No configuration agrees with it.
const CHANGING: &str = "changing";
/// The longest time between two looks while the replica does not agree with the record.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// What a configuration says of Redis, in the form that the database records. `None` if it has no
/// Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement(Option<String>);

impl Agreement {
    /// Reads the configuration.
    ///
    /// # Errors
    /// A URL that cannot be read.
    pub(crate) fn of(settings: &RedisSettings) -> Result<Self, StartError> {
        let mut labels: Vec<String> = settings
            .addresses()?
            .into_iter()
            .map(|address| address.label)
            .collect();
        if labels.is_empty() {
            return Ok(Self(None));
        }
        labels.sort_unstable();
        labels.dedup();
        let fallback = match settings.fallback {
            Fallback::None => "none",
            Fallback::Database => "database",
        };
        Ok(Self(Some(format!(
            "{} fallback={fallback}",
            labels.join(" ")
        ))))
    }

    /// Reads what the database has on record.
    async fn read(database: &impl ConnectionTrait) -> Result<Self, DbErr> {
        let query = Query::select().column("redis").from("meta").to_owned();
        match database.query_one(&query).await? {
            Some(row) => Ok(Self(row.try_get("", "redis")?)),
            None => Ok(Self(None)),
        }
    }

    /// Puts this agreement on record.
    ///
    /// If another one was on record, replicas that serve may count by it. Then no replica counts
    /// for as long as `time_limit`. Within that time, all replicas that reach the database have
    /// noticed the change.
    ///
    /// # Errors
    /// What the database said.
    pub(crate) async fn record(
        &self,
        database: &DatabaseConnection,
        time_limit: Duration,
    ) -> Result<(), DbErr> {
        if Self::read(database).await? == *self {
            return Ok(());
        }
        if does_any_serve(database, "", time_limit * 2).await? {
            Self(Some(CHANGING.to_owned())).put(database).await?;
            tokio::time::sleep(time_limit).await;
        }
        self.put(database).await
    }

    /// Writes the record, and closes all open windows. From then on, a replica that reads a row
    /// steps in no window that was opened under another record.
    async fn put(&self, database: &DatabaseConnection) -> Result<(), DbErr> {
        let transaction = database.begin().await?;
        let mut record = Query::update();
        record.table("meta").value("redis", self.0.clone());
        transaction.execute(&record).await?;
        outdate()
            .filter(counter::Column::WindowOpen.eq(true))
            .exec(&transaction)
            .await?;
        transaction.commit().await
    }

    /// Returns the reason why a replica with this configuration must not start, if there is one.
    ///
    /// # Errors
    /// What the database said.
    pub(crate) async fn problem(
        &self,
        database: &impl ConnectionTrait,
        identity: &DatabaseIdentity,
    ) -> Result<Option<StartError>, DbErr> {
        let recorded = Self::read(database).await?;
        Ok((!self.agrees_with(&recorded)).then(|| self.differs_from(&recorded, identity)))
    }

    fn differs_from(&self, recorded: &Self, identity: &DatabaseIdentity) -> StartError {
        let said = |agreement: &Self| agreement.0.clone().unwrap_or_else(|| "no Redis".to_owned());
        StartError::Configuration(format!(
            "stores.{}.redis: this replica is configured for {}, and the database {} has on record \
             {}: give every replica the same list and fallback, stop those with another one, and \
             run `odometer migrate` with it",
            identity.label.store,
            said(self),
            identity.label.address,
            said(recorded),
        ))
    }

    /// Compares the configuration with the record, as soon as the database answers and then again
    /// and again. If they differ before they agreed once, the program ends. If they differ later,
    /// nothing is counted for strict order.
    pub(crate) fn watch(self, database: &Arc<Database>) {
        let mut contact = database.connection.contact_changes();
        let tasks = database.tasks().clone();
        let database = Arc::downgrade(database);
        tasks.spawn(async move {
            let mut is_first = true;
            while contact.wait_for(|now| *now == Contact::Up).await.is_ok() {
                let Some(database) = database.upgrade() else {
                    return;
                };
                let mut pause = database.settings.definition_refresh / 2;
                match self.look(&database, is_first).await {
                    Ok(recorded) if self.agrees_with(&recorded) => {
                        is_first = false;
                        database.agreed.send_replace(Some(true));
                    }
                    Ok(recorded) => {
                        let problem = self.differs_from(&recorded, &database.identity);
                        if is_first && !recorded.is_changing() {
                            database.refuse(problem);
                            return;
                        }
                        if database.agreed.send_replace(Some(false)) == Some(true) {
                            tracing::error!(target: TARGET, "nothing is counted where order is strict: {problem}");
                        }
                        pause = pause.min(BETWEEN_LOOKS);
                    }
                    Err(_) => pause = pause.min(BETWEEN_LOOKS),
                }
                drop(database);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Reads what is on record. At the first look, this also writes the configuration there if the
    /// database is a SQLite file. With `migrate`, it does so if nothing is on record and no other
    /// replica serves.
    async fn look(
        &self,
        database: &Arc<Database>,
        is_first: bool,
    ) -> Result<Self, StatementFailure> {
        let (wanted, holder) = (self.clone(), Arc::clone(&database.holder));
        let (is_file, migrates) = (database.is_file(), database.settings.migrate);
        let time_limit = database.settings.definition_refresh * 2;
        let until = Instant::now() + database.settings.deadline;
        let looking = database.connection.run(until, |connection| async move {
            let recorded = Self::read(&connection).await?;
            let is_alone = is_file
                || (migrates
                    && recorded.0.is_none()
                    && !does_any_serve(&connection, &holder, time_limit).await?);
            if recorded == wanted || !is_first || !is_alone {
                return Ok(recorded);
            }
            wanted.put(&connection).await?;
            Ok(wanted)
        });
        looking.await
    }

    fn agrees_with(&self, recorded: &Self) -> bool {
        recorded == self || faults::is(Fault::AnyRedis)
    }

    fn is_changing(&self) -> bool {
        self.0.as_deref() == Some(CHANGING)
    }
}

/// Says whether a replica other than this one has raised its heartbeat within this time.
async fn does_any_serve(
    database: &DatabaseConnection,
    holder: &str,
    within: Duration,
) -> Result<bool, DbErr> {
    let within_ms = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
    let since = database_clock::now(database.get_database_backend()).sub(within_ms);
    let found = replica::Entity::find()
        .filter(replica::Column::Holder.ne(holder))
        .filter(Expr::col(replica::Column::BeatAt).gte(since))
        .limit(1)
        .one(database)
        .await?;
    Ok(found.is_some())
}

/// Looks at each server of a store. The lines say what was found.
///
/// # Errors
/// All servers that take no steps.
pub(crate) async fn check_servers(database: &DatabaseSettings) -> Result<Vec<String>, StartError> {
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for address in database.redis.addresses()? {
        let named = format!(
            "stores.{}.redis ({})",
            database.identity.label.store, address.label
        );
        if let Some(warning) = address.warning {
            lines.push(format!("warning: {named}: {warning}"));
        }
        match address.check().await {
            Ok(()) => lines.push(format!("{named}: reached, and takes steps")),
            Err(why) => failed.push(StartError::Other(format!("{named}: {why}"))),
        }
    }
    StartError::all(failed).map(|()| lines)
}

impl RedisSettings {
    /// Returns the addresses of the servers.
    ///
    /// # Errors
    /// A URL that cannot be read.
    pub(crate) fn addresses(&self) -> Result<Vec<Address>, StartError> {
        let urls = self.urls.iter().map(Secret::expose);
        urls.map(Address::parse).collect()
    }
}
