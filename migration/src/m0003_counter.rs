//! Makes the table `counter`: how far each sequence, or each of its periods, has been reserved.

use sea_orm_migration::prelude::*;

use crate::column::{NAME_LENGTH, PERIOD_LENGTH, ascii, bigint, integer, table};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let backend = manager.get_database_backend();
        manager
            .create_table(
                table(backend, Counter::Table)
                    .col(ascii(backend, Counter::Sequence, NAME_LENGTH))
                    .col(ascii(backend, Counter::Period, PERIOD_LENGTH))
                    .col(bigint(Counter::NextValue))
                    .col(bigint(Counter::Floor))
                    .col(ascii(backend, Counter::State, 16))
                    .col(ColumnDef::new(Counter::Rate).double().not_null())
                    .col(integer(Counter::StripeCount))
                    .col(bigint(Counter::Window))
                    .col(ColumnDef::new(Counter::WindowOpen).boolean().not_null())
                    .col(bigint(Counter::WindowLeasedUntil))
                    .col(bigint(Counter::Revision))
                    .col(bigint(Counter::Version))
                    .primary_key(Index::create().col(Counter::Sequence).col(Counter::Period))
                    .to_owned(),
            )
            .await
    }
}

#[derive(DeriveIden)]
enum Counter {
    Table,
    Sequence,
    Period,
    NextValue,
    Floor,
    State,
    Rate,
    StripeCount,
    Window,
    WindowOpen,
    WindowLeasedUntil,
    Revision,
    Version,
}
