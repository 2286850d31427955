//! Keeps worker ids from new holders after a recovery.
//!
//! No id may be used by another process before its last holder has certainly stopped. The database
//! may have forgotten leases.
//!
//! If an operator recovers, nobody knows since when. Processes hold such leases for as long as they
//! asked for, and may come back with tokens that an older row has. So no token is valid any more,
//! and each id rests for the longest time that any lease reaches ahead.
//!
//! A fence knows since when. A forgotten lease that was given since reaches ahead no further than
//! that, or a minute. A forgotten renewal is one of a lease whose row is there: its holder keeps
//! the lease, and the next holder begins after any renewal. A lease that has run out by its row may
//! have been given to somebody else in the lost commits, so its holder does not keep it.

use std::time::Duration;

use entity::{meta, worker_lease};
use odometer_core::speed_limit::fence::Fence;
use odometer_database::{database_clock, session::DatabaseTransaction, start_error::StartError};
use odometer_process::{
    clock::now_ms,
    faults::{self, Fault},
};
use sea_orm::{
    ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect, UpdateMany,
    sea_query::{CaseStatement, Expr, ExprTrait},
};

use super::rise::VERSIONS;
use crate::worker_lease::{
    baseline::{FIRST_REACH_MS, named_from},
    lease::{LONGEST_TTL, MAX_AHEAD_MS},
};

/// Sets the least time for which ids rest. A lease reaches this far ahead if no definition says
/// otherwise.
const HOLD_MIN: Duration = Duration::from_secs(15 * 60);
/// Sets how long after a database was armed a statement may lease that does not know of it. A call
/// takes ten minutes at most, and goes by a look that is a minute old at most.
const SEEN_ARMED_MS: i64 = 15 * 60 * 1000;
/// Divides the names of pools: those of sequences sort before it, and those of other programs do
/// not.
const FIRST_NAME: &str = "0";

/// The clocks of this machine and of the database, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockPair {
    ours_ms: i64,
    pub(crate) database_ms: i64,
}

impl ClockPair {
    pub(crate) async fn read(transaction: &DatabaseTransaction) -> Result<Self, DbErr> {
        let database_ms = database_clock::read(transaction).await?;
        Ok(Self {
            ours_ms: now_ms(),
            database_ms,
        })
    }

    /// Takes the clock of the database for both. A replica that fences may have any clock.
    pub(crate) fn of_database(self) -> Self {
        Self {
            ours_ms: self.database_ms,
            ..self
        }
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
            "nothing was changed: the clock of this machine and the clock of the database are {} \
             s apart, more than 5 minutes. So neither clock says from when on worker ids may be \
             used. Set the clocks right, or run this on a machine with the right time",
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

/// Returns whether all leases that a database may have lost were given by the rule that they reach
/// ahead no further than they have lasted. Replicas keep to that rule soon after they see that the
/// database is armed.
pub(crate) fn are_bounded(fence: &Fence, meta: &meta::Model) -> bool {
    let bounded_from_ms = |armed_at: i64| armed_at.saturating_add(SEEN_ARMED_MS);
    let since_ms = fence.since_us / 1000;
    meta.armed_at
        .is_some_and(|armed_at| since_ms >= bounded_from_ms(armed_at))
}

/// The outcome of voiding the leases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voided {
    pub(crate) n_leases: u64,
    /// From this time on, all ids can be used (Unix ms).
    pub(crate) used_from_ms: i64,
    /// No new lease begins before this time (Unix ms).
    pub(crate) leases_from_ms: i64,
    /// None in a pool of other programs begins before this one, if it is later.
    pub(crate) named_from_ms: Option<i64>,
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
    let mut leases_from_ms = meta.leases_from.unwrap_or(0);
    let mut n_leases = 0;
    for pools in Pools::both(hold) {
        let from_ms = clocks.after(pools.longest_ms(transaction).await?);
        n_leases += void_in(transaction, pools.condition(), from_ms).await?;
        if pools.are_of_sequences {
            leases_from_ms = Ord::max(leases_from_ms, from_ms);
        }
    }
    let named_from_ms = Ord::max(Some(named_from(recovered_at)), meta.named_leases_from);
    Ok(Voided {
        n_leases,
        used_from_ms: Ord::max(leases_from_ms, named_from_ms.unwrap_or(0)),
        leases_from_ms,
        named_from_ms,
    })
}

/// Keeps ids from new holders after a fence, which goes by the clocks of databases alone. Holders
/// whose lease lasts keep it.
pub(crate) async fn rest(
    transaction: &DatabaseTransaction,
    fence: &Fence,
    hold: Duration,
    meta: &meta::Model,
) -> Result<Voided, DbErr> {
    let now_ms = fence.until_us.saturating_add(999) / 1000;
    let age_ms = fence.until_us.saturating_sub(fence.since_us) / 1000 + 1;
    let fresh_ms = now_ms.saturating_add(Ord::max(age_ms, FIRST_REACH_MS));
    let leases_from_ms = Ord::max(fresh_ms, meta.leases_from.unwrap_or(0));
    let mut n_leases = 0;
    for pools in Pools::both(hold) {
        let longest_ms = pools.longest_ms(transaction).await?;
        let renewed_ms = now_ms
            .saturating_add(longest_ms)
            .saturating_add(MAX_AHEAD_MS);
        let of = pools.condition();
        let has_run_out = worker_lease::Column::Ended
            .eq(false)
            .and(Expr::col(worker_lease::Column::ExpiresAt).lt(now_ms));
        let lasts = worker_lease::Column::Ended
            .eq(false)
            .and(Expr::col(worker_lease::Column::ExpiresAt).gte(now_ms));
        raise_in(transaction, of.clone().and(lasts), renewed_ms).await?;
        n_leases += void_in(transaction, of.and(has_run_out), renewed_ms).await?;
    }
    Ok(Voided {
        n_leases,
        used_from_ms: Ord::max(leases_from_ms, meta.named_leases_from.unwrap_or(0)),
        leases_from_ms,
        named_from_ms: meta.named_leases_from,
    })
}

/// Pools of sequences, or those of other programs.
struct Pools {
    are_of_sequences: bool,
    /// How long a lease of them lasts at least, as far as definitions say.
    least: Duration,
}

impl Pools {
    /// Returns both kinds. Sequences reserve time as far ahead as `hold`.
    fn both(hold: Duration) -> [Self; 2] {
        [(true, Ord::max(hold, HOLD_MIN)), (false, LONGEST_TTL)].map(|(are_of_sequences, least)| {
            Self {
                are_of_sequences,
                least,
            }
        })
    }

