//! Raises, leases and closes windows, by statements on the counter's row. An
//! [addition](crate::rows::addition) opens them.
//!
//! Each statement names its window and is one conditional update: it finds its row, or it did not
//! happen. While a window is open, all numbers from its base up to `next_value` belong to it,
//! because nothing else raises `next_value` then.

use entity::counter;
use odometer_core::period::CounterKey;
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, QueryFilter, QuerySelect, UpdateMany,
    sea_query::{Expr, ExprTrait},
};

use crate::meta_row;
use crate::reservation::pace::Bucket;
use crate::rows::counter::{self as counter_row, GuardedCounter, add_one, leased_from_now};
use crate::rows::payment::Payment;

impl GuardedCounter {
    fn update_open(&self, window: i64) -> UpdateMany<counter::Entity> {
        self.update()
            .filter(counter::Column::Window.eq(window))
            .filter(counter::Column::WindowOpen.eq(true))
    }

    /// Raises the ceiling of an open window, if the row's ceiling is exactly `ceiling`.
    pub(crate) async fn raise(
        self,
        database: DatabaseConnection,
        (window, ceiling): (i64, i64),
        (length, payment): (i64, Option<Payment>),
        rate: f64,
    ) -> Result<bool, DbErr> {
        let raised = Expr::col(counter::Column::NextValue).add(length);
        let mut update = self
            .update_open(window)
            .col_expr(counter::Column::NextValue, raised)
            .col_expr(counter::Column::Rate, Expr::val(rate));
        if let Some(payment) = payment {
            update = payment.demand(update, database.get_database_backend());
        }
        if !faults::is(Fault::CeilingFromRow) {
            update = update.filter(counter::Column::NextValue.eq(ceiling));
        }
        Ok(update.exec(&database).await?.rows_affected == 1)
    }

    /// Closes a window. From then on no replica raises it or takes a lease of it.
    pub(crate) async fn close(
        self,
        database: DatabaseConnection,
        window: i64,
    ) -> Result<bool, DbErr> {
        let update = add_one(self.update_open(window), [counter::Column::Revision])
            .col_expr(counter::Column::WindowOpen, Expr::val(false));
        Ok(update.exec(&database).await?.rows_affected == 1)
    }

    /// Takes or prolongs the lease of an open window. All replicas share one lease: the latest end
    /// counts.
    pub(crate) async fn lease(
        self,
        database: DatabaseConnection,
        window: i64,
    ) -> Result<bool, DbErr> {
        let latest = leased_from_now(database.get_database_backend());
        let update = self
            .update_open(window)
            .col_expr(counter::Column::WindowLeasedUntil, latest);
        Ok(update.exec(&database).await?.rows_affected == 1)
    }

    /// Ends a lease whose end lies further ahead than any lease can last. The window must be closed
    /// and the lease unchanged since it was read.
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

/// What is left of the leases of the last window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseLeft {
    /// The time that is left, in milliseconds by the database's clock. 0 or less if the leases are
    /// over.
    pub(crate) ms: i64,
    /// The end of the leases, as the row has it.
    pub(crate) until: i64,
}

/// Reads for how much longer replicas may step in the last window.
pub(crate) async fn lease_left(
    database: DatabaseConnection,
    key: CounterKey,
) -> Result<LeaseLeft, DbErr> {
    let now = database_clock::now(database.get_database_backend());
    let left_ms = Expr::col(counter::Column::WindowLeasedUntil).sub(now);
    let left: Option<(i64, i64)> = counter_row::find(&key)
        .select_only()
        .expr_as(left_ms, "left_ms")
        .column(counter::Column::WindowLeasedUntil)
        .into_tuple()
        .one(&database)
        .await?;
    let (ms, until) = left.unwrap_or_default();
    Ok(LeaseLeft { ms, until })
}

/// Reads how far the speed limit has been used, if the row still has this window open up to this
/// ceiling.
pub(crate) async fn bucket(
    database: DatabaseConnection,
    key: CounterKey,
    (window, ceiling): (i64, i64),
) -> Result<Option<Bucket>, DbErr> {
    let now_us = database_clock::now_us(database.get_database_backend());
    let read: Option<(i64, i64)> = counter_row::find(&key)
        .filter(counter::Column::Window.eq(window))
        .filter(counter::Column::WindowOpen.eq(true))
        .filter(counter::Column::NextValue.eq(ceiling))
        .select_only()
        .column(counter::Column::PacedUntilUs)
        .expr_as(now_us, "now_us")
        .into_tuple()
        .one(&database)
        .await?;
    Ok(read.map(|(paced_until_us, now_us)| Bucket::read(paced_until_us, now_us)))
}

/// Reads the counter's high-water mark.
pub(crate) async fn next_value(
    database: DatabaseConnection,
    key: CounterKey,
) -> Result<i64, DbErr> {
    let find = counter_row::find(&key).select_only();
    let column = find.column(counter::Column::NextValue);
    let next_value = column.into_tuple().one(&database).await?;
    next_value.ok_or_else(|| DbErr::RecordNotFound("counter".to_owned()))
}

/// Reads the `cluster_id` of the database's installation.
pub(crate) async fn cluster_id(database: DatabaseConnection) -> Result<String, DbErr> {
    let meta = meta_row::read(meta_row::plain(), &database).await?;
    Ok(meta.cluster_id)
}
