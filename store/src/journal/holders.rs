//! Finds out which of the processes that the journal names still live, by their heartbeats.

use std::{collections::HashSet, time::Duration};

use entity::{block, replica};
use odometer_database::{database_clock, session::DatabaseConnection};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter,
    sea_query::{Expr, ExprTrait},
};

/// Sets the least time without a heartbeat after which a process counts as dead. A process that was
/// cut off from the database still issues numbers from its memory.
const MIN_SILENCE: Duration = Duration::from_secs(3600);

/// Returns how long a process may be without a heartbeat and still count as living. Replicas raise
/// their heartbeat twice in `definition_refresh`.
pub(crate) fn longest_silence(definition_refresh: Duration) -> Duration {
    MIN_SILENCE.max(definition_refresh.saturating_mul(2))
}

/// Returns which other processes hold blocks of these rows, and have a heartbeat that is not older
/// than `silence`. The process that asks is `this`.
pub(crate) async fn living(
    database: &DatabaseConnection,
    rows: &[block::Model],
    this: &str,
    silence: Duration,
) -> Result<HashSet<String>, DbErr> {
    let others = rows
        .iter()
        .filter(|row| row.fate == "held" && row.holder != this);
    let holders: HashSet<&str> = others.map(|row| row.holder.as_str()).collect();
    // On SQLite the process that asks owns the file, so all others have ended.
    if holders.is_empty() || database.get_database_backend() == DbBackend::Sqlite {
        return Ok(HashSet::new());
    }
    let silence_ms = i64::try_from(silence.as_millis()).unwrap_or(i64::MAX);
    let since = database_clock::now(database.get_database_backend()).sub(silence_ms);
    let heard = replica::Entity::find()
        .filter(replica::Column::Holder.is_in(holders))
        .filter(Expr::col(replica::Column::BeatAt).gte(since))
        .all(database)
        .await?;
    Ok(heard.into_iter().map(|row| row.holder).collect())
}
