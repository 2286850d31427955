//! Reserves in strict order: the database itself adds to the counter, under guards.
//!
//! Every write of a strict sequence contends with the writes of other replicas. So no write names
//! the number from which it goes on. The lock of the row queues the writes, and each write reads
//! back what it got.

use std::sync::Arc;

use entity::counter;
use odometer_core::{block::Block, definition::Order, period::CounterKey, sizing::SizeReason};
use odometer_database::{
    failure::StatementFailure, retry::AttemptError, session::DatabaseConnection,
};
use odometer_process::faults::{self, Fault};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryFilter, UpdateMany,
    sea_query::Expr,
};

use crate::error::{Attempted, StoreError};
use crate::heartbeat::HeartbeatGuard;
use crate::outcome::Resolved;
use crate::reservation::{
    attempts::Reservation,
    counter_read::StrictIn,
    request::{Reserved, Want},
};
use crate::rows::{
    catalog,
    counter::SeenCounter,
    strict_counter::{add_and_read, leases_are_over},
};

impl Reservation<'_> {
    /// Returns whether the counter must be read before the write.
    ///
    /// The answer may depend on how many numbers are left. In a strict sequence, other replicas
    /// reserve numbers, and this process does not know about them.
    pub(crate) fn must_look_first(&self) -> bool {
        let Some(known) = &self.known else {
            return true;
        };
        if known.definition.order == Order::Relaxed || !self.is_only_remembered() {
            return false;
        }
        match &self.request.want {
            Want::Handover(_) => true,
            Want::Exactly(count) | Want::Strict { count, .. } => {
                *count > known.definition.left(known.seen.next_value)
            }
            Want::Refill(_) => false,
        }
    }

    /// Checks that a strict sequence counts in its row now, and not in Redis.
    ///
    /// # Errors
    /// `Changed` if Redis counts, `Unavailable` if this replica disagrees with the record of the
    /// database. The attempt is repeated if that record was not read yet.
    pub(crate) fn check_window(&self, known: &Resolved) -> Attempted<()> {
        match self.database.agrees() {
            _ if self.strict == StrictIn::Redis => {}
            Some(true) => {}
            Some(false) => return Err(StoreError::Unavailable.into()),
            // The record is read as soon as the database answers.
            None => return Err(AttemptError::Conflict),
        }
        let counts_here = match self.strict {
            StrictIn::Row => true,
            StrictIn::RowAsFallback => !self.window.is_open,
            StrictIn::Redis => false,
        };
        if counts_here {
            return Ok(());
        }
        Err(StoreError::Changed(Arc::clone(&known.definition)).into())
    }

    /// Adds to the counter once, under guards. If a guard does not hold, this is a conflict.
    pub(crate) async fn add(
        &mut self,
        guard: &HeartbeatGuard,
        known: Resolved,
    ) -> Attempted<Reserved> {
        let definition = &known.definition;
        let left = definition.left(known.seen.next_value);
        let count = self.granted(definition, left)?.count;
        // The block that this write gets if no other replica writes first. Its length is right in
        // any case.
        let expected = Block::new(known.seen.next_value, count, definition.step)
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        if faults::is(Fault::NoConditions) {
            return self
                .raise(guard, known, expected, SizeReason::Waiting)
                .await;
        }
        let add = Add {
            key: self.request.key.clone(),
            guard: guard.clone(),
            revision: known.revision,
            seen: known.seen,
            length: expected.end().saturating_sub(expected.first()),
            end: definition.end(),
            stripe_count: self.database.stripe_count(),
            rate: self.rate(),
        };
        let (length, step) = (add.length, definition.step);
        let run = self
            .database
            .connection
            .run(self.retry.until, |database| add.run(database));
        match run.await {
            Ok(Some(after)) => {
                self.count_reserved();
                let block = Block::new(after.next_value.saturating_sub(length), count, step);
                let block = block.map_err(|error| StoreError::Broken(error.to_string()))?;
                let mut reserved = self.reserved(known, after, block, Some(SizeReason::Waiting));
                // Other replicas have probably raised the counter by now. The next add does not
                // depend on its exact value.
                reserved.known.trusted = true;
                Ok(reserved)
            }
            Ok(None) => Err(self.conflict()),
            Err(failure) => {
                self.count_failed_write(&failure);
                if matches!(failure, StatementFailure::MayHaveCommitted(_)) {
                    // Other replicas also add to the counter, so no later read can show whether
                    // this add was done.
                    self.abandon(count);
                }
                self.known = None;
                Err(failure.into())
            }
        }
    }

    fn rate(&self) -> Option<f64> {
        match &self.request.want {
            Want::Strict { demand, .. } if !self.request.is_first => Some(demand.rates.average()),
            Want::Strict { .. } | Want::Refill(_) | Want::Exactly(_) | Want::Handover(_) => None,
        }
    }
}

/// An update that raises `next_value` by `length` from its present value.
struct Add {
    key: CounterKey,
    guard: HeartbeatGuard,
    /// The revision that the counter must still have. Each change raises the revision, so the
    /// definition that is known here is still valid.
    revision: i64,
    /// A lower bound for the counter: this process has seen it there.
    seen: SeenCounter,
    length: i64,
    /// The first number that the sequence does not have.
    end: i64,
    stripe_count: i32,
    rate: Option<f64>,
}

impl Add {
    /// Runs the update. Returns the counter after it, or `None` if a guard did not hold.
    async fn run(self, database: DatabaseConnection) -> Result<Option<SeenCounter>, DbErr> {
        let backend = database.get_database_backend();
        let least_version = self.seen.version.saturating_add(1);
        let update = |raised| self.update(backend, raised);
        add_and_read(database, self.length, least_version, update).await
    }

    fn update(&self, backend: DbBackend, raised: Expr) -> UpdateMany<counter::Entity> {
        let mut update = counter::Entity::update_many()
            .col_expr(counter::Column::NextValue, raised)
            .col_expr(
                counter::Column::Version,
                catalog::one_more(counter::Column::Version),
            )
            .filter(counter::Column::Sequence.eq(self.key.sequence.as_str()))
            .filter(counter::Column::Period.eq(self.key.period.as_str()))
            .filter(counter::Column::StripeCount.eq(self.stripe_count))
            .filter(counter::Column::Revision.eq(self.revision))
            // While a window is open, Redis issues the numbers below the high-water mark. A number
            // above the mark would come too early.
            .filter(counter::Column::WindowOpen.eq(false))
            .filter(counter::Column::NextValue.lte(self.end.saturating_sub(self.length)))
            .filter(self.guard.holds());
        // While leases of a closed window last, other replicas may still issue numbers from it.
        if !faults::is(Fault::NoLease) {
            update = update.filter(leases_are_over(backend));
        }
        if let Some(rate) = self.rate {
            update = update.col_expr(counter::Column::Rate, Expr::val(rate));
        }
        if !faults::is(Fault::NoWentBackChecks) {
            update = update
                .filter(counter::Column::NextValue.gte(self.seen.next_value))
                .filter(counter::Column::Version.gte(self.seen.version));
        }
        update
    }
}
