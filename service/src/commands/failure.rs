//! The failure of a command, and the exit code that reports it.

use odometer_store::StartError;
use thiserror::Error;

use super::output;
use crate::config::ConfigError;

/// The failure of a command: one line that says why, and an exit code. It never has a token in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{sentence}")]
pub struct CommandFailure {
    exit_code: u8,
    sentence: String,
}

impl CommandFailure {
    /// The exit code if the command line is wrong.
    pub const USAGE: u8 = 2;
    /// The exit code if an operator has to change something.
    const CONFIGURATION: u8 = 78;
    /// The exit code if another process holds the SQLite file.
    const HELD: u8 = 75;
    const OTHER: u8 = 1;

    /// Returns a failure that has no exit code of its own. The sentence may contain what a replica
    /// sent.
    pub fn other(sentence: impl AsRef<str>) -> Self {
        Self {
            exit_code: Self::OTHER,
            sentence: output::clean(sentence.as_ref()),
        }
    }

    /// Returns a failure because of a command line that is wrong by itself, whatever the
    /// configuration and the databases say.
    pub fn usage(sentence: impl AsRef<str>) -> Self {
        Self {
            exit_code: Self::USAGE,
            ..Self::other(sentence)
        }
    }

    /// Returns a failure because of a configuration that cannot be used.
    pub fn configuration(sentence: impl Into<String>) -> Self {
        Self {
            exit_code: Self::CONFIGURATION,
            sentence: sentence.into(),
        }
    }

    /// Returns the exit code that the process ends with.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl From<ConfigError> for CommandFailure {
    fn from(error: ConfigError) -> Self {
        Self::configuration(error.to_string())
    }
}

impl From<StartError> for CommandFailure {
    fn from(error: StartError) -> Self {
        let (exit_code, sentence) = match error {
            StartError::Configuration(sentence) => (Self::CONFIGURATION, sentence),
            StartError::Held(sentence) => (Self::HELD, sentence),
            StartError::Other(sentence) => (Self::OTHER, sentence),
        };
        Self {
            exit_code,
            sentence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_the_exit_code_of_the_contract() {
        let configuration = ConfigError::new("listen (command line)", "is wrong");
        for (failure, exit_code) in [
            (CommandFailure::from(configuration), 78),
            (StartError::Configuration("schema".into()).into(), 78),
            (StartError::Held("file".into()).into(), 75),
            (StartError::Other("else".into()).into(), 1),
            (CommandFailure::other("else"), 1),
            (CommandFailure::usage("command line"), 2),
        ] {
            assert_eq!(failure.exit_code(), exit_code, "{failure}");
        }
    }
}
