//! What a reservation reads, and what a birth stands on: with the beat, in one statement each.

use entity::{counter, meta, replica, sequence};
use odometer_core::{
    definition::Definition,
    period::{Calendar, CounterKey, Period},
};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, FromQueryResult, JoinType,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::sabotage::{self, Fault};
use crate::store::{
    catalogue::{self, Standing},
    change::beat::Witness,
    connection::session::{DatabaseConnection, DatabaseTransaction},
    meta_row,
};

/// Versions of counters leave so much room for each millisecond between two recoveries, so that
/// none that was ever seen comes again.
const VERSIONS_EACH_MS: i64 = 1 << 10;
/// How far the clocks of replicas may be apart: all time zones there are.
const CLOCKS_APART_MS: i64 = 26 * 3_600_000;

/// A sequence and one of its counters, and this replica's beat, as they stood at one moment.
#[derive(Clone, Debug)]
pub(in crate::store) struct Look {
    /// `None` where the row is gone.
    pub(in crate::store) beat: Option<i64>,
    /// `None` where there is no sequence of that name.
    pub(in crate::store) standing: Option<Standing>,
}

pub(in crate::store) async fn look(
    database: DatabaseConnection,
    witness: Witness,
    key: CounterKey,
) -> Result<Look, DbErr> {
    let own_row = Expr::col((replica::Entity, replica::Column::Holder)).eq(witness.holder());
    let of_the_name =
        Expr::col((sequence::Entity, sequence::Column::Name)).eq(key.sequence.as_str());
    let query = catalogue::standings()
        .column((replica::Entity, replica::Column::Beat))
        // Its one row is there whatever else is not.
        .from(meta::Entity)
        .join(JoinType::LeftJoin, replica::Entity, own_row)
        .join(JoinType::LeftJoin, sequence::Entity, of_the_name)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            catalogue::its_counter(key.period.as_str()),
        )
        .and_where(meta::Column::Id.eq(1))
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Err(DbErr::RecordNotFound("meta".to_owned()));
    };
    let definition: Option<String> = row.try_get("", "definition")?;
    let standing = definition.map(|_there| Standing::from_query_result(&row, ""));
    Ok(Look {
        beat: row.try_get("", "beat")?,
        standing: standing.transpose()?,
    })
}

/// What a new counter begins from.
#[derive(Clone, Copy, Debug, Default, FromQueryResult)]
pub(in crate::store) struct Ground {
    recovered_skip: i64,
    recovered_at: Option<i64>,
}

impl Ground {
    pub(in crate::store) fn of(meta: &meta::Model) -> Self {
        Self {
            recovered_skip: meta.recovered_skip,
            recovered_at: meta.recovered_at,
        }
    }

    /// [Held](meta_row) until the end of the transaction, so that no recovery passes between it and
    /// the birth; `None` where the witness is contradicted.
    pub(in crate::store) async fn hold(
        transaction: &DatabaseTransaction,
        witness: &Witness,
    ) -> Result<Option<Self>, DbErr> {
        Self::read_where(transaction, Some(witness.holds())).await
    }

    /// For a transaction that has changed `meta`'s row, and thereby holds it.
    pub(in crate::store) async fn read(transaction: &DatabaseTransaction) -> Result<Self, DbErr> {
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
    pub(in crate::store) fn first(&self, definition: &Definition) -> i64 {
        let n_steps = u64::try_from(self.recovered_skip).unwrap_or(0);
        definition.skipped(definition.start, n_steps)
    }

    /// Where a counter that is born now begins: as [`Ground::first`], but at its start in a period
    /// of which nobody can have had a number before the last recovery.
    pub(in crate::store) fn first_in(&self, definition: &Definition, period: &Period) -> i64 {
        if self.is_after_recovery(definition, period) || sabotage::is(Fault::RebornAtStart) {
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
    pub(in crate::store) fn recovered_at(&self) -> Option<i64> {
        self.recovered_at
    }

    /// Notes in a definition whether the store may have forgotten formats of it: its last change,
    /// of that version, came before the last recovery. A recovery raises the versions of changes to
    /// [`version_at`] at least.
    pub(in crate::store) fn note_forgotten_formats(
        &self,
        definition: &mut Definition,
        version: i64,
    ) {
        let is_older = |recovered_at| version < version_at(recovered_at);
        definition.formats_unknown |=
            self.recovered_at.is_some_and(is_older) && !sabotage::is(Fault::FormatsForgotten);
    }

    /// Whether `odometer recover` ever ran.
    pub(in crate::store) fn was_recovered(&self) -> bool {
        self.recovered_at.is_some()
    }

    /// The version of its counter.
    pub(in crate::store) fn version(&self) -> i64 {
        self.recovered_at.map_or(0, version_at)
    }
}

/// The version that a counter has at least after a recovery at this moment.
pub(in crate::store) fn version_at(recovered_at: i64) -> i64 {
    recovered_at.saturating_mul(VERSIONS_EACH_MS)
}
