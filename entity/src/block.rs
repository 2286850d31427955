//! `block`: the journal, one row a reserved block.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "block")]
pub struct Model {
    /// Drawn by the writer, so that a repeated write is known as such.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub sequence: String,
    /// Empty for a sequence without periods.
    pub period: String,
    pub first: i64,
    /// The last number of the block, itself included.
    pub last: i64,
    pub step: i64,
    /// The process that reserved it.
    pub holder: String,
    /// Milliseconds since the Unix epoch.
    pub reserved_at: i64,
    /// `held`, `spent`, `returned`, `adopted` or `abandoned`.
    pub fate: String,
    /// The first number of the block that its holder did not issue, as of `fate`.
    pub next_unissued: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
