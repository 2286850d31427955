//! Makes the changes of a command in one database, over one connection and without a replica.
//!
//! The transactions are those of a replica. This process has seen nothing of the store before, so
//! it cannot notice that the store went back. Replicas notice it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use odometer_core::{definition::Stripe, name::SequenceName, period::Period};
use odometer_database::{
    backoff::Backoff,
    failure::{Cause, StatementFailure},
    file_lock::FileLock,
    fitness::{DatabaseFitness, fitness_of},
    session::DatabaseConnection,
    start_error::StartError,
    target::Target,
};

use super::{
    alter,
    decision::decide,
    prepared::Prepared,
    request::{ChangeRequest, ChangeScope},
    rules::ChangeRules,
};
use crate::{
    StoreLimits, error::StoreError, fitness, outcome::Altered, rows::catalog, schema,
    settings::DatabaseSettings,
};

/// A database that one command changes.
pub struct DirectStore {
    /// `None` if the SQLite file does not exist and only a dry run is wanted.
    database: Option<DatabaseConnection>,
    bounds: StoreLimits,
    store: Arc<str>,
    _lock: Option<FileLock>,
}

impl DirectStore {
    /// Opens the database.
    ///
    /// From then on this process holds the lock of a SQLite file, and creates the file if it does
    /// not exist. A dry run locks and creates nothing.
    ///
    /// # Errors
    /// The database cannot be reached, or is not fit to be changed.
    pub(crate) async fn open(
        settings: DatabaseSettings,
        is_dry_run: bool,
    ) -> Result<Self, StartError> {
        let (bounds, identity) = (settings.bounds, settings.identity);
        let store = Arc::clone(&identity.label.store);
        let target = Target::parse(&settings.url)?;
        let (acquire, longest) = (bounds.statement.acquire, Some(bounds.statement.timeout));
        let file = target.file.clone();
        if is_dry_run && file.as_deref().is_some_and(|file| !file.exists()) {
            return Ok(Self {
                database: None,
                bounds,
                store,
                _lock: None,
            });
        }
        let mut lock = None;
        if let Some(file) = file.filter(|_| !is_dry_run) {
            lock = Some(FileLock::take(&file)?);
            // The schema is migrated as at every start.
            schema::migrate(&target, acquire).await?;
        }
        let options = |target: &Target| {
            if is_dry_run {
                target.looking(acquire)
            } else {
                target.single(acquire)
            }
        };
        let reached = DatabaseConnection::reach(&target, acquire, longest, options);
        let database = Box::pin(reached).await.map_err(StartError::from)?;
        let verdict = fitness::inspect(database.clone(), identity).await;
        match verdict.unwrap_or_else(|error| fitness_of(&error.into())) {
            DatabaseFitness::Good { .. } => Ok(Self {
                database: Some(database),
                bounds,
                store,
                _lock: lock,
            }),
            verdict @ (DatabaseFitness::Wrong(_)
            | DatabaseFitness::Schema(_)
            | DatabaseFitness::Away(_)) => Err(verdict.into()),
        }
    }

    /// Changes a sequence. `n_created` sequences count as created already, besides those that
    /// exist.
    ///
    /// # Errors
    /// The outer error says that the database failed and nothing was changed. The next change would
    /// fail, too. The inner error says why this change was not made, or that it may have been made.
    pub(crate) async fn alter(
        &self,
        change: Arc<ChangeRequest>,
        n_created: u64,
    ) -> Result<Result<Altered, StoreError>, StartError> {
        let rules = ChangeRules {
            store: Arc::clone(&self.store),
            last_stripe: Stripe::WHOLE,
            max_sequences: self.bounds.max_sequences.saturating_sub(n_created),
            keyed_periods: self.bounds.keyed_periods,
        };
        let Some(database) = &self.database else {
            let decision = decide(&change, &rules, &[Prepared::empty()]);
            return Ok(decision.map(Altered::from));
        };
        let until = Instant::now() + self.bounds.deadline;
        let mut backoff = Backoff::new(&self.bounds.statement);
        loop {
            let failure = match self.attempt(database, &change, &rules).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            };
            let may_pass = matches!(
                &failure,
                StatementFailure::NotCommitted(
                    Cause::Contention | Cause::Interrupted | Cause::Duplicate
                )
            );
            if !may_pass || Instant::now() >= until {
                let is_uncertain = matches!(failure, StatementFailure::MayHaveCommitted(_));
                if is_uncertain && !change.act.is_dry_run() {
                    return Ok(Err(StoreError::MayHaveChanged));
                }
                let (name, cause) = (&change.name, failure.cause().text());
                return Err(StartError::Other(format!(
                    "the database failed at `{name}`: {cause}"
                )));
            }
            backoff.wait(until).await;
        }
    }

    /// Returns where the name lives, or `None` if the database has no row of this name.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn has(
        &self,
        name: &SequenceName,
    ) -> Result<Option<NamePlacement>, StartError> {
        let Some(database) = &self.database else {
            return Ok(None);
        };
        let found = catalog::read(database, name.as_str(), &Period::none()).await;
        let found = found.map_err(|error| {
            let failure = StatementFailure::from(error);
            let cause = failure.cause().text();
            StartError::Other(format!("the database failed at `{name}`: {cause}"))
        })?;
        Ok(found.map(|found| match found.check_here() {
            Err(StoreError::Elsewhere(definition)) => NamePlacement::Of(definition.store.clone()),
            Ok(()) | Err(_) => NamePlacement::Here,
        }))
    }

    async fn attempt(
        &self,
        database: &DatabaseConnection,
        change: &Arc<ChangeRequest>,
        rules: &ChangeRules,
    ) -> Result<Result<Altered, StoreError>, StatementFailure> {
        let scope = ChangeScope {
            store: Arc::clone(&self.store),
            stripe: Stripe::WHOLE,
            guard: None,
            last_seen: None,
        };
        // Longer than the server lets a statement run, so that the server reports the timeout
        // itself.
        let time_limit = self.bounds.statement.timeout + Duration::from_secs(2);
        let work = alter::run(database.clone(), Arc::clone(change), scope, rules.clone());
        match tokio::time::timeout(time_limit, Box::pin(work)).await {
            Ok(outcome) => outcome.map_err(StatementFailure::from),
            Err(_) => Err(StatementFailure::MayHaveCommitted(Cause::Silent)),
        }
    }

    /// Closes the connection. The SQLite file is free afterwards.
    pub(crate) async fn close(self) {
        if let Some(database) = self.database {
            // Closing loses nothing: no work is left on the connection.
            let _closed = database.close().await;
        }
    }
}

/// The store of a name, by the row that a database has of it.
pub(crate) enum NamePlacement {
    Here,
    /// In the store of this name.
    Of(String),
}
