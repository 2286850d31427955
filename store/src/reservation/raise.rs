//! Computes how many numbers to reserve, and reserves them by a conditional update.

use entity::counter;
use odometer_core::{
    block::Block,
    definition::Definition,
    sizing::{self, Granted, Rates, Size, SizeReason},
    speed_limit::SpeedLimit,
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
        pace::Bucket,
        request::{Reserved, Want},
    },
    rows::{
        counter::{GuardedCounter, SeenCounter},
        payment::{Payment, limit_of},
    },
};

/// Divides the burst: a block skips no more to catch up. The next block that is fetched ahead of need
/// leaves half of the burst, and finds the rest.
const PART_TO_CATCH_UP: u64 = 4;

/// Where a block begins, in the numbers of this database's stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The first number to reserve.
    pub(crate) first: i64,
    /// The counter's high-water mark.
    seen: i64,
    pub(crate) step: i64,
    /// How many numbers are left after those that are skipped.
    pub(crate) left: u64,
    /// How many numbers the block skips, to catch up with the other databases of the store.
    n_skipped: u64,
    /// How many of them it skips in any case. They lie below a floor.
    n_below_floor: u64,
    /// How many of the skipped numbers are paid for.
    pub(crate) n_paid: u64,
}

impl Place {
    /// Returns whether the block begins at the counter's high-water mark.
    pub(crate) fn skips_nothing(&self) -> bool {
        self.first == self.seen
    }

    /// Skips no more numbers than the limit allows besides the `count` numbers of the block. What a
    /// block skips to catch up leaves most of the burst, so that blocks are still fetched ahead of
    /// need. The next blocks catch up with the rest.
    ///
    /// A fence of a copy counts on it that skipped numbers were paid for. A floor may be too far
    /// away for that, as that of an `advance` may.
    fn within(self, limit: SpeedLimit, bucket: Option<Bucket>, count: u64) -> Self {
        let n_available = bucket.map_or(limit.burst(), |bucket| bucket.n_available(limit));
        let n_left = n_available.saturating_sub(count);
        let n_kept = limit.burst() - limit.burst() / PART_TO_CATCH_UP;
        let n_to_spare = n_available.saturating_sub(n_kept).min(n_left);
        let n_skipped = self.n_skipped.min(n_to_spare).max(self.n_below_floor);
        let length = i64::try_from(n_skipped).unwrap_or(i64::MAX);
        let cut = self.seen.saturating_add(length.saturating_mul(self.step));
        Self {
            first: match n_skipped < self.n_skipped {
                true => cut,
                false => self.first,
            },
            n_skipped,
            n_paid: n_skipped.min(n_left),
            ..self
        }
    }
}

impl Reservation<'_> {
    /// Returns where a block begins that catches up with the other databases of the store.
    pub(crate) fn place(&self, known: &Resolved) -> Place {
        let counted = self.database.stripe.view(&known.definition);
        let seen = known.seen.next_value;
        // If catching up would leave no number, the database still gives the numbers that it has.
        let first_from = |number: Option<i64>| {
            let first = number.and_then(|number| counted.first_from(number));
            let first = first.filter(|first| *first > seen && !counted.exhausted(*first));
            first.unwrap_or(seen)
        };
        let n_skipped = |first| counted.left(seen).saturating_sub(counted.left(first));
        let from_floor = first_from(self.constraints.floor);
        let first = first_from(self.constraints.level).max(from_floor);
        let left = match faults::is(Fault::NoEnd) {
            true => u64::from(u32::MAX),
            false => counted.left(first),
        };
        Place {
            first,
            seen,
            step: counted.step,
            left,
            n_skipped: n_skipped(first),
            n_below_floor: n_skipped(from_floor),
            n_paid: 0,
        }
    }

    /// Keeps what a block skips within the speed limit.
    pub(crate) fn paid(&self, definition: &Definition, place: Place, count: u64) -> Place {
        match limit_of(definition) {
            Some(limit) if !faults::is(Fault::FreeCatchUp) => {
                place.within(limit, self.bucket, count)
            }
            Some(_) | None => place,
        }
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

    /// Reserves the block by a conditional update, and pays for its numbers and for `n_paid` numbers
    /// below them. The update changes exactly one row, or it did not happen, which is a conflict.
    pub(crate) async fn raise(
        &mut self,
        guard: &HeartbeatGuard,
        known: Resolved,
        (block, n_paid): (Block, u64),
        why: SizeReason,
    ) -> Attempted<Reserved> {
        let counter = self.database.guarded(&self.counter, guard);
        let seen = known.seen;
        let rate = self.rate();
        let payment = Payment::of(&known.definition, block.count().saturating_add(n_paid));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    /// Where a block of 10 numbers begins, and how many numbers are paid for besides, if the counter
    /// stands at 1, and so many numbers are to be skipped. The bucket holds 100.
    fn placed(n_skipped: u64, n_below_floor: u64, bucket: Option<Bucket>) -> (i64, u64) {
        let n_wanted = i64::try_from(n_skipped).unwrap();
        let place = Place {
            first: 1 + 3 * n_wanted,
            seen: 1,
            step: 3,
            left: 1_000_000,
            n_skipped,
            n_below_floor,
            n_paid: 0,
        };
        let limit = SpeedLimit::new(1, 100).unwrap();
        let place = place.within(limit, bucket, 10);
        (place.first, place.n_paid)
    }

    #[test]
    fn what_is_skipped_leaves_most_of_the_burst_and_is_paid_for() {
        let with = |n_available: i64| {
            let used_us = (100 - n_available) * 1_000_000;
            Some(Bucket::read(used_us, 0))
        };
        assert_eq!(placed(0, 0, None), (1, 0));
        assert_eq!(placed(25, 0, None), (76, 25));
        assert_eq!(placed(26, 0, None), (76, 25));
        assert_eq!(placed(1000, 0, with(85)), (31, 10));
        assert_eq!(placed(1000, 0, with(75)), (1, 0));
        assert_eq!(placed(1000, 0, with(10)), (1, 0));
        // Nothing below a floor is given, whatever the limit allows.
        assert_eq!(placed(1000, 20, with(85)), (61, 20));
        assert_eq!(placed(1000, 80, with(70)), (241, 60));
        assert_eq!(placed(1000, 1000, with(10)), (3001, 0));
    }
}
