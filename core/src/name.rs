//! Names of sequences: refused when they do not fit, never folded or trimmed.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// The name of a sequence: 1 to 128 characters, `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`.
///
/// Case matters. Cloning shares the text. It hashes and compares like its `str`, so a map keyed
/// by names is searched with a `&str`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceName(Arc<str>);

/// Why a text is not the name of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidName {
    /// Nothing was given.
    #[error(
        "The name of a sequence is empty; it needs 1 to {max} characters.",
        max = SequenceName::MAX_LENGTH
    )]
    Empty,
    /// More than [`SequenceName::MAX_LENGTH`] characters.
    #[error(
        "The name of a sequence has {length} characters; at most {max} are allowed.",
        max = SequenceName::MAX_LENGTH
    )]
    TooLong {
        /// Its length in characters.
        length: usize,
    },
    /// The first character is neither an ASCII letter nor a digit.
    #[error(
        "The name of a sequence starts with {found:?}; it must start with an ASCII letter or a digit."
    )]
    BadStart {
        /// The first character.
        found: char,
    },
    /// A later character is not one of those allowed.
    #[error(
        "The name of a sequence has {found:?} at position {at}; after the first character only \
         ASCII letters, digits, '.', '_', ':' and '-' are allowed."
    )]
    BadCharacter {
        /// The first character that is not allowed.
        found: char,
        /// Its position in characters, counted from 1.
        at: usize,
    },
}

impl SequenceName {
    /// The longest name, in characters.
    pub const MAX_LENGTH: usize = 128;

    /// Takes over a text that is a valid name.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule it breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Says whether a text is a valid name, without allocating.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule it breaks.
    pub fn check(text: &str) -> Result<(), InvalidName> {
        match text.as_bytes() {
            [first, rest @ ..]
                if rest.len() < Self::MAX_LENGTH
                    && first.is_ascii_alphanumeric()
                    && rest.iter().copied().all(is_allowed) =>
            {
                Ok(())
            }
            _ => Err(fault(text)),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SequenceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SequenceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for SequenceName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SequenceName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-')
}

/// The first rule broken by a text known to break one.
#[cold]
fn fault(text: &str) -> InvalidName {
    let Some(first) = text.chars().next() else {
        return InvalidName::Empty;
    };
    if !first.is_ascii_alphanumeric() {
        return InvalidName::BadStart { found: first };
    }
    let stranger = text
        .chars()
        .zip(1..)
        .find(|(c, _)| !u8::try_from(*c).is_ok_and(is_allowed));
    match stranger {
        Some((found, at)) => InvalidName::BadCharacter { found, at },
        None => InvalidName::TooLong { length: text.len() },
    }
}
