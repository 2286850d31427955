//! Check digits over what is printed before them.
//!
//! A letter counts as two digits, A as 10 to Z as 35 whatever its case, and what is neither letter
//! nor digit is passed over: so ISIN (ISO 6166) and IBAN (ISO 13616) have it.

use super::charset::CharSet;

/// How check digits come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Check {
    /// One digit by Luhn's formula (ISO/IEC 7812-1, annex B), on letters as in ISO 6166: from the
    /// right every other digit is doubled, its digits are added, and the sum with the check digit
    /// is a multiple of 10. It finds every single wrong digit, and most swapped neighbours.
    Luhn,
    /// Two digits, 02 to 98, by MOD 97-10 of ISO/IEC 7064, as in ISO 13616: the whole number
    /// with them leaves 1 when it is divided by 97. It finds every single wrong character and
    /// every two neighbours swapped.
    Mod97,
}

impl Check {
    /// The check that a pattern names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "luhn" => Some(Self::Luhn),
            "mod97" => Some(Self::Mod97),
            _ => None,
        }
    }

    /// How a pattern names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Luhn => "luhn",
            Self::Mod97 => "mod97",
        }
    }

    /// How many digits it prints.
    pub(crate) fn length(self) -> usize {
        match self {
            Self::Luhn => 1,
            Self::Mod97 => 2,
        }
    }

    /// The characters it prints.
    pub(crate) fn charset(self) -> CharSet {
        CharSet::DIGITS
    }

    /// The check digits of what was printed before, as a number.
    pub(crate) fn of(self, text: &[u8]) -> i64 {
        match self {
            Self::Luhn => luhn(text),
            Self::Mod97 => mod97(text),
        }
    }
}

/// What a character counts for: 0 to 35.
fn worth(byte: u8) -> Option<i64> {
    match byte {
        b'0'..=b'9' => Some(i64::from(byte - b'0')),
        b'A'..=b'Z' => Some(i64::from(byte - b'A') + 10),
        b'a'..=b'z' => Some(i64::from(byte - b'a') + 10),
        _ => None,
    }
}

fn luhn(text: &[u8]) -> i64 {
    let mut is_doubled = true;
    let mut sum = 0;
    let mut add = |digit: i64| {
        sum += match digit * 2 {
            _ if !is_doubled => digit,
            twice if twice > 9 => twice - 9,
            twice => twice,
        };
        is_doubled = !is_doubled;
    };
    for worth in text.iter().rev().filter_map(|byte| worth(*byte)) {
        add(worth % 10);
        if worth > 9 {
            add(worth / 10);
        }
    }
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
            // The example of ISO/IEC 7812-1, two ISINs, a test number for cards.
            ("7992739871", 3),
            ("US037833100", 5),
            ("DE000BAY001", 7),
            ("411111111111111", 1),
            ("", 0),
        ] {
            assert_eq!(Check::Luhn.of(text.as_bytes()), digit, "{text}");
        }
        for (text, digits) in [
            // Accounts of IBANs with their country behind: GB82 WEST 1234 5698 7654 32,
            // DE89 3704 0044 0532 0130 00; and the example of ISO/IEC 7064.
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
