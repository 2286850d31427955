//! Makes schema 3: it records which Redis servers count for this database, and what counts while
//! they are away. Replicas that are configured in another way are refused.

use sea_orm_migration::prelude::*;

use crate::step::{add_column, reach_schema};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let column = ColumnDef::new("redis").text().null().to_owned();
    add_column(manager, "meta", "redis", column).await?;
    reach_schema(manager, crate::REDIS_LIST).await
}
