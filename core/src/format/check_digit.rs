//! Computes check digits over what is printed before them.
//!
//! A letter counts as two digits: A as 10 to Z as 35, in either case. Other characters that are no
//! digits do not count. ISIN (ISO 6166) and IBAN (ISO 13616) do the same.

use std::iter;

/// A method to compute check digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// One digit by Luhn's formula (ISO/IEC 7812-1, annex B), with letters as in ISO 6166.
    ///
    /// From the right, every other digit is doubled, and the digits of the result are added. The
    /// sum with the check digit is a multiple of 10. The check finds every single wrong digit, and
    /// most swaps of two neighbouring digits.
    Luhn,
    /// Two digits, 02 to 98, by MOD 97-10 of ISO/IEC 7064, as in ISO 13616.
    ///
    /// The whole number with these digits leaves 1 when it is divided by 97. The check finds every
    /// single wrong digit, and every letter in the place of another letter. It finds every swap of
    /// two neighbouring digits or letters. It may not find a digit in the place of a letter, or a
    /// swap such as `1B` for `B1`.
    Mod97,
}

impl Check {
    /// Returns the check that a pattern names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = [Self::Luhn, Self::Mod97].into_iter();
        all.find(|check| check.name() == name)
    }

    /// Returns the name of the check in a pattern.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Luhn => "luhn",
            Self::Mod97 => "mod97",
        }
    }

    /// Returns how many digits the check prints.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Luhn => 1,
            Self::Mod97 => 2,
        }
    }

    /// Returns the check digits of a text, as a number. The text is what was printed before.
    pub(crate) fn of(self, text: &[u8]) -> i64 {
        match self {
            Self::Luhn => luhn(text),
            Self::Mod97 => mod97(text),
        }
    }
}

/// Returns the number that a character counts as: 0 to 35.
fn worth(byte: u8) -> Option<i64> {
    match byte {
        b'0'..=b'9' => Some(i64::from(byte - b'0')),
        b'A'..=b'Z' => Some(i64::from(byte - b'A') + 10),
        b'a'..=b'z' => Some(i64::from(byte - b'a') + 10),
        _ => None,
    }
}

fn luhn(text: &[u8]) -> i64 {
    let worths = text.iter().rev().filter_map(|byte| worth(*byte));
    let digits = worths.flat_map(|worth| {
        let tens = (worth > 9).then_some(worth / 10);
        iter::once(worth % 10).chain(tens)
    });
    let weighted = digits.zip([2, 1].into_iter().cycle());
    let sum: i64 = weighted
        .map(|(digit, weight)| digit * weight)
        .map(|product| product / 10 + product % 10)
        .sum();
    (10 - sum % 10) % 10
}

fn mod97(text: &[u8]) -> i64 {
    let rest = text.iter().filter_map(|byte| worth(*byte));
    let rest = rest.fold(0, |rest, worth| {
        let shift = if worth > 9 { 100 } else { 10 };
        (rest * shift + worth) % 97
    });
    98 - rest * 100 % 97
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_numbers_have_their_check_digits() {
        for (text, digit) in [
            // The example of ISO/IEC 7812-1, two ISINs, and a test number for cards.
            ("7992739871", 3),
            ("US037833100", 5),
            ("DE000BAY001", 7),
            ("411111111111111", 1),
            ("", 0),
        ] {
            assert_eq!(Check::Luhn.of(text.as_bytes()), digit, "{text}");
        }
        for (text, digits) in [
            // Account numbers of IBANs, followed by their country: GB82 WEST 1234 5698 7654 32, and
            // DE89 3704 0044 0532 0130 00. Then the example of ISO/IEC 7064.
            ("WEST12345698765432GB", 82),
            ("370400440532013000DE", 89),
            ("794", 44),
        ] {
            assert_eq!(Check::Mod97.of(text.as_bytes()), digits, "{text}");
        }
    }

    #[test]
    fn case_and_what_is_no_letter_and_no_digit_do_not_count() {
        for check in [Check::Luhn, Check::Mod97] {
            assert_eq!(check.of(b"INV-2026/1"), check.of(b"inv20261"));
        }
    }

    #[test]
    fn one_wrong_digit_is_always_found() {
        let right = b"INV-2026-000042";
        for (place, byte) in right.iter().enumerate() {
            for other in (b'0'..=b'9').filter(|other| byte.is_ascii_digit() && other != byte) {
                let mut wrong = *right;
                wrong[place] = other;
                for check in [Check::Luhn, Check::Mod97] {
                    assert_ne!(check.of(&wrong), check.of(right));
                }
            }
        }
    }
}
