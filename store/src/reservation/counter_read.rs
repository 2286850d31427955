//! Reads a sequence, one of its counters and this replica's heartbeat, in one statement.

use entity::{counter, meta, sequence};
use odometer_core::period::CounterKey;
use odometer_database::{database_clock, session::DatabaseConnection};

use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, JoinType,
    sea_query::{Expr, ExprTrait},
};

use crate::Resolved;
use crate::guard::{GuardRead, HeartbeatGuard};
use crate::meta_row;
use crate::reservation::pace::Bucket;
use crate::rows::{
    catalog::{self, CatalogEntry},
    counter::WindowRow,
};
use sea_orm::FromQueryResult;

/// A sequence, one of its counters, and this replica's heartbeat, as they were at one moment.
#[derive(Clone, Debug, FromQueryResult)]
pub(crate) struct CounterRead {
    #[sea_orm(nested)]
    pub(crate) guard: GuardRead,
    /// `None` if there is no sequence with this name.
    #[sea_orm(nested)]
    pub(crate) entry: Option<CatalogEntry>,
    /// The database's clock (Unix µs).
    pub(crate) now_us: i64,
}

pub(crate) async fn look(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    key: CounterKey,
) -> Result<CounterRead, DbErr> {
    let of_the_name =
        Expr::col((sequence::Entity, sequence::Column::Name)).eq(key.sequence.as_str());
    let mut query = catalog::select_entries()
        // `meta` always has one row, so the query finds a row even if the other tables have none.
        .from(meta::Entity)
        .join(JoinType::LeftJoin, sequence::Entity, of_the_name)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            catalog::its_counter(key.period.as_str()),
        )
        .and_where(meta::Column::Id.eq(1))
        .to_owned();
    guard.read_in(&mut query);
    query.expr_as(
        database_clock::now_us(database.get_database_backend()),
        "now_us",
    );
    CounterRead::from_query_result(&meta_row::query(&database, &query).await?, "")
}

/// The place that counts sequences with strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrictIn {
    /// The counter's row in this database.
    Row,
    /// The counter's row, for as long as no window of Redis is open and no lease of a window is
    /// left.
    RowAsFallback,
    /// Redis, so this reservation refuses them.
    Redis,
}

/// The result of reading a sequence and one of its counters.
#[derive(Clone, Debug)]
pub struct ReadCounter {
    pub known: Resolved,
    /// The rate that is stored with the counter, in numbers a second; `None` if it was not read.
    pub rate: Option<f64>,
    pub(crate) window: WindowRow,
    /// How far the speed limit has been used; `None` if it was not read.
    pub(crate) bucket: Option<Bucket>,
}
