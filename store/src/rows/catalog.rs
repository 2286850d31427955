//! Definitions and counters as rows: read, born, listed.

use std::sync::Arc;

use entity::{block, counter, sequence};
use odometer_core::{
    definition::{Definition, StoredDefinitionError},
    name::SequenceName,
    period::{Period, PeriodKind},
};
use odometer_database::session::DatabaseConnection;

use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, JoinType, Order,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select,
    sea_query::{Expr, ExprTrait, IntoColumnRef, Query, SelectStatement},
};

use crate::error::StoreError;

use crate::rows::counter::{CounterRow, SeenCounter, WindowRow};

/// The period of a sequence that has none, and of the counter that a sequence with periods is born
/// with. Sorts before every period.
pub(crate) const NO_PERIOD: &str = "";
/// The state of a sequence, or of a counter, that issues.
pub const LIVE: &str = "live";
pub(crate) const RETIRED: &str = "retired";
/// The state of a claim: a name that lives in another store, and has no counter here.
pub(crate) const ELSEWHERE: &str = "elsewhere";
/// The state of a tombstone: the counter of a period that was removed and is never born again.
pub(crate) const REMOVED: &str = "removed";

/// A definition and its counter, read in one statement.
#[derive(Clone, Debug, FromQueryResult)]
pub(crate) struct CatalogEntry {
    pub(crate) definition: String,
    pub(crate) state: String,
    pub(crate) definition_version: i64,
    /// Periods at or before this one were removed; empty while none was.
    pub(crate) periods_removed_through: String,
    /// The counter's columns; absent where a period has none yet, or a live sequence has lost its
    /// counter.
    counter_state: Option<String>,
    next_value: Option<i64>,
    version: Option<i64>,
    revision: Option<i64>,
    floor: Option<i64>,
    rate: Option<f64>,
    window: Option<i64>,
    window_open: Option<bool>,
}

impl CatalogEntry {
    pub(crate) fn counter(&self) -> Option<CounterRow> {
        Some(CounterRow {
            seen: SeenCounter {
                next_value: self.next_value?,
                version: self.version?,
            },
            revision: self.revision?,
            floor: self.floor?,
            rate: self.rate?,
            is_removed: self.counter_state.as_deref() == Some(REMOVED),
            window: WindowRow {
                number: self.window?,
                is_open: self.window_open?,
            },
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
            next_value: Some(1),
            version: Some(version + n_reservations),
            revision: Some(version),
            floor: Some(1),
            rate: Some(0.0),
            window: Some(0),
            window_open: Some(false),
        }
    }

    /// # Errors
    /// `Elsewhere` where the name lives in another store.
    pub(crate) fn check_here(&self) -> Result<(), StoreError> {
        if self.state == ELSEWHERE {
            return Err(StoreError::Elsewhere(claimed(&self.definition)?));
        }
        Ok(())
    }

    /// Whether `period`, whose counter was read, is removed and never to be born again.
    pub(crate) fn has_removed(&self, period: &Period) -> bool {
        is_removed_by_age(period, &self.periods_removed_through)
            || self.counter().is_some_and(|counter| counter.is_removed)
    }
}

/// Whether a period went with all those before it. Periods of one calendar kind sort by time.
pub(crate) fn is_removed_by_age(period: &Period, removed_through: &str) -> bool {
    !period.is_none() && period.as_str() <= removed_through
}

/// Whether a sequence counts in periods: its counter without a period then issues nothing.
pub(crate) fn has_periods(definition: &Definition) -> bool {
    definition.period != PeriodKind::None
}

/// The columns of a [`CatalogEntry`], from wherever sequences and counters are joined.
pub(crate) fn standings() -> SelectStatement {
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
            (counter::Entity, counter::Column::Window),
            (counter::Entity, counter::Column::WindowOpen),
        ])
        .to_owned()
}

/// That a counter is the one of a sequence in a period.
pub(crate) fn its_counter(period: &str) -> Expr {
    Expr::col((counter::Entity, counter::Column::Sequence))
        .equals((sequence::Entity, sequence::Column::Name))
        .and(Expr::col((counter::Entity, counter::Column::Period)).eq(period))
}

/// Reads a sequence and one of its counters; `None` where there is no sequence of that name.
pub(crate) async fn read(
    connection: &impl ConnectionTrait,
    name: &str,
    period: &Period,
) -> Result<Option<CatalogEntry>, DbErr> {
    let query = standings()
        .from(sequence::Entity)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            its_counter(period.as_str()),
        )
        .and_where(Expr::col((sequence::Entity, sequence::Column::Name)).eq(name))
        .to_owned();
    match connection.query_one(&query).await? {
        Some(row) => CatalogEntry::from_query_result(&row, "").map(Some),
        None => Ok(None),
    }
}

/// How many sequences live here.
pub(crate) async fn count(database: DatabaseConnection) -> Result<u64, DbErr> {
    count_in(&database).await
}

pub(crate) async fn count_in(connection: &impl ConnectionTrait) -> Result<u64, DbErr> {
    living_here().count(connection).await
}

/// All sequences but those that live in other stores.
pub(crate) fn living_here() -> Select<sequence::Entity> {
    sequence::Entity::find().filter(sequence::Column::State.ne(ELSEWHERE))
}

/// The definition of a claim, which says where its name lives.
pub(crate) fn claimed(stored: &str) -> Result<Arc<Definition>, StoreError> {
    let definition = Definition::from_stored(stored);
    let definition = definition.map_err(|error| StoreError::Broken(error.to_string()))?;
    Ok(Arc::new(definition))
}

/// Reads the definition of a sequence that lives in `store`, whatever that was called when it was
/// written.
pub(crate) fn read_definition(
    stored: &str,
    store: &str,
) -> Result<Definition, StoredDefinitionError> {
    let mut definition = Definition::from_stored(stored)?;
    if definition.store != store {
        store.clone_into(&mut definition.store);
    }
    Ok(definition)
}

/// The definition of a row in a database of `store`: a claim's, or that of a sequence that lives there.
pub(crate) fn definition_in(
    store: &str,
    state: &str,
    stored: &str,
) -> Result<Arc<Definition>, StoreError> {
    if state == ELSEWHERE {
        return claimed(stored);
    }
    let definition = read_definition(stored, store);
    let definition = definition.map_err(|error| StoreError::Broken(error.to_string()))?;
    Ok(Arc::new(definition))
}

/// A page of definitions, names in byte order.
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

/// Names of live sequences from the lower bound on and below the upper one, the first in this order.
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

/// The highest rows of the journal of one sequence, as the index has them: those of its last period
/// first, in the order of periods as text. With keys that is not the order of time: rows of keys in
/// use may lie behind as many of keys that sort higher.
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

/// The value of `column` raised by one, by the database.
pub(crate) fn one_more(column: impl IntoColumnRef) -> Expr {
    Expr::col(column).add(1)
}
