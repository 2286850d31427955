//! Writes refusals as the error lines that clients of Redis read.
//!
//! Only this file knows which line an error has. Errors that Redis has, too, have its words,
//! because client libraries compare them.

use std::borrow::Cow;

use super::arguments::{Arguments, Malformed};
use crate::calls::problem::{Code, Problem};

/// The most bytes that an error repeats of a name, or of arguments.
const MAX_REPEATED: usize = 128;

/// An error line, without its marker and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ErrorLine {
    text: Cow<'static, [u8]>,
    /// The code of the refusal, if it has one.
    code: Option<Code>,
    /// Whether the reply closes its connection.
    is_closing: bool,
}

macro_rules! lines {
    ($($name:ident = $text:expr;)+) => {
        $(pub(super) const $name: ErrorLine = ErrorLine::fixed($text);)+
    };
}

// Redis has these words.
lines! {
    SYNTAX = "ERR syntax error";
    NOT_AN_INTEGER = "ERR value is not an integer or out of range";
    NOT_A_FLOAT = "ERR value is not a valid float";
    NO_SUCH_DATABASE = "ERR DB index is out of range";
    NOT_LOGGED_IN = "NOAUTH Authentication required.";
    HELLO_NOT_LOGGED_IN = concat!(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO ",
        "AUTH <user> <pass> option can be used to authenticate the client and select the RESP ",
        "protocol version at the same time"
    );
    WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled.";
    NO_PASSWORD = "ERR AUTH <password> called without any password configured for the default \
        user. Are you sure your configuration is correct?";
    NO_SUCH_PROTOCOL = "NOPROTO unsupported protocol version";
    PROTOCOL_NOT_AN_INTEGER = "ERR Protocol version is not an integer or out of range";
    BAD_CLIENT_NAME =
        "ERR Client names cannot contain spaces, newlines or special characters.";
    NESTED_MULTI = "ERR MULTI calls can not be nested";
    WATCH_IN_MULTI = "ERR WATCH inside MULTI is not allowed";
    EXEC_WITHOUT_MULTI = "ERR EXEC without MULTI";
    DISCARD_WITHOUT_MULTI = "ERR DISCARD without MULTI";
    EXEC_ABORTED = "EXECABORT Transaction discarded because of previous errors.";
}

// Redis has no words for these.
lines! {
    NEVER_TAKEN_BACK = "ERR a number is never taken back";
    NEVER_EXPIRES = "ERR a number never expires; the operator can let this command do nothing by \
        resp.expire = \"ignore\"";
    WATCH_REFUSED = "ERR WATCH is refused: each command stands alone, so EXEC would always run";
    TRANSACTION_FULL = "ERR too many commands, or too long ones, are queued; send EXEC sooner";
    LONG_CLIENT_NAME = "ERR a client name has at most 256 bytes";
    TOO_MANY_ARGUMENTS = "ERR a command has at most 16 arguments";
    UNEVEN_RANGE = "ERR numbers of this sequence are not next to each other, so the last number of \
        a range does not tell the others; take them one by one";
    START_OF_ADMINISTRATOR = "ERR only the administrator chooses where a sequence starts; log in \
        with the token of admin_token";
    PERIOD_BEGINS_BY_INCR = "ERR a period is created by its first INCR, and not ahead of that";
}

impl ErrorLine {
    const fn fixed(text: &'static str) -> Self {
        Self {
            text: Cow::Borrowed(text.as_bytes()),
            code: None,
            is_closing: false,
        }
    }

