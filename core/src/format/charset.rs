//! Computes with sets of ASCII characters.

/// A set of ASCII characters, with one bit for each character.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CharSet(u128);

impl CharSet {
    /// Holds the decimal digits.
    pub(crate) const DIGITS: Self = Self(0x3ff << b'0');

    /// Creates the set of the characters of a text. Characters that are not ASCII are left out.
    pub(crate) fn of(text: &[u8]) -> Self {
        text.iter().copied().map(Self::one).fold(Self(0), Self::or)
    }

    /// Creates the set of one character.
    pub(crate) fn one(byte: u8) -> Self {
        Self(1_u128.checked_shl(u32::from(byte)).unwrap_or(0))
    }

    /// Returns the characters that are in one of the two sets, or in both.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set has a character.
    pub(crate) fn has(self, byte: u8) -> bool {
        self.meets(Self::one(byte))
    }

    /// Returns whether the two sets have a character in common.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_they_were_made_of() {
        let set = CharSet::of("0~é".as_bytes());
        assert!(set.has(b'0') && set.has(b'~') && !set.has(b'1') && !set.has(0xc3));
        assert_eq!(CharSet::of(b"0123456789"), CharSet::DIGITS);
        assert!(set.meets(CharSet::DIGITS) && !set.meets(CharSet::of(b"1-")));
    }
}
