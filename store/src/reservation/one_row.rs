//! Holds a fault for controls: all periods of a sequence count in one row, which is reset when the
//! period changes. The guard against this fault is a row for each period.

use entity::counter;
use odometer_core::period::{CounterKey, Period};
use odometer_database::session::DatabaseConnection;
use odometer_process::faults::{self, Fault};
use sea_orm::{ColumnTrait, DbErr, QueryFilter, sea_query::Expr};

use crate::{
    error::Attempted,
    reservation::attempts::Reservation,
    rows::counter::{add_one, update},
};

/// Names the period that the one row has.
const ALL: &str = "all";

/// Says that the row has counted in no period yet. The column `window` keeps the last period.
const NONE_YET: i64 = 0;

/// Returns the counter that a reservation counts in.
pub(crate) fn counter_of(key: &CounterKey) -> CounterKey {
    let mut counter = key.clone();
    if faults::is(Fault::OneRow) && !key.period.is_none() {
        counter.period = Period::from_stored(ALL);
    }
    counter
}

impl Reservation<'_> {
    /// Resets the one row to its floor if it counted in another period before.
    pub(crate) async fn reset_one_row(&self) -> Attempted<()> {
        let period = &self.request.key.period;
        if !faults::is(Fault::OneRow) || period.is_none() {
            return Ok(());
        }
        let digits: String = period
            .as_str()
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        let number = digits.parse().unwrap_or(i64::MAX);
        let counter = self.counter.clone();
        let resetting = self.database.connection.run(self.retry.until, |database| {
            reset(database, counter, number)
        });
        Ok(resetting.await?)
    }
}

async fn reset(
    database: DatabaseConnection,
    counter: CounterKey,
    period: i64,
) -> Result<(), DbErr> {
    let of_the_row = || {
        add_one(update(&counter), [counter::Column::Version])
            .col_expr(counter::Column::Window, Expr::val(period))
    };
    of_the_row()
        .filter(counter::Column::Window.eq(NONE_YET))
        .exec(&database)
        .await?;
    of_the_row()
        .col_expr(
            counter::Column::NextValue,
            Expr::col(counter::Column::Floor),
        )
        .filter(counter::Column::Window.ne(period))
        .exec(&database)
        .await?;
    Ok(())
}
