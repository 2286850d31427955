//! Parses patterns.

use super::base::Base;
use super::check_digit::Check;
use super::date::DatePart;
use super::error::FormatError;
use super::overflow::Overflow;

/// Bounds the length of a pattern, in characters. An id is never longer than the pattern, one key
/// and one number together.
pub(crate) const MAX_PATTERN: usize = 128;

/// Lists the fields of patterns, for messages.
const FIELDS: &str = "`{value}` `{value:06}` `{value:b36}` `{value:b62:06}` `{value:crockford}` \
                      `{period}` `{yyyy}` `{yy}` `{MM}` `{dd}` `{JJJ}` `{check:luhn}` \
                      `{check:mod97}`";

/// A part of a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FormatPart {
    /// A text that is printed as it is. It has at least one character, and no other text is next to
    /// it.
    Text(String),
    /// The number of the sequence.
    Value,
    /// The whole period.
    Period,
    /// A part of the period's date.
    Date(DatePart),
    /// Check digits over all that is printed before them.
    Check(Check),
}

impl FormatPart {
    /// Returns the text that is printed as it is; `None` for any other part.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Value | Self::Period | Self::Date(_) | Self::Check(_) => None,
        }
    }
}

/// The base and the width in which a number is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NumberFormat {
    /// The digits of the number.
    pub(crate) base: Base,
    /// The least number of digits; 0 if the number is not padded.
    pub(crate) width: usize,
}

/// A pattern that was parsed. Exactly one part is the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pattern {
    pub(crate) parts: Vec<FormatPart>,
    pub(crate) number: NumberFormat,
}

impl NumberFormat {
    /// Returns the highest number that can be printed: 2^63 − 1 if the width bounds no number.
    pub(crate) fn highest(self, overflow: Overflow) -> i64 {
        match (overflow, self.width) {
            (Overflow::Refuse, width) if width > 0 => self.base.highest(width),
            (Overflow::Refuse | Overflow::Widen, _) => i64::MAX,
        }
    }

    /// Returns the text between the braces of the number's field.
    pub(crate) fn field(self) -> String {
        let mut field = "value".to_owned();
        if let Some(base) = self.base.name() {
            field.push(':');
            field.push_str(base);
        }
        if self.width > 0 {
            field.push_str(&format!(":0{}", self.width));
        }
        field
    }

    /// Reads the arguments of a field: base, padding, both or none.
    ///
    /// `None` if they are no arguments of `value`.
    fn read(arguments: &[&str], at: usize) -> Result<Option<Self>, FormatError> {
        let named = arguments.first().and_then(|name| Base::named(name));
        let base = named.unwrap_or(Base::Decimal);
        let padding = match arguments.get(usize::from(named.is_some())..) {
            Some([]) => return Ok(Some(Self { base, width: 0 })),
            Some([padding]) if is_number(padding) => padding,
            _ => return Ok(None),
        };
        let most = base.most_digits();
        let width = padding
            .strip_prefix('0')
            .filter(|width| !width.starts_with('0'));
        let width = width.and_then(|width| width.parse().ok());
        match width.filter(|width| (1..=most).contains(width)) {
            Some(width) => Ok(Some(Self { base, width })),
            None => Err(FormatError::new(format!(
                "has the padding `{padding}` in the field at character {at}; it is 0 and a width \
                 of 1 to {most}, as in `06`. No number has more digits in this base"
            ))),
        }
    }
}

impl Pattern {
    /// Parses a pattern.
    pub(crate) fn parse(pattern: &str) -> Result<Self, FormatError> {
        check_characters(pattern)?;
        let (mut parts, mut number) = (Vec::new(), None);
        let mut rest = pattern.char_indices().map(|(at, c)| (at + 1, c)).peekable();
        while let Some((at, character)) = rest.next() {
            let is_doubled = matches!(character, '{' | '}')
                && rest.next_if(|(_, next)| *next == character).is_some();
            match (character, is_doubled) {
                ('}', false) => return Err(unbalanced('}', at)),
                ('{', false) => {
                    let field: String = rest
                        .by_ref()
                        .map_while(|(_, c)| (c != '}' && c != '{').then_some(c))
                        .collect();
                    // Positions count from 1, so the closing brace is after the opening brace and
                    // the field.
                    if pattern.as_bytes().get(at + field.len()) != Some(&b'}') {
                        return Err(unbalanced('{', at));
                    }
                    parts.push(read_field(&field, at, &mut number)?);
                }
                (literal, _) => push_text(&mut parts, literal.encode_utf8(&mut [0; 4])),
            }
        }
        let no_value = || FormatError::new("has no `{value}`, without which ids repeat");
        Ok(Self {
            parts,
            number: number.ok_or_else(no_value)?,
        })
    }
}

/// Reads the text between two braces. `number` gets the number's format, which is read once.
fn read_field(
    field: &str,
    at: usize,
    number: &mut Option<NumberFormat>,
) -> Result<FormatPart, FormatError> {
    let mut words = field.split(':');
    let name = words.next().unwrap_or_default();
    let arguments: Vec<&str> = words.collect();
    let part = match (name, arguments.as_slice()) {
        ("value", arguments) => {
            let read = NumberFormat::read(arguments, at)?;
            if read.is_some() && number.is_some() {
                return Err(FormatError::new(format!(
                    "has a second field for the value at character {at}; it may have one"
                )));
            }
            *number = number.or(read);
            read.map(|_| FormatPart::Value)
        }
        ("check", [check]) => Check::named(check).map(FormatPart::Check),
        ("period", []) => Some(FormatPart::Period),
        (name, []) => {
            let mut parts = DatePart::ALL.into_iter();
            parts.find(|part| part.name() == name).map(FormatPart::Date)
        }
        _ => None,
    };
    part.ok_or_else(|| {
        FormatError::new(format!(
            "has the unknown field `{{{field}}}` at character {at}; the fields are {FIELDS}"
        ))
    })
}

