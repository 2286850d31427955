//! Makes the table `block`: the journal, with one row for each reserved block.

use sea_orm_migration::prelude::*;

use crate::column::{NAME_LENGTH, PERIOD_LENGTH, ascii, bigint, table};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let backend = manager.get_database_backend();
        manager
            .create_table(
                table(backend, Block::Table)
                    .col(ColumnDef::new(Block::Id).uuid().not_null().primary_key())
                    .col(ascii(backend, Block::Sequence, NAME_LENGTH))
                    .col(ascii(backend, Block::Period, PERIOD_LENGTH))
                    .col(bigint(Block::First))
                    .col(bigint(Block::Last))
                    .col(bigint(Block::Step))
                    .col(ascii(backend, Block::Holder, 64))
                    .col(bigint(Block::ReservedAt))
                    .col(ascii(backend, Block::Fate, 16))
                    .col(bigint(Block::NextUnissued))
                    .to_owned(),
            )
            .await?;
        manager
            .create_index(
                Index::create()
                    .name("block_by_sequence")
                    .table(Block::Table)
                    .col(Block::Sequence)
                    .col(Block::Period)
                    .col(Block::Fate)
                    .col(Block::NextUnissued)
                    .if_not_exists()
                    .to_owned(),
            )
            .await
    }
}

#[derive(DeriveIden)]
enum Block {
    Table,
    Id,
    Sequence,
    Period,
    First,
    Last,
    Step,
    Holder,
    ReservedAt,
    Fate,
    NextUnissued,
}
