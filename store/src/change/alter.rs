//! Changes a sequence in a store, and with its only database in one transaction.

use std::{sync::Arc, time::Instant};

use odometer_database::{
    failure::StatementFailure,
    retry::AttemptError,
    session::{DatabaseConnection, DatabaseTransaction},
};
use sea_orm::DbErr;

use super::{
    decision::decide,
    prepared::prepare,
    request::{ChangeRequest, ChangeScope},
    rules::ChangeRules,
    transaction::{self, TransactionError},
    writing,
};
use crate::{
    database::Database,
    error::{self, StoreError},
    outcome::Altered,
    repeat::Repeat,
    store::Store,
};

/// Prepares, decides and writes a change in one transaction. If nothing changes, nothing is
/// committed.
pub(crate) async fn run(
    database: DatabaseConnection,
    change: Arc<ChangeRequest>,
    scope: ChangeScope,
    rules: ChangeRules,
) -> Result<Result<Altered, StoreError>, DbErr> {
    let transaction = database.begin().await?;
    let written = decide_and_write(&transaction, &change, &scope, &rules).await;
    transaction::end(transaction, written, |altered| altered.is_written).await
}

async fn decide_and_write(
    transaction: &DatabaseTransaction,
    change: &ChangeRequest,
    scope: &ChangeScope,
    rules: &ChangeRules,
) -> Result<Altered, TransactionError<StoreError>> {
    let part = prepare(transaction, change, scope).await?;
    let decision = decide(change, rules, std::slice::from_ref(&part))?;
    if decision.altered.is_written {
        if !part.is_held {
            let what = format!("a change of `{}` was taken for none", change.name);
            return Err(StoreError::Broken(what).into());
        }
        Box::pin(writing::write(transaction, change, &part, &decision)).await?;
    }
    Ok(decision.altered)
}

impl Store {
    /// Changes a sequence in all databases of the store, or in none.
    ///
    /// # Errors
    /// Why nothing was changed, or `MayHaveChanged`.
    pub(crate) async fn alter(&self, change: Arc<ChangeRequest>) -> Result<Altered, StoreError> {
        let outcome = match self.only() {
            Some(only) => only.alter(Arc::clone(&change), self.change_rules()).await,
            None => self.alter_all(Arc::clone(&change)).await,
        };
        let written = outcome.as_ref().ok().filter(|altered| altered.is_written);
        if written.is_some_and(|altered| altered.before.is_none()) {
            self.metrics.sequences_created.increment(1);
        }
        let may_be_changed =
            written.is_some() || matches!(outcome, Err(StoreError::MayHaveChanged));
        // A refused change leaves the windows as they are, for example if the database is away.
        if let (Some(redis), true) = (&self.redis, may_be_changed) {
            redis.counters.forget(&change.name);
        }
        outcome
    }
}

impl Database {
    async fn alter(
        &self,
        change: Arc<ChangeRequest>,
        rules: ChangeRules,
    ) -> Result<Altered, StoreError> {
        let is_dry_run = change.act.is_dry_run();
        let until = self.deadline();
        let outcome = loop {
            let scope = ChangeScope::of(self, change.last_seen, until).await;
            let scope = scope.map_err(StoreError::not_changed)?;
            let outcome = self
                .attempts(Repeat::NotCommitted, |database| {
                    run(database, Arc::clone(&change), scope.clone(), rules.clone())
                })
                .await;
            if !matches!(outcome, Ok(Err(StoreError::Unguarded))) {
                break outcome;
            }
            if let AttemptError::Final(error) = self.failed(&scope.guard) {
                return Err(error);
            }
            if Instant::now() >= until {
                return Err(StoreError::NotChanged);
            }
        };
        match outcome {
            Ok(Err(StoreError::WentBack)) => Err(self.name_went_back(&change.name)),
            Ok(outcome) => outcome,
            Err(StatementFailure::MayHaveCommitted(_)) if !is_dry_run => {
                Err(StoreError::MayHaveChanged)
            }
            Err(failure) => {
                // Logs the cause if the server refused the statement.
                let _told = error::unexpected(&change.name, &failure);
                Err(StoreError::NotChanged)
            }
        }
    }
}
