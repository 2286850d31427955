//! Defines what a reservation is asked for, and what it returns.

use std::sync::Arc;

use odometer_core::{
    block::Block,
    definition::{Definition, Order},
    period::CounterKey,
    sizing::{self, Demand, SizeReason},
};
use odometer_process::{
    faults::{self, Fault},
    metrics::{AbandonedCause, Metrics},
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::Source;
use crate::error::StoreError;
use crate::heartbeat::Heartbeat;
use crate::outcome::Resolved;
use crate::reservation::progress::ReservationProgress;
use crate::rows::{block::JournalRow, counter::SeenCounter};

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation::request";

/// A request for numbers by the actor of a counter.
#[derive(Clone, Debug)]
pub struct ReserveRequest {
    pub key: CounterKey,
    /// The definition by which the issuer of the counter was made. If the sequence needs another
    /// issuer by now, nothing is reserved. `None` for a reader, who takes any definition.
    pub counted_by: Option<Arc<Definition>>,
    /// What this process knows of the counter; `None` if it was not read yet.
    pub known: Option<Resolved>,
    /// Whether `known` was read just now, so that it need not be read again before a refusal or an
    /// adoption.
    pub is_fresh: bool,
    /// Whether no reservation was made since the counter came into memory. Then the rate that is
    /// stored with the counter is not written.
    pub is_first: bool,
    /// The counter as this process last saw it, even before an unload. The counter never falls
    /// below this.
    pub last_seen: Option<SeenCounter>,
    pub want: Want,
    /// The least first number of a returned block that may be adopted; `None`: look for no such
    /// block.
    pub adopt_from: Option<i64>,
    /// Wakes a prefetch that waits for its permit, because a caller waits for the numbers now.
    pub urgency: Arc<Notify>,
    pub progress: Arc<ReservationProgress>,
}

/// How many numbers a reservation wants.
#[derive(Clone, Debug)]
pub enum Want {
    /// As many as the sizing says.
    Refill(Demand),
    /// Exactly this many, even if few are left after them.
    Exactly(u64),
    /// Exactly this many, for callers of a sequence with strict order.
    Strict {
        count: u64,
        /// The demand by which Redis gets numbers ahead of time, if Redis counts.
        demand: Demand,
    },
    /// Exactly this many, and at most 1/4096 of the numbers that are left.
    Handover(u64),
}

impl Want {
    /// Returns whether no caller waits for the numbers yet.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(self, Self::Refill(demand) if demand.waited_for == 0)
    }

    /// Returns the demand of the callers, if the actor measures it.
    pub(crate) fn demand(&self) -> Option<&Demand> {
        match self {
            Self::Refill(demand) | Self::Strict { demand, .. } => Some(demand),
            Self::Exactly(_) | Self::Handover(_) => None,
        }
    }

    /// Refuses a handover of more than 1/4096 of the `left` numbers.
    ///
    /// # Errors
    /// `Exhausted` or `TooLarge`.
    pub(crate) fn check_handover(&self, left: u64) -> Result<(), StoreError> {
        let Self::Handover(count) = self else {
            return Ok(());
        };
        let limit = sizing::max_at_once(left);
        if left == 0 {
            Err(StoreError::Exhausted { left })
        } else if *count > limit {
            Err(StoreError::TooLarge { limit })
        } else {
            Ok(())
        }
    }
}

/// A block that is durably reserved for this process.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub key: CounterKey,
    pub id: Uuid,
    pub block: Block,
    /// Whether the block was adopted from another replica, and not newly reserved.
    pub adopted: bool,
    /// The counter after the reservation.
    pub known: Resolved,
    /// The rate that was stored with the counter, in numbers a second; `None` if it was not read.
    pub stored_rate: Option<f64>,
    pub n_conflicts: u32,
    /// The database that the block comes from.
    pub source: Source,
    /// What decided the block's size; `None` for an adopted block.
    pub why: Option<SizeReason>,
    /// Milliseconds since the Unix epoch.
    pub reserved_at: i64,
    /// The last `odometer recover` that this process had seen before the block was reserved.
    pub recovered_at: Option<i64>,
    /// Whether returned blocks may be left to adopt.
    pub more_to_adopt: bool,
}

