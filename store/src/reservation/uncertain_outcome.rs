//! Settles what became of an uncertain write.
//!
//! `uncertain_writes.rs` keeps such writes from one reservation to the next, and decides how many
//! of their numbers may be lost.

use odometer_core::block::Block;
use odometer_process::{
    faults::{self, Fault},
    metrics::AbandonedCause,
};

use super::{attempts::Reservation, uncertain_writes::UncertainWrite};
use crate::rows::counter::SeenCounter;

/// Names the log target of the events in this file.
const TARGET: &str = "odometer::store::reservation::suspect";

impl Reservation<'_> {
    /// Notes a write whose outcome is unknown.
    pub(crate) fn uncertain_write(&mut self, seen: SeenCounter, block: Block) {
        match &mut self.uncertain.write {
            Some(uncertain_write) if uncertain_write.seen == seen => uncertain_write.add(block),
            earlier => {
                let lost = earlier.replace(UncertainWrite::new(seen, block));
                self.abandon(lost.map_or(0, |lost| lost.most()));
            }
        }
    }

    /// Settles the uncertain write if the counter shows what became of it.
    pub(crate) fn settle_uncertain_write(&mut self, seen: SeenCounter) {
        let lost = self
            .uncertain
            .write
            .as_ref()
            .and_then(|write| write.lost(seen));
        if let Some(lost) = lost {
            self.uncertain.write = None;
            self.abandon(lost);
        }
    }

    pub(crate) fn abandon(&self, count: u64) {
        if count == 0 || faults::is(Fault::Uncounted) {
            return;
        }
        self.database
            .metrics
            .abandoned(AbandonedCause::Uncertain)
            .increment(count);
        tracing::warn!(
            target: TARGET,
            sequence = self.request.key.sequence.as_str(),
            numbers = count,
            "numbers of a write whose outcome was not told are abandoned"
        );
    }
}
