//! Makes one change in a store of one database.

use std::sync::Arc;

use odometer_core::name::SequenceName;
use odometer_database::failure::StatementFailure;

use super::{
    act::Act,
    transaction::{self, ChangeRequest},
};
use crate::{
    database::Database,
    error::{self, StoreError},
    outcome::{Altered, Condition},
    repeat::Repeat,
    rows::counter::SeenCounter,
};

impl Database {
    pub(crate) async fn alter(
        &self,
        name: &SequenceName,
        act: Act,
        condition: Condition,
        last_seen: Option<SeenCounter>,
    ) -> Result<Altered, StoreError> {
        let is_dry_run = act.is_dry_run();
        let guard = match self.heartbeat.guard() {
            Ok(_) if is_dry_run => None,
            Ok(guard) => Some(guard),
            Err(StoreError::Unavailable) => return Err(StoreError::NotChanged),
            Err(error) => return Err(error),
        };
        let change = ChangeRequest {
            name: name.clone(),
            act,
            condition,
            max_sequences: self.settings.max_sequences,
            keyed_periods: self.settings.keyed_periods,
            guard,
            last_seen,
            store: Arc::clone(&self.identity.label.store),
        };
        let outcome = self
            .attempts(Repeat::NotCommitted, |database| {
                transaction::run(database, change.clone())
            })
            .await;
        let altered = match outcome {
            Ok(Err(StoreError::WentBack)) => {
                // The next poll finds out whether all names went back, or whether the store is
                // recovered already.
                self.heartbeat.note_name_went_back(name);
                self.connection.refresh.notify_one();
                return Err(StoreError::WentBack);
            }
            Ok(outcome) => outcome?,
            Err(StatementFailure::MayHaveCommitted(_)) if !is_dry_run => {
                return Err(StoreError::MayHaveChanged);
            }
            Err(failure) => {
                // Logs the cause if the server refused the statement.
                let _told = error::unexpected(name, &failure);
                return Err(StoreError::NotChanged);
            }
        };
        if altered.before.is_none() && altered.is_written {
            self.metrics.sequences_created.increment(1);
        }
        Ok(altered)
    }
}
