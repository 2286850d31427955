//! Reads and lists definitions and counters as rows.

use std::sync::Arc;

use entity::{block, counter, sequence};
use odometer_core::{
    definition::Definition,
    name::SequenceName,
    period::{CounterKey, Period, PeriodKind},
};
use odometer_database::session::DatabaseConnection;

use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, JoinType, Order,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select,
    sea_query::{Expr, ExprTrait, Query, SelectStatement},
};

use crate::error::StoreError;

use crate::rows::{counter::CounterRow, row_count::RowCount};

/// Marks the counter without period, with which every sequence is created. A sequence without
/// periods counts in it. It sorts before every period.
pub(crate) const NO_PERIOD: &str = "";
/// Marks a sequence or a counter that issues numbers.
pub const LIVE: &str = "live";
pub(crate) const RETIRED: &str = "retired";
/// Marks a claim: the name lives in another store, and has no counter here.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// Marks a tombstone: the counter of a removed period, which is never created again.
pub(crate) const REMOVED: &str = "removed";

/// A definition and one of its counters, read in one statement.
#[derive(Clone, Debug, FromQueryResult)]
pub(crate) struct CatalogEntry {
    pub(crate) definition: String,
    pub(crate) state: String,
    pub(crate) definition_version: i64,
    /// Periods at or before this one are removed; empty if none is.
    pub(crate) periods_removed_through: String,
    /// The counter's state and its other columns. They are absent if a period has no counter yet,
    /// if a live sequence has lost its counter, or if the row is a claim.
    counter_state: Option<String>,
    #[sea_orm(nested)]
    counter: Option<CounterRow>,
}

impl CatalogEntry {
    pub(crate) fn counter(&self) -> Option<CounterRow> {
        let is_removed = self.counter_state.as_deref() == Some(REMOVED);
        self.counter.map(|counter| CounterRow {
            is_removed,
            ..counter
        })
    }

    #[cfg(test)]
    pub(crate) fn for_tests(definition: &str, version: i64, n_reservations: i64) -> Self {
        Self {
            definition: definition.to_owned(),
            state: LIVE.to_owned(),
            definition_version: version,
            periods_removed_through: String::new(),
            counter_state: Some(LIVE.to_owned()),
            counter: Some(CounterRow {
                seen: crate::rows::counter::SeenCounter {
                    next_value: 1,
                    version: version + n_reservations,
                },
                revision: version,
                floor: 1,
                rate: 0.0,
                paced_until_us: 0,
                must_recover: false,
                is_removed: false,
                window: Default::default(),
            }),
        }
    }

    /// Checks that the name lives in this store.
    ///
    /// # Errors
    /// `Elsewhere` if the name lives in another store.
    pub(crate) fn check_here(&self) -> Result<(), StoreError> {
        if self.state == ELSEWHERE {
            return Err(StoreError::Elsewhere(claimed(&self.definition)?));
        }
        Ok(())
    }

    /// Returns whether `period` is removed and must not be created again. The counter that was read
    /// is the one of this period.
    pub(crate) fn has_removed(&self, period: &Period) -> bool {
        is_removed_by_age(period, &self.periods_removed_through)
            || self.counter().is_some_and(|counter| counter.is_removed)
    }
}

/// Returns whether a period was removed together with all periods before it. Periods of one
/// calendar kind sort by time.
pub(crate) fn is_removed_by_age(period: &Period, removed_through: &str) -> bool {
    !period.is_none() && period.as_str() <= removed_through
}

/// Returns whether a sequence counts in periods. Then its counter without period issues nothing.
pub(crate) fn has_periods(definition: &Definition) -> bool {
    definition.period != PeriodKind::None
}

