//! Maps the table `sequence`: a name and what was defined for it.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "sequence")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// The definition as JSON text.
    pub definition: String,
    /// `live` or `retired`, or `elsewhere` in a claim.
    pub state: String,
    /// Periods at or before this one were removed. Empty while none was. In a claim, the
    /// installation of the store that the name lives in.
    pub periods_removed_through: String,
    /// The `definitions_version` of the last change.
    pub version: i64,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub changed_at: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