/// Appends a text to parts. It becomes one part with a text before it.
pub(crate) fn push_text(parts: &mut Vec<FormatPart>, text: &str) {
    if let Some(FormatPart::Text(before)) = parts.last_mut() {
        before.push_str(text);
    } else {
        parts.push(FormatPart::Text(text.to_owned()));
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn unbalanced(brace: char, at: usize) -> FormatError {
    FormatError::new(format!(
        "has a `{brace}` at character {at} without its counterpart; one to be printed is written \
         `{brace}{brace}`"
    ))
}

/// Refuses characters that an id may not have.
///
/// An id is written in lines of text and in JSON without escapes, and people do not see an outer
/// blank.
fn check_characters(pattern: &str) -> Result<(), FormatError> {
    let length = pattern.chars().count();
    if length > MAX_PATTERN {
        return Err(FormatError::new(format!(
            "may have at most {MAX_PATTERN} characters, not {length}"
        )));
    }
    let is_bad = |c: &char| !(' '..='~').contains(c) || matches!(c, '"' | '\\');
    if let Some((at, found)) = (1..).zip(pattern.chars()).find(|(_, c)| is_bad(c)) {
        return Err(FormatError::new(format!(
            "has {found:?} at character {at}; an id has printable ASCII characters only, but not \
             `\"` and `\\`"
        )));
    }
    if pattern.starts_with(' ') || pattern.ends_with(' ') {
        return Err(FormatError::new("starts or ends with a blank"));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn refused(pattern: &str) -> String {
        Pattern::parse(pattern).unwrap_err().to_string()
    }

    #[test]
    fn a_pattern_is_taken_apart() {
        let pattern = Pattern::parse("A--{{{yyyy}}}/{value:b62:06}{check:mod97}").unwrap();
        let text = |text: &str| FormatPart::Text(text.to_owned());
        let expected = [
            text("A--{"),
            FormatPart::Date(DatePart::Year),
            text("}/"),
            FormatPart::Value,
            FormatPart::Check(Check::Mod97),
        ];
        assert_eq!(pattern.parts, expected);
        assert_eq!(pattern.number.field(), "value:b62:06");
        for field in ["value", "value:019", "value:b36", "value:crockford:013"] {
            let pattern = Pattern::parse(&format!("{{{field}}}")).unwrap();
            assert_eq!(pattern.number.field(), field);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (pattern, said) in [
            ("", "has no `{value}`"),
            ("INV", "has no `{value}`"),
            ("{{value}}", "has no `{value}`"),
            ("{value", "has a `{` at character 1 "),
            ("a{value}-{", "has a `{` at character 10 "),
            ("{va{lue}", "has a `{` at character 1 "),
            ("{value}}", "has a `}` at character 8 "),
            ("}{value}", "has a `}` at character 1 "),
            ("{}{value}", "unknown field `{}` at character 1;"),
            ("{Value}", "unknown field `{Value}`"),
            ("-{hh}{value}", "unknown field `{hh}` at character 2;"),
            ("{value:x}", "unknown field `{value:x}`"),
            ("{value:b64}", "unknown field"),
            ("{value:}", "unknown field"),
            ("{value:06:b36}", "unknown field"),
            ("{value:b36:06:1}", "unknown field"),
            ("{value:+6}", "unknown field"),
            ("{period:06}{value}", "unknown field"),
            ("{check}{value}", "unknown field"),
            ("{value}{check:crc}", "unknown field"),
            (
                "{value:040}",
                "padding `040` in the field at character 1; it is 0 and a width of 1 to 19,",
            ),
            ("{value:40}", "padding `40`"),
            ("{value:6}", "padding `6`"),
            ("{value:0}", "padding `0`"),
            ("{value:00}", "padding `00`"),
            ("{value:006}", "padding `006`"),
            ("{value:b62:012}", "1 to 11,"),
            ("{value:b36:014}", "1 to 13,"),
            ("{value:099999999999999999999}", "1 to 19,"),
            (
                "{value}-{value}",
                "second field for the value at character 9;",
            ),
            ("é{value}", "has 'é' at character 1;"),
            ("a\"{value}", "has '\"' at character 2;"),
            ("\\{value}", "has '\\\\' at character 1;"),
            ("{value}\n", "has '\\n' at character 8;"),
            ("{value}\u{7f}", "has '\\u{7f}'"),
            (" {value}", "starts or ends with a blank"),
            ("{value} ", "starts or ends with a blank"),
        ] {
            let sentence = refused(pattern);
            assert!(sentence.contains(said), "{pattern}: {sentence}");
        }
        let long = format!("{}{{value}}", "x-".repeat(61));
        assert_eq!(refused(&long), "may have at most 128 characters, not 129");
        Pattern::parse(&long[1..]).unwrap();
    }
}
