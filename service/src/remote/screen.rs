//! A picture on a terminal that is drawn again in place. The terminal is as before when it ends.

use std::io::{self, Write as _};

use rustix::termios;

use super::table;
use crate::commands::{failure::CommandFailure, output};

/// Goes to the terminal's other screen, and hides the cursor.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the cursor, and goes back to the screen that was there before.
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
const TO_THE_TOP: &str = "\x1b[H";
const CLEAR_REST_OF_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// The size if the terminal does not tell one.
const DEFAULT_SIZE: TerminalSize = TerminalSize {
    n_columns: 80,
    n_rows: 24,
};

#[derive(Clone, Copy)]
struct TerminalSize {
    n_columns: usize,
    n_rows: usize,
}

/// The other screen of the terminal. It is left when this is dropped.
pub(crate) struct Screen(());

impl Screen {
    /// Goes to the other screen.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(crate) fn open() -> Result<Self, CommandFailure> {
        let screen = Self(());
        write(OPEN)?;
        Ok(screen)
    }

    /// Draws these lines over the former ones, as many as fit.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(crate) fn draw(&mut self, lines: &[String]) -> Result<(), CommandFailure> {
        write(&drawn(lines, size()))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, nothing is left to clean.
        let _gone = write(CLOSE);
    }
}

fn size() -> TerminalSize {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => TerminalSize {
            n_columns: usize::from(size.ws_col),
            n_rows: usize::from(size.ws_row),
        },
        _ => DEFAULT_SIZE,
    }
}

fn drawn(lines: &[String], size: TerminalSize) -> String {
    let mut shown = lines.to_vec();
    if lines.len() > size.n_rows {
        let n_shown = size.n_rows.saturating_sub(1);
        shown.truncate(n_shown);
        shown.push(format!("… {} more lines", lines.len() - n_shown));
    }
    let shown = shown.iter().map(|line| {
        let line = table::cut(&output::clean(line), size.n_columns);
        format!("{line}{CLEAR_REST_OF_LINE}")
    });
    // No line feed after the last line, which would scroll a full screen.
    let shown: Vec<String> = shown.collect();
    format!("{TO_THE_TOP}{}{CLEAR_REST}", shown.join("\r\n"))
}

fn write(text: &str) -> Result<(), CommandFailure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes());
    written
        .and_then(|()| output.flush())
        .map_err(|error| CommandFailure::other(format!("the terminal cannot be written ({error})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_drawn_as_fits() {
        let lines = ["first line", "\u{1b}second", "third"].map(str::to_owned);
        let size = TerminalSize {
            n_columns: 6,
            n_rows: 3,
        };
        let first = "\u{1b}[Hfirst…\u{1b}[K\r\n";
        let expected = format!("{first}\u{fffd}seco…\u{1b}[K\r\nthird\u{1b}[K\u{1b}[J");
        assert_eq!(drawn(&lines, size), expected);

        let size = TerminalSize {
            n_columns: 14,
            n_rows: 2,
        };
        let first = "\u{1b}[Hfirst line\u{1b}[K\r\n";
        let expected = format!("{first}… 2 more lines\u{1b}[K\u{1b}[J");
        assert_eq!(drawn(&lines, size), expected);
    }
}
