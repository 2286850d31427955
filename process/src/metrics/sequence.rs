//! Holds the metrics of one sequence.

use ::metrics::{Counter, Gauge};

/// The handles of one sequence. Beyond the bound of labels only `issued` counts, under `_other`.
///
/// The handles of one name stay the same when the name is unloaded and loaded again. So add
/// differences to `issued`, and never set it absolutely.
#[derive(Clone, Debug)]
pub struct SequenceMetrics {
    /// Numbers given to callers.
    pub issued: Counter,
    /// Numbers in the block that is being issued.
    pub block_size: Gauge,
    /// Numbers that are left in memory, the prefetched block included.
    pub block_remaining: Gauge,
    /// The part of the current block that is issued, 0 to 1.
    pub block_utilization: Gauge,
    /// How many seconds the numbers in memory last at the present rate; +Inf at rate 0.
    pub reserve_seconds: Gauge,
    /// Numbers that are not reserved yet, up to the end of the sequence. +Inf if the rate does not
    /// tell when the end comes.
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

    /// Sets the gauges of a name that is no longer in memory, and so holds nothing.
    pub fn clear(&self) {
        self.block_size.set(0.0);
        self.block_remaining.set(0.0);
        self.block_utilization.set(0.0);
        self.reserve_seconds.set(f64::INFINITY);
        self.runway_numbers.set(f64::INFINITY);
        self.runway_seconds.set(f64::INFINITY);
    }
}
