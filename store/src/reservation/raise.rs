//! Computes how many numbers to reserve, and reserves them by a conditional update.

use entity::counter;
use odometer_core::{
    block::Block,
    definition::Definition,
    sizing::{self, Granted, Rates, Size, SizeReason},
};
use odometer_database::session::DatabaseConnection;
use odometer_process::faults::{self, Fault};
use sea_orm::{ColumnTrait, ConnectionTrait, DbErr, QueryFilter, sea_query::Expr};

use crate::{
    error::{Attempted, StoreError},
    guard::HeartbeatGuard,
    outcome::Resolved,
    reservation::{
        attempts::Reservation,
        request::{Reserved, Want},
    },
    rows::{
        counter::{GuardedCounter, SeenCounter},
        payment::Payment,
    },
};

impl Reservation<'_> {
    /// Returns the first number to reserve, how many numbers are left from this number on, and the
    /// step. All three are those of this database's stripe.
    pub(crate) fn place(&self, known: &Resolved) -> (i64, u64, i64) {
        let counted = self.database.stripe.view(&known.definition);
        let seen = known.seen.next_value;
        let caught_up = self
            .constraints
            .level
            .and_then(|level| counted.first_from(level));
        // If catching up would leave no number, the database still gives the numbers that it has.
        let first = caught_up
            .filter(|first| *first > seen && !counted.exhausted(*first))
            .unwrap_or(seen);
        let left = match faults::is(Fault::NoEnd) {
            true => u64::from(u32::MAX),
            false => counted.left(first),
        };
        (first, left, counted.step)
    }

    /// Computes how many of the `left` numbers to reserve.
    pub(crate) fn granted(
        &self,
        definition: &Definition,
        left: u64,
    ) -> Result<Granted, StoreError> {
        match &self.request.want {
            Want::Refill(demand) => {
                let mut demand = *demand;
                // The stored rate counts only if it is higher. A block that is prefetched for a
                // coming period is sized by the rate of the period before.
                if self.request.is_first
                    && let Some(rate) = self.stored_rate
                    && rate > demand.rates.average()
                {
                    demand.rates = Rates::resume(rate);
                }
                let size: Size = sizing::size(&definition.block, &demand);
                let granted = sizing::grant(&size, left);
                if granted.count == 0 {
                    Err(StoreError::Exhausted { left })
                } else {
                    Ok(granted)
                }
            }
            Want::Exactly(count) | Want::Strict { count, .. } | Want::Handover(count) => {
                self.request.want.check_handover(left)?;
                if *count > left {
                    return Err(StoreError::Exhausted { left });
                }
                Ok(Granted {
                    count: *count,
                    why: SizeReason::Waiting,
                })
            }
        }
    }

    /// Reserves the block by a conditional update. The update changes exactly one row, or it did
    /// not happen, which is a conflict.
    pub(crate) async fn raise(
        &mut self,
        guard: &HeartbeatGuard,
        known: Resolved,
        block: Block,
        why: SizeReason,
    ) -> Attempted<Reserved> {
        let counter = self.database.guarded(&self.counter, guard);
        let seen = known.seen;
        let rate = self.rate();
        let payment = Payment::of(&known.definition, block.count());
        let outcome = self
            .database
            .connection
            .run(self.retry.until, |database| {
                conditional_update(database, counter, seen, (block.end(), payment), rate)
            })
            .await;
        match outcome {
            Ok(true) => {
                self.settle_uncertain_write(seen);
                // An earlier write on the same condition can no longer be applied.
                self.uncertain.write = None;
                self.count_reserved();
                let after = SeenCounter {
                    next_value: block.end(),
                    version: seen.version.saturating_add(1),
                };
                Ok(self.reserved(known, after, block, Some(why)))
            }
            Ok(false) => Err(self.refused(seen, block.count())),
            Err(failure) => {
                if self.count_failed_write(&failure) {
                    self.uncertain_write(seen, block);
                }
                self.known = None;
                Err(failure.into())
            }
        }
    }

    /// Returns the rate to store with the counter.
    pub(crate) fn rate(&self) -> Option<f64> {
        let demand = self.request.want.demand();
        let demand = demand.filter(|_| !self.request.is_first);
        demand.map(|demand| demand.rates.average())
    }
}

/// Raises the counter to `next_value` in one update, pays for its numbers, and stores `rate` if
/// there is one.
///
/// Returns whether the update changed its row. It does so only if the counter still is as it was
/// `seen`, if the speed limit allows the numbers, and if the heartbeat of this replica has not
/// fallen. A database that went back may hold the counter as it was seen, so the guard of the
/// heartbeat is needed, too.
async fn conditional_update(
    database: DatabaseConnection,
    counter: GuardedCounter,
    seen: SeenCounter,
    (next_value, payment): (i64, Option<Payment>),
    rate: Option<f64>,
) -> Result<bool, DbErr> {
    let mut update = counter
        .update()
        .col_expr(counter::Column::NextValue, Expr::val(next_value));
    if let Some(rate) = rate {
        update = update.col_expr(counter::Column::Rate, Expr::val(rate));
    }
    if let Some(payment) = payment {
        update = payment.demand(update, database.get_database_backend());
    }
    if !faults::is(Fault::NoConditions) {
        update = update
            .filter(counter::Column::NextValue.eq(seen.next_value))
            .filter(counter::Column::Version.eq(seen.version));
    }
    Ok(update.exec(&database).await?.rows_affected == 1)
}
