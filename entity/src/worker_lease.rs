//! `worker_lease`: who may stamp ids with which worker id, and up to when.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "worker_lease")]
pub struct Model {
    /// A name; with a `/` before it that of a sequence, which leases for itself.
    #[sea_orm(primary_key, auto_increment = false)]
    pub pool: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub worker: i32,
    /// Width of the worker id.
    pub bits: i32,
    /// Stays the same over the holder's restarts.
    pub holder: String,
    /// SHA-256 in hexadecimal of what the holder was given to show; empty where nobody may.
    pub token_hash: String,
    /// Milliseconds since the Unix epoch, by the database's clock.
    pub expires_at: i64,
    /// No id is stamped at or past it; milliseconds since the Unix epoch. Falls only when its time
    /// is given back unused.
    pub reserved_until: i64,
    /// Counts writes.
    pub version: i64,
    /// The last holder stamps nothing before it; milliseconds since the Unix epoch.
    pub reserved_from: i64,
    /// For how long the last holder asked.
    pub ttl_ms: i64,
    /// Whether the last holder gave it back.
    pub ended: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
