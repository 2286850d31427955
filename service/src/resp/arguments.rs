//! Reads commands as clients of Redis send them: arrays of bulk strings, and lines of text.
//!
//! The source is the protocol specification of Redis (RESP). RESP2 and RESP3 have the same
//! commands. A line may have arguments in quotation marks.

use std::borrow::Cow;

use smallvec::SmallVec;

/// The most arguments of a command that are kept. Further arguments are only counted.
pub(super) const MAX_ARGUMENTS: usize = 16;

/// The most bytes of a command, with all that is around its arguments.
pub(super) const MAX_COMMAND: usize = 64 * 1024;

/// The most bytes of a length with the end of its line. The longest number has 20 characters.
const MAX_LENGTH: usize = 24;

/// Bounds a command. With each part that comes of it, it is read from its beginning. So the bounds
/// also limit what reading it takes.
pub(super) struct CommandBounds {
    arguments: usize,
    /// All bytes, with those around the arguments.
    bytes: usize,
    /// Why a command is none with more arguments, or with more bytes.
    too_many: Malformed,
    too_long: Malformed,
}

impl CommandBounds {
    /// The bounds for a client that is let in.
    pub(super) const LET_IN: Self = Self {
        arguments: 1024,
        bytes: MAX_COMMAND,
        too_many: Malformed::Count,
        too_long: Malformed::Command,
    };

    /// The bounds for a client that has to log in.
    pub(super) const BEFORE_LOGIN: Self = Self {
        arguments: 10,
        bytes: 16 * 1024,
        too_many: Malformed::CountBeforeLogin,
        too_long: Malformed::CommandBeforeLogin,
    };

    /// Returns the bounds for a client.
    pub(super) fn of(is_let_in: bool) -> &'static Self {
        match is_let_in {
            true => &Self::LET_IN,
            false => &Self::BEFORE_LOGIN,
        }
    }
}

/// What the bytes begin with that came on a connection.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Parsed<'a> {
    /// A command of `n_bytes`. A command without arguments asks for nothing.
    Whole {
        arguments: Arguments<'a>,
        n_bytes: usize,
    },
    /// A part of a command. With fewer than `needed` bytes it stays one. This is not more than the
    /// bytes that a command may have.
    Partial { needed: usize },
    /// Something that is no command.
    Malformed(Malformed),
}

/// Why bytes are no command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Malformed {
    /// How many arguments come is not a number, or too high.
    Count,
    /// The length of an argument is not a number, or too high.
    Length,
    /// An argument begins with another character than `$`.
    Marker(u8),
    /// A quotation mark has no other end, or a character follows the end.
    Quotes,
    /// A line is too long.
    Line,
    /// The command is too long.
    Command,
    /// There are too many arguments for a client that has to log in.
    CountBeforeLogin,
    /// The command is too long for a client that has to log in.
    CommandBeforeLogin,
}

/// The arguments of a command. The first is its name.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Arguments<'a> {
    /// As they came; those of a line with quotation marks, without these marks. `INCRBY` has three.
    kept: SmallVec<[Cow<'a, [u8]>; 3]>,
    count: usize,
}

impl<'a> Arguments<'a> {
    #[inline]
    fn push(&mut self, argument: Cow<'a, [u8]>) {
        if self.kept.len() < MAX_ARGUMENTS {
            self.kept.push(argument);
        }
        self.count += 1;
    }

    /// Returns how many arguments came. The first [`MAX_ARGUMENTS`] are kept.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns one of the arguments, counted from 0; `None` if there are fewer, or too many were
    /// before it.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&[u8]> {
        self.kept.get(at).map(Cow::as_ref)
    }

    /// Returns one of the arguments, or an empty text.
    #[inline]
    pub(super) fn text(&self, at: usize) -> &[u8] {
        self.get(at).unwrap_or_default()
    }

    /// Returns the arguments that are kept, from the one at `at` on.
    pub(super) fn starting_at(&self, at: usize) -> impl Iterator<Item = &[u8]> {
        self.kept.iter().skip(at).map(Cow::as_ref)
    }
}

