//! Bounds which part of a sequence one call takes.

use std::fmt;

/// How many numbers a call may take of any sequence.
pub const ALWAYS: u64 = 100;

/// The whole, in hundredths of a percent.
const WHOLE: u16 = 10_000;

/// The part of what is left of a sequence that one call may take without being confirmed, in
/// hundredths of a percent: 1 to 10,000.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(u16);

impl Default for Share {
    /// Returns one percent.
    fn default() -> Self {
        Self(WHOLE / 100)
    }
}

impl Share {
    /// No bound.
    pub const ALL: Self = Self(WHOLE);

    /// Reads a percentage with at most two decimals, from `0.01%` to `100%`. Returns `None` if the
    /// text is something else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('%')?;
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_plain(whole) || !is_plain(part) || part.is_empty() || part.len() > 2 {
            return None;
        }
        let part: u16 = format!("{part:0<2}").parse().ok()?;
        let whole: u16 = whole.parse().ok()?;
        let share = whole.checked_mul(100)?.checked_add(part)?;
        (1..=WHOLE).contains(&share).then_some(Self(share))
    }

    /// Returns whether there is no bound.
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// Returns the most numbers of one call, if `left` numbers are left.
    pub fn most(self, left: u64) -> u64 {
        let part = u128::from(left) * u128::from(self.0) / u128::from(WHOLE);
        u64::try_from(part).unwrap_or(left).max(ALWAYS)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 100, self.0 % 100);
        match (part, part % 10) {
            (0, _) => write!(formatter, "{whole}%"),
            (_, 0) => write!(formatter, "{whole}.{}%", part / 10),
            _ => write!(formatter, "{whole}.{part:02}%"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_is_a_percentage() {
        for text in ["1%", "0.01%", "0.5%", "12.34%", "100%", "99.99%", "1.05%"] {
            assert_eq!(Share::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Share::parse("1.50%").unwrap().to_string(), "1.5%");
        assert_eq!(Share::default().to_string(), "1%");
        assert!(Share::parse("100%").unwrap().is_all());
        for text in [
            "", "%", "1", "0%", "0.00%", "100.01%", "101%", "1.%", ".5%", "1.234%", "+1%", "-1%",
            "1 %", "1e1%", "99999%",
        ] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_hundred_numbers_may_always_be_taken() {
        let most = |left| Share::default().most(left);
        assert_eq!((most(0), most(9_999)), (ALWAYS, ALWAYS));
        assert_eq!((most(10_100), most(1_000_000)), (101, 10_000));
        assert_eq!(most(u64::MAX), u64::MAX / 100);
        assert_eq!(Share::ALL.most(u64::MAX), u64::MAX);
    }

    proptest! {
        #![proptest_config(odometer_tests::settings::properties())]

        #[test]
        fn fuzz_what_is_read_is_written_alike(text in "[0-9]{0,4}(\\.[0-9]{0,3})?%?") {
            if let Some(share) = Share::parse(&text) {
                let written = share.to_string();
                prop_assert_eq!(Share::parse(&written), Some(share));
                let value = |text: &str| text.trim_end_matches('%').parse::<f64>();
                prop_assert_eq!(value(&written), value(&text));
            }
        }
    }
}
