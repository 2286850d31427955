//! Defines the names of sequences. A text that does not fit is refused, and never changed.

use std::sync::Arc;

use thiserror::Error;

/// The name of a sequence: 1 to 128 characters, `^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`.
///
/// Case matters. Clones share the text. A name hashes and compares like its `str`, so a map with
/// names as keys is searched with a `&str`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceName(Arc<str>);

/// Says why a text is not the name of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidName {
    /// The text is empty.
    #[error(
        "The name of a sequence is empty; it needs 1 to {max} characters.",
        max = SequenceName::MAX_LENGTH
    )]
    Empty,
    /// The text has more than [`SequenceName::MAX_LENGTH`] characters.
    #[error(
        "The name of a sequence has {length} characters; at most {max} are allowed.",
        max = SequenceName::MAX_LENGTH
    )]
    TooLong {
        /// The length of the text in characters.
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
    /// A later character is not allowed.
    #[error(
        "The name of a sequence has {found:?} at position {at}; after the first character only \
         ASCII letters, digits, '.', '_', ':' and '-' are allowed."
    )]
    BadCharacter {
        /// The first character that is not allowed.
        found: char,
        /// The position of that character, counted from 1.
        at: usize,
    },
}

impl SequenceName {
    /// Bounds the length of a name, in characters.
    pub const MAX_LENGTH: usize = 128;

    /// Creates a name from a text.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        Self::check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Checks that a text is a valid name, without allocating.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule the text breaks.
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

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets a shared text be printed, and found in a map, as its `str`.
macro_rules! shared_text {
    ($name:ident) => {
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&*self.0, formatter)
            }
        }
    };
}
pub(crate) use shared_text;

shared_text!(SequenceName);

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-')
}

/// Returns the first rule that a text breaks. The text is known to break one.
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

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests may fail loudly"
    )]

    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_all_allowed_characters_are_taken_as_they_are() {
        let long = "a".repeat(SequenceName::MAX_LENGTH);
        for text in ["a", "0", "Z", "orders", "a.b_c:d-e", "a..", "9:", &long] {
            assert_eq!(SequenceName::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn names_that_break_a_rule_are_refused_with_that_rule() {
        let long = "a".repeat(SequenceName::MAX_LENGTH + 1);
        let bad = |found, at| InvalidName::BadCharacter { found, at };
        for (text, fault) in [
            ("", InvalidName::Empty),
            (&long, InvalidName::TooLong { length: 129 }),
            (".a", InvalidName::BadStart { found: '.' }),
            ("-", InvalidName::BadStart { found: '-' }),
            (" a", InvalidName::BadStart { found: ' ' }),
            ("é", InvalidName::BadStart { found: 'é' }),
            ("a/b", bad('/', 2)),
            ("a b", bad(' ', 2)),
            ("ab ", bad(' ', 3)),
            ("ab\0", bad('\0', 3)),
            ("aé!", bad('é', 2)),
            ("a%20b", bad('%', 2)),
        ] {
            assert_eq!(SequenceName::parse(text), Err(fault), "{text:?}");
        }
    }

    #[test]
    fn a_fault_prints_what_is_allowed() {
        let fault = SequenceName::check("a\0").unwrap_err().to_string();
        assert_eq!(
            fault,
            "The name of a sequence has '\\0' at position 2; after the first character only \
             ASCII letters, digits, '.', '_', ':' and '-' are allowed."
        );
    }

    #[test]
    fn a_map_of_names_is_searched_with_text() {
        let name = SequenceName::parse("Orders").unwrap();
        let map = HashMap::from([(name, 1)]);
        assert_eq!(map.get("Orders"), Some(&1));
        assert_eq!(map.get("orders"), None);
    }

    proptest! {
        #![proptest_config(crate::tests::properties())]

        #[test]
        fn a_text_is_a_name_exactly_when_the_pattern_fits(text in "\\PC{0,4}|[a-zA-Z0-9._:-]{0,131}") {
            let mut bytes = text.bytes();
            let fits = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric())
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
                && text.len() <= 128;
            prop_assert_eq!(SequenceName::parse(&text).is_ok(), fits);
        }
    }
}
