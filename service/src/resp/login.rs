//! Lets clients log in: `AUTH`, and `HELLO` with `AUTH`.

use super::arguments::{Arguments, integer};
use super::error_line::{
    BAD_CLIENT_NAME, ErrorLine, HELLO_NOT_LOGGED_IN, LONG_CLIENT_NAME, NO_PASSWORD,
    NO_SUCH_PROTOCOL, PROTOCOL_NOT_AN_INTEGER, SYNTAX, WRONG_PASSWORD,
};
use super::reply::Replies;
use super::server_info;
use super::session::Session;
use crate::access::right::Right;
use crate::calls::evidence::ShownToken;
use crate::calls::problem::Code;

/// The most bytes of a token.
const MAX_TOKEN: usize = 4096;

/// The most bytes of what a client calls itself. Its connection keeps them.
const MAX_CLIENT_NAME: usize = 256;

/// The name of a caller who gives none.
const DEFAULT_USER: &[u8] = b"default";

/// What `HELLO` asks for.
#[derive(Default, PartialEq, Eq, Debug)]
struct Greeting<'a> {
    is_resp3: Option<bool>,
    login: Option<(&'a [u8], &'a [u8])>,
    client_name: Option<&'a [u8]>,
}

/// Answers `AUTH`.
///
/// # Errors
/// The token is wrong, or the command cannot be read.
pub(super) async fn log_in(
    session: &mut Session,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    let (user, token) = match arguments.count() {
        2 => (None, arguments.text(1)),
        3 => (Some(arguments.text(1)), arguments.text(2)),
        _ => return Err(SYNTAX),
    };
    authenticate(session, user, token).await?;
    replies.simple("OK");
    Ok(())
}

/// Answers `HELLO`, which may have a login in it.
///
/// # Errors
/// The login is wrong or missing, or the command cannot be read.
pub(super) async fn greet(
    session: &mut Session,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    let greeting = Greeting::read(arguments)?;
    if let Some((user, token)) = greeting.login {
        authenticate(session, Some(user), token).await?;
    }
    if !session.is_let_in() {
        return Err(HELLO_NOT_LOGGED_IN);
    }
    if let Some(name) = greeting.client_name {
        session.client_name = client_name(name)?;
    }
    if let Some(is_resp3) = greeting.is_resp3 {
        replies.write_resp3(is_resp3);
    }
    server_info::greet(session.id, replies);
    Ok(())
}

/// Reads what a client calls itself.
///
/// # Errors
/// The name has a blank, a line end, or a character that is not printed. Or it is too long.
pub(super) fn client_name(name: &[u8]) -> Result<Vec<u8>, ErrorLine> {
    if !is_one_word(name) {
        return Err(BAD_CLIENT_NAME);
    }
    match name.len() <= MAX_CLIENT_NAME {
        true => Ok(name.to_vec()),
        false => Err(LONG_CLIENT_NAME),
    }
}

/// Returns whether a text has printed characters alone, and no blank.
pub(super) fn is_one_word(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

/// Lets a caller in whose token is right. The name is that of the caller, or the usual one.
async fn authenticate(
    session: &mut Session,
    user: Option<&[u8]>,
    token: &[u8],
) -> Result<(), ErrorLine> {
    if !session.worker.resp.calls.access.takes_tokens() {
        return match user {
            None => Err(NO_PASSWORD),
            Some(DEFAULT_USER) => Ok(()),
            Some(_) => Err(WRONG_PASSWORD),
        };
    }
    let shown = right_token(session, user, token).await;
    if shown == Err(WRONG_PASSWORD) {
        session.note_wrong_token();
    }
    session.log_in(shown?);
    Ok(())
}

/// Returns the token, if it is that of the caller of this name.
async fn right_token<'a>(
    session: &Session,
    user: Option<&[u8]>,
    token: &'a [u8],
) -> Result<&'a str, ErrorLine> {
    let text = std::str::from_utf8(token).ok();
    let text = text.filter(|text| text.len() <= MAX_TOKEN);
    let shown = text.map_or(ShownToken::Malformed, ShownToken::Text);
    let evidence = session.evidence_of(shown)?;
    // This right asks for the token, whatever else callers may do without one.
    let access = &session.worker.resp.calls.access;
    let caller = access.identify(&evidence, Right::Define).await;
    let caller = caller.map_err(|problem| match problem.code() == Code::Unauthenticated {
        true => WRONG_PASSWORD,
        false => problem.into(),
    })?;
    let is_its_user =
        user.is_none_or(|user| user == DEFAULT_USER || user == caller.name().as_bytes());
    text.filter(|_| is_its_user).ok_or(WRONG_PASSWORD)
}

