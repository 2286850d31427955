//! Definitions and counters as rows: read, born, listed.

use std::sync::Arc;

use entity::{block, counter, sequence};
use odometer_core::{
    definition::{Definition, PeriodKind, StoredDefinitionError, Stripe},
    name::SequenceName,
    period::{CounterKey, Period},
};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, JoinType, Order,
    PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, Select,
    sea_query::{Expr, ExprTrait, IntoColumnRef, Query, SelectStatement},
};

use super::{
    change::beat::Witness,
    connection::session::{DatabaseConnection, DatabaseTransaction},
    database::Seen,
    error::{Cause, Failure, StoreError},
    reservation::{look::Ground, period::Newborn},
    sequence_row::SequenceRow,
};
use crate::sabotage::{self, Fault};

/// The period of a sequence that has none, and of the counter that a sequence with periods is born
/// with. Sorts before every period.
pub(super) const NO_PERIOD: &str = "";
/// The state of a sequence, or of a counter, that issues.
pub const LIVE: &str = "live";
pub(super) const RETIRED: &str = "retired";
/// The state of a claim: a name that lives in another store, and has no counter here.
pub(super) const ELSEWHERE: &str = "elsewhere";
/// The state of a tombstone: the counter of a period that was removed and is never born again.
pub(super) const REMOVED: &str = "removed";

/// A definition and its counter, read in one statement.
#[derive(Clone, Debug, FromQueryResult)]
pub(super) struct Standing {
    pub(super) definition: String,
    pub(super) state: String,
    pub(super) definition_version: i64,
    /// Periods at or before this one were removed; empty while none was.
    pub(super) periods_removed_through: String,
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

/// The counter's part of a [`Standing`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    pub(super) seen: Seen,
    pub(super) revision: i64,
    pub(super) floor: i64,
    pub(super) rate: f64,
    /// Whether it is only a tombstone.
    pub(super) is_removed: bool,
    pub(super) window: Window,
}

/// In which window of a counter Redis counts, as the counter's row says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// The last one that was opened.
    pub(super) number: i64,
    /// Whether numbers of it may be issued.
    pub(super) is_open: bool,
}

