//! Bounds the calls that are being answered off the warm path.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use metrics::{Counter, Gauge};
use odometer_process::metrics::Present;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::{Code, Problem};

/// The calls that are being answered, with the most that there may be.
pub(crate) struct CallLimit {
    free: Arc<Semaphore>,
    gauge: Gauge,
    refused: Counter,
}

impl CallLimit {
    /// Allows `limit` calls at once. `gauge` shows how many there are, `refused` counts the calls
    /// above.
    pub(crate) fn new(limit: usize, gauge: Gauge, refused: Counter) -> Self {
        Self {
            free: Arc::new(Semaphore::new(limit)),
            gauge,
            refused,
        }
    }

    /// Returns a slot for one more call.
    ///
    /// # Errors
    /// All slots are taken.
    pub(crate) fn admit(&self) -> Result<CallSlot, Problem> {
        let Ok(slot) = Arc::clone(&self.free).try_acquire_owned() else {
            self.refused.increment(1);
            let detail = "`limits.in_flight` calls are being answered already; try again.";
            return Err(Problem::new(Code::Overloaded, detail));
        };
        Ok(CallSlot {
            _slot: slot,
            _present: Present::of(&self.gauge),
        })
    }
}

/// A slot among the calls being answered. The slot is free again when this is dropped.
pub(crate) struct CallSlot {
    _slot: OwnedSemaphorePermit,
    _present: Present,
}

/// The slot of one call. The call leaves it while it only waits.
#[derive(Clone)]
pub(crate) struct LeavableSlot {
    in_flight: Arc<CallLimit>,
    place: Rc<Cell<Option<CallSlot>>>,
}

impl LeavableSlot {
    pub(crate) fn new(in_flight: &Arc<CallLimit>, place: CallSlot) -> Self {
        Self {
            in_flight: Arc::clone(in_flight),
            place: Rc::new(Cell::new(Some(place))),
        }
    }

    /// Returns a limit of one call, and the only slot of that limit.
    #[cfg(test)]
    pub(crate) fn alone() -> (Arc<CallLimit>, Self) {
        let in_flight = Arc::new(CallLimit::new(1, Gauge::noop(), Counter::noop()));
        let place = Cell::new(in_flight.admit().ok());
        let place = Self {
            in_flight: Arc::clone(&in_flight),
            place: Rc::new(place),
        };
        (in_flight, place)
    }

    /// Leaves the slot to another call.
    pub(crate) fn leave(&self) {
        self.place.take();
    }

    /// Takes a slot again after a wait.
    ///
    /// # Errors
    /// All slots are taken now.
    pub(crate) fn take_again(&self) -> Result<(), Problem> {
        self.place.set(Some(self.in_flight.admit()?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_are_answered_at_once() {
        let in_flight = Arc::new(CallLimit::new(2, Gauge::noop(), Counter::noop()));
        let first = in_flight.admit();
        let second = in_flight.admit();
        assert!(first.is_ok() && second.is_ok());
        assert!(in_flight.admit().is_err());
        assert!(in_flight.admit().is_err());
        drop(first);
        assert!(in_flight.admit().is_ok());
    }

    #[test]
    fn a_call_that_waits_leaves_its_place_to_others() {
        let (in_flight, waiting) = LeavableSlot::alone();
        assert!(in_flight.admit().is_err());
        waiting.leave();
        let other = in_flight.admit();
        assert!(other.is_ok());
        assert!(waiting.take_again().is_err());
        drop(other);
        assert!(waiting.take_again().is_ok());
        assert!(in_flight.admit().is_err());
        drop(waiting);
        assert!(in_flight.admit().is_ok());
    }
}
