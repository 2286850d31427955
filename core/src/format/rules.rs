//! Checks which patterns a definition may have: patterns with ids that never repeat and can be read
//! back.
//!
//! With these rules, two different pairs of period and number never print the same id:
//!
//! 1. An id can be cut into its parts in only one way. All parts but two have a fixed length: the
//!    value and the caller's key. The value varies unless it is padded and may not grow. If at most
//!    one of the two varies, its length is what the other parts leave. If both vary, a character
//!    stands between them, next to the value (and its check digits), and it is no digit of the
//!    value. So the value and its check digits are the whole run of digits up to that character.
//! 2. The text of the value shows the number, because a base prints each number in one way, padded
//!    or not.
//! 3. The other parts show the period. They have the period itself, or enough parts of a calendar
//!    date.
//!
//! Check digits follow from what is printed before them, and have a fixed length. So they change
//! nothing in this proof.
//!
//! A literal next to the value may be none of its digits, even if the cut would be clear. This rule
//! is for people who read ids.

use super::Format;
use super::charset::CharSet;
use super::date::{self, DatePart};
use super::error::FormatError;
use super::parse::FormatPart;
use crate::period::{Period, PeriodKind};

/// The number of characters that a part prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Length {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Length {
    fn always(length: usize) -> Self {
        Self {
            least: length,
            most: length,
        }
    }

    /// Returns the length, if it does not vary.
    pub(crate) fn fixed(self) -> Option<usize> {
        (self.least == self.most).then_some(self.least)
    }
}

impl Format {
    /// Checks that ids of this format never repeat and can be read back.
    pub(crate) fn check(&self) -> Result<(), FormatError> {
        self.check_neighbours()?;
        self.check_parts()?;
        self.check_period()?;
        self.check_cut()?;
        let highest = self.number.highest(self.overflow);
        if self.start > highest {
            let start = self.start;
            return Err(FormatError::new(format!(
                "has room for numbers up to {highest}, and `start` is {start}"
            )));
        }
        Ok(())
    }

    /// Returns how many characters a part prints.
    pub(crate) fn length(&self, part: &FormatPart) -> Length {
        match part {
            FormatPart::Text(text) => Length::always(text.len()),
            FormatPart::Date(part) => Length::always(part.length()),
            FormatPart::Check(check) => Length::always(check.length()),
            FormatPart::Period => match date::length(self.kind) {
                Some(length) => Length::always(length),
                None => Length {
                    least: 1,
                    most: Period::MAX_LENGTH,
                },
            },
            FormatPart::Value => {
                let (base, width) = (self.number.base, self.number.width);
                let may_grow = self.number.highest(self.overflow) == i64::MAX;
                Length {
                    least: width.max(1),
                    most: if may_grow { base.most_digits() } else { width },
                }
            }
        }
    }

    /// Returns the index of the first part that equals `wanted`.
    pub(crate) fn place_of(&self, wanted: &FormatPart) -> Option<usize> {
        self.parts.iter().position(|part| part == wanted)
    }

    /// Returns the characters that numbers are printed with.
    pub(crate) fn digits(&self) -> CharSet {
        self.number.base.charset()
    }

    fn check_neighbours(&self) -> Result<(), FormatError> {
        let digits = self.digits();
        let neighbour = self.parts.windows(2).find_map(|pair| match pair {
            [FormatPart::Text(text), FormatPart::Value] => {
                text.bytes().last().filter(|c| digits.has(*c))
            }
            [FormatPart::Value, FormatPart::Text(text)] => {
                text.bytes().next().filter(|c| digits.has(*c))
            }
            _ => None,
        });
        match neighbour.map(char::from) {
            None => Ok(()),
            Some(literal) => Err(FormatError::new(format!(
                "has `{literal}` next to `{{{}}}`, where it could be mistaken for one of its \
                 digits; put another character between them, such as `-`",
                self.number.field()
            ))),
        }
    }

