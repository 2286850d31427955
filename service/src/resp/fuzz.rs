//! Gives the reader of commands what no client would send, and cuts streams at every byte.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may fail loudly"
)]

use odometer_tests::{
    fuzz::{Edit, check, edit},
    settings::properties,
};
use proptest::{collection::vec, prelude::*};

use super::arguments::{Arguments, CommandBounds, MAX_ARGUMENTS, MAX_COMMAND, Parsed, parse};

/// Pieces of commands, and what is none.
const PIECES: &[&str] = &[
    "*",
    "*1\r\n",
    "*2\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*99\r\n",
    "$",
    "$4\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "$70000\r\n",
    "INCR",
    "PING",
    "orders",
    "\r\n",
    "\r",
    "\n",
    " ",
    "\"",
    "'",
    "\\",
    "\\x4",
    "\0",
    "0",
    "+",
    ":",
    "\u{e9}",
];

/// A command, and whether it is sent as a line.
#[derive(Clone, Debug)]
struct Sent {
    arguments: Vec<Vec<u8>>,
    is_line: bool,
}

impl Sent {
    /// Returns the command as a client sends it.
    fn bytes(&self) -> Vec<u8> {
        if self.is_line {
            let quoted = self.arguments.iter().map(|argument| quoted(argument));
            let line = quoted.collect::<Vec<String>>().join(" ");
            return format!("{line}\r\n").into_bytes();
        }
        let mut bytes = format!("*{}\r\n", self.arguments.len()).into_bytes();
        for argument in &self.arguments {
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }
}

/// Returns an argument as a line has it.
fn quoted(argument: &[u8]) -> String {
    let escaped = argument.iter().map(|byte| format!("\\x{byte:02x}"));
    format!("\"{}\"", escaped.collect::<String>())
}

fn sent() -> impl Strategy<Value = Sent> {
    let argument = vec(any::<u8>(), 0..12);
    (vec(argument, 1..6), any::<bool>())
        .prop_map(|(arguments, is_line)| Sent { arguments, is_line })
}

fn all(arguments: &Arguments<'_>) -> Vec<Vec<u8>> {
    arguments.starting_at(0).map(<[u8]>::to_vec).collect()
}

/// Reads commands as a connection does, of which the parts come one after the other.
fn read(parts: &[&[u8]]) -> Vec<Vec<Vec<u8>>> {
    let (mut input, mut needed, mut found) = (Vec::new(), 1, Vec::new());
    for part in parts {
        input.extend_from_slice(part);
        while input.len() >= needed {
            let (command, n_bytes) = match parse(&input, &CommandBounds::LET_IN) {
                Parsed::Whole { arguments, n_bytes } => (all(&arguments), n_bytes),
                Parsed::Partial { needed: more } => {
                    assert!(more > input.len(), "{more} of {}", input.len());
                    needed = more;
                    break;
                }
                Parsed::Malformed(why) => panic!("{why:?}: {}", input.escape_ascii()),
            };
            found.push(command);
            input.drain(..n_bytes);
            needed = 1;
        }
    }
    assert!(input.is_empty(), "{}", input.escape_ascii());
    found
}

proptest! {
    #![proptest_config(properties())]

    #[test]
    fn commands_are_read_wherever_their_stream_is_cut(commands in vec(sent(), 1..4)) {
        let stream: Vec<u8> = commands.iter().flat_map(Sent::bytes).collect();
        let wanted: Vec<_> = commands.into_iter().map(|sent| sent.arguments).collect();
        for cut in 0..=stream.len() {
            let (first, second) = stream.split_at(cut);
            prop_assert_eq!(&read(&[first, second]), &wanted, "cut at {}", cut);
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&read(&single), &wanted);
    }

    #[test]
    fn no_beginning_of_a_command_is_one(sent in sent()) {
        let bytes = sent.bytes();
        for cut in 0..bytes.len() {
            let Parsed::Partial { needed } = parse(&bytes[..cut], &CommandBounds::LET_IN) else {
                panic!("cut at {cut}: {}", bytes.escape_ascii())
            };
            prop_assert!(needed > cut && needed <= bytes.len(), "{} at {}", needed, cut);
        }
    }
}

#[test]
fn any_bytes_are_a_command_or_a_part_of_one_or_none() {
    let inputs = (
        vec(sent(), 0..3),
        vec((0..PIECES.len(), any::<bool>()), 0..6),
        prop::option::of(edit(PIECES)),
    );
    check(&inputs, 20, |(commands, pieces, edit)| {
        let mut text: String = commands
            .iter()
            .flat_map(Sent::bytes)
            .map(|byte| char::from(byte & 0x7f))
            .collect();
        for (piece, is_before) in pieces {
            let at = if is_before { 0 } else { text.len() };
            text.insert_str(at, PIECES[piece]);
        }
        let text = edit.map_or(text.clone(), |edit: Edit| edit.of(&text));
        is_read(text.as_bytes())
    });
}

/// Reads bytes to their end. Returns whether a command was in them.
fn is_read(bytes: &[u8]) -> bool {
    let (mut rest, mut has_command) = (bytes, false);
    loop {
        match parse(rest, &CommandBounds::LET_IN) {
            Parsed::Whole { arguments, n_bytes } => {
                assert!((1..=rest.len()).contains(&n_bytes));
                assert!(arguments.starting_at(0).count() <= MAX_ARGUMENTS);
                assert!(
                    arguments.count() * 2 <= n_bytes + 1,
                    "each argument has its bytes"
                );
                has_command |= arguments.count() > 0;
                rest = &rest[n_bytes..];
            }
            Parsed::Partial { needed } => {
                assert!(needed > rest.len() && needed <= MAX_COMMAND, "{needed}");
                return has_command;
            }
            Parsed::Malformed(_) => return has_command,
        }
    }
}
