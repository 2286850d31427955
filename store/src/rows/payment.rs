//! Lets a write of a counter pay for its numbers within the speed limit of its sequence.
//!
//! The [speed limit](odometer_core::speed_limit) says how far `paced_until_us` may lie ahead of the
//! clock. A write moves it on by what its numbers cost. The statement that raises the counter does
//! both, by the clock of its database. So no other write comes in between, and a replica with a
//! wrong clock cannot reserve more.
//!
//! The time is the one at which the statement began, in all its expressions. If it waits for the
//! lock of the row, it pays from an earlier time on, for which a fence allows.

use entity::counter::{self, Column};
use odometer_core::{definition::Definition, speed_limit::SpeedLimit};
use odometer_database::database_clock;
use odometer_process::faults::{self, Fault};
use sea_orm::{
    DbBackend, QueryFilter, UpdateMany,
    sea_query::{CaseStatement, Expr, ExprTrait},
};

/// Returns how fast the numbers of each counter may be reserved. Each database of a store allows as
/// many.
#[must_use]
pub fn limit_of(definition: &Definition) -> Option<SpeedLimit> {
    definition.limit.filter(|_| !faults::is(Fault::NoLimit))
}

/// What a write pays for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payment {
    limit: SpeedLimit,
    n_numbers: u64,
}

impl Payment {
    /// Returns the payment for numbers of a sequence. `None` if it has no limit.
    pub(crate) fn of(definition: &Definition, n_numbers: u64) -> Option<Self> {
        let limit = limit_of(definition)?;
        Some(Self { limit, n_numbers })
    }

    /// Makes an update pay. It changes nothing if the limit does not allow so many numbers now.
    pub(crate) fn demand(
        self,
        update: UpdateMany<counter::Entity>,
        backend: DbBackend,
    ) -> UpdateMany<counter::Entity> {
        update
            .col_expr(Column::PacedUntilUs, self.paid(backend))
            .filter(self.is_allowed(backend))
    }

    /// Returns the condition that the limit allows so many numbers now. A time that is too far ahead
    /// counts as now, as [`SpeedLimit::reserve`] has it.
    fn is_allowed(self, backend: DbBackend) -> Expr {
        if self.n_numbers > self.limit.burst() {
            return Expr::val(1).eq(0);
        }
        let free_us = self.limit.capacity_us() - self.limit.cost_us(self.n_numbers);
        ahead(backend).not_between(free_us.saturating_add(1), self.limit.horizon_us())
    }

    /// Returns the time up to which the limit is used after the write.
    fn paid(self, backend: DbBackend) -> Expr {
        let free_from: Expr = CaseStatement::new()
            .case(
                ahead(backend).between(1_i64, self.limit.horizon_us()),
                paced_until(),
            )
            .finally(database_clock::now_us(backend))
            .into();
        free_from.add(self.limit.cost_us(self.n_numbers))
    }
}

/// Makes an update keep what was paid for, in numbers, if another limit follows. At most a whole
/// burst of the new limit is kept.
pub(crate) fn keep_debt(
    update: UpdateMany<counter::Entity>,
    (before, after): (SpeedLimit, SpeedLimit),
    backend: DbBackend,
) -> UpdateMany<counter::Entity> {
    let now = || database_clock::now_us(backend);
    let debt_us = || ahead(backend).mul(before.factor_to(after));
    let whole = |expr: Expr| match backend {
        DbBackend::MySql => expr.cast_as("SIGNED"),
        DbBackend::Postgres | DbBackend::Sqlite | _ => expr.cast_as("BIGINT"),
    };
    let capacity_us = after.capacity_us();
    let is_whole = || debt_us().gte(capacity_us);
    // What a clock that was set back put beyond a whole burst stays beyond it: a copy from before
    // the change counts on that. A debt below the capacity is rounded up.
    let beyond_us = || ahead(backend).sub(before.capacity_us());
    let kept = CaseStatement::new()
        .case(
            is_whole().and(beyond_us().gt(0_i64)),
            now().add(beyond_us()).add(capacity_us),
        )
        .case(is_whole(), now().add(capacity_us))
        .finally(now().add(whole(debt_us())).add(1_i64));
    update
        .col_expr(Column::PacedUntilUs, kept.into())
        .filter(ahead(backend).between(1_i64, before.horizon_us()))
}

fn paced_until() -> Expr {
    Expr::col(Column::PacedUntilUs)
}

/// Returns how far ahead of the database's clock the limit has been used, in microseconds.
fn ahead(backend: DbBackend) -> Expr {
    paced_until().sub(database_clock::now_us(backend))
}
