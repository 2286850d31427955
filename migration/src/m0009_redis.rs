//! Makes schema 3: it records which Redis servers count for this database, and what counts while
//! they are away. Replicas that are configured in another way are refused.

use sea_orm_migration::prelude::*;

#[derive(DeriveMigrationName)]
pub(crate) struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // A server without transactional DDL may have stopped between the column and the record of
        // this step.
        if !manager.has_column("meta", "redis").await? {
            let column = ColumnDef::new("redis").text().null().to_owned();
            let table = Table::alter().table("meta").add_column(column).to_owned();
            manager.alter_table(table).await?;
        }
        let stamp = Query::update()
            .table("meta")
            .value("schema_version", crate::REDIS_LIST)
            .and_where(Expr::col("schema_version").lt(crate::REDIS_LIST))
            .to_owned();
        manager.execute(stamp).await
    }
}
