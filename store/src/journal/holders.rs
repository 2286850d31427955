//! Which of the processes that the journal names still live, by their beats.

use std::{collections::HashSet, time::Duration};

use entity::replica;
use odometer_database::{database_clock, session::DatabaseConnection};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter,
    sea_query::{Expr, ExprTrait},
};

/// A process is taken for dead after this long without a beat, at least: one that was cut off from
/// the database for a while still issues from its memory.
const MIN_SILENCE: Duration = Duration::from_secs(3600);

/// How long a process may have been silent and still count as living. Replicas beat twice in
/// `definition_refresh`.
pub(crate) fn longest_silence(definition_refresh: Duration) -> Duration {
    MIN_SILENCE.max(definition_refresh.saturating_mul(2))
}

/// Those of `holders` that were heard of within `silence`; whoever asks is not among those asked for.
pub(crate) async fn living(
    database: &DatabaseConnection,
    holders: HashSet<String>,
    silence: Duration,
) -> Result<HashSet<String>, DbErr> {
    // Whoever asks owns the file of SQLite, so all others have ended.
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
