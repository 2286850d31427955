//! Makes schema 6: a counter knows up to which time its speed limit has been used.

use sea_orm_migration::prelude::*;

use crate::step::{add_column, reach_schema};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let mut column = ColumnDef::new("paced_until_us");
    // Programs of the schema before create counters without this column.
    let column = column.big_integer().not_null().default(0).to_owned();
    add_column(manager, "counter", "paced_until_us", column).await?;
    reach_schema(manager, crate::SPEED_LIMIT).await
}
