//! Writes to standard output.

use std::io::{self, ErrorKind, Write as _};

use super::failure::RemoteFailure;

/// Prints a text as it is, with a line feed at its end.
///
/// # Errors
/// Standard output cannot be written. If its reader has stopped reading, that is no error.
pub(crate) fn print(text: &str) -> Result<(), RemoteFailure> {
    let mut output = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(output, "{text}{end}").and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(RemoteFailure::new(format!(
            "standard output cannot be written ({error})"
        ))),
        _ => Ok(()),
    }
}

/// Prints lines for people. Characters that steer a terminal are replaced.
///
/// # Errors
/// The errors of [`print`].
pub(crate) fn print_lines(lines: &[String]) -> Result<(), RemoteFailure> {
    if lines.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    print(&lines.join("\n"))
}

/// Replaces characters that steer a terminal, which a replica could have sent.
pub(crate) fn clean(text: &str) -> String {
    let shown = |found: char| {
        if found.is_control() {
            '\u{fffd}'
        } else {
            found
        }
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_not_printed() {
        assert_eq!(clean("a \u{1b}[2Jb\nc"), "a \u{fffd}[2Jb\u{fffd}c");
        assert_eq!(clean("12 000 – Größe"), "12 000 – Größe");
    }
}