/// Reads the first command.
pub(super) fn parse<'a>(input: &'a [u8], bounds: &CommandBounds) -> Parsed<'a> {
    let mut reader = Reader {
        window: input.get(..bounds.bytes).unwrap_or(input),
        at: 0,
        bounds,
    };
    let read = match input.first() {
        None => Err(Stop::Partial(1)),
        Some(b'*') => reader.array(),
        Some(_) => reader.line(),
    };
    match read {
        Ok(arguments) => Parsed::Whole {
            arguments,
            n_bytes: reader.at,
        },
        Err(Stop::Partial(needed)) => Parsed::Partial { needed },
        Err(Stop::Malformed(why)) => Parsed::Malformed(why),
    }
}

/// Reads a whole number as Redis does: no blank, no `+`, and no zero in front of other digits.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let text = std::str::from_utf8(text).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

/// Why no command was read.
enum Stop {
    Partial(usize),
    Malformed(Malformed),
}

struct Reader<'a, 'b> {
    /// What came, as far as it can be of one command.
    window: &'a [u8],
    at: usize,
    bounds: &'b CommandBounds,
}

impl<'a> Reader<'a, '_> {
    /// Reads an array of bulk strings: `*2\r\n$4\r\nINCR\r\n$6\r\norders\r\n`.
    fn array(&mut self) -> Result<Arguments<'a>, Stop> {
        self.at += 1;
        let count = self.length(Malformed::Count)?;
        let mut arguments = Arguments::default();
        // An empty array is passed over, and so is one of negative length.
        let count = usize::try_from(count).unwrap_or(0);
        self.check_count(count)?;
        for _ in 0..count {
            match self.window.get(self.at) {
                Some(b'$') => self.at += 1,
                Some(other) => return Err(Stop::Malformed(Malformed::Marker(*other))),
                None => return Err(self.partial(self.at + 1)),
            }
            let length = self.length(Malformed::Length)?;
            let length = usize::try_from(length);
            let length = length.map_err(|_| Stop::Malformed(Malformed::Length))?;
            let argument = self.up_to(self.at.saturating_add(length))?;
            arguments.push(Cow::Borrowed(argument));
        }
        Ok(arguments)
    }

    fn check_count(&self, count: usize) -> Result<(), Stop> {
        match count <= self.bounds.arguments {
            true => Ok(()),
            false => Err(Stop::Malformed(self.bounds.too_many)),
        }
    }

    /// Says that `needed` bytes have not come, unless a command never has so many.
    fn partial(&self, needed: usize) -> Stop {
        match needed <= self.bounds.bytes {
            true => Stop::Partial(needed),
            false => Stop::Malformed(self.bounds.too_long),
        }
    }

    /// Reads a length up to the end of its line.
    #[inline]
    fn length(&mut self, wrong: Malformed) -> Result<i64, Stop> {
        let rest = self.window.get(self.at..).unwrap_or_default();
        // Nearly all lengths have one digit.
        if let [digit @ b'1'..=b'9', b'\r', _, ..] = rest {
            self.at += 3;
            return Ok(i64::from(digit - b'0'));
        }
        self.long_length(rest, wrong)
    }

    fn long_length(&mut self, rest: &[u8], wrong: Malformed) -> Result<i64, Stop> {
        let line = rest.get(..MAX_LENGTH).unwrap_or(rest);
        let Some(length) = memchr::memchr(b'\r', line) else {
            return Err(match line.len() < MAX_LENGTH {
                true => self.partial(self.at + line.len() + 2),
                false => Stop::Malformed(wrong),
            });
        };
        let end = self.at + length;
        let text = self.up_to(end)?;
        integer(text).ok_or(Stop::Malformed(wrong))
    }

    /// Reads up to `end`, and passes over the two bytes there.
    #[inline]
    fn up_to(&mut self, end: usize) -> Result<&'a [u8], Stop> {
        let next = end.saturating_add(2);
        if next > self.window.len() {
            return Err(self.partial(next));
        }
        let text = self.window.get(self.at..end).unwrap_or_default();
        self.at = next;
        Ok(text)
    }

    /// Reads a line of arguments with blanks between them: `INCR orders`.
    fn line(&mut self) -> Result<Arguments<'a>, Stop> {
        let (max, window) = (self.bounds.bytes, self.window);
        let Some(end) = memchr::memchr(b'\n', window) else {
            return Err(match window.len() < max {
                true => Stop::Partial(window.len() + 1),
                false => Stop::Malformed(Malformed::Line),
            });
        };
        self.at = end + 1;
        let line = window.get(..end).unwrap_or_default();
        let mut arguments = Arguments::default();
        if memchr::memchr2(b'"', b'\'', line).is_some() {
            let all = unquoted(line, self.bounds.arguments);
            let all = all.ok_or(Stop::Malformed(Malformed::Quotes))?;
            all.into_iter()
                .for_each(|argument| arguments.push(Cow::Owned(argument)));
        } else {
            line.split(|byte| is_blank(*byte))
                .filter(|word| !word.is_empty())
                .for_each(|word| arguments.push(Cow::Borrowed(word)));
        }
        self.check_count(arguments.count)?;
        Ok(arguments)
    }
}

