//! Formats: how a number is printed with its period, and read back.
//!
//! A pattern is taken apart once, when a definition is made or read. It is refused when ids could
//! repeat or could not be read back; `rules` has the proof. What it prints is ASCII without
//! quotes, backslashes and control characters, so it stands in JSON and in lines of text as it is.
//!
//! | File | Owns |
//! |---|---|
//! | `parse` | patterns as they are written |
//! | `rules` | which of them a definition may have |
//! | `base`, `date`, `check_digit` | what the fields print |
//! | `overflow` | what happens to a number that is too long |
//! | `print`, `read` | ids, there and back |
//! | `distinct` | whether two formats can print the same |

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
use parse::{FormatPart, MAX_PATTERN, Number, Pattern};

/// How the numbers of a definition are printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    parts: Vec<FormatPart>,
    number: Number,
    overflow: Overflow,
    kind: PeriodKind,
    start: i64,
    step: i64,
    limit: i64,
}

impl Format {
    /// The pattern that prints the number and nothing else.
    pub const PLAIN: &str = "{value}";

    /// No id has more bytes: a pattern prints one key and one number at most.
    pub const MAX_ID: usize = MAX_PATTERN + Period::MAX_LENGTH + MAX_DIGITS;

    /// The pattern of a sequence with periods that was given none: numbers alone would repeat.
    pub const WITH_PERIOD: &str = "{period}-{value}";

    /// The format of a definition.
    ///
    /// # Errors
    /// [`FormatError`] says what is wrong with its pattern, to be read after the field's name.
    pub fn of(definition: &Definition) -> Result<Self, FormatError> {
        let format = Self::unchecked(definition, &definition.format)?;
        format.check()?;
        Ok(format)
    }

    /// The highest number that a pattern can print; that of an integer where it is no pattern.
    pub(crate) fn highest_of(pattern: &str, overflow: Overflow) -> i64 {
        if pattern == Self::PLAIN || overflow == Overflow::Widen {
            return i64::MAX;
        }
        match Pattern::parse(pattern) {
            Ok(pattern) if pattern.number.width > 0 => {
                pattern.number.base.highest(pattern.number.width)
            }
            Ok(_) | Err(_) => i64::MAX,
        }
    }

    /// A pattern for a definition's numbers, whether or not ids would repeat.
    pub(crate) fn unchecked(definition: &Definition, pattern: &str) -> Result<Self, FormatError> {
        let pattern = Pattern::parse(pattern)?;
        Ok(Self {
            parts: pattern.parts,
            number: pattern.number,
            overflow: definition.overflow,
            kind: definition.period,
            start: definition.start,
            step: definition.step,
            limit: definition.limit(),
        })
    }
}
