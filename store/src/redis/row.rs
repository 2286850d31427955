//! The statements on a counter's row: windows are opened, raised, leased and closed there.
//!
//! Each names the window that it is about and is one conditional update: it finds its row, or it did
//! not happen. While a window is open, everything from its base up to `next_value` is its own,
//! because nothing else raises `next_value` then.

use entity::{counter, meta};
use odometer_core::period::CounterKey;
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter, UpdateMany,
    sea_query::{CaseStatement, Expr, ExprTrait, Query},
};

use crate::heartbeat::HeartbeatGuard;
use crate::redis::window::LEASE_MS;
use crate::rows::{
    catalog::one_more,
    counter::SeenCounter,
    strict_counter::{add_and_read, leases_are_over},
};

/// A database with Redis before it shares its sequences with none.
const STRIPE_COUNT: i32 = 1;

/// The counter that a statement is about, and on whose strength.
#[derive(Clone, Debug)]
pub(crate) struct GuardedCounter {
    pub(crate) key: CounterKey,
    pub(crate) guard: HeartbeatGuard,
}

impl GuardedCounter {
    /// An update of the row, which counts as a write of it.
    fn update(&self) -> UpdateMany<counter::Entity> {
        counter::Entity::update_many()
            .col_expr(counter::Column::Version, one_more(counter::Column::Version))
            .filter(counter::Column::Sequence.eq(self.key.sequence.as_str()))
            .filter(counter::Column::Period.eq(self.key.period.as_str()))
            .filter(counter::Column::StripeCount.eq(STRIPE_COUNT))
            .filter(self.guard.holds())
    }

    fn update_open(&self, window: i64) -> UpdateMany<counter::Entity> {
        self.update()
            .filter(counter::Column::Window.eq(window))
            .filter(counter::Column::WindowOpen.eq(true))
    }

    /// Opens the next window; the counter after it, from which the window's base follows, or `None`
    /// where the row was another one.
    pub(crate) async fn open(
        self,
        database: DatabaseConnection,
        opening: Opening,
    ) -> Result<Option<SeenCounter>, DbErr> {
        let backend = database.get_database_backend();
        let least_version = opening.seen.version.saturating_add(1);
        let length = opening.length;
        let update = |raised| self.opening(backend, &opening, raised);
        add_and_read(database, length, least_version, update).await
    }

    fn opening(
        &self,
        backend: DbBackend,
        opening: &Opening,
        raised: Expr,
    ) -> UpdateMany<counter::Entity> {
        let mut update = self
            .update()
            .col_expr(counter::Column::NextValue, raised)
            .col_expr(counter::Column::Window, one_more(counter::Column::Window))
            .col_expr(counter::Column::WindowOpen, Expr::val(true))
            .col_expr(
                counter::Column::Revision,
                one_more(counter::Column::Revision),
            )
            .col_expr(counter::Column::Rate, Expr::val(opening.rate))
            .filter(counter::Column::Window.eq(opening.window))
            // The definition that is known here is the one that counts.
            .filter(counter::Column::Revision.eq(opening.revision))
            .filter(counter::Column::NextValue.lte(opening.end.saturating_sub(opening.length)));
        if !faults::is(Fault::NoWentBackChecks) {
            update = update
                .filter(counter::Column::NextValue.gte(opening.seen.next_value))
                .filter(counter::Column::Version.gte(opening.seen.version));
        }
        if opening.is_leased && !faults::is(Fault::NoLease) {
            update = update
                .filter(counter::Column::WindowOpen.eq(false))
                .filter(leases_are_over(backend));
        }
        update
    }

    /// Raises the ceiling of a window that is open from just where it is.
    pub(crate) async fn raise(
        self,
        database: DatabaseConnection,
        window: i64,
        ceiling: i64,
        length: i64,
        rate: f64,
    ) -> Result<bool, DbErr> {
        let raised = Expr::col(counter::Column::NextValue).add(length);
        let mut update = self
            .update_open(window)
            .col_expr(counter::Column::NextValue, raised)
            .col_expr(counter::Column::Rate, Expr::val(rate));
        if !faults::is(Fault::CeilingFromRow) {
            update = update.filter(counter::Column::NextValue.eq(ceiling));
        }
        Ok(update.exec(&database).await?.rows_affected == 1)
    }

