//! Reads which sequences were changed, in the order of the changes.

use std::sync::Arc;

use entity::{counter, sequence};
use odometer_core::name::SequenceName;
use odometer_database::session::DatabaseConnection;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbErr, FromQueryResult, Iterable, JoinType, Order,
    sea_query::{Expr, ExprTrait, Query},
};

use crate::{outcome::Changed, rows::catalog};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::change::refresh";

/// Bounds the sequences of one statement, and of one piece of news.
pub(super) const PAGE: usize = 1000;

/// A changed sequence, and the floor of its counter without period, if it has such a counter.
pub(super) type ChangedRow = (sequence::Model, Option<i64>);

/// Returns what is told of a changed sequence. `None` if its row cannot be read.
pub(super) fn changed((row, floor): ChangedRow, store: &str) -> Option<Changed> {
    let broken = |error: String| {
        tracing::error!(
            target: TARGET,
            sequence = row.name,
            error,
            "a stored definition cannot be read"
        );
    };
    let name = SequenceName::parse(&row.name)
        .map_err(|error| broken(error.to_string()))
        .ok()?;
    // Floor and state hold even if a newer version wrote a definition that this version cannot
    // read.
    let definition = catalog::read_definition(&row.definition, store)
        .map_err(|error| broken(error.to_string()))
        .ok()
        .map(Arc::new);
    Some(Changed {
        name,
        is_live: row.state == catalog::LIVE,
        definition,
        version: row.version,
        floor: floor.unwrap_or(0),
    })
}

/// Returns a page of the changes after a position, in the order of the changes.
pub(super) async fn changed_after(
    database: DatabaseConnection,
    (version, name): (i64, Option<String>),
) -> Result<Vec<ChangedRow>, DbErr> {
    let mut behind = Condition::any().add(sequence::Column::Version.gt(version));
    if let Some(name) = name {
        behind = behind.add(
            sequence::Column::Version
                .eq(version)
                .and(sequence::Column::Name.gt(name)),
        );
    }
    let query = Query::select()
        .columns(sequence::Column::iter().map(|column| (sequence::Entity, column)))
        .column((counter::Entity, counter::Column::Floor))
        .from(sequence::Entity)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            catalog::its_counter(catalog::NO_PERIOD),
        )
        .cond_where(behind)
        .and_where(Expr::col((sequence::Entity, sequence::Column::State)).ne(catalog::ELSEWHERE))
        .order_by((sequence::Entity, sequence::Column::Version), Order::Asc)
        .order_by((sequence::Entity, sequence::Column::Name), Order::Asc)
        .limit(u64::try_from(PAGE).unwrap_or(u64::MAX))
        .to_owned();
    let rows = database.query_all(&query).await?;
    rows.iter()
        .map(|row| {
            Ok((
                sequence::Model::from_query_result(row, "")?,
                row.try_get("", "floor")?,
            ))
        })
        .collect()
}
