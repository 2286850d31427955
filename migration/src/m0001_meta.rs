//! Makes the table `meta`: which installation this is, and which schema it has.

use sea_orm_migration::prelude::*;

use crate::column::{ascii, bigint, integer, table};

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let backend = manager.get_database_backend();
        manager
            .create_table(
                table(backend, Meta::Table)
                    .col(
                        ColumnDef::new(Meta::Id)
                            .small_integer()
                            .not_null()
                            .primary_key(),
                    )
                    .col(ascii(backend, Meta::ClusterId, 36))
                    .col(integer(Meta::StripeK))
                    .col(integer(Meta::StripeN))
                    .col(integer(Meta::SchemaVersion))
                    .col(integer(Meta::CompatibleFrom))
                    .col(bigint(Meta::DefinitionsVersion))
                    .col(ColumnDef::new(Meta::RecoveredAt).big_integer().null())
                    .col(bigint(Meta::RecoveredSkip))
                    .col(ColumnDef::new(Meta::LeasesFrom).big_integer().null())
                    .to_owned(),
            )
            .await
    }
}

#[derive(DeriveIden)]
enum Meta {
    Table,
    Id,
    ClusterId,
    StripeK,
    StripeN,
    SchemaVersion,
    CompatibleFrom,
    DefinitionsVersion,
    RecoveredAt,
    RecoveredSkip,
    LeasesFrom,
}
