//! Maps the table `block`: the journal, with one row for each reserved block.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "block")]
pub struct Model {
    /// A UUID that the reserving process makes, so that a repeated write is known as such.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Uuid,
    pub sequence: String,
    /// Empty if the sequence has no periods.
    pub period: String,
    pub first: i64,
    /// The last number of the block, which is part of the block.
    pub last: i64,
    pub step: i64,
    /// The process that reserved the block.
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