/// Selects the columns of a [`CatalogEntry`]. The caller adds the join of sequences and counters.
pub(crate) fn select_entries() -> SelectStatement {
    Query::select()
        .column((sequence::Entity, sequence::Column::Definition))
        .column((sequence::Entity, sequence::Column::State))
        .expr_as(
            Expr::col((sequence::Entity, sequence::Column::Version)),
            "definition_version",
        )
        .column((sequence::Entity, sequence::Column::PeriodsRemovedThrough))
        .expr_as(
            Expr::col((counter::Entity, counter::Column::State)),
            "counter_state",
        )
        .columns([
            (counter::Entity, counter::Column::NextValue),
            (counter::Entity, counter::Column::Version),
            (counter::Entity, counter::Column::Revision),
            (counter::Entity, counter::Column::Floor),
            (counter::Entity, counter::Column::Rate),
            (counter::Entity, counter::Column::PacedUntilUs),
            (counter::Entity, counter::Column::MustRecover),
            (counter::Entity, counter::Column::Window),
            (counter::Entity, counter::Column::WindowOpen),
        ])
        .to_owned()
}

/// Returns the condition that joins a sequence with its counter of a period.
pub(crate) fn its_counter(period: &str) -> Expr {
    Expr::col((counter::Entity, counter::Column::Sequence))
        .equals((sequence::Entity, sequence::Column::Name))
        .and(Expr::col((counter::Entity, counter::Column::Period)).eq(period))
}

/// Reads a sequence and one of its counters. Returns `None` if there is no sequence with this name.
pub(crate) async fn read(
    connection: &impl ConnectionTrait,
    key: &CounterKey,
) -> Result<Option<CatalogEntry>, DbErr> {
    let query = select_entries()
        .from(sequence::Entity)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            its_counter(key.period.as_str()),
        )
        .and_where(Expr::col((sequence::Entity, sequence::Column::Name)).eq(key.sequence.as_str()))
        .to_owned();
    match connection.query_one(&query).await? {
        Some(row) => CatalogEntry::from_query_result(&row, "").map(Some),
        None => Ok(None),
    }
}

/// Counts the sequences that live here.
pub(crate) async fn count(connection: &impl ConnectionTrait) -> Result<RowCount, DbErr> {
    let states = living_here()
        .select_only()
        .column(sequence::Column::State)
        .column_as(sequence::Column::Name.count(), "n_rows")
        .group_by(sequence::Column::State)
        .into_tuple()
        .all(connection)
        .await?;
    Ok(RowCount::of(states))
}

/// Counts the claims: names that live in other stores.
pub(crate) async fn count_claims(connection: &impl ConnectionTrait) -> Result<u64, DbErr> {
    let claims = sequence::Entity::find().filter(sequence::Column::State.eq(ELSEWHERE));
    claims.count(connection).await
}

/// Selects all sequences but those that live in other stores.
pub(crate) fn living_here() -> Select<sequence::Entity> {
    sequence::Entity::find().filter(sequence::Column::State.ne(ELSEWHERE))
}

/// Reads a definition as it is stored.
pub(crate) fn parsed(stored: &str) -> Result<Definition, StoreError> {
    Definition::from_stored(stored).map_err(|error| StoreError::Broken(error.to_string()))
}

/// Reads the definition of a claim, which names the store of the name.
pub(crate) fn claimed(stored: &str) -> Result<Arc<Definition>, StoreError> {
    parsed(stored).map(Arc::new)
}

/// Reads the definition of a sequence that lives in `store`. The store may have had another name
/// when the definition was written.
pub(crate) fn read_definition(stored: &str, store: &str) -> Result<Definition, StoreError> {
    let mut definition = parsed(stored)?;
    if definition.store != store {
        store.clone_into(&mut definition.store);
    }
    Ok(definition)
}

/// Reads the definition of a row in a database of `store`. The row is a claim, or a sequence that
/// lives in this store.
pub(crate) fn definition_in(
    store: &str,
    state: &str,
    stored: &str,
) -> Result<Arc<Definition>, StoreError> {
    if state == ELSEWHERE {
        return claimed(stored);
    }
    read_definition(stored, store).map(Arc::new)
}