/// Returns whether a byte separates the arguments of a line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | 0)
}

/// Returns the arguments of a line with quotation marks, of those above `max` only the first.
/// `None` if the marks are not balanced.
fn unquoted(line: &[u8], max: usize) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut rest = line;
    while all.len() <= max {
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        rest = rest.get(blanks..).unwrap_or_default();
        if rest.is_empty() {
            return Some(all);
        }
        let mut argument = Vec::new();
        while let Some((first, behind)) = rest.split_first().filter(|(first, _)| !is_blank(**first))
        {
            rest = match first {
                b'"' => quoted(behind, b'"', &mut argument)?,
                b'\'' => quoted(behind, b'\'', &mut argument)?,
                other => {
                    argument.push(*other);
                    behind
                }
            };
        }
        all.push(argument);
    }
    Some(all)
}

/// Reads up to the closing mark `end`, behind which a blank or the end of the line has to be.
/// Returns what is behind the mark.
fn quoted<'a>(text: &'a [u8], end: u8, argument: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        let (byte, behind) = match rest {
            [b'\\', b'\'', behind @ ..] if end == b'\'' => (b'\'', behind),
            [b'\\', behind @ ..] if end == b'"' => escaped(behind)?,
            [first, behind @ ..] if *first == end => {
                let is_end = behind.first().is_none_or(|next| is_blank(*next));
                return is_end.then_some(behind);
            }
            [first, behind @ ..] => (*first, behind),
            [] => return None,
        };
        argument.push(byte);
        rest = behind;
    }
}

/// Returns the byte that stands behind a backslash, and what is behind that byte.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    if let [b'x', high, low, behind @ ..] = text
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Some((high * 16 + low, behind));
    }
    let (first, behind) = text.split_first()?;
    let byte = match first {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => *other,
    };
    Some((byte, behind))
}

