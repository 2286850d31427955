//! `meta`: one row that says which installation this is and which schema it has.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "meta")]
pub struct Model {
    /// Always 1: the table holds one row.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i16,
    /// Which installation; drawn once.
    pub cluster_id: String,
    /// Offset of this database among those that share its sequences.
    pub stripe_k: i32,
    /// How many databases share its sequences.
    pub stripe_n: i32,
    /// The last migration that ran.
    pub schema_version: i32,
    /// The oldest binary, by its schema version, that can work with this schema.
    pub compatible_from: i32,
    /// Raised by every change of a definition.
    pub definitions_version: i64,
    /// When `recover` last ran, in milliseconds since the Unix epoch.
    pub recovered_at: Option<i64>,
    /// How many steps `recover` skipped.
    pub recovered_skip: i64,
    /// Before this no worker id is leased, in milliseconds since the Unix epoch.
    pub leases_from: Option<i64>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
