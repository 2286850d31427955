//! What a reservation reads, and what a birth stands on: with the beat, in one statement each.

use entity::{counter, meta, replica, sequence};
use odometer_core::period::CounterKey;
use odometer_database::session::DatabaseConnection;

use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, JoinType,
    sea_query::{Expr, ExprTrait},
};

use crate::Resolved;
use crate::heartbeat::HeartbeatGuard;
use crate::rows::{
    catalog::{self, CatalogEntry},
    counter::WindowRow,
};
use sea_orm::FromQueryResult;

/// A sequence and one of its counters, and this replica's beat, as they stood at one moment.
#[derive(Clone, Debug)]
pub(crate) struct CounterRead {
    /// `None` where the row is gone.
    pub(crate) heartbeat: Option<i64>,
    /// `None` where there is no sequence of that name.
    pub(crate) standing: Option<CatalogEntry>,
}

pub(crate) async fn look(
    database: DatabaseConnection,
    guard: HeartbeatGuard,
    key: CounterKey,
) -> Result<CounterRead, DbErr> {
    let own_row = Expr::col((replica::Entity, replica::Column::Holder)).eq(guard.holder());
    let of_the_name =
        Expr::col((sequence::Entity, sequence::Column::Name)).eq(key.sequence.as_str());
    let query = catalog::standings()
        .column((replica::Entity, replica::Column::Beat))
        // Its one row is there whatever else is not.
        .from(meta::Entity)
        .join(JoinType::LeftJoin, replica::Entity, own_row)
        .join(JoinType::LeftJoin, sequence::Entity, of_the_name)
        .join(
            JoinType::LeftJoin,
            counter::Entity,
            catalog::its_counter(key.period.as_str()),
        )
        .and_where(meta::Column::Id.eq(1))
        .to_owned();
    let Some(row) = database.query_one(&query).await? else {
        return Err(DbErr::RecordNotFound("meta".to_owned()));
    };
    let definition: Option<String> = row.try_get("", "definition")?;
    let standing = definition.map(|_there| CatalogEntry::from_query_result(&row, ""));
    Ok(CounterRead {
        heartbeat: row.try_get("", "beat")?,
        standing: standing.transpose()?,
    })
}

/// Where sequences with strict order count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrictIn {
    /// In their row.
    Row,
    /// In their row for now, where no window of Redis is open and no lease of one is left.
    RowBesideRedis,
    /// Not here.
    Redis,
}

/// What is known of a sequence and a counter that were just read.
pub(crate) struct Looked {
    pub(crate) known: Resolved,
    pub(crate) rate: Option<f64>,
    pub(crate) window: WindowRow,
}
