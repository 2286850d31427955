//! Maps the table `replica`: one row for each start of a process, raised with each heartbeat.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "replica")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub holder: String,
    pub beat: i64,
    /// Milliseconds since the Unix epoch. Below zero in a row that is set aside, like `beat`.
    pub beat_at: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