impl Standing {
    pub(super) fn counter(&self) -> Option<Counter> {
        Some(Counter {
            seen: Seen {
                next_value: self.next_value?,
                version: self.version?,
            },
            revision: self.revision?,
            floor: self.floor?,
            rate: self.rate?,
            is_removed: self.counter_state.as_deref() == Some(REMOVED),
            window: Window {
                number: self.window?,
                is_open: self.window_open?,
            },
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(definition: &str, version: i64, n_reservations: i64) -> Self {
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
    pub(super) fn check_here(&self) -> Result<(), StoreError> {
        if self.state == ELSEWHERE {
            return Err(StoreError::Elsewhere(claimed(&self.definition)?));
        }
        Ok(())
    }

    /// Whether `period`, whose counter was read, is removed and never to be born again.
    pub(super) fn has_removed(&self, period: &Period) -> bool {
        is_removed_by_age(period, &self.periods_removed_through)
            || self.counter().is_some_and(|counter| counter.is_removed)
    }
}

/// Whether a period went with all those before it. Periods of one calendar kind sort by time.
pub(super) fn is_removed_by_age(period: &Period, removed_through: &str) -> bool {
    !period.is_none() && period.as_str() <= removed_through
}

/// Whether a sequence counts in periods: its counter without a period then issues nothing.
pub(super) fn has_periods(definition: &Definition) -> bool {
    definition.period != PeriodKind::None
}

/// The columns of a [`Standing`], from wherever sequences and counters are joined.
pub(super) fn standings() -> SelectStatement {
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
pub(super) fn its_counter(period: &str) -> Expr {
    Expr::col((counter::Entity, counter::Column::Sequence))
        .equals((sequence::Entity, sequence::Column::Name))
        .and(Expr::col((counter::Entity, counter::Column::Period)).eq(period))
}

/// Reads a sequence and one of its counters; `None` where there is no sequence of that name.
pub(super) async fn read(
    connection: &impl ConnectionTrait,
    name: &str,
    period: &Period,
) -> Result<Option<Standing>, DbErr> {
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
        Some(row) => Standing::from_query_result(&row, "").map(Some),
        None => Ok(None),
    }
}

/// Inserts a definition and its counter in one transaction.
///
/// Two that insert at once meet at the primary key: one gets `Duplicate` and reads.
///
/// `above` is what the name has seen before a recovery: where it would begin below, it is not born.
pub(super) async fn bear(
    database: DatabaseConnection,
    name: SequenceName,
    definition: Arc<Definition>,
    stripe: Stripe,
    witness: Witness,
    above: i64,
) -> Result<Birth, DbErr> {
    let transaction = database.begin().await?;
    let Some(ground) = Ground::hold(&transaction, &witness).await? else {
        transaction.rollback().await?;
        return Ok(Birth::Contradicted);
    };
    if ground.first(&stripe.view(&definition)) < above && !sabotage::is(Fault::NoWentBackChecks) {
        transaction.rollback().await?;
        return Ok(Birth::TooLow);
    }
    // Nothing of it is older than the last recovery.
    let version = ground.version();
    insert(&transaction, &name, &definition, version, stripe, ground).await?;
    transaction.commit().await?;
    Ok(Birth::Born)
}

/// What became of a birth.
#[derive(Clone, Copy, Debug)]
pub(super) enum Birth {
    Born,
    /// The store went back.
    Contradicted,
    /// It would begin below what was seen of it.
    TooLow,
}

pub(super) async fn insert(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
    definition: &Definition,
    version: i64,
    stripe: Stripe,
    ground: Ground,
) -> Result<(), DbErr> {
    // That of a sequence with periods never issues, and is the one that changes are counted on.
    let counted = stripe.view(definition);
    let next_value = ground.first(&counted);
    if definition.exhausted(next_value) && !has_periods(definition) && !counted.is_empty() {
        tracing::warn!(
            sequence = name.as_str(),
            "a sequence is born exhausted: what `odometer recover` skipped is more than all of it"
        );
    }
    let row = SequenceRow {
        name,
        kind: definition.kind,
        definition: definition.to_stored(),
        state: LIVE,
        version,
        removed_through: None,
    };
    row.insert(transaction).await?;
    let newborn = Newborn::at(next_value, definition, stripe, ground);
    newborn
        .insert(transaction, &CounterKey::whole(name.clone()))
        .await
}

/// How many sequences live here.
pub(super) async fn count(database: DatabaseConnection) -> Result<u64, DbErr> {
    count_in(&database).await
}

pub(super) async fn count_in(connection: &impl ConnectionTrait) -> Result<u64, DbErr> {
    living_here().count(connection).await
}

/// All sequences but those that live in other stores.
pub(super) fn living_here() -> Select<sequence::Entity> {
    sequence::Entity::find().filter(sequence::Column::State.ne(ELSEWHERE))
}

/// The definition of a claim, which says where its name lives.
pub(super) fn claimed(stored: &str) -> Result<Arc<Definition>, StoreError> {
    let definition = Definition::from_stored(stored);
    let definition = definition.map_err(|error| StoreError::Broken(error.to_string()))?;
    Ok(Arc::new(definition))
}

/// Reads the definition of a sequence that lives in `store`, whatever that was called when it was
/// written.
pub(super) fn read_definition(
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
pub(super) fn definition_in(
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
pub(super) async fn list(
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
pub(super) async fn names(
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
pub(super) async fn blocks(
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
pub(super) fn one_more(column: impl IntoColumnRef) -> Expr {
    Expr::col(column).add(1)
}

/// What is said of a live sequence whose counter is gone: never started anew.
pub(super) fn without_counter(name: &SequenceName) -> StoreError {
    StoreError::Broken(format!(
        "sequence `{name}` has a definition and no counter: insert its row into `counter` with a \
         `next_value` above every number ever issued"
    ))
}

/// An unexpected failure, said once in the log.
pub(super) fn unexpected(name: &SequenceName, failure: &Failure) -> StoreError {
    match failure.cause() {
        Cause::NoConnection(_)
        | Cause::Away(_)
        | Cause::Refused(_)
        | Cause::ReadOnly(_)
        | Cause::Broken(_)
        | Cause::Internal(_) => StoreError::Unavailable,
        Cause::WentBack => StoreError::WentBack,
        // Said where every statement passes, and not for each name.
        Cause::DiskFull(_) => StoreError::Unavailable,
        Cause::Busy | Cause::Silent | Cause::Interrupted | Cause::Contention | Cause::Duplicate => {
            StoreError::Deadline
        }
        // It may pass, and until then nothing can be reserved.
        Cause::Denied(text) | Cause::Server(text) => {
            tracing::error!(sequence = name.as_str(), error = %text, "the database refuses a statement");
            StoreError::Unavailable
        }
    }
}
