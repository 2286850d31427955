//! What is asked of a reservation, and what comes back.

use std::sync::Arc;

use ::metrics::Gauge;
use odometer_core::{
    block::Block,
    definition::{Definition, Order},
    period::CounterKey,
    sizing::{Demand, Why},
};
use odometer_process::{
    faults::{self, Fault},
    metrics::{AbandonedCause, Metrics},
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::Source;
use crate::heartbeat::Heartbeat;
use crate::outcome::Resolved;
use crate::reservation::progress::ReservationProgress;
use crate::rows::{block::JournalRow, counter::SeenCounter};

/// By which the log calls what happens here.
const TARGET: &str = "odometer::store::reservation::request";

/// What a sequence's actor asks for.
#[derive(Clone, Debug)]
pub struct ReserveRequest {
    pub key: CounterKey,
    /// The definition by which the period was chosen: of another one it may be none, or begin at
    /// another time.
    pub counted_by: Option<Arc<Definition>>,
    /// What this process knows of the sequence; `None` on first use, and after an unload.
    pub known: Option<Resolved>,
    /// The counter as this process last saw it, also before an unload: it never falls below.
    pub last_seen: Option<SeenCounter>,
    pub want: Want,
    /// Adopt returned blocks that begin at this number or above; `None`: do not look for any.
    pub adopt_from: Option<i64>,
    /// What a name never seen is created with; `None`: it is refused.
    pub template: Option<Arc<Definition>>,
    /// Rung when somebody waits for what was asked for ahead of time.
    pub urgency: Arc<Notify>,
    pub progress: Arc<ReservationProgress>,
}

/// How many numbers are wanted.
#[derive(Clone, Debug)]
pub enum Want {
    /// As many as sizing says.
    Refill(Demand),
    /// Just as many, however few are left beyond them.
    Exactly(u64),
    /// Just as many, for callers of a sequence with strict order.
    Strict {
        count: u64,
        /// By which numbers are set aside ahead of time, where that is done.
        demand: Demand,
    },
    /// Just as many, and at most 1/4096 of what is left.
    Handover(u64),
}

impl Want {
    /// Whether nobody waits for it yet.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(self, Self::Refill(demand) if demand.waited_for == 0)
    }
}

/// A block that is durably reserved for this process.
#[derive(Clone, Debug)]
pub struct Reserved {
    pub key: CounterKey,
    pub id: Uuid,
    pub block: Block,
    /// Taken over from another replica instead of reserved anew.
    pub adopted: bool,
    /// The counter after the reservation.
    pub known: Resolved,
    /// The rate that was stored with the counter; `None` where it was not read.
    pub stored_rate: Option<f64>,
    pub n_conflicts: u32,
    /// Which database gave it.
    pub source: Source,
    /// How its size was chosen; `None` for an adopted one.
    pub why: Option<Why>,
    /// Milliseconds since the Unix epoch.
    pub reserved_at: i64,
    /// The last `odometer recover` that this process had seen before it was reserved.
    pub recovered_at: Option<i64>,
    /// Whether returned blocks may be left to adopt.
    pub more_to_adopt: bool,
}

impl Reserved {
    /// A part of it that goes its own way from here on, as a block of its own.
    pub fn part(&self, block: Block) -> Self {
        Self {
            id: Uuid::now_v7(),
            block,
            ..self.clone()
        }
    }

    /// The block's row in the journal.
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

/// A block on its way to its actor: dropped before it is published, it counts as abandoned.
pub struct Unpublished {
    reserved: Option<Reserved>,
    /// Of the database that gave it.
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

    /// Whether it is of a sequence that keeps no block.
    pub fn is_strict(&self) -> bool {
        let reserved = self.reserved.as_ref();
        reserved.is_some_and(|reserved| reserved.known.definition.order == Order::Strict)
    }

    /// Whether it was returned by another process, or an earlier one.
    pub fn is_adopted(&self) -> bool {
        self.reserved
            .as_ref()
            .is_some_and(|reserved| reserved.adopted)
    }

    /// The store it is of.
    pub fn store(&self) -> Option<String> {
        let reserved = self.reserved.as_ref();
        reserved.map(|reserved| reserved.known.definition.store.clone())
    }

    /// From here on the caller answers for the block, if it is still the one it was reserved for,
    /// and no `odometer recover` was seen since.
    pub fn publish_for(mut self, is_owner: bool) -> Option<Reserved> {
        if is_owner && !self.was_recovered_since() {
            self.reserved.take()
        } else {
            None
        }
    }

    /// Whether the store was recovered after the block was reserved: then others may have had its
    /// numbers before they were lost.
    fn was_recovered_since(&self) -> bool {
        let reserved = self.reserved.as_ref();
        reserved.is_some_and(|reserved| reserved.recovered_at != self.heartbeat.recovered_at())
            && !faults::is(Fault::RecoveryKeepsMemory)
    }

    /// A block that no database knows of, for the tests of those who issue.
    #[doc(hidden)]
    pub fn for_tests(key: CounterKey, block: Block, metrics: Arc<Metrics>) -> Self {
        let known = Resolved {
            definition: Arc::default(),
            definition_version: 0,
            seen: SeenCounter {
                next_value: block.end(),
                version: 1,
            },
            revision: 0,
            floor: 0,
            trusted: true,
        };
        let reserved = Reserved {
            key,
            id: Uuid::now_v7(),
            block,
            adopted: false,
            known,
            stored_rate: None,
            n_conflicts: 0,
            source: Source::default(),
            why: None,
            reserved_at: 0,
            recovered_at: None,
            more_to_adopt: false,
        };
        let heartbeat = Heartbeat::new("here".into(), "default".into(), Gauge::noop());
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
