//! `counter`: how far a sequence, or one of its periods, has been reserved.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "counter")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub sequence: String,
    /// Empty for a sequence without periods.
    #[sea_orm(primary_key, auto_increment = false)]
    pub period: String,
    /// The high-water mark: the first number that nobody has reserved. Never falls.
    pub next_value: i64,
    /// Nothing below it is issued.
    pub floor: i64,
    /// `live` or `removed`.
    pub state: String,
    /// Five-minute average at the last reservation, in numbers a second.
    pub rate: f64,
    /// How many databases shared the sequence when the row was written.
    pub stripe_count: i32,
    /// The open Redis window's number.
    pub window: i64,
    pub window_open: bool,
    /// Milliseconds since the Unix epoch.
    pub window_leased_until: i64,
    /// Counts changes: definition, floor, retirement, removal, window, recovery.
    pub revision: i64,
    /// Counts writes.
    pub version: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
