//! Makes schema 2: the journal can be read in the order of its numbers, and from its oldest row on.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

/// Says which schema this step makes. Programs that know schema 1 work with it.
const SCHEMA: i32 = 2;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let by_first = Index::create()
            .name("block_by_first")
            .table(Block::Table)
            .col(Block::Sequence)
            .col(Block::Period)
            .col(Block::First)
            .to_owned();
        create(manager, "block_by_first", by_first).await?;
        let by_age = Index::create()
            .name("block_by_age")
            .table(Block::Table)
            .col(Block::ReservedAt)
            .to_owned();
        create(manager, "block_by_age", by_age).await?;
        let stamp = Query::update()
            .table(Meta::Table)
            .value(Meta::SchemaVersion, SCHEMA)
            .and_where(Expr::col(Meta::SchemaVersion).lt(SCHEMA))
            .to_owned();
        manager.execute(stamp).await
    }
}

/// Creates an index if it is not there yet. MySQL knows no `IF NOT EXISTS` here. Without
/// transactional DDL, an earlier run of this step may have stopped half-way.
async fn create(
    manager: &SchemaManager<'_>,
    name: &str,
    index: IndexCreateStatement,
) -> Result<(), DbErr> {
    if manager.has_index("block", name).await? {
        return Ok(());
    }
    manager.create_index(index).await
}

#[derive(DeriveIden)]
enum Block {
    Table,
    Sequence,
    Period,
    First,
    ReservedAt,
}

#[derive(DeriveIden)]
enum Meta {
    Table,
    SchemaVersion,
}
