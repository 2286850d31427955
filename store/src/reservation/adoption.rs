//! Adopts the rest of a block that a process returned, this one or another one.
//!
//! # The problem
//!
//! A process that stops has numbers in memory that nobody got. They should not become gaps.
//!
//! # The naive way, and why it fails
//!
//! The process could lower `next_value` again. But another replica may have reserved above it in
//! the meantime, so the counter may never fall. Or each new process could take any returned block
//! that it finds. Then the numbers of one process would not ascend: a rest from yesterday would
//! come after blocks of today.
//!
//! # What Odometer does
//!
//! A returned block stays in the journal with the fate `returned` and its first number that was
//! not issued. A reservation for the cursor looks for the lowest such block that lies above
//! everything that this process has issued or holds of the counter. It takes the block over by one
//! update on the row's id, from `returned` to `adopted`: exactly one row, or another process was
//! faster. So each rest is used once, and in a store of one database the numbers of a process
//! ascend.
//!
//! Ranges that are handed over as a whole do not raise that bound, because they lie far above the
//! numbers in memory (ADR 6). If the outcome of the update is unknown, the adoption is tried
//! again. The rest counts as abandoned if that fails, or if it no longer fits the order.

use entity::block;
use odometer_core::{block::Block, period::CounterKey};
use odometer_database::session::DatabaseConnection;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};
use uuid::Uuid;

use crate::{
    error::Attempted,
    guard::HeartbeatGuard,
    outcome::Resolved,
    reservation::{attempts::Reservation, request::Reserved},
    rows::block::rest_of,
};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation::adoption";

impl Reservation<'_> {
    /// Adopts the lowest returned block that may be adopted. Returns `None` if there is none.
    pub(crate) async fn adopt(
        &mut self,
        known: &Resolved,
        guard: &HeartbeatGuard,
    ) -> Attempted<Option<Reserved>> {
        if let Some(adopted) = self.settle_adoption(known, guard).await? {
            return Ok(Some(adopted));
        }
        while let Some(from) = self.adopt_from {
            let floor = known.floor;
            let key = self.request.key.clone();
            let found = self
                .database
                .connection
                .run(self.retry.until, |database| {
                    lowest_returned(database, key, from, floor)
                })
                .await?;
            let Some(row) = found else {
                self.adopt_from = None;
                break;
            };
            let Some(rest) = rest_of(&row) else {
                tracing::error!(
                    target: TARGET,
                    sequence = row.sequence,
                    block = %row.id,
                    "a returned row of the journal makes no sense and is passed over"
                );
                self.adopt_from = row.next_unissued.max(row.last).checked_add(1);
                continue;
            };
            self.adopt_from = Some(rest.end());
            if self.mark(row.id, rest, guard).await? {
                let adopted = self.reserved(known.clone(), known.seen, rest, None);
                return Ok(Some(adopted));
            }
        }
        Ok(None)
    }

    /// Marks a returned block as adopted. Returns false if another process was faster, or if the
    /// guard does not hold.
    async fn mark(&mut self, id: Uuid, rest: Block, guard: &HeartbeatGuard) -> Attempted<bool> {
        let guard_copy = guard.clone();
        let adopting = self
            .database
            .connection
            .run(self.retry.until, |database| {
                mark_adopted(database, id, guard_copy)
            })
            .await;
        if let Err(failure) = &adopting {
            if self.count_failed_write(failure) {
                self.uncertain.adoption = Some((id, rest));
            }
        } else {
            self.uncertain.adoption = None;
        }
        let is_ours = adopting?;
        if is_ours {
            self.database.metrics.adopted.increment(1);
        }
        Ok(is_ours)
    }

    /// Settles an adoption whose outcome is unknown, by trying it a second time.
    ///
    /// If the second try succeeds, the first one was not done. Otherwise the first try or another
    /// process adopted the block, and the block counts as abandoned.
    async fn settle_adoption(
        &mut self,
        known: &Resolved,
        guard: &HeartbeatGuard,
    ) -> Attempted<Option<Reserved>> {
        let (Some(from), Some((id, rest))) = (self.request.adopt_from, self.uncertain.adoption)
        else {
            return Ok(None);
        };
        let is_ours = self.mark(id, rest, guard).await?;
        // A block below numbers that were issued since then would be out of order.
        if is_ours && rest.first() >= from && rest.last() >= known.floor {
            return Ok(Some(self.reserved(known.clone(), known.seen, rest, None)));
        }
        self.abandon(rest.count());
        Ok(None)
    }
}

async fn lowest_returned(
    database: DatabaseConnection,
    key: CounterKey,
    from: i64,
    floor: i64,
) -> Result<Option<block::Model>, DbErr> {
    block::Entity::find()
        .filter(block::Column::Sequence.eq(key.sequence.as_str()))
        .filter(block::Column::Period.eq(key.period.as_str()))
        .filter(block::Column::Fate.eq("returned"))
        .filter(block::Column::NextUnissued.gte(from))
        // If a part of the block lies below the floor, memory leaves this part out later.
        .filter(block::Column::Last.gte(floor))
        .order_by_asc(block::Column::NextUnissued)
        .one(&database)
        .await
}

async fn mark_adopted(
    database: DatabaseConnection,
    id: Uuid,
    guard: HeartbeatGuard,
) -> Result<bool, DbErr> {
    let adopted = block::Entity::update_many()
        .col_expr(block::Column::Fate, Expr::val("adopted"))
        .filter(block::Column::Id.eq(id))
        .filter(block::Column::Fate.eq("returned"))
        // If the store went back, another process may have adopted and issued the block already.
        .filter(guard.holds())
        .exec(&database)
        .await?;
    Ok(adopted.rows_affected == 1)
}