fn digit(character: u8) -> Option<u8> {
    let digit = char::from(character).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> (Vec<Vec<u8>>, usize) {
        let Parsed::Whole { arguments, n_bytes } = parse(input, &CommandBounds::LET_IN) else {
            panic!("{}", input.escape_ascii())
        };
        let all = arguments.starting_at(0).map(<[u8]>::to_vec);
        (all.collect(), n_bytes)
    }

    fn why(input: &[u8], bounds: &CommandBounds) -> Malformed {
        let Parsed::Malformed(why) = parse(input, bounds) else {
            panic!("{}", input.escape_ascii())
        };
        why
    }

    #[test]
    fn an_array_is_read_up_to_its_end() {
        let input = b"*2\r\n$4\r\nINCR\r\n$6\r\nor\r\ner\r\nPING\r\n";
        let (arguments, n_bytes) = read(input);
        assert_eq!(arguments, [&b"INCR"[..], b"or\r\ner"]);
        assert_eq!(n_bytes, input.len() - b"PING\r\n".len());
        assert_eq!(read(b"*1\r\n$0\r\n\r\n").0, [&b""[..]]);
        // These ask for nothing.
        for (empty, n_bytes) in [(&b"*0\r\nPING\r\n"[..], 4), (b"*-1\r\n", 5), (b"\r\n", 2)] {
            assert_eq!(read(empty), (Vec::new(), n_bytes));
        }
    }

    #[test]
    fn a_line_is_split_at_its_blanks() {
        let (arguments, n_bytes) = read(b"  incr\torders  \r\nPING\r\n");
        assert_eq!(arguments, [&b"incr"[..], b"orders"]);
        assert_eq!(n_bytes, 17);
        assert_eq!(read(b"ping\n").0, [&b"ping"[..]]);
        for (line, argument) in [
            (&b"ECHO \"a b\"\r\n"[..], &b"a b"[..]),
            (b"ECHO 'a \"b'\r\n", b"a \"b"),
            (b"ECHO 'a\\'b\\n'\r\n", b"a'b\\n"),
            (b"ECHO \"\\x41\\xZ\\n\\\"\\\\\"\r\n", b"AxZ\n\"\\"),
            (b"ECHO a\"b c\"\r\n", b"ab c"),
            (b"ECHO \"\"\r\n", b""),
        ] {
            assert_eq!(read(line).0, [&b"ECHO"[..], argument]);
        }
    }

    #[test]
    fn what_is_no_command_is_told_apart() {
        for (input, wanted) in [
            (&b"*x\r\n"[..], Malformed::Count),
            (b"*01\r\n", Malformed::Count),
            (b"*+1\r\n", Malformed::Count),
            (b"*\r\n", Malformed::Count),
            (b"*1048577\r\n", Malformed::Count),
            (b"*111111111111111111111111", Malformed::Count),
            (b"*1\r\nPING\r\n", Malformed::Marker(b'P')),
            (b"*1\r\n$x\r\n", Malformed::Length),
            (b"*1\r\n$-1\r\n", Malformed::Length),
            (b"*1\r\n$65523\r\n", Malformed::Command),
            (b"*1\r\n$9223372036854775807\r\n", Malformed::Command),
            (b"ECHO \"a\r\n", Malformed::Quotes),
            (b"ECHO \"a\"b\r\n", Malformed::Quotes),
            (b"ECHO 'a\\'\r\n", Malformed::Quotes),
            (b"ECHO \"a\\\r\n", Malformed::Quotes),
        ] {
            let why = why(input, &CommandBounds::LET_IN);
            assert_eq!(why, wanted, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn a_command_has_bounds_and_narrower_ones_before_a_login() {
        for bounds in [&CommandBounds::LET_IN, &CommandBounds::BEFORE_LOGIN] {
            let (most, max) = (bounds.arguments, bounds.bytes);
            let is_whole = |input: &str| {
                let parsed = parse(input.as_bytes(), bounds);
                matches!(parsed, Parsed::Whole { n_bytes, .. } if n_bytes == input.len())
            };
            for more in [0, 1] {
                let n = most + more;
                let array = format!("*{n}\r\n{}", "$1\r\na\r\n".repeat(n));
                for input in [array, "a ".repeat(n) + "\n", "'a' ".repeat(n) + "\n"] {
                    assert_eq!(is_whole(&input), more == 0, "{n}");
                    if more > 0 {
                        assert_eq!(why(input.as_bytes(), bounds), bounds.too_many);
                    }
                }
                // This is around the argument.
                let n = max - "*1\r\n$65523\r\n\r\n".len() + more;
                let array = format!("*1\r\n${n}\r\n{}\r\n", "a".repeat(n));
                assert_eq!(is_whole(&array), more == 0, "{n}");
                let line = "a".repeat(max - 1 + more) + "\n";
                assert_eq!(is_whole(&line), more == 0, "{n}");
            }
            // Nothing more is needed to say so.
            let long = format!("*1\r\n${max}\r\n");
            assert_eq!(why(long.as_bytes(), bounds), bounds.too_long);
            assert_eq!(why(&vec![b'x'; max], bounds), Malformed::Line);
        }
    }

    #[test]
    fn arguments_above_the_bound_are_counted_and_not_kept() {
        let many = MAX_ARGUMENTS + 3;
        let array = format!("*{many}\r\n{}", "$1\r\na\r\n".repeat(many));
        for input in [array, "a ".repeat(many) + "\n", "'a' ".repeat(many) + "\n"] {
            let parsed = parse(input.as_bytes(), &CommandBounds::LET_IN);
            let Parsed::Whole { arguments, n_bytes } = parsed else {
                panic!("{input}")
            };
            assert_eq!((arguments.count(), n_bytes), (many, input.len()));
            assert_eq!(arguments.starting_at(0).count(), MAX_ARGUMENTS);
            assert_eq!(arguments.get(many), None);
        }
    }

    #[test]
    fn a_number_is_written_in_one_way_only() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("05", None),
            ("+5", None),
            (" 5", None),
            ("5 ", None),
            ("5.0", None),
            ("\u{665}", None),
        ] {
            assert_eq!(integer(text.as_bytes()), number, "{text:?}");
        }
    }
}