    /// Creates a line. Line ends become blanks.
    pub(super) fn new(text: impl Into<Vec<u8>>) -> Self {
        let mut text = text.into();
        for byte in &mut text {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        Self {
            text: Cow::Owned(text),
            code: None,
            is_closing: false,
        }
    }

    fn joined(parts: &[&[u8]]) -> Self {
        Self::new(parts.concat())
    }

    /// Returns the line without its marker and its end.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the code of the refusal; `None` if Redis alone has such an error.
    pub(super) fn code(&self) -> Option<Code> {
        self.code
    }

    /// Returns whether the reply closes its connection.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Says that there is no command of this name.
    pub(super) fn unknown_command(arguments: &Arguments<'_>) -> Self {
        let mut text = b"ERR unknown command '".to_vec();
        text.extend_from_slice(beginning(arguments.text(0), MAX_REPEATED));
        text.extend_from_slice(b"', with args beginning with: ");
        let mut n_left = MAX_REPEATED;
        for argument in arguments.starting_at(1) {
            if n_left == 0 {
                break;
            }
            let argument = beginning(argument, n_left);
            text.push(b'\'');
            text.extend_from_slice(argument);
            text.extend_from_slice(b"' ");
            n_left = n_left.saturating_sub(argument.len() + 3);
        }
        Self::new(text)
    }

    /// Says that a command has no such subcommand.
    pub(super) fn unknown_subcommand(command: &str, arguments: &Arguments<'_>) -> Self {
        let mut text = b"ERR unknown subcommand '".to_vec();
        text.extend_from_slice(beginning(arguments.text(1), MAX_REPEATED));
        let command = command.to_ascii_uppercase();
        text.extend_from_slice(format!("'. Try {command} HELP.").as_bytes());
        Self::new(text)
    }

    /// Says that a command has too few arguments or too many.
    pub(super) fn wrong_number(command: &str) -> Self {
        Self::new(format!("ERR {}", wrong_number(command)))
    }

    /// Says that a transaction is given up, because its end is not as it should be.
    pub(super) fn exec_aborted(why: &Self) -> Self {
        let why = why.text.strip_prefix(b"ERR ").unwrap_or(&why.text);
        Self::joined(&[b"EXECABORT Transaction discarded because of: ", why])
    }

    /// Says that an expiry is not in the future.
    pub(super) fn bad_expiry(command: &str) -> Self {
        Self::new(format!("ERR invalid expire time in '{command}' command"))
    }

    /// Says that an option of `EXPIRE` is not known.
    pub(super) fn unknown_expiry_option(option: &[u8]) -> Self {
        Self::joined(&[b"ERR Unsupported option ", option])
    }

    /// Says that an option of `HELLO` is not known, or lacks its values.
    pub(super) fn bad_hello_option(option: &[u8]) -> Self {
        Self::joined(&[b"ERR Syntax error in HELLO option '", option, b"'"])
    }

    /// Says that an option of `CLIENT SETINFO` is not known.
    pub(super) fn unknown_client_option(option: &[u8]) -> Self {
        Self::joined(&[b"ERR Unrecognized option '", option, b"'"])
    }

    /// Says that the value of an option of `CLIENT SETINFO` cannot be kept.
    pub(super) fn bad_client_value(option: &str) -> Self {
        let text = "cannot contain spaces, newlines or special characters.";
        Self::new(format!("ERR {option} {text}"))
    }

    /// Says that the replica takes no calls now. If it stops, its clients should connect elsewhere.
    pub(super) fn not_ready((code, sentence): (Code, &str)) -> Self {
        Self {
            is_closing: code == Code::Draining,
            ..Self::new(format!("LOADING {}: {sentence}", code.as_str()))
        }
    }

    /// Says that what came is no command. It closes the connection.
    pub(super) fn malformed(why: Malformed) -> Self {
        let mut text = b"ERR Protocol error: ".to_vec();
        match why {
            Malformed::Count => text.extend_from_slice(b"invalid multibulk length"),
            Malformed::Length => text.extend_from_slice(b"invalid bulk length"),
            Malformed::Marker(found) => {
                text.extend_from_slice(b"expected '$', got '");
                text.push(found);
                text.push(b'\'');
            }
            Malformed::Quotes => text.extend_from_slice(b"unbalanced quotes in request"),
            Malformed::Line => text.extend_from_slice(b"too big inline request"),
            Malformed::Command => text.extend_from_slice(b"a command has at most 65536 bytes"),
            Malformed::CountBeforeLogin => {
                text.extend_from_slice(b"unauthenticated multibulk length");
            }
            Malformed::CommandBeforeLogin => {
                text.extend_from_slice(b"unauthenticated bulk length");
            }
        }
        Self {
            is_closing: true,
            ..Self::new(text)
        }
    }
}

impl From<Problem> for ErrorLine {
    fn from(problem: Problem) -> Self {
        let line = match word(problem.code()) {
            None => NOT_LOGGED_IN,
            Some(word) => Self::new(format!("{word} {problem}")),
        };
        Self {
            code: Some(problem.code()),
            is_closing: problem.is_closing() || problem.code() == Code::Draining,
            ..line
        }
    }
}

/// Returns the word by which clients tell the kinds of errors apart. `None` if Redis has a line of
/// its own for the error.
fn word(code: Code) -> Option<&'static str> {
    let is_of_now = matches!(code, Code::RateLimited | Code::QuotaExceeded);
    if code == Code::Unauthenticated {
        None
    } else if code == Code::Draining {
        Some("LOADING")
    } else if is_of_now || code.is_unavailable() {
        // A caller gets its numbers if it tries again later.
        Some("TRYAGAIN")
    } else {
        Some("ERR")
    }
}

