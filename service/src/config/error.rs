//! Says why a configuration cannot be used.

use std::fmt;

/// A configuration that cannot be used: which key, and what to do about it, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key, or its path in a section that is not known yet.
    pub(super) key: String,
    pub(super) problem: String,
}

impl ConfigError {
    /// Creates an error. `key` says where the problem is. `problem` is a sentence that says what to
    /// give instead.
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            problem: problem.into(),
        }
    }

    /// Says in which section the key is. An error without a key is about the whole section.
    pub(super) fn below(self, section: &str) -> Self {
        let key = match self.key.as_str() {
            "" => section.to_owned(),
            key => format!("{section}.{key}"),
        };
        Self { key, ..self }
    }

    /// Gives the key the name that a sentence has for it.
    pub(super) fn named(self, name: impl FnOnce(&str) -> String) -> Self {
        Self {
            key: name(&self.key),
            ..self
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!("configuration: {}: {}", self.key, self.problem);
        let words = line.split(['\n', '\r']).map(str::trim);
        let words: Vec<&str> = words.filter(|words| !words.is_empty()).collect();
        formatter.write_str(&words.join(" "))
    }
}

impl std::error::Error for ConfigError {}
