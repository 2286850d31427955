//! Inserts the one row of `meta`: a cluster id of its own, one stripe of one, schema 1.

use sea_orm_migration::prelude::*;
use uuid::Uuid;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let row = Query::insert()
            .into_table(Meta::Table)
            .columns([
                Meta::Id,
                Meta::ClusterId,
                Meta::StripeK,
                Meta::StripeN,
                Meta::SchemaVersion,
                Meta::CompatibleFrom,
                Meta::DefinitionsVersion,
                Meta::RecoveredSkip,
            ])
            .values_panic([
                1.into(),
                Uuid::new_v4().to_string().into(),
                0.into(),
                1.into(),
                1.into(),
                1.into(),
                0.into(),
                0.into(),
            ])
            // A server without transactional DDL may have stopped between the row and the record of
            // this step.
            .on_conflict(
                OnConflict::column(Meta::Id)
                    .do_nothing_on([Meta::Id])
                    .to_owned(),
            )
            .to_owned();
        manager.execute(row).await
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
    RecoveredSkip,
}
