//! Reserves in strict order: the database itself adds to the counter, under guards.
//!
//! Every write of a strict sequence contends with the writes of other replicas. So no write names
//! the number from which it goes on. The lock of the row queues the writes, and each write reads
//! back what it got.
//!
//! A reservation in relaxed order adds in the same way if other replicas keep outrunning it.

use std::sync::Arc;

use odometer_core::{block::Block, definition::Order, sizing::SizeReason};
use odometer_process::faults::{self, Fault};

use crate::error::{Attempted, StoreError};
use crate::guard::HeartbeatGuard;
use crate::outcome::Resolved;
use crate::reservation::{
    attempts::Reservation,
    counter_read::StrictIn,
    raise::Place,
    request::{Reserved, Want},
};
use crate::rows::{addition::Addition, payment::Payment};

/// The conflicts of a reservation after which it adds. Replicas that share a counter seldom meet so
/// many by chance: ADR 14 measured 1.55 conditional updates for each success before it.
const CONFLICTS_BEFORE_ADDITION: u32 = 3;

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
    /// database.
    pub(crate) async fn check_window(&self, known: &Resolved) -> Attempted<()> {
        if self.strict != StrictIn::Redis {
            self.database.agree(self.retry.until).await?;
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

    /// Adds to the counter of a sequence with strict order.
    pub(crate) async fn add_in_order(
        &mut self,
        guard: &HeartbeatGuard,
        known: Resolved,
    ) -> Attempted<Reserved> {
        let definition = &known.definition;
        let left = definition.left(known.seen.next_value);
        let granted = self.granted(definition, left)?;
        let count = self.within_limit(definition, granted).await?.count;
        let expected = Block::new(known.seen.next_value, count, definition.step)
            .map_err(|error| StoreError::Broken(error.to_string()))?;
        if faults::is(Fault::NoConditions) {
            return self
                .raise(guard, known, (expected, 0), SizeReason::Waiting)
                .await;
        }
        self.add(guard, known, expected, SizeReason::Waiting).await
    }

    /// Returns whether other replicas have changed the counter so often between a read and a write
    /// of this reservation that it adds to the counter: the lock of the row queues its write.
    ///
    /// An addition skips no number. And it does not show whether an uncertain write was done.
    pub(crate) fn is_outrun(&self, place: &Place) -> bool {
        self.n_conflicts >= CONFLICTS_BEFORE_ADDITION
            && place.skips_nothing()
            && self.uncertain.write.is_none()
            && !faults::is(Fault::NoAddition)
    }

    /// Adds to the counter once, under guards. If a guard does not hold, this is a conflict.
    ///
    /// `expected` is the block that this write gets if no other replica writes first. Its length is
    /// right in any case.
    pub(crate) async fn add(
        &mut self,
        guard: &HeartbeatGuard,
        known: Resolved,
        expected: Block,
        why: SizeReason,
    ) -> Attempted<Reserved> {
        let definition = &known.definition;
        let is_strict = definition.order == Order::Strict;
        let counted = self.database.stripe.view(definition);
        let count = expected.count();
        let addition = Addition {
            counter: self.database.guarded(&self.counter, guard),
            revision: known.revision,
            seen: known.seen,
            length: expected.end().saturating_sub(expected.first()),
            end: counted.end(),
            rate: self.rate(),
            opens_after: None,
            needs_free_row: is_strict,
            payment: Payment::of(definition, count),
        };
        let (seen, length) = (known.seen, addition.length);
        let run = self
            .database
            .connection
            .run(self.retry.until, |database| addition.run(database));
        match run.await {
            Ok(Some(after)) => {
                self.count_reserved();
                let first = after.next_value.saturating_sub(length);
                let block = Block::new(first, count, expected.step());
                let block = block.map_err(|error| StoreError::Broken(error.to_string()))?;
                let mut reserved = self.reserved(known, after, block, Some(why));
                if is_strict {
                    // Other replicas have probably raised the counter by now. The next add does
                    // not depend on its exact value.
                    reserved.known.trusted = !self.reads_next;
                }
                Ok(reserved)
            }
            Ok(None) => Err(self.refused(seen, count)),
            Err(failure) => {
                if self.count_failed_write(&failure) {
                    // Other replicas also add to the counter, so no later read can show whether
                    // this add was done.
                    self.abandon(count);
                }
                self.known = None;
                Err(failure.into())
            }
        }
    }
}
