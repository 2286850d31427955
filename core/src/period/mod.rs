//! Defines periods, in which the numbers of a sequence start again, and the keys of counters.
//!
//! The period is part of a counter's key. A new period has a counter of its own, so no counter is
//! ever set back.

mod calendar;
#[cfg(test)]
mod calendar_tests;
mod cutover;
mod digits;
mod kind;
mod unit;
mod year_start;
mod zone;

pub use calendar::{Calendar, CalendarPeriod, PeriodSpan};
pub(crate) use cutover::Cutover;
pub use kind::PeriodKind;
pub(crate) use unit::CalendarUnit;
pub(crate) use year_start::YearStart;
pub(crate) use zone::{find as find_zone, near as near_zones};

use std::fmt;
use std::sync::{Arc, LazyLock};

use thiserror::Error;

use crate::name::{SequenceName, shared_text};

/// A period, which says which counter of its sequence is meant.
///
/// It is a day, week, month or year as it is printed, or the caller's key. It is empty for a
/// sequence without periods.
///
/// A period has 1 to 64 of the characters that names may have. Case matters. Clones share the text.
/// Periods of one calendar kind sort by time. A period hashes and compares like its `str`, so a map
/// with periods as keys is searched with a `&str`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(Arc<str>);

/// Says why a text is not a period. The message is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct InvalidPeriod(String);

impl Period {
    /// Bounds the length of a period, in characters.
    pub const MAX_LENGTH: usize = 64;

    /// Returns the period of a sequence without periods.
    #[must_use]
    pub fn none() -> Self {
        static NONE: LazyLock<Period> = LazyLock::new(|| Period(Arc::from("")));
        NONE.clone()
    }

    /// Creates a period from a caller's key, or from a calendar period as it is printed.
    ///
    /// # Errors
    /// [`InvalidPeriod`] if the text is too long, or has a character that no period has.
    pub fn parse(text: &str) -> Result<Self, InvalidPeriod> {
        if text.len() <= Self::MAX_LENGTH && SequenceName::check(text).is_ok() {
            return Ok(Self(Arc::from(text)));
        }
        Err(InvalidPeriod(format!(
            "A period has 1 to {} characters, ASCII letters, digits, '.', '_', ':' and '-', the \
             first a letter or a digit; {:?} does not fit.",
            Self::MAX_LENGTH,
            cut(text)
        )))
    }

    /// Creates a period from the text in the store: a period that was valid once, or an empty text.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        if text.is_empty() {
            return Self::none();
        }
        Self(Arc::from(text))
    }

    /// Returns the period as text, which is empty if there is no period.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the period of a sequence without periods.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the period as replies show it; `None` if there is no period.
    #[must_use]
    pub fn shown(&self) -> Option<&str> {
        (!self.is_none()).then_some(&*self.0)
    }
}

impl Default for Period {
    fn default() -> Self {
        Self::none()
    }
}

shared_text!(Period);

/// Cuts a long text of a caller, so that a message shows that it is too long for a period.
fn cut(text: &str) -> String {
    text.chars().take(Period::MAX_LENGTH + 1).collect()
}

/// The name of a counter: a sequence, and one of its periods.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CounterKey {
    /// The sequence.
    pub sequence: SequenceName,
    /// The period; [`Period::none`] if the sequence has no periods.
    pub period: Period,
}

impl CounterKey {
    /// Creates the key of the only counter of a sequence without periods.
    #[must_use]
    pub fn whole(sequence: SequenceName) -> Self {
        Self {
            sequence,
            period: Period::none(),
        }
    }
}

impl fmt::Display for CounterKey {
    /// Writes `orders`, or `orders/20261120`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period.shown() {
            Some(period) => write!(f, "{}/{period}", self.sequence),
            None => write!(f, "{}", self.sequence),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_characters_of_a_name_and_at_most_64_of_them() {
        let long = "k".repeat(Period::MAX_LENGTH);
        for text in ["eod-7", "20261120", "2026W47", "a.b_c:d-e", &long] {
            assert_eq!(Period::parse(text).unwrap().shown(), Some(text));
        }
        let too_long = "k".repeat(Period::MAX_LENGTH + 1);
        for text in ["", " ", "a b", "-a", "é", "a/b", &too_long] {
            let refused = Period::parse(text).unwrap_err().to_string();
            assert!(refused.contains("1 to 64 characters"), "{refused}");
        }
    }

    #[test]
    fn no_period_is_shown_as_none() {
        assert!(Period::none().is_none());
        assert_eq!(Period::none(), Period::from_stored(""));
        assert_eq!(Period::none().shown(), None);
        let day = Period::parse("20261120").unwrap();
        assert_eq!(day.shown(), Some("20261120"));
    }

    #[test]
    fn a_counter_is_named_by_sequence_and_period() {
        let sequence = SequenceName::parse("orders").unwrap();
        let mut key = CounterKey::whole(sequence);
        assert_eq!(key.to_string(), "orders");
        key.period = Period::parse("20261120").unwrap();
        assert_eq!(key.to_string(), "orders/20261120");
    }
}