fn wrong_number(command: &str) -> String {
    format!("wrong number of arguments for '{command}' command")
}

/// Returns at most `n` bytes of a text.
fn beginning(text: &[u8], n: usize) -> &[u8] {
    text.get(..n).unwrap_or(text)
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use super::super::arguments::{CommandBounds, Parsed, parse};
    use super::*;

    fn said(line: &ErrorLine) -> String {
        String::from_utf8_lossy(line.text()).into_owned()
    }

    fn unknown(input: &str) -> String {
        let parsed = parse(input.as_bytes(), &CommandBounds::LET_IN);
        let Parsed::Whole { arguments, .. } = parsed else {
            panic!("{input}")
        };
        said(&ErrorLine::unknown_command(&arguments))
    }

    #[test]
    fn an_unknown_command_is_repeated_as_redis_does() {
        let begin = "ERR unknown command 'FOO', with args beginning with: ";
        assert_eq!(unknown("FOO\n"), begin);
        assert_eq!(unknown("FOO a 'b c'\n"), format!("{begin}'a' 'b c' "));
        let long = "z".repeat(300);
        let repeated = format!("{begin}'a' '{}' ", &long[..124]);
        assert_eq!(unknown(&format!("FOO a {long} b\n")), repeated);
        let name = format!("ERR unknown command '{}', ", &long[..128]);
        assert!(unknown(&format!("{long}\n")).starts_with(&name));
    }

    #[test]
    fn each_code_has_its_word_and_tells_the_code() {
        for code in Code::ALL {
            let line = said(&Problem::new(*code, "Try.").into());
            let told = match word(*code) {
                None => "NOAUTH Authentication required.".to_owned(),
                Some(word) => format!("{word} {}: Try.", code.as_str()),
            };
            assert_eq!(line, told);
        }
        // What HTTP answers with 503 or 429 is worth another try here, too.
        let is_worth_it = |code: &&Code| word(**code) == Some("TRYAGAIN");
        let worth: Vec<&str> = Code::ALL
            .iter()
            .filter(is_worth_it)
            .map(|it| it.as_str())
            .collect();
        assert_eq!(worth.len(), 9, "{worth:?}");
    }

    #[test]
    fn a_refusal_that_closes_its_connection_still_does() {
        let problem = Problem::new(Code::Overloaded, "Try.");
        assert!(!ErrorLine::from(problem.clone()).is_closing());
        assert!(ErrorLine::from(problem.closing()).is_closing());
        for code in Code::ALL {
            let (is_last, problem) = (*code == Code::Draining, Problem::new(*code, "Try."));
            assert_eq!(ErrorLine::from(problem).is_closing(), is_last, "{code:?}");
            let line = ErrorLine::not_ready((*code, "Try."));
            assert_eq!(line.is_closing(), is_last, "{code:?}");
        }
        assert!(ErrorLine::malformed(Malformed::Quotes).is_closing());
    }

    #[test]
    fn the_end_of_a_broken_transaction_names_its_cause() {
        let why = ErrorLine::wrong_number("exec");
        let line = said(&ErrorLine::exec_aborted(&why));
        let expected = "EXECABORT Transaction discarded because of: wrong number of arguments for \
                        'exec' command";
        assert_eq!(line, expected);
    }
}
