//! Says what clients ask about the server when they connect.

use odometer_sequence::{Directory, Readiness};

use super::arguments::Arguments;
use super::command::COMMANDS;
use super::error_line::{ErrorLine, SYNTAX};
use super::login::{client_name, is_one_word};
use super::reply::Replies;
use super::session::Session;

/// The version of Redis whose replies are given. Client libraries choose by it what they send.
const VERSION: &str = "7.4.0";

/// The settings that tools for Redis ask for. Each number is durable before it is given.
const SETTINGS: [(&str, &str); 2] = [("save", ""), ("appendonly", "yes")];

/// Answers a greeting, on the connection of this id.
pub(super) fn greet(id: i64, replies: &mut Replies) {
    let is_resp3 = replies.is_resp3();
    replies.pairs(7);
    replies.bulk(b"server");
    replies.bulk(b"odometer");
    replies.bulk(b"version");
    replies.bulk(VERSION.as_bytes());
    replies.bulk(b"proto");
    replies.integer(if is_resp3 { 3 } else { 2 });
    replies.bulk(b"id");
    replies.integer(id);
    replies.bulk(b"mode");
    replies.bulk(b"standalone");
    replies.bulk(b"role");
    replies.bulk(b"master");
    replies.bulk(b"modules");
    replies.list(0);
}

/// Answers `INFO`, with the sections that it names.
pub(super) fn inform(directory: &Directory, arguments: &Arguments<'_>, replies: &mut Replies) {
    // What the replica reads before its first number is what a Redis loads.
    let is_loading = directory.takes_calls() != Readiness::Ready;
    let version = env!("CARGO_PKG_VERSION");
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{VERSION}\r\nodometer_version:{version}\r\nredis_mode:standalone"
            ),
        ),
        ("Persistence", format!("loading:{}", u8::from(is_loading))),
        (
            "Replication",
            "role:master\r\nconnected_slaves:0".to_owned(),
        ),
    ];
    let is_all = |word: &[u8]| {
        let words: [&[u8]; 3] = [b"all", b"default", b"everything"];
        words.iter().any(|all| all.eq_ignore_ascii_case(word))
    };
    let is_asked = |name: &str| {
        let is_it = |word: &[u8]| is_all(word) || word.eq_ignore_ascii_case(name.as_bytes());
        arguments.count() == 1 || arguments.starting_at(1).any(is_it)
    };
    let asked = sections.iter().filter(|(name, _)| is_asked(name));
    let asked = asked.map(|(name, lines)| format!("# {name}\r\n{lines}\r\n"));
    replies.verbatim(&asked.collect::<Vec<String>>().join("\r\n"));
}

/// Answers `CONFIG GET`, with the settings that it names.
pub(super) fn configure(arguments: &Arguments<'_>, replies: &mut Replies) {
    let is_asked = |name: &str| {
        let is_it = |word: &[u8]| word == b"*" || word.eq_ignore_ascii_case(name.as_bytes());
        arguments.starting_at(2).any(is_it)
    };
    let mut asked = SETTINGS.to_vec();
    asked.retain(|(name, _)| is_asked(name));
    replies.pairs(asked.len());
    for (name, value) in asked {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

/// Answers `COMMAND COUNT`.
pub(super) fn count_commands(replies: &mut Replies) {
    let whole = COMMANDS.iter().filter(|known| !known.name.contains('|'));
    replies.integer(i64::try_from(whole.count()).unwrap_or(i64::MAX));
}

/// Answers `COMMAND INFO`, about whose commands nothing is said.
pub(super) fn describe_commands(arguments: &Arguments<'_>, replies: &mut Replies) {
    let n_asked = arguments.starting_at(2).count();
    replies.list(n_asked);
    for _ in 0..n_asked {
        replies.no_list();
    }
}

/// Answers `CLIENT SETNAME`.
///
/// # Errors
/// The name cannot be one.
pub(super) fn set_name(
    session: &mut Session,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    session.client_name = client_name(arguments.text(2))?;
    replies.simple("OK");
    Ok(())
}

/// Answers `CLIENT GETNAME`.
pub(super) fn get_name(session: &Session, replies: &mut Replies) {
    match session.client_name.is_empty() {
        true => replies.nothing(),
        false => replies.bulk(&session.client_name),
    }
}

/// Answers `CLIENT SETINFO`. What libraries say of themselves is not kept.
///
/// # Errors
/// The option or its value cannot be one.
pub(super) fn set_info(arguments: &Arguments<'_>, replies: &mut Replies) -> Result<(), ErrorLine> {
    let (option, value) = (arguments.text(2), arguments.text(3));
    let known = ["lib-name", "lib-ver"];
    let mut known = known.into_iter();
    let Some(known) = known.find(|known| option.eq_ignore_ascii_case(known.as_bytes())) else {
        return Err(ErrorLine::unknown_client_option(option));
    };
    if !is_one_word(value) {
        return Err(ErrorLine::bad_client_value(known));
    }
    replies.simple("OK");
    Ok(())
}

/// Answers `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`, which have no effect.
///
/// # Errors
/// The option is neither `on` nor `off`.
pub(super) fn switch(arguments: &Arguments<'_>, replies: &mut Replies) -> Result<(), ErrorLine> {
    let option = arguments.text(2);
    if !option.eq_ignore_ascii_case(b"on") && !option.eq_ignore_ascii_case(b"off") {
        return Err(SYNTAX);
    }
    replies.simple("OK");
    Ok(())
}
