//! Runs one participant of a change: the part of one member of a store.
//!
//! It is one transaction that waits twice: first for the decision over all members, and then for
//! the signal to commit.

use std::sync::Arc;

use odometer_database::session::DatabaseConnection;
use sea_orm::DbErr;
use tokio::sync::oneshot;

use super::{
    decision::Decision,
    prepared::{Prepared, prepare},
    request::{ChangeRequest, ChangeScope},
    transaction::refused,
    writing,
};
use crate::error::StoreError;

/// The participant's ends of its channels with the change. If the other ends are dropped, the
/// participant rolls back.
pub(crate) struct CommitSignals {
    pub(crate) found: oneshot::Sender<Result<Prepared, StoreError>>,
    pub(crate) decided: oneshot::Receiver<Arc<Decision>>,
    pub(crate) written: oneshot::Sender<()>,
    pub(crate) commit: oneshot::Receiver<()>,
}

/// Runs the participant to its end. Returns whether it was committed.
pub(crate) async fn run(
    database: DatabaseConnection,
    change: Arc<ChangeRequest>,
    scope: ChangeScope,
    signals: CommitSignals,
) -> Result<bool, DbErr> {
    let transaction = database.begin().await?;
    let found = refused(prepare(&transaction, &change, &scope).await)?;
    let part = found.as_ref().ok().cloned();
    let is_heard = signals.found.send(found).is_ok();
    let (Some(part), true) = (part, is_heard) else {
        transaction.rollback().await?;
        return Ok(false);
    };
    // No decision comes if there is nothing to write, or if another member failed.
    let Ok(decision) = signals.decided.await else {
        transaction.rollback().await?;
        return Ok(false);
    };
    Box::pin(writing::write(&transaction, &change, &part, &decision)).await?;
    let is_awaited = signals.written.send(()).is_ok();
    if !is_awaited || signals.commit.await.is_err() {
        transaction.rollback().await?;
        return Ok(false);
    }
    transaction.commit().await?;
    Ok(true)
}
