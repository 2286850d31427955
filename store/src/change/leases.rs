//! Voids all leases of worker ids, for `odometer recover`.
//!
//! No id may be used by another process before its last holder has certainly stopped. The database
//! may have forgotten leases. Processes hold such leases for as long as they asked for, and may
//! come back with tokens that an older row has. So no token is valid any more, and each id rests
//! for the longest time that any lease reaches ahead.

use std::time::Duration;

use entity::{meta, worker_lease};
use odometer_database::{database_clock, session::DatabaseTransaction, start_error::StartError};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::{CaseStatement, Expr, ExprTrait},
};

use super::recover::VERSIONS;
use crate::worker_lease::{
    baseline::named_from,
    lease::{LONGEST_TTL, MAX_AHEAD_MS},
};

/// Sets the least time for which ids rest. A lease reaches this far ahead if no definition says
/// otherwise.
const HOLD_MIN: Duration = Duration::from_secs(15 * 60);
/// Divides the names of pools: those of sequences sort before it, and those of other programs do
/// not.
const FIRST_NAME: &str = "0";

/// The clocks of this machine and of the database, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockPair {
    pub(crate) ours_ms: i64,
    database_ms: i64,
}

impl ClockPair {
    pub(crate) async fn read(transaction: &DatabaseTransaction) -> Result<Self, DbErr> {
        let database_ms = database_clock::read(transaction).await?;
        Ok(Self {
            ours_ms: now_ms(),
            database_ms,
        })
    }

    /// Checks that the clocks are close together.
    ///
    /// # Errors
    /// The clocks are more than 5 minutes apart, so neither says from when on worker ids may be
    /// used.
    pub(crate) fn check(self) -> Result<(), StartError> {
        let apart_ms = self.ours_ms.abs_diff(self.database_ms);
        if apart_ms <= MAX_AHEAD_MS.unsigned_abs() || faults::is(Fault::AnyClock) {
            return Ok(());
        }
        Err(StartError::Other(format!(
            "nothing was changed: the clock of this machine and that of the database are {} s \
             apart, more than 5 minutes, so neither says from when on worker ids may be used; set \
             them right, or run this on a machine whose clock is",
            apart_ms / 1000
        )))
    }

    /// Returns a time that is `rest_ms` after both clocks, and also after any clock by which time
    /// was reserved. Such a clock may be 5 minutes ahead.
    fn after(self, rest_ms: i64) -> i64 {
        Ord::max(self.ours_ms, self.database_ms)
            .saturating_add(rest_ms)
            .saturating_add(MAX_AHEAD_MS)
    }
}

/// The outcome of voiding the leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voided {
    pub(crate) n_leases: u64,
    /// From this time on, all ids can be used (Unix ms).
    pub(crate) used_from_ms: i64,
    /// No new lease begins before this time (Unix ms). In pools of other programs the time is
    /// [later](named_from).
    pub(crate) leases_from_ms: i64,
}

/// Voids all leases. `hold` is how far ahead sequences reserve time.
///
/// In pools of other programs, ids rest for the longest lease that can be asked for. The database
/// may have forgotten such a lease.
pub(crate) async fn void(
    transaction: &DatabaseTransaction,
    clocks: ClockPair,
    hold: Duration,
    meta: &meta::Model,
    recovered_at: i64,
) -> Result<Voided, DbErr> {
    let hold = i64::try_from(Ord::max(hold, HOLD_MIN).as_millis()).unwrap_or(i64::MAX);
    let longest = i64::try_from(LONGEST_TTL.as_millis()).unwrap_or(i64::MAX);
    let mut leases_from_ms = Ord::max(clocks.after(hold), meta.leases_from.unwrap_or(0));
    let mut n_leases = 0;
    let pool = || Expr::col(worker_lease::Column::Pool);
    for (pools, rest_ms, is_sequences) in [
        (pool().lt(FIRST_NAME), hold, true),
        (pool().gte(FIRST_NAME), longest, false),
    ] {
        // A lease from a program with other bounds may be longer.
        let longest_ms = longest_in(transaction, pools.clone()).await?;
        let from_ms = clocks.after(Ord::max(rest_ms, longest_ms));
        n_leases += void_in(transaction, pools, from_ms).await?;
        if is_sequences {
            leases_from_ms = Ord::max(leases_from_ms, from_ms);
        }
    }
    Ok(Voided {
        n_leases,
        used_from_ms: Ord::max(leases_from_ms, named_from(Some(recovered_at))),
        leases_from_ms,
    })
}

/// Returns the longest time for which a lease of these pools was asked for (ms).
async fn longest_in(transaction: &DatabaseTransaction, pools: Expr) -> Result<i64, DbErr> {
    let longest_ms: Option<Option<i64>> = worker_lease::Entity::find()
        .select_only()
        .column_as(worker_lease::Column::TtlMs.max(), "longest_ms")
        .filter(pools)
        .into_tuple()
        .one(transaction)
        .await?;
    Ok(longest_ms.flatten().unwrap_or(0))
}

async fn void_in(
    transaction: &DatabaseTransaction,
    pools: Expr,
    from_ms: i64,
) -> Result<u64, DbErr> {
    let until = || Expr::col(worker_lease::Column::ReservedUntil);
    let raised = CaseStatement::new()
        .case(until().lt(from_ms), from_ms)
        .finally(until());
    let voided = worker_lease::Entity::update_many()
        .col_expr(worker_lease::Column::ReservedUntil, raised.into())
        .col_expr(worker_lease::Column::TokenHash, Expr::val(""))
        .col_expr(worker_lease::Column::Ended, Expr::val(true))
        .col_expr(
            worker_lease::Column::Version,
            Expr::col(worker_lease::Column::Version).add(VERSIONS),
        )
        .filter(pools)
        .exec(transaction)
        .await?;
    Ok(voided.rows_affected)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_far_apart_decide_nothing() {
        let apart = |ms: i64| ClockPair {
            ours_ms: 1_000_000,
            database_ms: 1_000_000 + ms,
        };
        for ms in [0, MAX_AHEAD_MS, -MAX_AHEAD_MS] {
            assert!(apart(ms).check().is_ok(), "{ms}");
        }
        for ms in [MAX_AHEAD_MS + 1, -MAX_AHEAD_MS - 1] {
            assert!(apart(ms).check().is_err(), "{ms}");
        }
        assert_eq!(apart(7).after(10), 1_000_017 + MAX_AHEAD_MS);
    }
}
