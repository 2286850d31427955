//! Lists the commands, and how many arguments each has.

use super::arguments::Arguments;
use super::error_line::ErrorLine;

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RespCommand {
    Incr,
    IncrBy,
    IncrByFloat,
    /// Takes a number back, in one way or another.
    TakeBack,
    /// Does the same with a number that has to be one.
    DecrBy,
    Set,
    SetNx,
    Get,
    Exists,
    Type,
    TimeToLive,
    Expire,
    Multi,
    Exec,
    Discard,
    Watch,
    Hello,
    Ping,
    Echo,
    Quit,
    Reset,
    Auth,
    Select,
    /// Nothing but subcommands.
    Container,
    ClientSetName,
    ClientSetInfo,
    ClientGetName,
    ClientId,
    ClientSwitch,
    Commands,
    CommandCount,
    CommandDocs,
    CommandInfo,
    Info,
    ConfigGet,
}

/// A command of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KnownCommand {
    /// The name in small letters. A subcommand stands behind a bar.
    pub(super) name: &'static str,
    /// How many arguments there are, with the name. A number below 0 is the least number, negated.
    arity: i8,
    pub(super) command: RespCommand,
}

/// Why a command is not answered.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum NoCommand {
    /// The first line of an HTTP request, or its `Host` header. A web page may have sent it.
    Http,
    Unknown(ErrorLine),
}

macro_rules! commands {
    ($($name:literal $arity:literal $command:ident;)+) => {
        /// All commands, those that callers send most often first.
        pub(super) const COMMANDS: &[KnownCommand] = &[$(KnownCommand {
            name: $name,
            arity: $arity,
            command: RespCommand::$command,
        }),+];
    };
}

commands! {
    "incr" 2 Incr;
    "incrby" 3 IncrBy;
    "ping" -1 Ping;
    "get" 2 Get;
    "exists" -2 Exists;
    "multi" 1 Multi;
    "exec" 1 Exec;
    "discard" 1 Discard;
    "watch" -2 Watch;
    "set" -3 Set;
    "setnx" 3 SetNx;
    "expire" -3 Expire;
    "pexpire" -3 Expire;
    "expireat" -3 Expire;
    "pexpireat" -3 Expire;
    "ttl" 2 TimeToLive;
    "pttl" 2 TimeToLive;
    "type" 2 Type;
    "decr" 2 TakeBack;
    "decrby" 3 DecrBy;
    "incrbyfloat" 3 IncrByFloat;
    "getset" 3 TakeBack;
    "getdel" 2 TakeBack;
    "del" -2 TakeBack;
    "rename" 3 TakeBack;
    "hello" -1 Hello;
    "auth" -2 Auth;
    "select" 2 Select;
    "echo" 2 Echo;
    "quit" -1 Quit;
    "reset" 1 Reset;
    "client" -2 Container;
    "client|setname" 3 ClientSetName;
    "client|setinfo" 4 ClientSetInfo;
    "client|getname" 2 ClientGetName;
    "client|id" 2 ClientId;
    "client|no-evict" 3 ClientSwitch;
    "client|no-touch" 3 ClientSwitch;
    "command" -1 Commands;
    "command|count" 2 CommandCount;
    "command|docs" -2 CommandDocs;
    "command|info" -2 CommandInfo;
    "config" -2 Container;
    "config|get" -3 ConfigGet;
    "info" -1 Info;
}

/// Names that only HTTP has.
const OF_HTTP: [&[u8]; 2] = [b"POST", b"Host:"];

/// Finds the command that a client sent.
///
/// # Errors
/// There is no such command, or it has another number of arguments.
pub(super) fn find(arguments: &Arguments<'_>) -> Result<&'static KnownCommand, NoCommand> {
    let name = arguments.text(0);
    let Some(mut found) = named(name) else {
        let is_http = OF_HTTP.iter().any(|word| word.eq_ignore_ascii_case(name));
        return Err(match is_http {
            true => NoCommand::Http,
            false => NoCommand::Unknown(ErrorLine::unknown_command(arguments)),
        });
    };
    if found.has_subcommands() && arguments.count() > 1 {
        let container = found.name;
        let unknown = || ErrorLine::unknown_subcommand(container, arguments);
        let inner = inside(container, arguments.text(1));
        found = inner.ok_or_else(|| NoCommand::Unknown(unknown()))?;
    }
    match found.takes(arguments.count()) {
        true => Ok(found),
        false => Err(NoCommand::Unknown(ErrorLine::wrong_number(found.name))),
    }
}

/// Returns the command of this name, in capital or small letters.
fn named(name: &[u8]) -> Option<&'static KnownCommand> {
    let is_it = |known: &&KnownCommand| known.name.as_bytes().eq_ignore_ascii_case(name);
    let found = COMMANDS.iter().find(is_it);
    // No name of a command has a bar.
    found.filter(|known| !known.name.contains('|'))
}