/// Returns a page of definitions, in the byte order of their names.
pub(crate) async fn list(
    database: DatabaseConnection,
    prefix: String,
    after: String,
    limit: u64,
) -> Result<Vec<sequence::Model>, DbErr> {
    let mut find = living_here()
        .filter(sequence::Column::Name.gt(after))
        .order_by_asc(sequence::Column::Name)
        .limit(limit);
    if !prefix.is_empty() {
        // `~` sorts after every character that a name may have.
        find = find
            .filter(sequence::Column::Name.gte(prefix.clone()))
            .filter(sequence::Column::Name.lt(format!("{prefix}~")));
    }
    find.all(&database).await
}

/// A live sequence, and how many keys of callers it has.
#[derive(Clone, PartialEq, Eq, Debug, FromQueryResult)]
pub(crate) struct KeyCount {
    pub(crate) name: String,
    pub(crate) n_keys: i64,
}

/// Counts the keys of live sequences, in the byte order of their names. Sequences whose callers name
/// no keys have none.
pub(crate) async fn count_keys(
    database: DatabaseConnection,
    prefix: String,
    after: String,
    limit: u64,
) -> Result<Vec<KeyCount>, DbErr> {
    use entity::{counter::Column as Of, sequence::Column};
    let of_sequence = |column| Expr::col((sequence::Entity, column));
    let of_counter = |column| Expr::col((counter::Entity, column));
    // No text of a definition has these characters: its quotation marks are written as `\"`.
    let is_keyed = of_sequence(Column::Definition).like(r#"%"period":"keyed"%"#);
    let keys = Query::select()
        .expr(of_counter(Of::Period).count())
        .from(counter::Entity)
        .and_where(of_counter(Of::Sequence).equals((sequence::Entity, Column::Name)))
        .and_where(of_counter(Of::Period).gt(NO_PERIOD))
        .and_where(of_counter(Of::State).eq(LIVE))
        .to_owned();
    let keys = Expr::SubQuery(None, Box::new(keys.into()));
    let query = Query::select()
        .column((sequence::Entity, Column::Name))
        .expr_as(Expr::case(is_keyed, keys).finally(0_i64), "n_keys")
        .from(sequence::Entity)
        .and_where(of_sequence(Column::State).eq(LIVE))
        .and_where(of_sequence(Column::Name).gt(after))
        .and_where(of_sequence(Column::Name).gte(prefix.clone()))
        .and_where(of_sequence(Column::Name).lt(format!("{prefix}~")))
        .order_by((sequence::Entity, Column::Name), Order::Asc)
        .limit(limit)
        .to_owned();
    let rows = database.query_all(&query).await?;
    let rows = rows.iter().map(|row| KeyCount::from_query_result(row, ""));
    rows.collect()
}

/// Returns names of live sequences, the first `limit` in `direction`. The lower bound is included,
/// the upper bound is not.
pub(crate) async fn names(
    database: &DatabaseConnection,
    bounds: (&str, &str),
    direction: Order,
    limit: u64,
) -> Result<Vec<String>, DbErr> {
    sequence::Entity::find()
        .select_only()
        .column(sequence::Column::Name)
        .filter(sequence::Column::Name.gte(bounds.0))
        .filter(sequence::Column::Name.lt(bounds.1))
        .filter(sequence::Column::State.eq(LIVE))
        .order_by(sequence::Column::Name, direction)
        .limit(limit)
        .into_tuple()
        .all(database)
        .await
}

/// Returns the highest journal rows of one sequence, in the order of the index.
///
/// The rows of the last period come first, and periods are ordered as text. For keys, this is not
/// the order of time. Rows of keys that are in use may come after many keys that sort higher.
pub(crate) async fn blocks(
    database: DatabaseConnection,
    name: SequenceName,
    limit: u64,
) -> Result<Vec<block::Model>, DbErr> {
    block::Entity::find()
        .filter(block::Column::Sequence.eq(name.as_str()))
        .order_by_desc(block::Column::Period)
        .order_by_desc(block::Column::First)
        .limit(limit)
        .all(&database)
        .await
}
