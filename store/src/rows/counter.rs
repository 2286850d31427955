//! Defines a counter as its row has it, and begins the statements about one counter.

use entity::counter;
use odometer_core::period::CounterKey;
use odometer_database::database_clock;
use sea_orm::{
    ColumnTrait, DbBackend, EntityTrait, FromQueryResult, QueryFilter, Select, UpdateMany,
    sea_query::{CaseStatement, Expr, ExprTrait},
};

use crate::guard::HeartbeatGuard;

/// How long a lease of a window lasts from the statement that took it, in milliseconds.
pub(crate) const LEASE_MS: u32 = 800;

/// A counter as it was last seen. Both values only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromQueryResult)]
pub struct SeenCounter {
    /// The high-water mark.
    pub next_value: i64,
    pub version: i64,
}

/// The counter's part of a [`CatalogEntry`].
#[derive(Clone, Copy, Debug, FromQueryResult)]
pub(crate) struct CounterRow {
    #[sea_orm(nested)]
    pub(crate) seen: SeenCounter,
    pub(crate) revision: i64,
    pub(crate) floor: i64,
    pub(crate) rate: f64,
    /// The time up to which the speed limit has been used, by the database's clock (Unix µs).
    pub(crate) paced_until_us: i64,
    /// Whether the counter may have lost commits, and nobody knows how much it must skip.
    pub(crate) must_recover: bool,
    /// Whether the counter is only a tombstone. The entry says so.
    #[sea_orm(skip)]
    pub(crate) is_removed: bool,
    #[sea_orm(nested)]
    pub(crate) window: WindowRow,
}

/// The window in which Redis counts, as the counter's row has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromQueryResult)]
pub(crate) struct WindowRow {
    /// The number of the last window that was opened.
    #[sea_orm(from_alias = "window")]
    pub(crate) number: i64,
    /// Whether numbers of this window may be issued.
    #[sea_orm(from_alias = "window_open")]
    pub(crate) is_open: bool,
}

/// Returns when the leases of a window end if one of them is taken now: the latest end counts.
pub(crate) fn leased_from_now(backend: DbBackend) -> Expr {
    let until = || database_clock::now(backend).add(i64::from(LEASE_MS));
    let column = || Expr::col(counter::Column::WindowLeasedUntil);
    let latest = CaseStatement::new().case(column().lt(until()), until());
    latest.finally(column()).into()
}

/// Returns a query that reads one counter.
pub(crate) fn find(key: &CounterKey) -> Select<counter::Entity> {
    let (sequence, period) = (key.sequence.as_str(), key.period.as_str());
    counter::Entity::find_by_id((sequence.to_owned(), period.to_owned()))
}

/// Returns a statement that updates one counter.
pub(crate) fn update(key: &CounterKey) -> UpdateMany<counter::Entity> {
    counter::Entity::update_many()
        .filter(counter::Column::Sequence.eq(key.sequence.as_str()))
        .filter(counter::Column::Period.eq(key.period.as_str()))
}

/// Makes an update add one to these columns.
pub(crate) fn add_one<const N: usize>(
    update: UpdateMany<counter::Entity>,
    columns: [counter::Column; N],
) -> UpdateMany<counter::Entity> {
    let add = |update: UpdateMany<_>, column| update.col_expr(column, Expr::col(column).add(1));
    columns.into_iter().fold(update, add)
}

/// Returns a statement that raises version and revision of counters and closes their windows. So
/// counters that a process remembers conflict.
pub(crate) fn outdate() -> UpdateMany<counter::Entity> {
    let raised = [counter::Column::Version, counter::Column::Revision];
    add_one(counter::Entity::update_many(), raised)
        .col_expr(counter::Column::WindowOpen, Expr::val(false))
}

/// A counter, and what guards each write to it: the numbers of its database, and the heartbeat of
/// this replica.
#[derive(Clone, Debug)]
pub(crate) struct GuardedCounter {
    pub(crate) key: CounterKey,
    /// How many databases share the sequence.
    pub(crate) stripe_count: i32,
    pub(crate) guard: HeartbeatGuard,
}

impl GuardedCounter {
    /// Begins an update of the counter's row, which also raises the row's version.
    pub(crate) fn update(&self) -> UpdateMany<counter::Entity> {
        add_one(update(&self.key), [counter::Column::Version])
            .filter(counter::Column::StripeCount.eq(self.stripe_count))
            .filter(counter::Column::MustRecover.eq(false))
            .filter(self.guard.holds())
    }
}
