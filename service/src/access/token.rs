//! Makes the tokens of callers, and hashes them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use odometer_process::secret::Secret;
use sha2::{Digest as _, Sha256};

/// The first characters of each token. Programs that search for leaked secrets know a token by
/// them.
const PREFIX: &str = "odo_";

/// Bytes of chance in a token. No one can guess so many, so a fast hash without salt is enough.
const N_BYTES: usize = 32;

/// Characters of a token: its prefix, and its bytes in base64 without padding.
const LENGTH: usize = PREFIX.len() + (N_BYTES * 8).div_ceil(6);

/// Hexadecimal digits of a hash.
const N_DIGITS: usize = 64;

/// The SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Makes a new token.
pub fn make() -> Secret {
    let bytes: [u8; N_BYTES] = rand::random();
    Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// Returns the hash of a token; `None` if the text does not have the form of a token.
pub fn hash(text: &str) -> Option<TokenHash> {
    let has_form = text.len() == LENGTH && text.starts_with(PREFIX);
    has_form.then(|| digest(text))
}

/// Returns the SHA-256 of a text of any form.
pub fn digest(text: &str) -> TokenHash {
    Sha256::digest(text.as_bytes()).into()
}

/// Returns a hash in hexadecimal digits.
pub fn to_hex(hash: &TokenHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a hash from its 64 hexadecimal digits; `None` if the text is something else.
pub fn from_hex(text: &str) -> Option<TokenHash> {
    if text.len() != N_DIGITS || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = TokenHash::default();
    for (byte, place) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(place..place + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// Returns a text in which `…` stands for what may be a token or the digits of a hash.
pub fn masked(text: &str) -> String {
    let is_separator = |c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-';
    let mask = |word: &str| {
        let prefix = word.find(PREFIX).map(|at| at + PREFIX.len());
        let kept = match prefix {
            Some(end) if word.len() >= LENGTH => word.get(..end),
            Some(_) | None if word.len() >= N_DIGITS => Some(""),
            Some(_) | None => None,
        };
        kept.map_or_else(|| word.to_owned(), |kept| format!("{kept}…"))
    };
    let words = text.split_inclusive(is_separator).map(|part| {
        let word = part.trim_end_matches(is_separator);
        let separator = part.get(word.len()..).unwrap_or_default();
        mask(word) + separator
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_its_form_and_no_two_are_alike() {
        let (first, second) = (make(), make());
        assert_eq!(first.expose().len(), 47);
        assert!(first.expose().starts_with("odo_"));
        let hashes = [hash(first.expose()), hash(second.expose())];
        assert!(hashes.iter().all(Option::is_some));
        assert_ne!(hashes[0], hashes[1]);
        for other in ["", "odo_", "s3cret", &first.expose()[1..], "odo_é"] {
            assert_eq!(hash(other), None, "{other}");
        }
    }

    #[test]
    fn a_token_is_masked_wherever_it_stands_and_other_words_are_not() {
        let token = make();
        let (token, digits) = (token.expose(), "9f".repeat(32));
        for (text, shown) in [
            (format!("[{token}]: x"), "[odo_…]: x"),
            (format!("é`a-{token}b`"), "é`a-odo_…`"),
            (format!("{token}.{token}"), "odo_….odo_…"),
            (format!("{digits} {digits}\n"), "… …\n"),
            (
                "odo_ odo_a billing-prod é".to_owned(),
                "odo_ odo_a billing-prod é",
            ),
            (String::new(), ""),
        ] {
            assert_eq!(masked(&text), shown, "{text}");
        }
    }

    #[test]
    fn a_hash_is_read_back() {
        let token = "odo_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let hash = hash(token).unwrap_or_default();
        // By `printf %s … | sha256sum`.
        let digits = "21df1c606b4644534b2f7a9490e553ac2c031d3d1e60fe3911e05fd8ebde9abe";
        assert_eq!(to_hex(&hash), digits);
        assert_eq!(from_hex(digits), Some(hash));
        assert_eq!(from_hex(&digits.to_uppercase()), Some(hash));
        for wrong in [
            "",
            "9f",
            &digits[1..],
            &digits.replace('2', "g"),
            &"é".repeat(32),
        ] {
            assert_eq!(from_hex(wrong), None, "{wrong}");
        }
    }
}
