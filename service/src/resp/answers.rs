//! Answers commands: those that wait for nothing at once, and the others later.

use odometer_core::name::SequenceName;

use super::arguments::{Arguments, MAX_ARGUMENTS, integer};
use super::command::{KnownCommand, NoCommand, RespCommand, find};
use super::error_line::{
    DISCARD_WITHOUT_MULTI, EXEC_ABORTED, EXEC_WITHOUT_MULTI, ErrorLine, NESTED_MULTI,
    NEVER_EXPIRES, NEVER_TAKEN_BACK, NO_SUCH_DATABASE, NOT_A_FLOAT, NOT_AN_INTEGER, NOT_LOGGED_IN,
    TOO_MANY_ARGUMENTS, WATCH_IN_MULTI, WATCH_REFUSED,
};
use super::readings::Reading;
use super::reply::Replies;
use super::session::{Session, SessionEnd};
use super::transaction::Transaction;
use super::{creation, key_rules, login, numbers, readings, server_info};
use crate::calls::problem::Code;

/// The most commands that are answered at once. Their replies are much shorter than what may wait
/// together.
const MAX_ALIKE: usize = 256;

/// What is left to do of a command.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// Nothing: it is answered.
    Nothing,
    /// It waits for the store, or for the caller.
    Later(Later),
    /// The commands of a transaction are to be answered: how many, and all of them as they came.
    Transaction(usize, Vec<u8>),
}

/// What a command waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Later {
    /// Numbers: how many.
    Numbers(u64),
    /// A sequence whose first number comes after this value. Whether the client sent `SET`.
    Creation(i64, bool),
    Reading(Reading),
    /// How many keys are known.
    Existence,
    Login,
    Greeting,
}

/// Begins a command, which came in `bytes`. Commands between `MULTI` and `EXEC` are queued.
pub(super) fn begin(
    session: &mut Session,
    arguments: &Arguments<'_>,
    bytes: &[u8],
    replies: &mut Replies,
) -> Rest {
    if arguments.count() == 0 {
        return Rest::Nothing;
    }
    let known = match find(arguments) {
        Ok(known) => known,
        Err(NoCommand::Http) => {
            session.end = Some(SessionEnd::Abrupt);
            return Rest::Nothing;
        }
        Err(NoCommand::Unknown(line)) => return reject(session, arguments, line, replies),
    };
    if arguments.count() > MAX_ARGUMENTS {
        return reject(session, arguments, TOO_MANY_ARGUMENTS, replies);
    }
    if !session.is_let_in() && !is_for_all(known.command) {
        return reject(session, arguments, NOT_LOGGED_IN, replies);
    }
    if let Some(transaction) = &mut session.transaction
        && is_queued(known.command)
    {
        match transaction.add(bytes) {
            // It counts when it is answered.
            Ok(()) => replies.simple("QUEUED"),
            Err(line) => {
                session.n_commands += 1;
                replies.error(&line);
            }
        }
        return Rest::Nothing;
    }
    session.n_commands += 1;
    run(session, known, (arguments, bytes), replies).unwrap_or_else(|line| {
        replies.error(&line);
        Rest::Nothing
    })
}

/// Answers the commands at the beginning of `input` that are the same as the last one that was
/// answered from memory. The numbers of all of them are taken at once. So such commands cost little,
/// and pipelined ones least.
///
/// Returns how many bytes the commands have. `None` if nothing was answered, because the commands
/// have to be read one by one.
#[inline]
pub(super) fn repeat(session: &mut Session, input: &[u8], replies: &mut Replies) -> Option<usize> {
    if session.transaction.is_some() || !session.is_let_in() {
        return None;
    }
    let last = &session.last_take;
    let n = last.n();
    let most = MAX_ALIKE.min(numbers::max_times(session, n));
    let n_alike = last.count_in(input, most);
    let times = u64::try_from(n_alike).ok().filter(|times| *times > 0)?;
    let n_bytes = n_alike * last.n_bytes();
    if !numbers::take_now(session, &last.target(), (n, times), replies) {
        if n > 1 {
            // Numbers may have turned out to be apart. The next command looks before it takes any.
            session.forget_unbroken();
        }
        return None;
    }
    session.n_commands += times;
    Some(n_bytes)
}

/// Answers a command that waited. Logs why, if the service cannot answer it.
pub(super) async fn go_on(
    session: &mut Session,
    later: Later,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) {
    let answered = answer(session, later, arguments, replies).await;
    let Err(line) = answered else {
        return;
    };
    if line.code() == Some(Code::Unauthenticated) {
        session.withdraw();
    }
    if line.is_closing() {
        session.end = Some(SessionEnd::InOrder);
    }
    log(session, later, arguments, &line);
    replies.error(&line);
}

