//! The commands of a counter's actor.
//!
//! Answers go through channels of their own, so that a caller who gave up is
//! known as such before anything is given to it, and one whose actor died
//! learns of it at once.

use std::sync::Arc;

use actix::Message;
use odometer_core::{block::Block, definition::Definition};
use tokio::sync::oneshot;
use tracing::Span;

use crate::error::SequenceError;

/// What a caller gets: ascending ranges, as many numbers as asked for.
pub(crate) type Outcome = Result<Vec<Block>, SequenceError>;

/// Where numbers for one caller go.
pub(crate) struct ReplySender {
    sender: oneshot::Sender<Outcome>,
    /// The call, as the log names it.
    pub(crate) call: Span,
}

impl ReplySender {
    /// Of the call that is being answered.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let call = Span::current();
        (Self { sender, call }, receiver)
    }

    /// Whether the caller gave up.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Answers; gives back what a caller who gave up did not get.
    pub(crate) fn send(self, outcome: Outcome) -> Result<(), Outcome> {
        self.sender.send(outcome)
    }
}

/// What an actor is told to do.
pub(crate) enum Command {
    /// Give numbers that the cursor did not have.
    Take {
        count: u64,
        /// As one unbroken range.
        contiguous: bool,
        answer: ReplySender,
    },
    /// Give a block to a client that counts by itself.
    HandOver { size: u64, answer: ReplySender },
    /// Read the definition, as it is stored or as the template of the name has it.
    Learn {
        answer: oneshot::Sender<Result<Arc<Definition>, SequenceError>>,
    },
    /// What is left lasts for less than `hold`: refill.
    LowWater,
    /// Have numbers in memory before anybody asks for one.
    Load {
        /// Told when they are there, or when they will not come for now.
        done: oneshot::Sender<()>,
    },
    /// Obey a change, made through this replica or another one.
    Change {
        /// Told when nothing that the change forbids can be issued here any more.
        done: oneshot::Sender<()>,
    },
    /// Nothing was asked for some time: stop, if nothing is under way.
    Park,
    /// Give back what was not issued and stop; dropped unanswered where something is under way.
    Unload,
    /// Finish what is under way, give back what was not issued, and stop.
    Drain {
        /// Told how many numbers were given back.
        answer: oneshot::Sender<u64>,
    },
}

impl Message for Command {
    type Result = ();
}
