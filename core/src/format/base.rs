//! Prints numbers in a base, and reads them back.

use super::charset::CharSet;

/// Bounds the digits of a number: base 10 needs the most digits for 2^63 − 1.
pub(crate) const MAX_DIGITS: usize = 19;

/// The digits in which a number is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    /// `0`–`9`.
    Decimal,
    /// `0`–`9`, `A`–`Z`.
    Base36,
    /// `0`–`9`, `A`–`Z`, `a`–`z`, in the order of ASCII. So ids of one length sort as their numbers
    /// do.
    Base62,
    /// Crockford's base 32: `0`–`9` and the capital letters without I, L, O and U
    /// (<https://www.crockford.com/base32.html>). Its check symbol is not printed.
    Crockford,
}

impl Base {
    /// Returns the base that a pattern names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut named = [Self::Base36, Self::Base62, Self::Crockford].into_iter();
        named.find(|base| base.name() == Some(name))
    }

    /// Returns the name of the base in a pattern; `None` for base 10, which has no name.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Decimal => None,
            Self::Base36 => Some("b36"),
            Self::Base62 => Some("b62"),
            Self::Crockford => Some("crockford"),
        }
    }

    fn digits(self) -> &'static [u8] {
        match self {
            Self::Decimal => b"0123456789",
            Self::Base36 => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            Self::Base62 => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            Self::Crockford => b"0123456789ABCDEFGHJKMNPQRSTVWXYZ",
        }
    }

    fn radix(self) -> u64 {
        self.digits().len() as u64
    }

    /// Returns the characters that are digits of this base.
    pub(crate) fn charset(self) -> CharSet {
        CharSet::of(self.digits())
    }

    /// Returns how many digits 2^63 − 1 has in this base.
    pub(crate) fn most_digits(self) -> usize {
        match self {
            Self::Decimal => MAX_DIGITS,
            Self::Base36 | Self::Crockford => 13,
            Self::Base62 => 11,
        }
    }

    /// Returns the highest number of `n_digits` digits, at most 2^63 − 1.
    pub(crate) fn highest(self, n_digits: usize) -> i64 {
        let n_digits = u32::try_from(n_digits).unwrap_or(u32::MAX);
        let radix = i64::try_from(self.radix()).unwrap_or(i64::MAX);
        radix
            .checked_pow(n_digits)
            .map_or(i64::MAX, |above| above - 1)
    }

    /// Appends a number, with zeros before it up to `width` digits.
    pub(crate) fn print(self, value: i64, width: usize, out: &mut String) {
        let (digits, radix) = (self.digits(), self.radix());
        let mut left = value.unsigned_abs();
        // The digits, the last one first. 2^64 − 1 would have one digit more than `MAX_DIGITS`.
        let mut printed = [b'0'; MAX_DIGITS + 1];
        let mut n_printed = 0;
        for place in printed.iter_mut().rev() {
            let digit = usize::try_from(left % radix).unwrap_or_default();
            *place = digits.get(digit).copied().unwrap_or(b'0');
            left /= radix;
            n_printed += 1;
            if left == 0 {
                break;
            }
        }
        let n_printed = width.clamp(n_printed, printed.len());
        let text = printed.get(printed.len() - n_printed..).unwrap_or_default();
        out.push_str(str::from_utf8(text).unwrap_or_default());
    }

    /// Reads the number that digits stand for. Zeros before the number are ignored.
    ///
    /// `None` if the number is above 2^63 − 1, or if a character is no digit.
    pub(crate) fn read(self, text: &str) -> Option<i64> {
        let radix = i64::try_from(self.radix()).ok()?;
        text.bytes().try_fold(0_i64, |number, byte| {
            let digit = self.digits().iter().position(|digit| *digit == byte)?;
            number
                .checked_mul(radix)?
                .checked_add(i64::try_from(digit).ok()?)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    const ALL: [Base; 4] = [Base::Decimal, Base::Base36, Base::Base62, Base::Crockford];

    fn printed(base: Base, value: i64, width: usize) -> String {
        let mut out = String::new();
        base.print(value, width, &mut out);
        out
    }

    #[test]
    fn numbers_are_printed_in_every_base() {
        for (base, value, width, text) in [
            (Base::Decimal, 0, 0, "0"),
            (Base::Decimal, 42, 6, "000042"),
            (Base::Decimal, 1_234_567, 6, "1234567"),
            (Base::Decimal, i64::MAX, 19, "9223372036854775807"),
            (Base::Base36, 35, 0, "Z"),
            (Base::Base36, 36, 4, "0010"),
            (Base::Base36, i64::MAX, 0, "1Y2P0IJ32E8E7"),
            (Base::Base62, 61, 2, "0z"),
            (Base::Base62, i64::MAX, 0, "AzL8n0Y58m7"),
            (Base::Crockford, 31, 0, "Z"),
            (Base::Crockford, 18, 0, "J"),
            (Base::Crockford, i64::MAX, 0, "7ZZZZZZZZZZZZ"),
        ] {
            assert_eq!(printed(base, value, width), text);
            assert_eq!(base.read(text), Some(value));
        }
    }

    #[test]
    fn the_longest_number_has_as_many_digits_as_its_base_says() {
        for base in ALL {
            assert_eq!(printed(base, i64::MAX, 0).len(), base.most_digits());
            assert_eq!(base.highest(base.most_digits()), i64::MAX);
            let below = base.highest(base.most_digits() - 1);
            assert_eq!(printed(base, below, 0).len(), base.most_digits() - 1);
            assert_eq!(printed(base, below + 1, 0).len(), base.most_digits());
        }
    }

    #[test]
    fn what_is_too_large_or_no_digit_is_not_read() {
        assert_eq!(Base::Decimal.read("9223372036854775808"), None);
        assert_eq!(Base::Decimal.read("1A"), None);
        assert_eq!(Base::Base36.read("a"), None);
        assert_eq!(Base::Crockford.read("U"), None);
        assert_eq!(Base::Base62.read("AzL8n0Y58m8"), None);
    }
}
