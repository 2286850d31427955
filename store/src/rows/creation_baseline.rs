//! What a new counter begins from.

use entity::meta;
use odometer_core::{
    definition::Definition,
    period::{Calendar, Period},
};
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    DbErr, FromQueryResult,
    sea_query::{Expr, Query},
};

use crate::{heartbeat::HeartbeatGuard, meta_row};
use sea_orm::ColumnTrait;
use sea_orm::ConnectionTrait;

/// Versions of counters leave so much room for each millisecond between two recoveries, so that
/// none that was ever seen comes again.
pub(crate) const VERSIONS_EACH_MS: i64 = 1 << 10;

/// How far the clocks of replicas may be apart: all time zones there are.
pub(crate) const CLOCKS_APART_MS: i64 = 26 * 3_600_000;

/// What a new counter begins from.
#[derive(Clone, Copy, Debug, Default, FromQueryResult)]
pub(crate) struct CreationBaseline {
    recovered_skip: i64,
    recovered_at: Option<i64>,
}

impl CreationBaseline {
    pub(crate) fn of(meta: &meta::Model) -> Self {
        Self {
            recovered_skip: meta.recovered_skip,
            recovered_at: meta.recovered_at,
        }
    }

    /// [Held](meta_row) until the end of the transaction, so that no recovery passes between it and
    /// the birth; `None` where the witness is contradicted.
    pub(crate) async fn hold(
        transaction: &DatabaseTransaction,
        guard: &HeartbeatGuard,
    ) -> Result<Option<Self>, DbErr> {
        Self::read_where(transaction, Some(guard.holds())).await
    }

    /// For a transaction that has changed `meta`'s row, and thereby holds it.
    pub(crate) async fn read(transaction: &DatabaseTransaction) -> Result<Self, DbErr> {
        let read = Self::read_where(transaction, None).await?;
        read.ok_or_else(|| DbErr::RecordNotFound("meta".to_owned()))
    }

    async fn read_where(
        transaction: &DatabaseTransaction,
        condition: Option<Expr>,
    ) -> Result<Option<Self>, DbErr> {
        let mut query = Query::select();
        query
            .columns([meta::Column::RecoveredSkip, meta::Column::RecoveredAt])
            .from(meta::Entity)
            .and_where(meta::Column::Id.eq(1));
        if let Some(condition) = condition {
            query.and_where(condition);
            meta_row::hold_for_birth(&mut query, transaction.get_database_backend());
        }
        let row = transaction.query_one(&query).await?;
        row.map(|row| Self::from_query_result(&row, "")).transpose()
    }

    /// Where a sequence that is born now begins: as far above its start as all recoveries together
    /// skipped, because it may have been there before one of them.
    pub(crate) fn first(&self, definition: &Definition) -> i64 {
        let n_steps = u64::try_from(self.recovered_skip).unwrap_or(0);
        definition.skipped(definition.start, n_steps)
    }

    /// Where a counter that is born now begins: as [`CreationBaseline::first`], but at its start in a period
    /// of which nobody can have had a number before the last recovery.
    pub(crate) fn first_in(&self, definition: &Definition, period: &Period) -> i64 {
        if self.is_after_recovery(definition, period) || faults::is(Fault::RebornAtStart) {
            definition.start
        } else {
            self.first(definition)
        }
    }

    /// Whether a period begins so long after the last recovery that nobody can have reserved of it
    /// before: not for a caller who named it ahead of time, not to have its first block ready, and
    /// not by a clock that was ahead. What is not known to begin so late does not.
    fn is_after_recovery(&self, definition: &Definition, period: &Period) -> bool {
        let Some(recovered_at) = self.recovered_at else {
            return true;
        };
        let calendar = Calendar::of(definition);
        let named = calendar.and_then(|calendar| calendar.named(period.as_str()).ok());
        let ahead = definition.period_ahead.max(definition.block.hold);
        let used_until = recovered_at
            .saturating_add(ahead.as_millis())
            .saturating_add(CLOCKS_APART_MS);
        named.is_some_and(|named| named.from_ms > used_until)
    }

    /// When `odometer recover` ran last, by the clock of who ran it.
    pub(crate) fn recovered_at(&self) -> Option<i64> {
        self.recovered_at
    }

    /// Notes in a definition whether the store may have forgotten formats of it: its last change,
    /// of that version, came before the last recovery. A recovery raises the versions of changes to
    /// [`version_at`] at least.
    pub(crate) fn note_forgotten_formats(&self, definition: &mut Definition, version: i64) {
        let is_older = |recovered_at| version < version_at(recovered_at);
        definition.formats_unknown |=
            self.recovered_at.is_some_and(is_older) && !faults::is(Fault::FormatsForgotten);
    }

    /// Whether `odometer recover` ever ran.
    pub(crate) fn was_recovered(&self) -> bool {
        self.recovered_at.is_some()
    }

    /// The version of its counter.
    pub(crate) fn version(&self) -> i64 {
        self.recovered_at.map_or(0, version_at)
    }
}

/// The version that a counter has at least after a recovery at this moment.
pub(crate) fn version_at(recovered_at: i64) -> i64 {
    recovered_at.saturating_mul(VERSIONS_EACH_MS)
}
