//! Prints numbers together with their periods, and reads the ids back.
//!
//! A pattern is parsed once, when a definition is created or read. A pattern is refused if its ids
//! could repeat or could not be read back. The module `rules` has the proof. Ids are ASCII without
//! quotes, backslashes and control characters. So an id needs no escapes in JSON or in lines of
//! text.
//!
//! | File | Owns |
//! |---|---|
//! | `parse` | patterns as they are written |
//! | `rules` | the patterns that a definition may have |
//! | `base`, `date`, `check_digit` | what the fields print |
//! | `overflow` | what happens to a number that is too long |
//! | `print`, `read` | ids, printed and read back |
//! | `distinct` | whether two formats can print the same id |

mod base;
mod charset;
mod check_digit;
mod date;
mod distinct;
mod error;
mod overflow;
mod parse;
mod print;
mod read;
mod rules;
#[cfg(test)]
mod tests;

pub use error::{FormatError, InvalidId};
pub use overflow::Overflow;
pub use print::Printer;

use crate::definition::Definition;
use crate::period::{Period, PeriodKind};
use base::MAX_DIGITS;
use parse::{FormatPart, MAX_PATTERN, NumberFormat, Pattern};

/// The format of a definition's numbers: a parsed pattern, and the numbers that it may print.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    parts: Vec<FormatPart>,
    number: NumberFormat,
    overflow: Overflow,
    kind: PeriodKind,
    start: i64,
    step: i64,
    limit: i64,
}

impl Format {
    /// Prints the number and nothing else.
    pub const PLAIN: &str = "{value}";

    /// Bounds the bytes of an id: a pattern prints at most one key and one number.
    pub const MAX_ID: usize = MAX_PATTERN + Period::MAX_LENGTH + MAX_DIGITS;

    /// Prints the period and the number. A sequence with periods gets it if no pattern was given,
    /// because numbers alone would repeat.
    pub const WITH_PERIOD: &str = "{period}-{value}";

    /// Creates the format of a definition.
    ///
    /// # Errors
    /// [`FormatError`] says what is wrong with the pattern. The message is read after the field's
    /// name.
    pub fn of(definition: &Definition) -> Result<Self, FormatError> {
        let format = Self::unchecked(definition, &definition.format)?;
        format.check()?;
        Ok(format)
    }

    /// Returns the highest number that a pattern can print: 2^63 − 1 if the pattern bounds no
    /// number.
    pub(crate) fn highest_of(pattern: &str, overflow: Overflow) -> i64 {
        if pattern == Self::PLAIN || overflow == Overflow::Widen {
            return i64::MAX;
        }
        Pattern::parse(pattern).map_or(i64::MAX, |pattern| pattern.number.highest(overflow))
    }

    /// Creates a format without checking whether its ids would repeat.
    pub(crate) fn unchecked(definition: &Definition, pattern: &str) -> Result<Self, FormatError> {
        let pattern = Pattern::parse(pattern)?;
        Ok(Self {
            parts: pattern.parts,
            number: pattern.number,
            overflow: definition.overflow,
            kind: definition.period,
            start: definition.start,
            step: definition.step,
            limit: definition.last(),
        })
    }
}
