//! Why a pattern is refused, and why a text is not an id.

use thiserror::Error;

use super::parse::MAX_PATTERN;

/// Why a pattern is not the format of a definition, to be read after the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// More characters than a pattern may have.
    #[error("may have at most {MAX_PATTERN} characters, not {length}")]
    TooLong {
        /// Its characters.
        length: usize,
    },
    /// A character that no id may have.
    #[error(
        "has {found:?} at character {at}; an id has printable ASCII characters only, but not \
         `\"` and `\\`"
    )]
    BadCharacter {
        /// The first of them.
        found: char,
        /// Its position in characters, counted from 1, as in the errors below.
        at: usize,
    },
    /// A blank that nobody would see.
    #[error("starts or ends with a blank")]
    OuterBlank,
    /// A brace without its counterpart.
    #[error(
        "has a `{brace}` at character {at} without its counterpart; one to be printed is written \
         `{brace}{brace}`"
    )]
    Unbalanced {
        /// Which brace.
        brace: char,
        /// Its position.
        at: usize,
    },
    /// A field that does not exist.
    #[error(
        "has the unknown field `{{{field}}}` at character {at}; the fields are `{{value}}` \
         `{{value:06}}` `{{value:b36}}` `{{value:b62:06}}` `{{value:crockford}}` `{{period}}` \
         `{{yyyy}}` `{{yy}}` `{{MM}}` `{{dd}}` `{{JJJ}}` `{{check:luhn}}` `{{check:mod97}}`"
    )]
    UnknownField {
        /// What stands between the braces.
        field: String,
        /// The position of its brace.
        at: usize,
    },
    /// A padding that is none, or wider than any number.
    #[error(
        "has the padding `{padding}` in the field at character {at}; it is 0 and a width of 1 to \
         {most}, the most digits that a number has in this base, as in `06`"
    )]
    Padding {
        /// As it stands there.
        padding: String,
        /// The position of the field's brace.
        at: usize,
        /// The widest padding.
        most: usize,
    },
    /// The number is not printed.
    #[error("has no `{{value}}`, without which ids repeat")]
    NoValue,
    /// The number is printed twice.
    #[error("has a second field for the value at character {at}; it may have one")]
    SecondValue {
        /// The position of its brace.
        at: usize,
    },
    /// A literal that is a digit to whoever reads the number beside it.
    #[error(
        "has `{literal}` right beside `{{{field}}}`, where it could be mistaken for one of its \
         digits; put a character between that is none, such as `-`"
    )]
    Mistakable {
        /// The literal.
        literal: char,
        /// What stands between the braces of the value.
        field: String,
    },
    /// A part of a date, or a period, that the definition's periods do not have.
    #[error("has `{{{field}}}`, {why}")]
    NotOfThePeriod {
        /// What stands between the braces.
        field: &'static str,
        /// Why not, and what to write.
        why: &'static str,
    },
    /// A check digit that does not cover the number.
    #[error(
        "has `{{check:{check}}}` before the value; it covers what is printed before it, so it \
         stands behind"
    )]
    CheckBeforeValue {
        /// Which check.
        check: &'static str,
    },
    /// Two periods would print the same ids.
    #[error("does not tell the periods apart, so ids would repeat: it needs {needed}")]
    PeriodLost {
        /// What would tell them apart.
        needed: &'static str,
    },
    /// Two pairs of key and number could print the same id.
    #[error(
        "cannot always be read back: between `{{period}}`, whose keys vary in length, and the \
         value there must be a character that is no digit of the value, such as `-`, right beside \
         the value; or give the value a fixed width, as in `{{value:06}}`, with `overflow` \
         \"refuse\""
    )]
    Inseparable,
    /// `{period}` of varying length twice.
    #[error("has `{{period}}` twice; keys vary in length, so it may have one")]
    SecondKey,
    /// Not even the first number fits its padding.
    #[error("has room for numbers up to {highest}, and `start` is {start}")]
    TooNarrow {
        /// The highest that fits.
        highest: i64,
        /// The first number of the sequence.
        start: i64,
    },
}

/// Why a text is not an id of a sequence. Each is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidId {
    /// Not as long as an id of this format can be.
    #[error("An id of this sequence does not have {length} characters.")]
    Length {
        /// Its characters.
        length: usize,
    },
    /// A literal is missing.
    #[error("An id of this sequence has {expected:?} at character {at}; this one has {found:?}.")]
    Literal {
        /// What must stand there.
        expected: String,
        /// Where, in characters counted from 1, as in the errors below.
        at: usize,
        /// What stands there.
        found: String,
    },
    /// The number is none.
    #[error(
        "{found:?} at character {at} is no number as `{{{field}}}` prints it, or one above \
         2^63 - 1."
    )]
    Digits {
        /// What stands there.
        found: String,
        /// Where.
        at: usize,
        /// What stands between the braces of the value.
        field: String,
    },
    /// What stands where the period is printed is none.
    #[error("{found:?} is no period of this sequence.")]
    Period {
        /// What stands there.
        found: String,
    },
    /// The check digits do not fit what stands before them.
    #[error(
        "The check digits {found:?} at character {at} do not fit what stands before them: a \
         character is wrong."
    )]
    CheckDigits {
        /// What stands there.
        found: String,
        /// Where.
        at: usize,
    },
    /// The number lies outside the sequence.
    #[error("The number {value} is not of this sequence, which has {start} to {limit}.")]
    OutOfRange {
        /// The number.
        value: i64,
        /// The first number of the sequence.
        start: i64,
        /// No number is above this one.
        limit: i64,
    },
    /// The number lies between two numbers of the sequence.
    #[error(
        "The number {value} is not of this sequence, which goes from {start} in steps of {step}."
    )]
    OffStep {
        /// The number.
        value: i64,
        /// The first number of the sequence.
        start: i64,
        /// The distance between two numbers.
        step: i64,
    },
    /// All parts can be read, but this is not how they are printed.
    #[error("The number {value} is printed otherwise by this sequence, from character {at} on.")]
    NotAsPrinted {
        /// The number that was read.
        value: i64,
        /// The first character that differs.
        at: usize,
    },
}

impl InvalidId {
    /// The number that stands there though the sequence does not give it.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::OutOfRange { value, .. } | Self::OffStep { value, .. } => Some(*value),
            Self::Length { .. }
            | Self::Literal { .. }
            | Self::Digits { .. }
            | Self::Period { .. }
            | Self::CheckDigits { .. }
            | Self::NotAsPrinted { .. } => None,
        }
    }
}
