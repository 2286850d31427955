//! Maps the table `lineage`: one row, by which a database shows where it was last good.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "lineage")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i16,
    /// The branch of history that the database is on: a random number, and 0 before the first
    /// stamp.
    pub branch: i64,
    /// What the server said of itself.
    pub server: String,
    /// What the server said of its start.
    pub started: String,
    /// The transaction that wrote the row, as the server counts transactions.
    pub written_by: i64,
    /// Milliseconds since the Unix epoch, by the database's clock.
    pub stamped_at: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
