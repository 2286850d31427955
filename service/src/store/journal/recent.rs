//! Which names were used most recently, as the journal and the counters tell.

use std::collections::HashSet;

use entity::{block, counter, sequence};
use odometer_core::name::SequenceName;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::store::catalogue::{LIVE, NO_PERIOD};
use crate::store::connection::session::DatabaseConnection;

/// Rows of the journal that are read to find them: the youngest.
const ROWS_READ: u64 = 2_000;
/// Numbers a second below which a name is rare: less than one in a quarter of an hour.
const LEAST_RATE: f64 = 0.001;

/// At most `limit` live names with a rate, those with the youngest blocks first.
pub(in crate::store) async fn names(
    database: DatabaseConnection,
    limit: usize,
) -> Result<Vec<SequenceName>, DbErr> {
    let rows: Vec<String> = block::Entity::find()
        .select_only()
        .column(block::Column::Sequence)
        .filter(block::Column::Period.eq(NO_PERIOD))
        .order_by_desc(block::Column::ReservedAt)
        .limit(ROWS_READ)
        .into_tuple()
        .all(&database)
        .await?;
    let mut met = HashSet::new();
    let recent: Vec<String> = rows
        .into_iter()
        .filter(|name| met.insert(name.clone()))
        .take(limit)
        .collect();
    if recent.is_empty() {
        return Ok(Vec::new());
    }
    let live: HashSet<String> = sequence::Entity::find()
        .select_only()
        .column(sequence::Column::Name)
        .filter(sequence::Column::Name.is_in(recent.iter().map(String::as_str)))
        .filter(sequence::Column::State.eq(LIVE))
        .into_tuple::<String>()
        .all(&database)
        .await?
        .into_iter()
        .collect();
    let busy: HashSet<String> = counter::Entity::find()
        .select_only()
        .column(counter::Column::Sequence)
        .filter(counter::Column::Sequence.is_in(recent.iter().map(String::as_str)))
        .filter(counter::Column::Period.eq(NO_PERIOD))
        .filter(counter::Column::Rate.gte(LEAST_RATE))
        .into_tuple::<String>()
        .all(&database)
        .await?
        .into_iter()
        .collect();
    Ok(recent
        .iter()
        .filter(|name| live.contains(*name) && busy.contains(*name))
        .filter_map(|name| SequenceName::parse(name).ok())
        .collect())
}
