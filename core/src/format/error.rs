//! Says why a pattern is refused, and why a text is not an id.

use thiserror::Error;

use super::parse::MAX_PATTERN;

/// Says why a pattern is not the format of a definition. The message is read after the field's
/// name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The pattern has too many characters.
    #[error("may have at most {MAX_PATTERN} characters, not {length}")]
    TooLong {
        /// The number of characters that the pattern has.
        length: usize,
    },
    /// The pattern has a character that no id may have.
    #[error(
        "has {found:?} at character {at}; an id has printable ASCII characters only, but not \
         `\"` and `\\`"
    )]
    BadCharacter {
        /// The first such character.
        found: char,
        /// The position of the character, counted from 1. The positions in the errors below count
        /// in the same way.
        at: usize,
    },
    /// The pattern starts or ends with a blank, which people do not see.
    #[error("starts or ends with a blank")]
    OuterBlank,
    /// A brace has no counterpart.
    #[error(
        "has a `{brace}` at character {at} without its counterpart; one to be printed is written \
         `{brace}{brace}`"
    )]
    Unbalanced {
        /// The brace.
        brace: char,
        /// The position of the brace.
        at: usize,
    },
    /// The pattern has a field that does not exist.
    #[error(
        "has the unknown field `{{{field}}}` at character {at}; the fields are `{{value}}` \
         `{{value:06}}` `{{value:b36}}` `{{value:b62:06}}` `{{value:crockford}}` `{{period}}` \
         `{{yyyy}}` `{{yy}}` `{{MM}}` `{{dd}}` `{{JJJ}}` `{{check:luhn}}` `{{check:mod97}}`"
    )]
    UnknownField {
        /// The text between the braces.
        field: String,
        /// The position of the opening brace.
        at: usize,
    },
    /// The padding is not a padding, or is wider than any number.
    #[error(
        "has the padding `{padding}` in the field at character {at}; it is 0 and a width of 1 to \
         {most}, the most digits that a number has in this base, as in `06`"
    )]
    Padding {
        /// The padding as it is written.
        padding: String,
        /// The position of the field's opening brace.
        at: usize,
        /// The widest padding that is allowed.
        most: usize,
    },
    /// The pattern does not print the number.
    #[error("has no `{{value}}`, without which ids repeat")]
    NoValue,
    /// The pattern prints the number twice.
    #[error("has a second field for the value at character {at}; it may have one")]
    SecondValue {
        /// The position of the second field's opening brace.
        at: usize,
    },
    /// A literal next to the number could be read as one of its digits.
    #[error(
        "has `{literal}` next to `{{{field}}}`, where it could be mistaken for one of its digits; \
         put another character between them, such as `-`"
    )]
    Mistakable {
        /// The literal.
        literal: char,
        /// The text between the braces of the value.
        field: String,
    },
    /// The pattern has a part of a date, or a period, that the definition's periods do not have.
    #[error("has `{{{field}}}`, {why}")]
    NotOfThePeriod {
        /// The text between the braces.
        field: &'static str,
        /// The reason, and what to write instead.
        why: &'static str,
    },
    /// A check digit does not cover the number.
    #[error(
        "has `{{check:{check}}}` before the value; it covers what is printed before it, so it \
         stands behind"
    )]
    CheckBeforeValue {
        /// The name of the check.
        check: &'static str,
    },
    /// Two periods would print the same ids.
    #[error("does not tell the periods apart, so ids would repeat: it needs {needed}")]
    PeriodLost {
        /// The fields that would distinguish the periods.
        needed: &'static str,
    },
    /// Two pairs of key and number could print the same id.
    #[error(
        "cannot always be read back: the keys of `{{period}}` vary in length, so put a character \
         that is no digit of the value, such as `-`, between it and the value, next to the value; \
         or give the value a fixed width, as in `{{value:06}}`, with `overflow` \"refuse\""
    )]
    Inseparable,
    /// The pattern has `{period}` twice, and the length of the period varies.
    #[error("has `{{period}}` twice; keys vary in length, so it may have one")]
    SecondKey,
    /// Not even the first number fits the padding.
    #[error("has room for numbers up to {highest}, and `start` is {start}")]
    TooNarrow {
        /// The highest number that fits.
        highest: i64,
        /// The first number of the sequence.
        start: i64,
    },
}

/// Says why a text is not an id of a sequence. Each message is a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidId {
    /// No id of this format has this length.
    #[error("An id of this sequence does not have {length} characters.")]
    Length {
        /// The number of characters that the text has.
        length: usize,
    },
    /// A literal is missing.
    #[error("An id of this sequence has {expected:?} at character {at}; this one has {found:?}.")]
    Literal {
        /// The literal that must be there.
        expected: String,
        /// The position of the literal in characters, counted from 1. The positions in the errors
        /// below count in the same way.
        at: usize,
        /// The text that is there.
        found: String,
    },
    /// The text at the place of the number is no number.
    #[error(
        "{found:?} at character {at} is no number as `{{{field}}}` prints it, or one above \
         2^63 - 1."
    )]
    Digits {
        /// The text that is there.
        found: String,
        /// The position of the text.
        at: usize,
        /// The text between the braces of the value.
        field: String,
    },
    /// The text at the place of the period is no period.
    #[error("{found:?} is no period of this sequence.")]
    Period {
        /// The text that is there.
        found: String,
    },
    /// The check digits do not fit the characters before them.
    #[error(
        "The check digits {found:?} at character {at} do not fit what stands before them: a \
         character is wrong."
    )]
    CheckDigits {
        /// The check digits that are there.
        found: String,
        /// The position of the check digits.
        at: usize,
    },
    /// The number lies outside the sequence.
    #[error("The number {value} is not of this sequence, which has {start} to {limit}.")]
    OutOfRange {
        /// The number.
        value: i64,
        /// The first number of the sequence.
        start: i64,
        /// The highest number of the sequence.
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
    /// All parts can be read, but the sequence does not print them in this way.
    #[error("The number {value} is printed otherwise by this sequence, from character {at} on.")]
    NotAsPrinted {
        /// The number that was read.
        value: i64,
        /// The position of the first character that differs.
        at: usize,
    },
}

impl InvalidId {
    /// Returns the number in the id, if the id is refused because the sequence does not have that
    /// number.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        if let Self::OutOfRange { value, .. } | Self::OffStep { value, .. } = self {
            return Some(*value);
        }
        None
    }
}
