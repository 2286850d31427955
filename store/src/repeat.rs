//! Repeats statements that fail, within the deadline of one reservation.

use std::{future::Future, time::Instant};

use odometer_core::name::SequenceName;
use odometer_database::{
    failure::{Cause, StatementFailure},
    retry::Retry,
    session::DatabaseConnection,
};

use crate::database::Database;
use crate::error;
use crate::error::StoreError;

/// The failures after which an operation is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Any,
    /// Only failures that certainly did not commit. After an uncertain write, the answer to a
    /// second try would belong to the first.
    NotCommitted,
}

impl Database {
    /// Repeats an operation on one name, after any failure that may pass.
    ///
    /// # Errors
    /// The error for a failure that did not pass.
    pub(crate) async fn several_times<T, F, Fut>(
        &self,
        name: &SequenceName,
        operation: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, sea_orm::DbErr>> + Send + 'static,
    {
        self.attempts(Repeat::Any, operation)
            .await
            .map_err(|failure| error::unexpected(name, &failure))
    }

    /// Repeats an operation that does no harm if repeated, within the deadline of one reservation.
    pub(crate) async fn attempts<T, F, Fut>(
        &self,
        repeat: Repeat,
        operation: F,
    ) -> Result<T, StatementFailure>
    where
        T: Send + 'static,
        F: Fn(DatabaseConnection) -> Fut,
        Fut: Future<Output = Result<T, sea_orm::DbErr>> + Send + 'static,
    {
        if !self.is_up() {
            return Err(StatementFailure::NotCommitted(Cause::NoConnection(
                "the database is away".to_owned(),
            )));
        }
        let mut retry = Retry::until(self.deadline(), &self.settings.statement);
        loop {
            let failure = match self.connection.run(retry.until, &operation).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let worth_it = failure.cause().may_pass()
                && (repeat == Repeat::Any || matches!(failure, StatementFailure::NotCommitted(_)));
            if !worth_it || !retry.again().await {
                return Err(failure);
            }
        }
    }

    /// Returns the deadline of a call that begins now.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.deadline
    }

    /// Returns the limits of a call that begins now and writes.
    pub(crate) fn retry(&self) -> Retry {
        Retry::until(self.deadline(), &self.settings.statement).at_most(self.settings.attempts)
    }
}
