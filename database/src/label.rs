//! A database as sentences name it.

use std::{fmt, sync::Arc};

/// How a sentence names its database before [`DatabaseLabel::name_in`] puts in which one it is.
const THIS: &str = "ODOMETER_DATABASE_URL: ";

/// A database as sentences name it.
#[derive(Clone, Debug)]
pub struct DatabaseLabel {
    /// The name of its store.
    pub store: Arc<str>,
    /// Its URL without user, password and parameters.
    pub address: Arc<str>,
    /// The key that it is configured by.
    pub key: Arc<str>,
    /// Where that was given.
    pub origin: Arc<str>,
}

impl DatabaseLabel {
    /// A sentence about a database as one about this database: which one it is, where it is, and
    /// where that was configured.
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
