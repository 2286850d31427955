//! Computes where a new counter begins, after the recoveries of its database.

use std::sync::Arc;

use entity::meta;
use odometer_core::{
    definition::{Definition, Kind},
    name::SequenceName,
    period::{Calendar, Period},
    speed_limit::{Paced, fence::Fence},
};
use odometer_database::session::DatabaseTransaction;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, FromQueryResult,
    sea_query::{Expr, Query},
};

use crate::{
    fences::{Recoveries, is_unsettled},
    guard::HeartbeatGuard,
    meta_row,
    rows::{counter::LEASE_MS, payment::limit_of},
};

/// Sets how many versions of a counter belong to each millisecond between two recoveries. They are
/// enough that no version that was ever seen comes again.
pub(crate) const VERSIONS_EACH_MS: i64 = 1 << 10;

/// Bounds how far the clocks of replicas may be apart: 26 hours, as far as time zones are apart.
pub(crate) const CLOCKS_APART_MS: i64 = 26 * 3_600_000;

/// The recoveries of a database, which decide where a new counter begins.
#[derive(Clone, Debug, Default, FromQueryResult)]
pub(crate) struct CreationBaseline {
    /// How many steps all recoveries together have skipped beyond what was computed.
    recovered_skip: i64,
    recovered_at: Option<i64>,
    births_after: Option<i64>,
    /// Which Redis servers count in front of the database.
    redis: Option<String>,
    /// The recoveries of this version of the program.
    #[sea_orm(skip)]
    recoveries: Arc<Recoveries>,
    /// What a new counter skips.
    #[sea_orm(skip)]
    fences: Vec<Fence>,
    /// How many steps programs before schema 7 skipped.
    #[sea_orm(skip)]
    n_older: u64,
}

impl CreationBaseline {
    /// Returns the baseline of a sequence that `meta` gives, without a lock.
    pub(crate) async fn of(
        database: &impl ConnectionTrait,
        meta: &meta::Model,
        name: &SequenceName,
    ) -> Result<Self, DbErr> {
        let mut baseline = Self {
            recovered_skip: meta.recovered_skip,
            recovered_at: meta.recovered_at,
            births_after: meta.births_after,
            redis: meta.redis.clone(),
            ..Self::default()
        };
        // A database that was never recovered has none.
        if baseline.was_recovered() {
            baseline.note(Recoveries::read(database).await?);
        }
        Ok(baseline.of_sequence(name))
    }

    /// Reads the baseline of a sequence, and [holds](meta_row) its row until the end of the
    /// transaction. So no recovery can happen between this read and the creation. Returns `None` if
    /// the guard does not hold.
    pub(crate) async fn hold(
        transaction: &DatabaseTransaction,
        guard: &HeartbeatGuard,
        name: &SequenceName,
    ) -> Result<Option<Self>, DbErr> {
        let held = Self::hold_all(transaction, guard).await?;
        Ok(held.map(|baseline| baseline.of_sequence(name)))
    }

    /// Does the same for all sequences, of which nothing is created.
    pub(crate) async fn hold_all(
        transaction: &DatabaseTransaction,
        guard: &HeartbeatGuard,
    ) -> Result<Option<Self>, DbErr> {
        let mut query = Query::select();
        query
            .column(meta::Column::RecoveredSkip)
            .expr_as(Expr::col(meta::Column::RecoveredAt), "recovered_at")
            .columns([meta::Column::BirthsAfter, meta::Column::Redis])
            .from(meta::Entity)
            .and_where(meta::Column::Id.eq(1))
            .and_where(guard.holds());
        meta_row::lock_for_creation(&mut query, transaction.get_database_backend());
        let Some(row) = transaction.query_one(&query).await? else {
            return Ok(None);
        };
        let mut baseline = Self::from_query_result(&row, "")?;
        if baseline.was_recovered() {
            baseline.note(Recoveries::read_held(transaction).await?);
        }
        Ok(Some(baseline))
    }

    fn note(&mut self, recoveries: Recoveries) {
        let n_steps = u64::try_from(self.recovered_skip).unwrap_or(0);
        self.n_older = n_steps.saturating_sub(recoveries.n_steps());
        self.recoveries = Arc::new(recoveries);
    }

