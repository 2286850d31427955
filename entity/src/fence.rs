//! Maps the table `fence`: each recovery of the database, and how far it raised all counters.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "fence")]
pub struct Model {
    /// Counts the recoveries of this database from 1, in their order.
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i32,
    /// The branch of history that the recovery began: a random number.
    pub branch: i64,
    /// The branch that the database was on before. 0 if it had none.
    pub previous_branch: i64,
    /// No commit that began before this time was lost (Unix µs).
    pub since_us: i64,
    /// When the recovery was made (Unix µs). If it was computed, all numbers are skipped that can
    /// have been reserved before this time.
    pub until_us: i64,
    /// How many times the counters were raised by all that can be reserved from `since_us` to
    /// `until_us`. 0 if they were raised to the line of the copy.
    pub n_levels: i32,
    /// How many steps more the counters were raised by.
    pub n_steps: i64,
    /// Whether an operator said what was lost. Then the counters were raised by `n_steps` alone.
    pub is_said: bool,
    /// The largest rise of a counter.
    pub highest_rise: i64,
    /// The replica that made it, by the name that the journal has for it. Empty if
    /// `odometer recover` made it.
    pub made_by: String,
    /// The time of the recovery (Unix ms). It is after those of all recoveries that were known.
    pub fenced_at: i64,
    /// The only sequence whose counters were raised. `None` if all were.
    pub sequence: Option<String>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
