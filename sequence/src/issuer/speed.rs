//! Says what the speed limit of a sequence means for the callers of an issuer.

use odometer_core::{sizing::SizeReason, speed_limit::SpeedLimit};
use odometer_store::{limit_of, worth_a_write};

use crate::{actor::queue::Wants, error::SequenceError, issuer::memory::Issuer};

impl Issuer {
    /// Returns the speed limit, as far as memory knows.
    pub(crate) fn limit(&self) -> Option<SpeedLimit> {
        limit_of(&self.memory.lock().definition)
    }

    /// Returns how many numbers can be reserved at once, as far as memory knows.
    pub(crate) fn burst(&self) -> u64 {
        self.limit().map_or(u64::MAX, SpeedLimit::burst)
    }

    /// Returns whether a refill brings a caller who waits for it `count` numbers, however much of the
    /// speed limit is used. As far as memory knows.
    pub(crate) fn is_refilled_whole(&self, count: u64) -> bool {
        self.limit()
            .is_none_or(|limit| count <= worth_a_write(limit))
    }

    /// Returns why a caller got no numbers in time: the speed limit held the last refill back, or
    /// another reason. Numbers for the caller may be on their way.
    pub(crate) fn late(&self, (count, wants): (u64, Wants)) -> SequenceError {
        let last = self.memory.lock().last_refill;
        match last.and_then(|refill| refill.why) {
            Some(SizeReason::Limit) => SequenceError::LimitTimeout {
                name: self.key.sequence.clone(),
                n_available: match wants {
                    Wants::Numbers => self.remaining().min(count),
                    Wants::Range | Wants::Block => 0,
                },
            },
            Some(_) | None => SequenceError::RefillTimeout,
        }
    }
}
