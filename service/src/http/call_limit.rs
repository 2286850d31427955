//! The bound on calls being answered off the warm path.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Counter, Gauge};

use super::problem::{Code, Problem};

/// The calls being answered, at most so many.
pub(crate) struct CallLimit {
    now: AtomicUsize,
    limit: usize,
    gauge: Gauge,
    refused: Counter,
}

impl CallLimit {
    /// None yet, at most `limit` at once; `gauge` shows how many, `refused` counts those above.
    pub(crate) fn new(limit: usize, gauge: Gauge, refused: Counter) -> Self {
        Self {
            now: AtomicUsize::new(0),
            limit,
            gauge,
            refused,
        }
    }

    /// A place for one more.
    ///
    /// # Errors
    /// All are taken.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<CallSlot, Problem> {
        let before = self.now.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
        let place = CallSlot(Arc::clone(self));
        if before < self.limit {
            return Ok(place);
        }
        self.refused.increment(1);
        let detail = "`limits.in_flight` calls are being answered already; try again.";
        Err(Problem::new(Code::Overloaded, detail))
    }
}

/// A place among the calls being answered, free again when dropped.
pub(crate) struct CallSlot(Arc<CallLimit>);

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
        self.0.gauge.decrement(1.0);
    }
}

/// The place of one call, which it leaves while it only waits.
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

    /// The only place there is.
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

    /// Makes room for another call.
    pub(crate) fn leave(&self) {
        self.place.take();
    }

    /// Goes on after a wait.
    ///
    /// # Errors
    /// All places are taken now.
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