    /// Closes a window: nobody raises it or takes a lease of it any more.
    pub(crate) async fn close(
        self,
        database: DatabaseConnection,
        window: i64,
    ) -> Result<bool, DbErr> {
        let update = self
            .update_open(window)
            .col_expr(counter::Column::WindowOpen, Expr::val(false))
            .col_expr(
                counter::Column::Revision,
                one_more(counter::Column::Revision),
            );
        Ok(update.exec(&database).await?.rows_affected == 1)
    }

    /// Takes or prolongs the lease of a window that is open. It is all replicas' together: the
    /// latest end counts.
    pub(crate) async fn lease(
        self,
        database: DatabaseConnection,
        window: i64,
    ) -> Result<bool, DbErr> {
        let until =
            || database_clock::now(database.get_database_backend()).add(i64::from(LEASE_MS));
        let column = || Expr::col(counter::Column::WindowLeasedUntil);
        let latest = CaseStatement::new()
            .case(column().lt(until()), until())
            .finally(column());
        let update = self
            .update_open(window)
            .col_expr(counter::Column::WindowLeasedUntil, latest.into());
        Ok(update.exec(&database).await?.rows_affected == 1)
    }

    /// Ends a lease that has lasted longer than any can, of a window that is closed all the time.
    pub(crate) async fn end_lease(
        self,
        database: DatabaseConnection,
        window: i64,
        until: i64,
    ) -> Result<bool, DbErr> {
        let update = self
            .update()
            .col_expr(counter::Column::WindowLeasedUntil, Expr::val(0_i64))
            .filter(counter::Column::Window.eq(window))
            .filter(counter::Column::WindowOpen.eq(false))
            .filter(counter::Column::WindowLeasedUntil.eq(until));
        Ok(update.exec(&database).await?.rows_affected == 1)
    }
}

/// A window that is to be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// The one before it, and the counter's count of changes, as they were read.
    pub(crate) window: i64,
    pub(crate) revision: i64,
    /// The counter was never below.
    pub(crate) seen: SeenCounter,
    /// By how much `next_value` rises.
    pub(crate) length: i64,
    /// The first number that the sequence does not have.
    pub(crate) end: i64,
    pub(crate) rate: f64,
    /// Whether the window before must be closed, and every lease of it over.
    pub(crate) is_leased: bool,
}

/// What is left of the last window's leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseLeft {
    /// In milliseconds, by the database's clock; not more than 0 where they are over.
    pub(crate) ms: i64,
    /// As the row has it.
    pub(crate) until: i64,
}

/// For how much longer replicas may step in the last window.
pub(crate) async fn lease_left(
    database: DatabaseConnection,
    key: CounterKey,
) -> Result<LeaseLeft, DbErr> {
    let now = database_clock::now(database.get_database_backend());
    let query = Query::select()
        .column(counter::Column::WindowLeasedUntil)
        .expr_as(
            Expr::col(counter::Column::WindowLeasedUntil).sub(now),
            "left_ms",
        )
        .from(counter::Entity)
        .and_where(counter::Column::Sequence.eq(key.sequence.as_str()))
        .and_where(counter::Column::Period.eq(key.period.as_str()))
        .to_owned();
    match database.query_one(&query).await? {
        Some(row) => Ok(LeaseLeft {
            ms: row.try_get("", "left_ms")?,
            until: row.try_get("", "window_leased_until")?,
        }),
        None => Ok(LeaseLeft { ms: 0, until: 0 }),
    }
}

/// The counter's high-water mark.
pub(crate) async fn next_value(
    database: DatabaseConnection,
    key: CounterKey,
) -> Result<i64, DbErr> {
    let query = Query::select()
        .column(counter::Column::NextValue)
        .from(counter::Entity)
        .and_where(counter::Column::Sequence.eq(key.sequence.as_str()))
        .and_where(counter::Column::Period.eq(key.period.as_str()))
        .to_owned();
    match database.query_one(&query).await? {
        Some(row) => row.try_get("", "next_value"),
        None => Err(DbErr::RecordNotFound("counter".to_owned())),
    }
}

/// Which installation the database is of.
pub(crate) async fn cluster_id(database: DatabaseConnection) -> Result<String, DbErr> {
    let query = Query::select()
        .column(meta::Column::ClusterId)
        .from(meta::Entity)
        .and_where(meta::Column::Id.eq(1))
        .to_owned();
    match database.query_one(&query).await? {
        Some(row) => row.try_get("", "cluster_id"),
        None => Err(DbErr::RecordNotFound("meta".to_owned())),
    }
}
