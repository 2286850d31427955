//! Maps the table `counter`: how far a sequence, or one of its periods, has been reserved.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "counter")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub sequence: String,
    /// Empty if the sequence has no periods.
    #[sea_orm(primary_key, auto_increment = false)]
    pub period: String,
    /// The high-water mark: the first number that is not reserved. It never falls.
    pub next_value: i64,
    /// No number below the floor is issued.
    pub floor: i64,
    /// `live` or `removed`.
    pub state: String,
    /// Numbers a second: the five-minute average at the last reservation.
    pub rate: f64,
    /// How many databases shared the sequence when the row was written.
    pub stripe_count: i32,
    /// The number of the Redis window that was opened last.
    pub window: i64,
    pub window_open: bool,
    /// Milliseconds since the Unix epoch.
    pub window_leased_until: i64,
    /// Raised by each change: definition, floor, retirement, removal, window, recovery.
    pub revision: i64,
    /// Raised by each write.
    pub version: i64,
    /// The time up to which the speed limit has been used, by the database's clock (Unix µs). 0 if
    /// nothing was reserved.
    pub paced_until_us: i64,
    /// Whether the counter may have lost commits, and nobody knows how much it must skip.
    pub must_recover: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
