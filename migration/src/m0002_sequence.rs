//! Makes the table `sequence`: names and what was defined for them.

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
                table(backend, Sequence::Table)
                    .col(ascii(backend, Sequence::Name, NAME_LENGTH).primary_key())
                    .col(ColumnDef::new(Sequence::Definition).text().not_null())
                    .col(ascii(backend, Sequence::State, 16))
                    .col(ascii(
                        backend,
                        Sequence::PeriodsRemovedThrough,
                        PERIOD_LENGTH,
                    ))
                    .col(bigint(Sequence::Version))
                    .col(bigint(Sequence::CreatedAt))
                    .col(bigint(Sequence::ChangedAt))
                    .to_owned(),
            )
            .await?;
        manager
            .create_index(
                Index::create()
                    .name("sequence_version")
                    .table(Sequence::Table)
                    .col(Sequence::Version)
                    .if_not_exists()
                    .to_owned(),
            )
            .await
    }
}

#[derive(DeriveIden)]
enum Sequence {
    Table,
    Name,
    Definition,
    State,
    PeriodsRemovedThrough,
    Version,
    CreatedAt,
    ChangedAt,
}
