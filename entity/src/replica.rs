//! Maps the table `replica`: one row for each start of a process, raised with each heartbeat.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "replica")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub holder: String,
    pub beat: i64,
    /// Milliseconds since the Unix epoch. Below zero in a row that is set aside, like `beat`.
    pub beat_at: i64,
    /// Whether the process pays for its numbers, and knows fences.
    pub knows_fences: bool,
    /// Whether the process has ended in order. `beat_at` is then the time of its end.
    pub ended: bool,
    /// The start of the server (as in `lineage`) that this process lived through, and after which
    /// it found its heartbeat as it had left it. `None` if there was none.
    pub vouches: Option<String>,
    /// Whether the process knows how databases are fenced that count together, or in front of which
    /// Redis counts: it pays for what a database skips to catch up, and trusts no start of a server.
    pub knows_sharing: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
