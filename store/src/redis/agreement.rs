//! Makes sure that all replicas count in the same servers, and fall back in the same way. The
//! database has the list and the fallback on record, and a replica with another configuration is
//! refused.
//!
//! Replicas with different lists would look for a sequence in different places, and open windows
//! against each other. With different fallbacks, one replica would step without the lease that
//! another replica waits for.

use std::time::Duration;

use entity::{counter, replica};
use odometer_database::{database_clock, session::DatabaseConnection, start_error::StartError};
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
    identity::DatabaseIdentity,
    rows::counter::outdate,
    settings::{DatabaseSettings, Fallback, RedisSettings},
};

/// The record while the list or the fallback changes. No configuration agrees with it.
const CHANGING: &str = "changing";

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

    /// Returns whether the record names Redis servers.
    pub(crate) fn names_servers(&self) -> bool {
        self.0.is_some()
    }

    /// Reads what the database has on record.
    pub(crate) async fn read(database: &impl ConnectionTrait) -> Result<Self, DbErr> {
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
    pub(super) async fn put(&self, database: &DatabaseConnection) -> Result<(), DbErr> {
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

    pub(super) fn differs_from(&self, recorded: &Self, identity: &DatabaseIdentity) -> StartError {
        let said = |agreement: &Self| agreement.0.clone().unwrap_or_else(|| "no Redis".to_owned());
        StartError::Configuration(format!(
            "stores.{}.redis: this replica is configured for {}, and the database {} has on record \
             {}. Give every replica the same list and fallback, stop replicas with another one, \
             and run `odometer migrate` with the same list and fallback",
            identity.label.store,
            said(self),
            identity.label.address,
            said(recorded),
        ))
    }

    pub(super) fn agrees_with(&self, recorded: &Self) -> bool {
        recorded == self || faults::is(Fault::AnyRedis)
    }

    pub(super) fn is_changing(&self) -> bool {
        self.0.as_deref() == Some(CHANGING)
    }
}

/// Says whether a replica other than this one has raised its heartbeat within this time, and has
/// not ended since.
pub(super) async fn does_any_serve(
    database: &DatabaseConnection,
    holder: &str,
    within: Duration,
) -> Result<bool, DbErr> {
    let within_ms = i64::try_from(within.as_millis()).unwrap_or(i64::MAX);
    let since = database_clock::now(database.get_database_backend()).sub(within_ms);
    let found = replica::Entity::find()
        .filter(replica::Column::Holder.ne(holder))
        .filter(replica::Column::Ended.eq(false))
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
