//! Makes the table `worker_lease`: who may issue ids with which worker id, and up to when.

use sea_orm_migration::prelude::*;

use crate::column::{NAME_LENGTH, ascii, bigint, integer, table};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let backend = manager.get_database_backend();
        manager
            .create_table(
                table(backend, WorkerLease::Table)
                    .col(ascii(backend, WorkerLease::Pool, NAME_LENGTH))
                    .col(integer(WorkerLease::Worker))
                    .col(integer(WorkerLease::Bits))
                    .col(ascii(backend, WorkerLease::Holder, NAME_LENGTH))
                    .col(ascii(backend, WorkerLease::TokenHash, 64))
                    .col(bigint(WorkerLease::ExpiresAt))
                    .col(bigint(WorkerLease::ReservedUntil))
                    .col(bigint(WorkerLease::Version))
                    .primary_key(
                        Index::create()
                            .col(WorkerLease::Pool)
                            .col(WorkerLease::Worker),
                    )
                    .to_owned(),
            )
            .await
    }
}

#[derive(DeriveIden)]
enum WorkerLease {
    Table,
    Pool,
    Worker,
    Bits,
    Holder,
    TokenHash,
    ExpiresAt,
    ReservedUntil,
    Version,
}
