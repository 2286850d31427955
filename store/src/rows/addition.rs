//! Adds to counters to which several replicas add at the same time.

use entity::counter;
use odometer_database::{database_clock, session::DatabaseConnection};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, ExprTrait, QueryFilter, QueryTrait, UpdateMany,
    sea_query::{Expr, Func, Query},
};

use crate::rows::{
    counter::{GuardedCounter, SeenCounter, add_one},
    payment::Payment,
};

/// An addition to the high-water mark of a counter, whatever the mark is when the addition is done.
pub(crate) struct Addition {
    pub(crate) counter: GuardedCounter,
    /// The revision that the counter must still have. Each change raises the revision, so the
    /// definition that is known here is still valid.
    pub(crate) revision: i64,
    /// A lower bound for the counter: this process has seen it there. A row below it has gone back.
    pub(crate) seen: SeenCounter,
    /// The length by which the high-water mark rises.
    pub(crate) length: i64,
    /// The first number that the sequence does not have.
    pub(crate) end: i64,
    /// The rate to store with the counter, in numbers a second.
    pub(crate) rate: Option<f64>,
    /// The number of the last window, if the addition opens the next one. The window's base follows
    /// from the counter after the addition.
    pub(crate) opens_after: Option<i64>,
    /// Whether the last window must be closed, with every lease of it over.
    ///
    /// While a window is open, Redis issues the numbers below the high-water mark, and a number
    /// above the mark would come too early. While leases of a closed window last, other replicas
    /// may still issue numbers from it.
    pub(crate) needs_free_row: bool,
    /// What the addition pays for; `None` if the sequence has no speed limit.
    pub(crate) payment: Option<Payment>,
}

impl Addition {
    /// Runs the addition. Returns the counter after it, or `None` if a guard did not hold.
    pub(crate) async fn run(
        self,
        database: DatabaseConnection,
    ) -> Result<Option<SeenCounter>, DbErr> {
        let backend = database.get_database_backend();
        let raised = Expr::col(counter::Column::NextValue).add(self.length);
        if backend == DbBackend::MySql {
            // The reply to the update carries the argument of `LAST_INSERT_ID(expr)`. So no second
            // statement is needed, which might meet another connection.
            let remembered = Func::cust("LAST_INSERT_ID").arg(raised).into();
            let update = self.update(backend, remembered).into_query();
            let done = database.execute(&update).await?;
            if done.rows_affected() != 1 {
                return Ok(None);
            }
            let next_value = i64::try_from(done.last_insert_id())
                .map_err(|_| DbErr::Custom("a counter above 2^63 - 1".to_owned()))?;
            return Ok(Some(SeenCounter {
                next_value,
                // A lower bound: other replicas may have written as well.
                version: self.seen.version.saturating_add(1),
            }));
        }
        let mut update = self.update(backend, raised).into_query();
        update.returning(
            Query::returning().columns([counter::Column::NextValue, counter::Column::Version]),
        );
        // Reads all rows, not only the first one. The end of the reply says whether the commit
        // succeeded.
        let rows = database.query_all(&update).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(SeenCounter {
            next_value: row.try_get("", "next_value")?,
            version: row.try_get("", "version")?,
        }))
    }

    /// Builds the update that sets `next_value` to `raised`.
    fn update(&self, backend: DbBackend, raised: Expr) -> UpdateMany<counter::Entity> {
        let mut update = self
            .counter
            .update()
            .col_expr(counter::Column::NextValue, raised)
            .filter(counter::Column::Revision.eq(self.revision))
            .filter(counter::Column::NextValue.lte(self.end.saturating_sub(self.length)));
        if let Some(rate) = self.rate {
            update = update.col_expr(counter::Column::Rate, Expr::val(rate));
        }
        if let Some(payment) = self.payment {
            update = payment.demand(update, backend);
        }
        if !faults::is(Fault::NoWentBackChecks) {
            update = update
                .filter(counter::Column::NextValue.gte(self.seen.next_value))
                .filter(counter::Column::Version.gte(self.seen.version));
        }
        if let Some(window) = self.opens_after {
            update = add_one(update, [counter::Column::Window, counter::Column::Revision])
                .col_expr(counter::Column::WindowOpen, Expr::val(true))
                .filter(counter::Column::Window.eq(window));
        }
        if self.needs_free_row {
            update = update.filter(counter::Column::WindowOpen.eq(false));
        }
        if self.needs_free_row && !faults::is(Fault::NoLease) {
            // The time is that of the database's clock.
            let leased_until = Expr::col(counter::Column::WindowLeasedUntil);
            update = update.filter(leased_until.lt(database_clock::now(backend)));
        }
        update
    }
}
