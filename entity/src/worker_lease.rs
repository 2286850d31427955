//! Maps the table `worker_lease`: who may issue ids with which worker id, and up to when.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "worker_lease")]
pub struct Model {
    /// The name of the pool. A sequence leases for itself: its pool is its name, with a `/` before
    /// it.
    #[sea_orm(primary_key, auto_increment = false)]
    pub pool: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub worker: i32,
    /// The width of the worker id, in bits.
    pub bits: i32,
    /// The name of the holder. It stays the same over the holder's restarts.
    pub holder: String,
    /// The SHA-256, in hexadecimal, of the token that the holder must show. Empty if no token is
    /// valid.
    pub token_hash: String,
    /// The end of the lease in milliseconds since the Unix epoch, by the database's clock.
    pub expires_at: i64,
    /// The end of the reserved time: no id is issued for this time or later. In milliseconds since
    /// the Unix epoch. It falls only when unused time is given back.
    pub reserved_until: i64,
    /// Raised by each write.
    pub version: i64,
    /// The last holder issues no id for an earlier time. In milliseconds since the Unix epoch.
    pub reserved_from: i64,
    /// For how long the last holder asked, in milliseconds.
    pub ttl_ms: i64,
    /// Whether the last holder gave the lease back.
    pub ended: bool,
    /// When the last holder got the lease, by the database's clock (Unix ms). 0 if a program before
    /// schema 7 gave it.
    pub leased_at: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
