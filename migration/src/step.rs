//! Defines a step, and does what several steps do. A server without transactional DDL may have
//! stopped within a step, so each part looks first whether it is done already.

use std::pin::Pin;

use sea_orm_migration::prelude::*;

/// The work of a step.
type Work<'a> = Pin<Box<dyn Future<Output = Result<(), DbErr>> + Send + 'a>>;

/// A step of the schema. It is recorded under its name, which is that of its file.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) up: for<'a> fn(&'a SchemaManager<'a>) -> Work<'a>,
}

impl MigrationName for Step {
    fn name(&self) -> &str {
        self.name
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Step {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        (self.up)(manager).await
    }
}

/// Lists the steps of these modules, each of which has a function `up`.
macro_rules! steps {
    ($($step:ident),+ $(,)?) => {
        vec![$(Box::new($crate::step::Step {
            name: stringify!($step),
            up: |manager| Box::pin($step::up(manager)),
        })),+]
    };
}
pub(crate) use steps;

/// Adds a column if the table does not have it yet.
pub(crate) async fn add_column(
    manager: &SchemaManager<'_>,
    table: &'static str,
    name: &str,
    column: ColumnDef,
) -> Result<(), DbErr> {
    if manager.has_column(table, name).await? {
        return Ok(());
    }
    let mut altered = Table::alter();
    altered.table(table).add_column(column);
    manager.alter_table(altered).await
}

/// Creates an index if the table does not have it yet. MySQL knows no `IF NOT EXISTS` here.
pub(crate) async fn create_index(
    manager: &SchemaManager<'_>,
    table: &'static str,
    name: &'static str,
    columns: &[&'static str],
) -> Result<(), DbErr> {
    if manager.has_index(table, name).await? {
        return Ok(());
    }
    let mut index = Index::create();
    index.name(name).table(table);
    for column in columns {
        index.col(*column);
    }
    manager.create_index(index).await
}

/// Writes which schema the database has now. Programs that know an earlier schema work with it.
pub(crate) async fn reach_schema(manager: &SchemaManager<'_>, version: i32) -> Result<(), DbErr> {
    let stamp = Query::update()
        .table("meta")
        .value("schema_version", version)
        .and_where(Expr::col("schema_version").lt(version))
        .to_owned();
    manager.execute(stamp).await
}
