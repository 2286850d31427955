//! Definitions and counters as rows: read, born, changed, listed.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use entity::{block, counter, meta, sequence};
use odometer_core::{
    definition::{Definition, DefinitionChange},
    name::SequenceName,
};
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, FromQueryResult, JoinType, PaginatorTrait,
    QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, ExprTrait, IntoColumnRef, LockType, Query},
};

use super::{
    database::Seen,
    error::{Cause, Failure, StoreError},
    session::{DatabaseConnection, DatabaseTransaction},
};

/// The period of a sequence that has none.
pub(super) const NO_PERIOD: &str = "";
pub(super) const LIVE: &str = "live";

/// A definition and its counter, read in one statement.
#[derive(Clone, Debug, FromQueryResult)]
pub(super) struct Standing {
    pub(super) definition: String,
    pub(super) state: String,
    pub(super) definition_version: i64,
    /// The counter's columns; absent where a live sequence has lost its counter.
    next_value: Option<i64>,
    version: Option<i64>,
    floor: Option<i64>,
    rate: Option<f64>,
}

/// The counter's part of a [`Standing`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    pub(super) seen: Seen,
    pub(super) floor: i64,
    pub(super) rate: f64,
}

impl Standing {
    pub(super) fn counter(&self) -> Option<Counter> {
        Some(Counter {
            seen: Seen {
                next_value: self.next_value?,
                version: self.version?,
            },
            floor: self.floor?,
            rate: self.rate?,
        })
    }
}

/// Reads a sequence and its counter; `None` where there is no sequence of that name.
pub(super) async fn read(
    connection: &impl ConnectionTrait,
    name: &str,
) -> Result<Option<Standing>, DbErr> {
    let with_counter = Expr::col((counter::Entity, counter::Column::Sequence))
        .equals((sequence::Entity, sequence::Column::Name))
        .and(Expr::col((counter::Entity, counter::Column::Period)).eq(NO_PERIOD));
    let query = Query::select()
        .column((sequence::Entity, sequence::Column::Definition))
        .column((sequence::Entity, sequence::Column::State))
        .expr_as(
            Expr::col((sequence::Entity, sequence::Column::Version)),
            "definition_version",
        )
        .columns([
            (counter::Entity, counter::Column::NextValue),
            (counter::Entity, counter::Column::Version),
            (counter::Entity, counter::Column::Floor),
            (counter::Entity, counter::Column::Rate),
        ])
        .from(sequence::Entity)
        .join(JoinType::LeftJoin, counter::Entity, with_counter)
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
pub(super) async fn bear(
    database: DatabaseConnection,
    name: SequenceName,
    definition: Arc<Definition>,
) -> Result<(), DbErr> {
    let transaction = database.begin().await?;
    insert(&transaction, &name, &definition, 0).await?;
    transaction.commit().await
}

async fn insert(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
    definition: &Definition,
    version: i64,
) -> Result<(), DbErr> {
    let now = now_ms();
    let row = sequence::ActiveModel {
        name: Set(name.as_str().to_owned()),
        definition: Set(definition.to_stored()),
        state: Set(LIVE.to_owned()),
        periods_removed_through: Set(String::new()),
        version: Set(version),
        created_at: Set(now),
        changed_at: Set(now),
    };
    sequence::Entity::insert(row)
        .exec_without_returning(transaction)
        .await?;
    let row = counter::ActiveModel {
        sequence: Set(name.as_str().to_owned()),
        period: Set(NO_PERIOD.to_owned()),
        next_value: Set(definition.start),
        floor: Set(definition.start),
        state: Set(LIVE.to_owned()),
        rate: Set(0.0),
        stripe_count: Set(super::database::STRIPE_COUNT),
        window: Set(0),
        window_open: Set(false),
        window_leased_until: Set(0),
        revision: Set(0),
        version: Set(0),
    };
    counter::Entity::insert(row)
        .exec_without_returning(transaction)
        .await?;
    Ok(())
}

/// How many sequences there are.
pub(super) async fn count(database: DatabaseConnection) -> Result<u64, DbErr> {
    sequence::Entity::find().count(&database).await
}

/// A definition to be written.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) name: SequenceName,
    pub(super) change: DefinitionChange,
    pub(super) template: Arc<Definition>,
    /// Refuse when there is a sequence of that name.
    pub(super) must_not_exist: bool,
    /// Refuse when the sequence is at another version.
    pub(super) must_be_version: Option<i64>,
    /// Refuse to create when there are as many already.
    pub(super) max_sequences: u64,
}

/// What a change came to.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) created: bool,
    pub(super) definition: Arc<Definition>,
    pub(super) version: i64,
    /// False where all was as wanted already; then nothing is committed.
    pub(super) wrote: bool,
}

