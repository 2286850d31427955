//! Computes where a new counter begins, after the recoveries of its database.

use entity::meta;
use odometer_core::{
    definition::Definition,
    period::{Calendar, Period},
};
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{ColumnTrait, ConnectionTrait, DbErr, FromQueryResult, sea_query::Query};

use crate::{guard::HeartbeatGuard, meta_row};

/// Sets how many versions of a counter belong to each millisecond between two recoveries. They are
/// enough that no version that was ever seen comes again.
pub(crate) const VERSIONS_EACH_MS: i64 = 1 << 10;

/// Bounds how far the clocks of replicas may be apart: 26 hours, as far as time zones are apart.
pub(crate) const CLOCKS_APART_MS: i64 = 26 * 3_600_000;

/// The recoveries of a database, which decide where a new counter begins.
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

    /// Reads the baseline, and [holds](meta_row) its row until the end of the transaction. So no
    /// recovery can happen between this read and the creation. Returns `None` if the guard does not
    /// hold.
    pub(crate) async fn hold(
        transaction: &DatabaseTransaction,
        guard: &HeartbeatGuard,
    ) -> Result<Option<Self>, DbErr> {
        let mut query = Query::select();
        query
            .columns([meta::Column::RecoveredSkip, meta::Column::RecoveredAt])
            .from(meta::Entity)
            .and_where(meta::Column::Id.eq(1))
            .and_where(guard.holds());
        meta_row::lock_for_creation(&mut query, transaction.get_database_backend());
        let row = transaction.query_one(&query).await?;
        row.map(|row| Self::from_query_result(&row, "")).transpose()
    }

    /// Returns where a sequence begins that is created now. All recoveries together skipped some
    /// steps, and the sequence begins this far above its start. It may have existed before one of
    /// these recoveries.
    pub(crate) fn first(&self, definition: &Definition) -> i64 {
        let n_steps = u64::try_from(self.recovered_skip).unwrap_or(0);
        definition.skipped(definition.start, n_steps)
    }

    /// Returns where the counter of a period, or of none, begins that is created now. It begins at
    /// its start if nobody can have had a number of the period before the last recovery. Otherwise
    /// it begins like [`CreationBaseline::first`].
    pub(crate) fn first_in(&self, definition: &Definition, period: &Period) -> i64 {
        let is_new = || self.is_after_recovery(definition, period);
        if !period.is_none() && (is_new() || faults::is(Fault::RecreatedAtStart)) {
            definition.start
        } else {
            self.first(definition)
        }
    }

    /// Returns whether a period begins so long after the last recovery that no number of it can
    /// have been reserved before.
    ///
    /// Numbers of a period are reserved early for three reasons. A caller names the period ahead of
    /// time, its first block is prefetched, or a clock is ahead. A period whose beginning is not
    /// known counts as one before the recovery.
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
        named.is_some_and(|named| named.span.from_ms > used_until)
    }

    /// Returns when `odometer recover` ran last, by the clock of the machine that ran it (Unix ms).
    pub(crate) fn recovered_at(&self) -> Option<i64> {
        self.recovered_at
    }

    /// Notes in a definition whether the store may have forgotten formats of it. This is so if its
    /// last change, which has this version, came before the last recovery. A recovery raises the
    /// versions of changes to at least [`version_at`].
    pub(crate) fn note_forgotten_formats(&self, definition: &mut Definition, version: i64) {
        let is_older = |recovered_at| version < version_at(recovered_at);
        definition.formats_unknown |=
            self.recovered_at.is_some_and(is_older) && !faults::is(Fault::FormatsForgotten);
    }

    /// Returns whether `odometer recover` ever ran.
    pub(crate) fn was_recovered(&self) -> bool {
        self.recovered_at.is_some()
    }

    /// Returns the version with which a new counter begins.
    pub(crate) fn version(&self) -> i64 {
        self.recovered_at.map_or(0, version_at)
    }
}

/// Returns the lowest version that a counter can have after a recovery at this time (Unix ms).
pub(crate) fn version_at(recovered_at: i64) -> i64 {
    recovered_at.saturating_mul(VERSIONS_EACH_MS)
}
