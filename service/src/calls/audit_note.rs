//! Writes an audit line about a call that takes what nobody had before, also if its caller hangs up
//! before the reply.

use odometer_core::period::CounterKey;
use odometer_sequence::audit::{self, Author, Taking};
use odometer_sequence::error::SequenceError;
use odometer_sequence::issued::Issued;

/// A line about a call that is being answered. If it is dropped before the outcome is known, the
/// line says so.
pub(crate) struct AuditNote {
    author: Author,
    /// What the call asks for.
    counter: CounterKey,
    what: Taking,
    is_open: bool,
}

impl AuditNote {
    /// Begins a line about a call for numbers of a counter.
    pub(crate) fn begin(author: Author, counter: CounterKey, what: Taking) -> Self {
        Self {
            author,
            counter,
            what,
            is_open: true,
        }
    }

    /// Writes the line if the call got what it asked for, or if its time was over before anybody
    /// knew. Other failures have no line, so that an outage does not fill the log.
    pub(crate) fn settle(mut self, outcome: &Result<Issued, SequenceError>) {
        self.is_open = matches!(
            outcome,
            Err(SequenceError::RefillTimeout | SequenceError::LimitTimeout { .. })
        );
        if let Ok(issued) = outcome {
            let block = match self.what {
                Taking::Block => issued.ranges.first(),
                Taking::FirstUse => None,
            };
            audit::note_taking(&self.author, &issued.key, self.what, block);
        }
    }
}

impl Drop for AuditNote {
    fn drop(&mut self) {
        if self.is_open {
            audit::note_taking_uncertain(&self.author, &self.counter, self.what);
        }
    }
}
