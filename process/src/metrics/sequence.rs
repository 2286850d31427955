//! What is counted of one sequence.

use ::metrics::{Counter, Gauge};

/// The handles of one sequence; beyond the bound of labels only `issued` counts, under `_other`.
///
/// Handles of one name stay the same when it is unloaded and loaded again, so add differences to
/// `issued` and never set it absolutely.
#[derive(Clone, Debug)]
pub struct SequenceMetrics {
    /// Numbers given to callers.
    pub issued: Counter,
    /// Numbers in the block being issued.
    pub block_size: Gauge,
    /// Numbers left in memory, the block filled ahead included.
    pub block_remaining: Gauge,
    /// The part of the current block that is issued, 0 to 1.
    pub block_utilization: Gauge,
    /// Seconds that what is left in memory lasts at the present rate; +Inf at rate 0.
    pub reserve_seconds: Gauge,
    /// Numbers that nobody has reserved, up to the end; +Inf where the rate does not tell when that
    /// comes.
    pub runway_numbers: Gauge,
    /// Seconds to the end of the sequence at the present rate; +Inf at rate 0.
    pub runway_seconds: Gauge,
}

impl SequenceMetrics {
    pub(crate) fn beyond(issued: Counter) -> Self {
        Self {
            issued,
            block_size: Gauge::noop(),
            block_remaining: Gauge::noop(),
            block_utilization: Gauge::noop(),
            reserve_seconds: Gauge::noop(),
            runway_numbers: Gauge::noop(),
            runway_seconds: Gauge::noop(),
        }
    }

    /// Shows a name that is no longer in memory as holding nothing.
    pub fn clear(&self) {
        self.block_size.set(0.0);
        self.block_remaining.set(0.0);
        self.block_utilization.set(0.0);
        self.reserve_seconds.set(f64::INFINITY);
        self.runway_numbers.set(f64::INFINITY);
        self.runway_seconds.set(f64::INFINITY);
    }
}