    /// Leaves the recoveries out that raised other sequences alone.
    fn of_sequence(self, name: &SequenceName) -> Self {
        let name = name.as_str();
        Self {
            fences: self.recoveries.for_births(name, self.births_after),
            recoveries: Arc::new(self.recoveries.concerning(Some(name))),
            ..self
        }
    }

    /// Returns where a sequence begins that is created now. It may have existed before one of the
    /// recoveries. So it begins as far above its start as the recoveries together would have raised
    /// it, unless an operator has said that no counter was lost. What programs before schema 7
    /// skipped always counts.
    pub(crate) fn first(&self, definition: &Definition) -> i64 {
        self.first_above(definition, definition.start)
    }

    /// Does the same for a sequence that begins at one of its numbers, as other databases say.
    fn first_above(&self, definition: &Definition, begin: i64) -> i64 {
        let born = self.fenced(definition).map(|born| born.n_reserved);
        let n_steps = || self.fences.iter().map(|fence| fence.n_steps);
        let n_skipped = born.unwrap_or_else(|| n_steps().fold(0, u64::saturating_add));
        definition.skipped(begin, n_skipped.saturating_add(self.n_older))
    }

    /// Returns where the recoveries lead a counter that is created now. `None` if it has no speed
    /// limit.
    fn fenced(&self, definition: &Definition) -> Option<Paced> {
        let limit = limit_of(definition)?;
        Some(Fence::birth(limit, &self.fences))
    }

    /// Returns up to when the speed limit counts as used of a counter that is created now (Unix µs).
    pub(crate) fn paced_until_us(&self, definition: &Definition) -> i64 {
        let born = self.fenced(definition);
        born.map_or(0, |born| born.paced_until_us.max(0))
    }

    /// Returns when the leases of windows end that a counter which is created now may have had in
    /// lost commits (Unix ms).
    pub(crate) fn window_leased_until(&self) -> i64 {
        let fenced_at = self.recoveries.last_computed_at();
        let fenced_at = fenced_at.filter(|_| self.redis.is_some());
        fenced_at.map_or(0, |at| at.saturating_add(LEASE_MS.into()))
    }

    /// Returns whether nobody knows where a counter begins that is created now: the database may
    /// have lost it, and its range is too short for a speed limit.
    pub(crate) fn is_unknown(&self, definition: &Definition) -> bool {
        let has_limit = definition.limit.is_some();
        is_unsettled(&self.fences) && !has_limit && definition.kind != Kind::Snowflake
    }

    /// Returns whether nobody knows where the counter of a period, or of none, begins that is
    /// created now.
    pub(crate) fn is_unknown_in(&self, definition: &Definition, period: &Period) -> bool {
        let is_old = period.is_none() || !self.is_after_recovery(definition, period);
        is_old && self.is_unknown(definition)
    }

    /// Returns where the counter of a period, or of none, begins that is created now. It begins at
    /// its start if nobody can have had a number of the period before the last recovery. Otherwise
    /// it begins like [`CreationBaseline::first`].
    pub(crate) fn first_in(&self, definition: &Definition, period: &Period) -> i64 {
        self.first_in_from(definition, period, definition.start)
    }

    /// Does the same for a counter that other databases have, with this floor. In lost commits it
    /// may have begun at the floor here, too.
    pub(crate) fn first_in_from(
        &self,
        definition: &Definition,
        period: &Period,
        floor: i64,
    ) -> i64 {
        let begin = definition.first_from(floor).unwrap_or(definition.start);
        let is_new = || self.is_after_recovery(definition, period);
        if !period.is_none() && (is_new() || faults::is(Fault::RecreatedAtStart)) {
            begin
        } else {
            self.first_above(definition, begin)
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

    /// Returns the time of the last recovery of a sequence (Unix ms).
    pub(crate) fn recovered_at(&self, name: &SequenceName) -> Option<i64> {
        self.recovered_at.max(self.recoveries.last_at_of(name))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fences::tests::{computed, recoveries};

    #[test]
    fn a_lost_window_may_be_leased_only_if_redis_counts() {
        let baseline = |redis: Option<&str>| CreationBaseline {
            redis: redis.map(str::to_owned),
            recoveries: Arc::new(recoveries([computed(1000, 5)])),
            ..CreationBaseline::default()
        };
        let leased_until = 1000 + i64::from(LEASE_MS);
        assert_eq!(baseline(Some("r1")).window_leased_until(), leased_until);
        assert_eq!(baseline(None).window_leased_until(), 0);
    }
}