    fn condition(&self) -> Expr {
        let pool = Expr::col(worker_lease::Column::Pool);
        match self.are_of_sequences {
            true => pool.lt(FIRST_NAME),
            false => pool.gte(FIRST_NAME),
        }
    }

    /// Returns how long a lease of them may last (ms). One from a program with other bounds may be
    /// longer.
    async fn longest_ms(&self, transaction: &DatabaseTransaction) -> Result<i64, DbErr> {
        let least_ms = i64::try_from(self.least.as_millis()).unwrap_or(i64::MAX);
        let longest_ms = longest_in(transaction, self.condition()).await?;
        Ok(Ord::max(least_ms, longest_ms))
    }
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

/// Voids these leases. The next holders begin at `from_ms` or later.
async fn void_in(
    transaction: &DatabaseTransaction,
    these: Expr,
    from_ms: i64,
) -> Result<u64, DbErr> {
    let voided = raising(from_ms)
        .col_expr(worker_lease::Column::TokenHash, Expr::val(""))
        .col_expr(worker_lease::Column::Ended, Expr::val(true))
        .filter(these)
        .exec(transaction)
        .await?;
    Ok(voided.rows_affected)
}

/// Lets the next holders begin at `from_ms` or later, if the present ones do not give the ids back.
async fn raise_in(
    transaction: &DatabaseTransaction,
    these: Expr,
    from_ms: i64,
) -> Result<(), DbErr> {
    raising(from_ms).filter(these).exec(transaction).await?;
    Ok(())
}

fn raising(from_ms: i64) -> UpdateMany<worker_lease::Entity> {
    let until = || Expr::col(worker_lease::Column::ReservedUntil);
    let raised = CaseStatement::new()
        .case(until().lt(from_ms), from_ms)
        .finally(until());
    worker_lease::Entity::update_many()
        .col_expr(worker_lease::Column::ReservedUntil, raised.into())
        .col_expr(
            worker_lease::Column::Version,
            Expr::col(worker_lease::Column::Version).add(VERSIONS),
        )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn leases_are_bounded_a_while_after_the_database_was_armed() {
        let fence = |since_ms: i64| Fence {
            id: 1,
            since_us: since_ms * 1000,
            until_us: i64::MAX,
            n_levels: 0,
            n_steps: 0,
            is_said: false,
        };
        let meta = |armed_at| meta::Model {
            id: 1,
            cluster_id: String::new(),
            stripe_k: 0,
            stripe_n: 1,
            redis: None,
            schema_version: 7,
            compatible_from: 7,
            definitions_version: 0,
            recovered_at: None,
            told_older_at: None,
            recovered_skip: 0,
            leases_from: None,
            named_leases_from: None,
            births_after: None,
            armed_at,
            disarmed: false,
        };
        let armed = meta(Some(1000));
        assert!(are_bounded(&fence(1000 + SEEN_ARMED_MS), &armed));
        assert!(!are_bounded(&fence(999 + SEEN_ARMED_MS), &armed));
        assert!(!are_bounded(&fence(i64::MAX / 1000), &meta(None)));
    }

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
