//! Stands for the step that follows the last one, as a later version may have it. It adds a column
//! that this version neither reads nor writes, and a table of its own.

use sea_orm_migration::prelude::*;

use crate::{
    column::{bigint, table},
    step::Step,
};

/// Says which schema this step makes. The number is far above the shipped one, so that the two are
/// never mistaken for each other.
pub(crate) const SCHEMA_VERSION: i32 = 1_000;

pub(crate) struct Migrator;

#[async_trait::async_trait]
impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        let mut migrations = crate::Migrator::migrations();
        migrations.push(Box::new(Step {
            name: "m9999_next",
            up: |manager| Box::pin(up(manager)),
        }));
        migrations
    }

    fn migration_table_name() -> DynIden {
        crate::Migrator::migration_table_name()
    }
}

async fn up(manager: &SchemaManager<'_>) -> Result<(), DbErr> {
    let backend = manager.get_database_backend();
    let column = ColumnDef::new("of_a_later_version")
        .big_integer()
        .not_null()
        .default(0)
        .to_owned();
    manager
        .alter_table(
            Table::alter()
                .table("counter")
                .add_column(column)
                .to_owned(),
        )
        .await?;
    manager
        .create_table(
            table(backend, "of_a_later_version")
                .col(bigint("id").primary_key().to_owned())
                .to_owned(),
        )
        .await?;
    let stamp = Query::update()
        .table("meta")
        .value("schema_version", SCHEMA_VERSION)
        .value("compatible_from", crate::SCHEMA_VERSION)
        .to_owned();
    manager.execute(stamp).await
}
