//! Declares the metrics of one sequence.

use ::metrics::{Counter, Gauge, NoopRecorder};

use super::declare::declare;

declare! {
    /// The handles of one sequence. Beyond the bound of labels only `issued` counts, under
    /// `_other`.
    ///
    /// The handles of one name stay the same when the name is unloaded and loaded again. So add
    /// differences to `issued`, and never set it absolutely.
    #[derive(Clone, Debug)]
    pub struct SequenceMetrics {
        /// Numbers given to callers.
        issued: Counter = "odometer_numbers_issued_total",
        /// Numbers in the block being issued.
        block_size: Gauge = "odometer_block_size",
        /// Numbers left of the block being issued.
        ///
        /// The prefetched block is included.
        block_remaining: Gauge = "odometer_block_remaining",
        /// The part of the current block that is issued.
        ///
        /// From 0 to 1.
        block_utilization: Gauge = "odometer_block_utilization_ratio",
        /// How long the numbers in memory last at the present rate.
        ///
        /// In seconds; +Inf at rate 0.
        reserve_seconds: Gauge = "odometer_reserve_seconds",
        /// Numbers that are not reserved yet, up to the end of the sequence. Infinite if the
        /// sequence starts again before, or if no count says when the sequence ends.
        runway_numbers: Gauge = "odometer_runway_numbers",
        /// How long until the sequence ends at the present rate.
        ///
        /// In seconds; +Inf at rate 0.
        runway_seconds: Gauge = "odometer_runway_seconds",
        /// The part of the speed limit that callers of this replica use.
        ///
        /// 0 without a limit. At 1 for all replicas together, callers wait.
        limit_used: Gauge = "odometer_limit_used_ratio",
    }
}

impl SequenceMetrics {
    pub(crate) fn beyond(issued: Counter) -> Self {
        Self {
            issued,
            ..Self::make(&NoopRecorder, &[])
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
        self.limit_used.set(0.0);
    }
}
