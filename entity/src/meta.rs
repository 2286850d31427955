//! Maps the table `meta`: one row that says which installation this is and which schema it has.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "meta")]
pub struct Model {
    /// Always 1, because the table holds one row.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i16,
    /// The id of the installation. Databases that share their sequences have one id.
    pub cluster_id: String,
    /// The position of this database among the databases that share its sequences, counted from 0.
    pub stripe_k: i32,
    /// How many databases share the sequences of this one.
    pub stripe_n: i32,
    /// Which Redis servers count in front of the database. `None` if none does.
    pub redis: Option<String>,
    /// The version of the schema that the migrations made.
    pub schema_version: i32,
    /// The oldest program, by its schema version, that can work with this schema.
    pub compatible_from: i32,
    /// Raised by every change of a sequence, and by a recovery.
    pub definitions_version: i64,
    /// When the database was last recovered, in milliseconds since the Unix epoch.
    #[sea_orm(column_name = "last_recovery_at")]
    pub recovered_at: Option<i64>,
    /// What programs before schema 7 take for the last recovery. Once only programs use the database
    /// that know fences, this stays as it is: an older program comes back if it sees a recovery.
    #[sea_orm(column_name = "recovered_at")]
    pub told_older_at: Option<i64>,
    /// How many steps all recoveries together have skipped.
    pub recovered_skip: i64,
    /// No lease of a worker id begins before this time, in milliseconds since the Unix epoch.
    pub leases_from: Option<i64>,
    /// The same for the pools of other programs, if it is later there.
    pub named_leases_from: Option<i64>,
    /// The branch of the last recovery that an operator has ended for counters that are created: no
    /// counter was lost that had not been created before. `None` if every recovery counts for them.
    pub births_after: Option<i64>,
    /// Since when only programs use the database that know fences (Unix ms). `None` while others may.
    pub armed_at: Option<i64>,
    /// Whether an operator wants the database not to be armed, so that an older program can use it.
    pub disarmed: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
