//! Defines the commands for the actor of a counter.
//!
//! Each answer goes through a channel of its own. So the actor knows that a caller gave up before
//! it gives numbers to that caller. If the actor dies, the caller learns of that at once.

use actix::Message;
use tokio::sync::oneshot;

use crate::actor::queue::Waiter;

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