/// Returns the subcommand of this name.
fn inside(container: &str, name: &[u8]) -> Option<&'static KnownCommand> {
    let is_it = |known: &&KnownCommand| {
        let inner = known.name.split_once('|');
        inner.is_some_and(|(outer, inner)| {
            outer == container && inner.as_bytes().eq_ignore_ascii_case(name)
        })
    };
    COMMANDS.iter().find(is_it)
}

impl KnownCommand {
    /// Returns whether the word behind the name is part of it.
    fn has_subcommands(&self) -> bool {
        matches!(self.command, RespCommand::Container | RespCommand::Commands)
    }

    /// Returns whether the command takes so many arguments, with its name.
    fn takes(&self, count: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        match self.arity < 0 {
            true => count >= wanted,
            false => count == wanted,
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "tests may fail loudly")]
mod tests {
    use super::super::arguments::{CommandBounds, Parsed, parse};
    use super::*;

    fn found(line: &str) -> Result<RespCommand, String> {
        let line = format!("{line}\n");
        let parsed = parse(line.as_bytes(), &CommandBounds::LET_IN);
        let Parsed::Whole { arguments, .. } = parsed else {
            panic!("{line}")
        };
        match find(&arguments) {
            Ok(known) => Ok(known.command),
            Err(NoCommand::Http) => Err("HTTP".to_owned()),
            Err(NoCommand::Unknown(line)) => Err(String::from_utf8_lossy(line.text()).into_owned()),
        }
    }

    #[test]
    fn commands_are_found_in_capital_and_small_letters() {
        assert_eq!(found("INCR a"), Ok(RespCommand::Incr));
        assert_eq!(found("incrBY a 5"), Ok(RespCommand::IncrBy));
        assert_eq!(found("client SetName a"), Ok(RespCommand::ClientSetName));
        assert_eq!(
            found("CONFIG get save appendonly"),
            Ok(RespCommand::ConfigGet)
        );
        assert_eq!(found("COMMAND"), Ok(RespCommand::Commands));
        assert_eq!(found("PEXPIREAT a 5 NX"), Ok(RespCommand::Expire));
    }

    #[test]
    fn what_is_not_there_is_told_in_the_words_of_redis() {
        for (line, told) in [
            ("INCR", "ERR wrong number of arguments for 'incr' command"),
            (
                "INCR a b",
                "ERR wrong number of arguments for 'incr' command",
            ),
            ("SET a", "ERR wrong number of arguments for 'set' command"),
            (
                "CLIENT",
                "ERR wrong number of arguments for 'client' command",
            ),
            (
                "CLIENT SETNAME",
                "ERR wrong number of arguments for 'client|setname' command",
            ),
            (
                "CLIENT FOO a",
                "ERR unknown subcommand 'FOO'. Try CLIENT HELP.",
            ),
            (
                "config set a b",
                "ERR unknown subcommand 'set'. Try CONFIG HELP.",
            ),
            (
                "client|id",
                "ERR unknown command 'client|id', with args beginning with: ",
            ),
            (
                "FOO",
                "ERR unknown command 'FOO', with args beginning with: ",
            ),
        ] {
            assert_eq!(found(line), Err(told.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_line_of_http_is_known() {
        for line in ["POST / HTTP/1.1", "post a", "Host: a", "HOST: a"] {
            assert_eq!(found(line), Err("HTTP".to_owned()), "{line}");
        }
    }

    #[test]
    fn each_name_stands_once_and_each_container_has_subcommands() {
        for known in COMMANDS {
            let alike = COMMANDS.iter().filter(|it| it.name == known.name);
            assert_eq!(alike.count(), 1, "{}", known.name);
        }
        for known in COMMANDS {
            let begin = format!("{}|", known.name);
            let mut inside = COMMANDS.iter().filter(|it| it.name.starts_with(&begin));
            let has_some = inside.next().is_some();
            assert_eq!(has_some, known.has_subcommands(), "{}", known.name);
        }
    }
}
