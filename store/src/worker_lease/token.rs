//! Makes and reads tokens: a token is 128 random bits that the holder of a lease shows. The
//! database knows only the hash.

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use sha2::{Digest, Sha256};

/// How many digits a token has.
const LENGTH: usize = 32;

/// A token. Each lease gets a new one, and keeps it as long as it is renewed. It is secret.
#[derive(Clone)]
pub(crate) struct Token(Arc<str>);

impl Token {
    pub(crate) fn draw() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    /// Reads a token that a caller shows. Returns `None` if the text cannot be a token.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_one = text.len() == LENGTH && text.as_bytes().iter().all(is_digit);
        is_one.then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash, as the database has it.
    pub(crate) fn hash(&self) -> String {
        let mut text = String::with_capacity(2 * 32);
        for byte in Sha256::digest(self.0.as_bytes()) {
            // Writing to a string cannot fail.
            let _written = write!(text, "{byte:02x}");
        }
        text
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_drawn_and_never_shown() {
        let (one, other) = (Token::draw(), Token::draw());
        assert_ne!(one.as_str(), other.as_str());
        let read = Token::parse(one.as_str()).unwrap();
        assert_eq!((read.hash(), read.hash().len()), (one.hash(), 64));
        assert!(!format!("{one:?}").contains(one.as_str()));
    }

    #[test]
    fn what_cannot_be_a_token_is_none() {
        let upper = "0123456789ABCDEF0123456789ABCDEF";
        for text in [
            "",
            "0",
            upper,
            &"0".repeat(31),
            &"0".repeat(33),
            &"ä".repeat(16),
        ] {
            assert!(Token::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_hash_is_sha_256() {
        let token = Token::parse("00000000000000000000000000000000").unwrap();
        let expected = "84e0c0eafaa95a34c293f278ac52e45ce537bab5e752a00e6959a13ae103b65a";
        assert_eq!(token.hash(), expected);
    }
}