async fn answer(
    session: &mut Session,
    later: Later,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    match later {
        Later::Numbers(n) => {
            let last = numbers::take(session, arguments.text(1), n).await?;
            replies.integer(last);
        }
        Later::Creation(value, is_set) => {
            let is_new = creation::create(session, arguments.text(1), value).await?;
            match (is_set, is_new) {
                (true, true) => replies.simple("OK"),
                (true, false) => replies.nothing(),
                (false, _) => replies.integer(i64::from(is_new)),
            }
        }
        Later::Reading(reading) => {
            readings::read(session, reading, arguments, replies).await?;
        }
        Later::Existence => replies.integer(readings::count_known(session, arguments).await?),
        Later::Login => login::log_in(session, arguments, replies).await?,
        Later::Greeting => login::greet(session, arguments, replies).await?,
    }
    Ok(())
}

/// Refuses a command that is not even queued.
fn reject(
    session: &mut Session,
    arguments: &Arguments<'_>,
    line: ErrorLine,
    replies: &mut Replies,
) -> Rest {
    session.n_commands += 1;
    session.spoil_transaction();
    if arguments.text(0).eq_ignore_ascii_case(b"EXEC") {
        session.transaction = None;
        replies.error(&ErrorLine::exec_aborted(&line));
    } else {
        replies.error(&line);
    }
    Rest::Nothing
}

/// Returns whether callers who are not let in may send a command.
fn is_for_all(command: RespCommand) -> bool {
    matches!(
        command,
        RespCommand::Auth | RespCommand::Hello | RespCommand::Quit | RespCommand::Reset
    )
}

/// Returns whether a command waits for `EXEC`.
fn is_queued(command: RespCommand) -> bool {
    !matches!(
        command,
        RespCommand::Multi
            | RespCommand::Exec
            | RespCommand::Discard
            | RespCommand::Watch
            | RespCommand::Quit
            | RespCommand::Reset
    )
}

