//! The failure of a command that calls a replica: one sentence and an exit code.

use thiserror::Error;

use super::output;

/// The failure of a command that calls a replica. It never has a token in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub(crate) struct RemoteFailure {
    exit_code: u8,
    sentence: String,
}

impl RemoteFailure {
    const OTHER: u8 = 1;
    /// The exit code of a wrong command line, as clap has it.
    const USAGE: u8 = 2;

    /// Returns a failure that is not the fault of the command line.
    pub(crate) fn new(sentence: impl AsRef<str>) -> Self {
        Self {
            exit_code: Self::OTHER,
            sentence: output::clean(sentence.as_ref()),
        }
    }

    /// Returns a failure because of an option, an argument or a variable that cannot be used.
    pub(crate) fn usage(sentence: impl AsRef<str>) -> Self {
        Self {
            exit_code: Self::USAGE,
            ..Self::new(sentence)
        }
    }

    /// Returns the exit code that the process ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }
}
