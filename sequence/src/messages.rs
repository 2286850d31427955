//! What is said to a sequence's actor.
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

/// Numbers are wanted that the cursor did not have.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Take {
    pub(crate) count: u64,
    /// As one unbroken range.
    pub(crate) contiguous: bool,
    pub(crate) answer: ReplySender,
}

/// A block is wanted for a client that counts by itself.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct HandOver {
    pub(crate) size: u64,
    pub(crate) answer: ReplySender,
}

/// The definition is wanted, as it is stored or as the template of the name has it.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Learn {
    pub(crate) answer: oneshot::Sender<Result<Arc<Definition>, SequenceError>>,
}

/// What is left lasts for less than `hold`.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct LowWater;

/// Numbers are wanted in memory before anybody asks for one.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Load {
    /// Told when they are there, or when they will not come for now.
    pub(crate) done: oneshot::Sender<()>,
}

/// The sequence was changed, through this replica or another one.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Change {
    /// Told when nothing that the change forbids can be issued here any more.
    pub(crate) done: oneshot::Sender<()>,
}

/// Nothing was asked for some time: stop, if nothing is under way.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Park;

/// Give back what was not issued and stop; dropped unanswered where something is under way.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Unload;

/// Finish what is under way, give back what was not issued, and stop.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    /// Told how many numbers were given back.
    pub(crate) answer: oneshot::Sender<u64>,
}
