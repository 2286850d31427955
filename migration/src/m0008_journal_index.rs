//! Makes schema 2: the journal can be read in the order of its numbers, and from its oldest row on.

use sea_orm_migration::prelude::*;

use crate::step::{create_index, reach_schema};

pub(crate) async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let by_first = ["sequence", "period", "first"];
    create_index(manager, "block", "block_by_first", &by_first).await?;
    create_index(manager, "block", "block_by_age", &["reserved_at"]).await?;
    reach_schema(manager, crate::JOURNAL_INDEX).await
}
