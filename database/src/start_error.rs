//! Says why the program cannot start, or cannot go on.

use thiserror::Error;

use crate::label::DatabaseLabel;

/// Why the program cannot start, or cannot go on.
#[derive(Clone, Debug, Error)]
pub enum StartError {
    /// An operator has to change something: exit code 78.
    #[error("{0}")]
    Configuration(String),
    /// Another process holds the SQLite file: exit code 75.
    #[error("{0}")]
    Held(String),
    #[error("{0}")]
    Other(String),
}

impl StartError {
    /// Joins what failed at several places into one error.
    ///
    /// # Errors
    /// All of it.
    pub fn all(failed: Vec<Self>) -> Result<(), Self> {
        failed.into_iter().reduce(Self::and).map_or(Ok(()), Err)
    }

    /// Joins two errors into one. Its kind is the one that an operator has to handle first.
    pub fn and(self, other: Self) -> Self {
        let both = format!("{self}; {other}");
        match (self, other) {
            (Self::Configuration(_), _) | (_, Self::Configuration(_)) => Self::Configuration(both),
            (Self::Held(_), _) | (_, Self::Held(_)) => Self::Held(both),
            (Self::Other(_), Self::Other(_)) => Self::Other(both),
        }
    }

    /// Puts into the error's sentence which database it is about.
    pub fn of(self, label: &DatabaseLabel) -> Self {
        match self {
            Self::Configuration(sentence) => Self::Configuration(label.name_in(&sentence)),
            Self::Held(sentence) => Self::Held(label.name_in(&sentence)),
            Self::Other(sentence) => Self::Other(label.name_in(&sentence)),
        }
    }
}
