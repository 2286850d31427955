//! Makes schema 2: the journal can be read in the order of its numbers, and from its oldest row on.

use sea_orm_migration::prelude::*;

use crate::step::{create_index, reach_schema};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let by_first = ["sequence", "period", "first"];
        create_index(manager, "block", "block_by_first", &by_first).await?;
        create_index(manager, "block", "block_by_age", &["reserved_at"]).await?;
        reach_schema(manager, crate::JOURNAL_INDEX).await
    }
}
