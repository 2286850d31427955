//! Defines the commands for the actor of a counter.
//!
//! Each answer goes through a channel of its own. So the actor knows that a caller gave up before
//! it gives numbers to that caller. If the actor dies, the caller learns of that at once.

use actix::Message;
use odometer_core::block::Block;
use tokio::sync::oneshot;
use tracing::Span;

use crate::{actor::queue::Waiter, error::SequenceError};

/// The ascending ranges that a caller gets, with as many numbers as were requested, or a refusal.
pub(crate) type Outcome = Result<Vec<Block>, SequenceError>;

/// Sends the answer to one caller.
pub(crate) struct ReplySender {
    sender: oneshot::Sender<Outcome>,
    /// The call, as the log names it.
    pub(crate) call: Span,
}

impl ReplySender {
    /// Creates a channel for the answer to the present call.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let call = Span::current();
        (Self { sender, call }, receiver)
    }

    /// Returns whether the caller gave up.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends the answer. If the caller gave up, returns the answer.
    pub(crate) fn send(self, outcome: Outcome) -> Result<(), Outcome> {
        self.sender.send(outcome)
    }
}

/// A command for an actor.
pub(crate) enum Command {
    /// Give numbers that the cursor did not have, or a block.
    Take(Waiter),
    /// Refill: the numbers left last for less than `hold`.
    LowWater,
    /// Get numbers into memory before any caller needs one.
    Load {
        /// Notified when the numbers are there, or when they do not come for now.
        done: oneshot::Sender<()>,
    },
    /// Obey a change that was made through this replica or another one.
    Change {
        /// Notified when this issuer can issue nothing any more that the change forbids.
        done: oneshot::Sender<()>,
    },
    /// Stop because of no use, unless work is under way.
    Park,
    /// Return the numbers that were not issued, and stop. Ignored if work is under way.
    Unload,
    /// Finish the work under way, return the numbers that were not issued, and stop.
    Drain {
        /// Receives how many numbers were returned.
        answer: oneshot::Sender<u64>,
    },
}

impl Message for Command {
    type Result = ();
}
