//! `worker_lease`: who may stamp ids with which worker id, and up to when.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "worker_lease")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub pool: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub worker: i32,
    /// Width of the worker id.
    pub bits: i32,
    pub holder: String,
    pub token_hash: String,
    /// Milliseconds since the Unix epoch, by the database's clock.
    pub expires_at: i64,
    /// No id is stamped at or past it; milliseconds since the Unix epoch.
    pub reserved_until: i64,
    pub version: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
