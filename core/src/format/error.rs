//! Says why a pattern is refused, and why a text is not an id.
//!
//! The positions in the messages are in characters, counted from 1.

use thiserror::Error;

/// Says why a pattern is not the format of a definition. The message is read after the field's
/// name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct FormatError(String);

/// Says why a text is not an id of a sequence. The message is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub struct InvalidId {
    sentence: String,
    /// The number in the id, if the sequence does not have that number.
    number: Option<i64>,
}

impl FormatError {
    /// Creates the error from the rule that the pattern breaks.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl InvalidId {
    /// Creates the error from its sentence.
    pub(crate) fn new(sentence: String) -> Self {
        Self {
            sentence,
            number: None,
        }
    }

    /// Says that the sequence does not have the number in the id.
    pub(crate) fn not_of_the_sequence(number: i64, reason: &str) -> Self {
        Self {
            sentence: format!("The number {number} is not of this sequence, which {reason}."),
            number: Some(number),
        }
    }

    /// Says that the text at the place of the period is no period of the sequence.
    #[must_use]
    pub fn no_period(found: &str) -> Self {
        Self::new(format!("{found:?} is no period of this sequence."))
    }

    /// Returns the number in the id, if the id is refused because the sequence does not have that
    /// number.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        self.number
    }
}