/// Writes a definition: one transaction that locks the row, raises the counters
/// so that remembered values conflict everywhere, checks, and writes.
pub(super) async fn change(
    database: DatabaseConnection,
    change: Change,
) -> Result<Result<Changed, StoreError>, DbErr> {
    let transaction = database.begin().await?;
    let outcome = change_within(&transaction, change).await?;
    if outcome.as_ref().is_ok_and(|changed| changed.wrote) {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(outcome)
}

async fn change_within(
    transaction: &DatabaseTransaction,
    change: Change,
) -> Result<Result<Changed, StoreError>, DbErr> {
    let mut find = sequence::Entity::find_by_id(change.name.as_str().to_owned());
    // SQLite has one writer and no row locks.
    if transaction.get_database_backend() != sea_orm::DbBackend::Sqlite {
        find = find.lock(LockType::Update);
    }
    let Some(row) = find.one(transaction).await? else {
        return create_within(transaction, change).await;
    };
    if row.state != LIVE {
        return Ok(Err(StoreError::Retired));
    }
    if change.must_not_exist {
        return Ok(Err(StoreError::AlreadyExists));
    }
    if change
        .must_be_version
        .is_some_and(|wanted| wanted != row.version)
    {
        return Ok(Err(StoreError::VersionMismatch {
            current: row.version,
        }));
    }
    let existing = match Definition::from_stored(&row.definition) {
        Ok(existing) => existing,
        Err(error) => return Ok(Err(StoreError::Broken(error.to_string()))),
    };
    raise_counters(transaction, &change.name).await?;
    let Some(counter) = read(transaction, change.name.as_str())
        .await?
        .and_then(|standing| standing.counter())
    else {
        return Ok(Err(without_counter(&change.name)));
    };
    let definition = match change.change.apply(&existing, counter.seen.next_value) {
        Ok(definition) => definition,
        Err(error) => return Ok(Err(StoreError::Definition(error))),
    };
    if definition == existing {
        return Ok(Ok(Changed {
            created: false,
            definition: Arc::new(existing),
            version: row.version,
            wrote: false,
        }));
    }
    let version = raise_definitions_version(transaction).await?;
    sequence::Entity::update_many()
        .col_expr(
            sequence::Column::Definition,
            Expr::val(definition.to_stored()),
        )
        .col_expr(sequence::Column::Version, Expr::val(version))
        .col_expr(sequence::Column::ChangedAt, Expr::val(now_ms()))
        .filter(sequence::Column::Name.eq(change.name.as_str()))
        .exec(transaction)
        .await?;
    Ok(Ok(Changed {
        created: false,
        definition: Arc::new(definition),
        version,
        wrote: true,
    }))
}

async fn create_within(
    transaction: &DatabaseTransaction,
    change: Change,
) -> Result<Result<Changed, StoreError>, DbErr> {
    if change.must_be_version.is_some() {
        return Ok(Err(StoreError::NotFound));
    }
    if sequence::Entity::find().count(transaction).await? >= change.max_sequences {
        return Ok(Err(StoreError::TooMany {
            limit: change.max_sequences,
        }));
    }
    let definition = match change.change.create(&change.template) {
        Ok(definition) => definition,
        Err(error) => return Ok(Err(StoreError::Definition(error))),
    };
    let version = raise_definitions_version(transaction).await?;
    insert(transaction, &change.name, &definition, version).await?;
    Ok(Ok(Changed {
        created: true,
        definition: Arc::new(definition),
        version,
        wrote: true,
    }))
}

async fn raise_counters(
    transaction: &DatabaseTransaction,
    name: &SequenceName,
) -> Result<(), DbErr> {
    counter::Entity::update_many()
        .col_expr(counter::Column::Version, one_more(counter::Column::Version))
        .col_expr(
            counter::Column::Revision,
            one_more(counter::Column::Revision),
        )
        .filter(counter::Column::Sequence.eq(name.as_str()))
        .exec(transaction)
        .await?;
    Ok(())
}

async fn raise_definitions_version(transaction: &DatabaseTransaction) -> Result<i64, DbErr> {
    meta::Entity::update_many()
        .col_expr(
            meta::Column::DefinitionsVersion,
            one_more(meta::Column::DefinitionsVersion),
        )
        .filter(meta::Column::Id.eq(1))
        .exec(transaction)
        .await?;
    let row = meta::Entity::find_by_id(1_i16).one(transaction).await?;
    row.map(|row| row.definitions_version)
        .ok_or_else(|| DbErr::RecordNotFound("meta".to_owned()))
}

/// A page of definitions, names in byte order.
pub(super) async fn list(
    database: DatabaseConnection,
    prefix: String,
    after: String,
    limit: u64,
) -> Result<Vec<sequence::Model>, DbErr> {
    let mut find = sequence::Entity::find()
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

/// The youngest rows of the journal of one sequence.
pub(super) async fn blocks(
    database: DatabaseConnection,
    name: SequenceName,
    limit: u64,
) -> Result<Vec<block::Model>, DbErr> {
    block::Entity::find()
        .filter(block::Column::Sequence.eq(name.as_str()))
        .filter(block::Column::Period.eq(NO_PERIOD))
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
        Cause::NoConnection(_) | Cause::Refused(_) | Cause::ReadOnly(_) | Cause::Broken(_) => {
            StoreError::Unavailable
        }
        // Said where every statement passes, and not for each name.
        Cause::DiskFull => StoreError::Unavailable,
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

pub(super) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
