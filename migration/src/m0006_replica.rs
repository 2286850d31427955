//! Makes the table `replica`: one row for each start of a process, raised with each heartbeat.

use sea_orm_migration::prelude::*;

use crate::column::{ascii, bigint, table};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let backend = manager.get_database_backend();
        manager
            .create_table(
                table(backend, Replica::Table)
                    .col(ascii(backend, Replica::Holder, 64).primary_key())
                    .col(bigint(Replica::Beat))
                    .col(bigint(Replica::BeatAt))
                    .to_owned(),
            )
            .await
    }
}

#[derive(DeriveIden)]
enum Replica {
    Table,
    Holder,
    Beat,
    BeatAt,
}
