//! Names a database in sentences.

use std::{fmt, sync::Arc};

/// Begins a sentence about a database. [`DatabaseLabel::name_in`] puts in which database it is.
const THIS: &str = "ODOMETER_DATABASE_URL: ";

/// A database as sentences name it.
#[derive(Clone, Debug)]
pub struct DatabaseLabel {
    /// The name of the store.
    pub store: Arc<str>,
    /// The URL without user, password and parameters.
    pub address: Arc<str>,
    /// The key of the configuration that gives the database.
    pub key: Arc<str>,
    /// Where the key was given.
    pub origin: Arc<str>,
}

impl DatabaseLabel {
    /// Makes a sentence about a database say which database it is, where it is, and where it was
    /// configured.
    #[must_use]
    pub fn name_in(&self, sentence: &str) -> String {
        let said = sentence.strip_prefix(THIS).unwrap_or(sentence);
        format!("{} ({}, {}): {said}", self.key, self.address, self.origin)
    }
}

impl fmt::Display for DatabaseLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.key, self.address)
    }
}
