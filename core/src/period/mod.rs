//! Periods: in what a sequence counts from its start again, and what names a counter.
//!
//! The period is part of the counter's key, so no counter is ever set back: a new period has a
//! counter of its own.

mod calendar;
#[cfg(test)]
mod calendar_tests;
mod cutover;
mod kind;
mod unit;
mod year_start;
mod zone;

pub use calendar::{Calendar, CalendarPeriod};
pub(crate) use cutover::Cutover;
pub use kind::PeriodKind;
pub(crate) use year_start::YearStart;
pub(crate) use zone::{find as find_zone, near as near_zones};

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::name::SequenceName;

/// Which of its counters a sequence counts in: a day, week, month or year as it is printed, or
/// the caller's key; empty where the sequence counts without periods.
///
/// 1 to 64 of the characters that names may have. Case matters. Cloning shares the text. Periods
/// of one calendar kind sort by time. It hashes and compares like its `str`, so a map keyed by
/// periods is searched with a `&str`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(Arc<str>);

/// Why a text is not a period.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidPeriod {
    /// Not of the characters, or the length, of a period.
    #[error(
        "A period has 1 to {max} characters, ASCII letters, digits, '.', '_', ':' and '-', the \
         first a letter or a digit; {text:?} does not fit.",
        max = Period::MAX_LENGTH
    )]
    Unfit {
        /// What was given, cut where it is long.
        text: String,
    },
    /// Not as the sequence's calendar prints any of its periods.
    #[error("A period of this sequence is {known}; {text:?} is none.")]
    Unlike {
        /// What was given, cut where it is long.
        text: String,
        /// What its periods are and how they are printed.
        known: &'static str,
    },
    /// A period without an instant.
    #[error("There was no {period} in {zone}: the clock was set past it.")]
    Skipped {
        /// The period.
        period: Period,
        /// The zone of the sequence.
        zone: String,
    },
}

impl Period {
    /// The longest period, in characters.
    pub const MAX_LENGTH: usize = 64;

    /// That of a sequence without periods.
    #[must_use]
    pub fn none() -> Self {
        static NONE: LazyLock<Period> = LazyLock::new(|| Period(Arc::from("")));
        NONE.clone()
    }

    /// Takes over a caller's key, or a calendar period as it is printed.
    ///
    /// # Errors
    /// [`InvalidPeriod::Unfit`] where it is too long or has a character that no period has.
    pub fn parse(text: &str) -> Result<Self, InvalidPeriod> {
        if text.len() <= Self::MAX_LENGTH && SequenceName::check(text).is_ok() {
            return Ok(Self(Arc::from(text)));
        }
        let text = text.chars().take(Self::MAX_LENGTH + 1).collect();
        Err(InvalidPeriod::Unfit { text })
    }

    /// What the store has: a period that was valid once, or nothing.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        if text.is_empty() {
            return Self::none();
        }
        Self(Arc::from(text))
    }

    /// The period as text, empty where there is none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the sequence counts without periods.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The period as replies show it.
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

impl Borrow<str> for Period {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Period {
    /// As a string; null where there is none.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown().serialize(serializer)
    }
}

/// What names a counter: a sequence, and the period it counts in.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CounterKey {
    /// The sequence.
    pub sequence: SequenceName,
    /// The period; [`Period::none`] where the sequence counts without periods.
    pub period: Period,
}

impl CounterKey {
    /// The counter of a sequence that counts without periods.
    #[must_use]
    pub fn whole(sequence: SequenceName) -> Self {
        Self {
            sequence,
            period: Period::none(),
        }
    }
}

impl fmt::Display for CounterKey {
    /// `orders`, or `orders/20261120`.
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
        assert_eq!(serde_json::to_string(&Period::none()).unwrap(), "null");
        let day = Period::parse("20261120").unwrap();
        assert_eq!(serde_json::to_string(&day).unwrap(), "\"20261120\"");
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