/// Answers a command, or says what is left to do.
fn run(
    session: &mut Session,
    known: &KnownCommand,
    (arguments, bytes): (&Arguments<'_>, &[u8]),
    replies: &mut Replies,
) -> Result<Rest, ErrorLine> {
    let ignores_expiry = session.worker.resp.ignores_expiry;
    let reading = |reading| Ok(Rest::Later(Later::Reading(reading)));
    match known.command {
        RespCommand::Incr => return Ok(take(session, (arguments, bytes), 1, replies)),
        RespCommand::IncrBy => {
            let n = amount(arguments.text(2))?;
            return Ok(take(session, (arguments, bytes), n, replies));
        }
        RespCommand::DecrBy => {
            integer(arguments.text(2)).ok_or(NOT_AN_INTEGER)?;
            return Err(NEVER_TAKEN_BACK);
        }
        RespCommand::IncrByFloat => return Err(not_by_float(arguments.text(2))),
        RespCommand::TakeBack => return Err(NEVER_TAKEN_BACK),
        RespCommand::Set => {
            let value = creation::value_of_set(arguments, ignores_expiry)?;
            return Ok(Rest::Later(Later::Creation(value, true)));
        }
        RespCommand::SetNx => {
            let value = creation::value(arguments.text(2))?;
            return Ok(Rest::Later(Later::Creation(value, false)));
        }
        RespCommand::Get => return reading(Reading::Value),
        RespCommand::Exists => return Ok(Rest::Later(Later::Existence)),
        RespCommand::Type => return reading(Reading::Type),
        RespCommand::TimeToLive => return reading(Reading::TimeToLive),
        RespCommand::Auth => return Ok(Rest::Later(Later::Login)),
        RespCommand::Hello => return Ok(Rest::Later(Later::Greeting)),
        RespCommand::Exec => return execute(session),
        RespCommand::Expire => return reading(expiry(arguments, ignores_expiry)?),
        RespCommand::Multi => begin_transaction(session, replies)?,
        RespCommand::Discard => {
            session.transaction.take().ok_or(DISCARD_WITHOUT_MULTI)?;
            replies.simple("OK");
        }
        RespCommand::Watch if session.transaction.is_some() => return Err(WATCH_IN_MULTI),
        RespCommand::Watch => return Err(WATCH_REFUSED),
        RespCommand::Ping
        | RespCommand::Echo
        | RespCommand::Quit
        | RespCommand::Reset
        | RespCommand::Select => run_for_connection(session, known, arguments, replies)?,
        RespCommand::Container => {
            return Err(ErrorLine::unknown_subcommand(known.name, arguments));
        }
        RespCommand::ClientSetName => server_info::set_name(session, arguments, replies)?,
        RespCommand::ClientSetInfo => server_info::set_info(arguments, replies)?,
        RespCommand::ClientGetName => server_info::get_name(session, replies),
        RespCommand::ClientId => replies.integer(session.id),
        RespCommand::ClientSwitch => server_info::switch(arguments, replies)?,
        RespCommand::Commands => replies.list(0),
        RespCommand::CommandCount => server_info::count_commands(replies),
        RespCommand::CommandDocs => replies.pairs(0),
        RespCommand::CommandInfo => server_info::describe_commands(arguments, replies),
        RespCommand::Info => {
            let directory = &session.worker.resp.calls.directory;
            server_info::inform(directory, arguments, replies);
        }
        RespCommand::ConfigGet => server_info::configure(arguments, replies),
    }
    Ok(Rest::Nothing)
}

/// Answers a command that is about the connection alone.
fn run_for_connection(
    session: &mut Session,
    known: &KnownCommand,
    arguments: &Arguments<'_>,
    replies: &mut Replies,
) -> Result<(), ErrorLine> {
    let command = known.command;
    if command == RespCommand::Ping {
        match arguments.count() {
            1 => replies.simple("PONG"),
            2 => replies.bulk(arguments.text(1)),
            _ => return Err(ErrorLine::wrong_number(known.name)),
        }
    } else if command == RespCommand::Echo {
        replies.bulk(arguments.text(1));
    } else if command == RespCommand::Select {
        match integer(arguments.text(1)).ok_or(NOT_AN_INTEGER)? {
            0 => replies.simple("OK"),
            _ => return Err(NO_SUCH_DATABASE),
        }
    } else if command == RespCommand::Reset {
        session.reset();
        replies.write_resp3(false);
        replies.simple("RESET");
    } else {
        session.end = Some(SessionEnd::InOrder);
        replies.simple("OK");
    }
    Ok(())
}

/// Takes numbers from memory, or says that they are to be waited for.
fn take(
    session: &mut Session,
    (arguments, bytes): (&Arguments<'_>, &[u8]),
    n: u64,
    replies: &mut Replies,
) -> Rest {
    let target = key_rules::target(&session.worker.resp.rules, arguments.text(1));
    if !numbers::take_now(session, &target, (n, 1), replies) {
        return Rest::Later(Later::Numbers(n));
    }
    session.last_take.remember(bytes, target, n);
    Rest::Nothing
}

/// Reads how many numbers a client asks for.
fn amount(text: &[u8]) -> Result<u64, ErrorLine> {
    let amount = integer(text).ok_or(NOT_AN_INTEGER)?;
    let amount = u64::try_from(amount).ok().filter(|amount| *amount > 0);
    amount.ok_or(NEVER_TAKEN_BACK)
}

/// Returns why no number is increased by a part of one.
fn not_by_float(text: &[u8]) -> ErrorLine {
    let text = std::str::from_utf8(text).ok();
    let number = text.and_then(|text| text.parse::<f64>().ok());
    number.map_or(NOT_A_FLOAT, |_| NEVER_TAKEN_BACK)
}

fn begin_transaction(session: &mut Session, replies: &mut Replies) -> Result<(), ErrorLine> {
    if session.transaction.is_some() {
        return Err(NESTED_MULTI);
    }
    session.transaction = Some(Transaction::default());
    replies.simple("OK");
    Ok(())
}

fn execute(session: &mut Session) -> Result<Rest, ErrorLine> {
    let transaction = session.transaction.take().ok_or(EXEC_WITHOUT_MULTI)?;
    let (n_commands, commands) = transaction.commands().ok_or(EXEC_ABORTED)?;
    Ok(Rest::Transaction(n_commands, commands))
}

/// Lets a command do nothing that would let a key expire, if the configuration says so. The reply
/// then says whether the key is known.
fn expiry(arguments: &Arguments<'_>, ignores_expiry: bool) -> Result<Reading, ErrorLine> {
    let known: [&[u8]; 4] = [b"NX", b"XX", b"GT", b"LT"];
    let is_known = |option: &&[u8]| known.iter().any(|known| known.eq_ignore_ascii_case(option));
    if let Some(option) = arguments.starting_at(3).find(|option| !is_known(option)) {
        return Err(ErrorLine::unknown_expiry_option(option));
    }
    integer(arguments.text(2)).ok_or(NOT_AN_INTEGER)?;
    match ignores_expiry {
        true => Ok(Reading::Expiry),
        false => Err(NEVER_EXPIRES),
    }
}

/// Logs a call that the service cannot answer. An outage refuses thousands of calls a second, so a
/// line for each sequence says now and then how many there were.
fn log(session: &Session, later: Later, arguments: &Arguments<'_>, line: &ErrorLine) {
    let resp = &session.worker.resp;
    let Some(code) = line.code() else {
        return;
    };
    // The arguments of a login are secret.
    let key = match later {
        Later::Numbers(_) | Later::Creation(..) | Later::Reading(_) | Later::Existence => {
            arguments.get(1)
        }
        Later::Login | Later::Greeting => None,
    };
    let target = key.map(|key| key_rules::target(&resp.rules, key));
    let name = target.and_then(|target| SequenceName::parse(&target.name).ok());
    if code.is_unavailable() {
        resp.calls.repeated_lines.note_refused(name, code.as_str());
    } else if code == Code::Internal {
        let sequence = name.as_ref().map(SequenceName::as_str);
        tracing::error!(sequence, error = code.as_str(), "a call failed");
    }
}