    /// Checks that the definition's periods have each part, and that check digits come after the
    /// value.
    fn check_parts(&self) -> Result<(), FormatError> {
        let mut is_behind_value = false;
        for part in &self.parts {
            match part {
                FormatPart::Text(_) => {}
                FormatPart::Value => is_behind_value = true,
                FormatPart::Check(_) if is_behind_value => {}
                FormatPart::Check(check) => {
                    return Err(FormatError::new(format!(
                        "has `{{check:{}}}` before the value; it covers what is printed before it, \
                         so it stands behind",
                        check.name()
                    )));
                }
                FormatPart::Period if self.kind == PeriodKind::None => {
                    return Err(self.not_of_the_period("period"));
                }
                FormatPart::Period => {}
                FormatPart::Date(part) if part.is_part_of(self.kind) => {}
                FormatPart::Date(part) => {
                    return Err(self.not_of_the_period(part.name()));
                }
            }
        }
        Ok(())
    }

    /// Refuses a field that the definition's periods do not have.
    fn not_of_the_period(&self, field: &str) -> FormatError {
        let why = match self.kind {
            PeriodKind::None => "and counts without periods: leave it out or set `period`",
            PeriodKind::Keyed => "which a caller's key does not tell: write `{period}`",
            PeriodKind::Week => {
                "which an ISO week does not tell: write `{period}`, `{yyyy}` is its week-year"
            }
            PeriodKind::Day | PeriodKind::Month | PeriodKind::Year => {
                "which is finer than the definition's `period`"
            }
        };
        FormatError::new(format!("has `{{{field}}}`, {why}"))
    }

    /// Checks that the parts show the period.
    fn check_period(&self) -> Result<(), FormatError> {
        use DatePart::{Day, DayOfYear, Month, Year};
        let has = |parts: &[DatePart]| {
            let mut parts = parts.iter().map(|part| FormatPart::Date(*part));
            parts.all(|part| self.parts.contains(&part))
        };
        if self.kind == PeriodKind::None || self.parts.contains(&FormatPart::Period) {
            return Ok(());
        }
        let (is_told, needed) = match self.kind {
            PeriodKind::None | PeriodKind::Keyed | PeriodKind::Week => (false, "`{period}`"),
            PeriodKind::Year => (has(&[Year]), "`{period}` or `{yyyy}`"),
            PeriodKind::Month => (has(&[Year, Month]), "`{period}`, or `{yyyy}` and `{MM}`"),
            PeriodKind::Day => (
                has(&[Year, DayOfYear]) || has(&[Year, Month, Day]),
                "`{period}`, or `{yyyy}` with `{MM}` and `{dd}` or with `{JJJ}`",
            ),
        };
        if is_told {
            Ok(())
        } else {
            Err(FormatError::new(format!(
                "does not tell the periods apart, so ids would repeat: it needs {needed}"
            )))
        }
    }

    /// Checks that there is only one way to cut an id into its parts.
    fn check_cut(&self) -> Result<(), FormatError> {
        let varies = |part: &FormatPart| self.length(part).fixed().is_none();
        let keys = self
            .parts
            .iter()
            .filter(|part| **part == FormatPart::Period);
        if keys.filter(|part| varies(part)).count() > 1 {
            return Err(FormatError::new(
                "has `{period}` twice; keys vary in length, so it may have one",
            ));
        }
        if self.parts.iter().filter(|part| varies(part)).count() < 2 {
            return Ok(());
        }
        let (value, key) = (
            self.place_of(&FormatPart::Value),
            self.place_of(&FormatPart::Period),
        );
        let (Some(value), Some(key)) = (value, key) else {
            return Ok(());
        };
        let neighbour = if key < value {
            let before = value.checked_sub(1).and_then(|at| self.parts.get(at));
            before.and_then(|part| part.text()?.bytes().last())
        } else {
            let behind = self.parts.iter().skip(value + 1);
            let mut behind = behind.skip_while(|part| matches!(part, FormatPart::Check(_)));
            behind.next().and_then(|part| part.text()?.bytes().next())
        };
        match neighbour {
            Some(literal) if !self.digits().has(literal) => Ok(()),
            _ => Err(FormatError::new(
                "cannot always be read back, because the keys of `{period}` vary in length. Put a \
                 character that is no digit of the value, such as `-`, next to the value, between \
                 `{period}` and the value. Or give the value a fixed width, as in `{value:06}`, \
                 with `overflow` \"refuse\"",
            )),
        }
    }
}