impl<'a> Greeting<'a> {
    fn read(arguments: &'a Arguments<'_>) -> Result<Self, ErrorLine> {
        let mut greeting = Self::default();
        let Some(version) = arguments.get(1) else {
            return Ok(greeting);
        };
        greeting.is_resp3 = match integer(version).ok_or(PROTOCOL_NOT_AN_INTEGER)? {
            2 => Some(false),
            3 => Some(true),
            _ => return Err(NO_SUCH_PROTOCOL),
        };
        let mut at = 2;
        while let Some(option) = arguments.get(at) {
            let values = (arguments.get(at + 1), arguments.get(at + 2));
            if option.eq_ignore_ascii_case(b"AUTH")
                && let (Some(user), Some(token)) = values
            {
                greeting.login = Some((user, token));
                at += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME")
                && let (Some(name), _) = values
            {
                greeting.client_name = Some(name);
                at += 2;
            } else {
                return Err(ErrorLine::bad_hello_option(option));
            }
        }
        Ok(greeting)
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use super::super::arguments::{CommandBounds, Parsed, parse};
    use super::*;

    fn check(line: &str, wanted: Result<Greeting<'_>, &str>) {
        let text = format!("{line}\n");
        let parsed = parse(text.as_bytes(), &CommandBounds::LET_IN);
        let Parsed::Whole { arguments, .. } = parsed else {
            panic!("{line}")
        };
        let read = Greeting::read(&arguments);
        let read = read.map_err(|error| String::from_utf8_lossy(error.text()).into_owned());
        assert_eq!(read, wanted.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn a_greeting_may_have_a_version_a_login_and_a_name() {
        let greeting = |is_resp3| Greeting {
            is_resp3,
            ..Greeting::default()
        };
        check("HELLO", Ok(greeting(None)));
        check("HELLO 2", Ok(greeting(Some(false))));
        check("hello 3", Ok(greeting(Some(true))));
        let whole = Greeting {
            login: Some((b"u", b"p")),
            client_name: Some(b"n"),
            ..greeting(Some(true))
        };
        check("HELLO 3 AUTH u p SETNAME n", Ok(whole));
    }

    #[test]
    fn what_cannot_be_read_is_told_in_the_words_of_redis() {
        let option = "ERR Syntax error in HELLO option";
        for (line, told) in [
            ("HELLO 4", "NOPROTO unsupported protocol version".to_owned()),
            (
                "HELLO 03",
                "ERR Protocol version is not an integer or out of range".to_owned(),
            ),
            ("HELLO 2 FOO", format!("{option} 'FOO'")),
            ("HELLO 2 AUTH a", format!("{option} 'AUTH'")),
            ("HELLO 2 SETNAME", format!("{option} 'SETNAME'")),
        ] {
            check(line, Err(&told));
        }
    }

    #[test]
    fn a_name_of_a_client_is_short_and_has_no_blank() {
        assert_eq!(client_name(b"a-1"), Ok(b"a-1".to_vec()));
        assert_eq!(client_name(b""), Ok(Vec::new()));
        for name in [&b"a b"[..], b"a\n", b"\xff"] {
            assert_eq!(client_name(name), Err(BAD_CLIENT_NAME));
        }
        let longest = [b'a'; MAX_CLIENT_NAME];
        assert_eq!(client_name(&longest), Ok(longest.to_vec()));
        let longer = [b'a'; MAX_CLIENT_NAME + 1];
        assert_eq!(client_name(&longer), Err(LONG_CLIENT_NAME));
    }
}