impl Reserved {
    /// Returns a part of the block as a block of its own, with a new id.
    pub fn part(&self, block: Block) -> Self {
        Self {
            id: Uuid::now_v7(),
            block,
            ..self.clone()
        }
    }

    /// Returns the block's row in the journal.
    pub fn row(&self) -> JournalRow {
        JournalRow {
            id: self.id,
            key: self.key.clone(),
            block: self.block,
            source: self.source,
            reserved_at: self.reserved_at,
            recovered_at: self.recovered_at,
        }
    }
}

/// A block on its way to its actor. If it is dropped before it is published, it counts as
/// abandoned.
pub struct Unpublished {
    reserved: Option<Reserved>,
    /// The heartbeat of the database that the block comes from.
    heartbeat: Arc<Heartbeat>,
    metrics: Arc<Metrics>,
}

impl Unpublished {
    pub(crate) fn new(
        reserved: Reserved,
        heartbeat: Arc<Heartbeat>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            reserved: Some(reserved),
            heartbeat,
            metrics,
        }
    }

    /// Returns whether the block belongs to a strict sequence, which keeps no block in memory.
    pub fn is_strict(&self) -> bool {
        let reserved = self.reserved.as_ref();
        reserved.is_some_and(|reserved| reserved.known.definition.order == Order::Strict)
    }

    /// Returns whether the block was adopted. Then another process, or an earlier one, returned it.
    pub fn is_adopted(&self) -> bool {
        self.reserved
            .as_ref()
            .is_some_and(|reserved| reserved.adopted)
    }

    /// Returns the name of the store that the block comes from.
    pub fn store(&self) -> Option<String> {
        let reserved = self.reserved.as_ref();
        reserved.map(|reserved| reserved.known.definition.store.clone())
    }

    /// Hands the block to the caller, who accounts for its numbers from now on.
    ///
    /// Returns `None` if the caller is no longer the owner, or if an `odometer recover` was seen
    /// since the reservation. The block then counts as abandoned.
    pub fn publish_for(mut self, is_owner: bool) -> Option<Reserved> {
        if is_owner && !self.was_recovered_since() {
            self.reserved.take()
        } else {
            None
        }
    }

    /// Returns whether the store was recovered after the block was reserved. Then other processes
    /// may have got the same numbers, in commits that the store has lost.
    fn was_recovered_since(&self) -> bool {
        let reserved = self.reserved.as_ref();
        let recovered_at =
            |reserved: &Reserved| self.heartbeat.recovered_at(&reserved.key.sequence);
        reserved.is_some_and(|reserved| reserved.recovered_at != recovered_at(reserved))
            && !faults::is(Fault::RecoveryKeepsMemory)
    }

    /// Wraps a block that no database knows, for the tests of the crates that issue numbers.
    #[doc(hidden)]
    pub fn for_tests(reserved: Reserved, metrics: Arc<Metrics>) -> Self {
        let heartbeat = Heartbeat::unconnected("here");
        Self::new(reserved, Arc::new(heartbeat), metrics)
    }
}

impl Drop for Unpublished {
    fn drop(&mut self) {
        let Some(reserved) = &self.reserved else {
            return;
        };
        let numbers = reserved.block.count();
        let (sequence, period) = (&reserved.key.sequence, &reserved.key.period);
        let cause = if self.was_recovered_since() {
            tracing::warn!(
                target: TARGET,
                sequence = sequence.as_str(),
                period = period.as_str(),
                numbers,
                "a block was reserved before the store was recovered, and is dropped"
            );
            AbandonedCause::Recovered
        } else {
            tracing::error!(
                target: TARGET,
                sequence = sequence.as_str(),
                period = period.as_str(),
                numbers,
                "a block was reserved for an actor that is gone"
            );
            AbandonedCause::ActorDied
        };
        self.metrics.abandoned(cause).increment(numbers);
    }
}
