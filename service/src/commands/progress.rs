//! Shows on a terminal how far a command is, in one line that is updated in place.
//!
//! The line is written to standard error, and erased at the end of the command. Without a terminal
//! nothing is written.

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use odometer_store::DatabaseStep;
use parking_lot::Mutex;

/// The shortest time between two updates of a count.
const BETWEEN_UPDATES: Duration = Duration::from_millis(100);

/// Erases the line of the cursor.
const ERASE: &str = "\r\x1b[2K";
/// Let the terminal cut a long line off, and wrap long lines again. A line that was wrapped could
/// not be erased as one.
const CUT_OFF: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The progress of a command.
pub struct Progress(Option<Mutex<ProgressLine>>);

/// A line on a terminal.
struct ProgressLine {
    terminal: Box<dyn Write + Send>,
    /// When the line was last written. `None` if it is erased.
    shown_at: Option<Instant>,
}

impl Progress {
    /// Returns a progress that is shown if standard error is a terminal.
    pub fn on_standard_error() -> Self {
        let output = io::stderr();
        if output.is_terminal() {
            Self::on(Box::new(output))
        } else {
            Self(None)
        }
    }

    fn on(terminal: Box<dyn Write + Send>) -> Self {
        let shown_at = None;
        Self(Some(Mutex::new(ProgressLine { terminal, shown_at })))
    }

    /// Returns whether there is a terminal, so that somebody sees the progress.
    pub fn is_seen(&self) -> bool {
        self.0.is_some()
    }

    /// Shows how many of a number of things are done. An update that comes early is left out.
    pub fn count(&self, doing: &str, (n_done, n_all): (usize, usize), things: &str) {
        let Some(line) = &self.0 else { return };
        let mut line = line.lock();
        let since = line.shown_at.map(|shown_at| shown_at.elapsed());
        if since.is_none_or(|since| since >= BETWEEN_UPDATES) {
            line.write(&counted(doing, (n_done, n_all), things));
        }
    }

    /// Shows which database a command works on.
    pub fn database(&self, doing: &str, step: DatabaseStep<'_>) {
        if let Some(line) = &self.0 {
            line.lock().write(&of_database(doing, step));
        }
    }

    /// Erases the line, so that another text can be written in its place.
    pub fn erase(&self) {
        if let Some(line) = &self.0 {
            line.lock().erase();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

impl ProgressLine {
    fn write(&mut self, text: &str) {
        // The cursor goes back to the beginning. So a line of the log is written over this line,
        // not behind it.
        self.send(&format!("{ERASE}{CUT_OFF}{text}{WRAP}\r"));
        self.shown_at = Some(Instant::now());
    }

    fn erase(&mut self) {
        if self.shown_at.take().is_some() {
            self.send(ERASE);
        }
    }

    fn send(&mut self, text: &str) {
        let terminal = &mut self.terminal;
        // A terminal that is gone does not keep the command from its work.
        let _gone = terminal
            .write_all(text.as_bytes())
            .and_then(|()| terminal.flush());
    }
}

fn counted(doing: &str, (n_done, n_all): (usize, usize), things: &str) -> String {
    format!("{doing}: {n_done} of {n_all} {things}")
}

fn of_database(doing: &str, step: DatabaseStep<'_>) -> String {
    let DatabaseStep {
        number,
        n_databases,
        database,
        n_sequences,
    } = step;
    let sequences = match n_sequences {
        0 => String::new(),
        n => format!(", {n} sequences so far"),
    };
    format!("{doing}: database {number} of {n_databases}, {database}{sequences}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn step(n_sequences: u64) -> DatabaseStep<'static> {
        DatabaseStep {
            number: 2,
            n_databases: 3,
            database: "stores.tickets.database (mysql://db.example:3306/tickets)",
            n_sequences,
        }
    }

    #[test]
    fn a_line_says_what_is_done_and_how_far() {
        let line = counted("Checking", (120, 250), "definitions");
        assert_eq!(line, "Checking: 120 of 250 definitions");
        let place = "database 2 of 3, stores.tickets.database (mysql://db.example:3306/tickets)";
        let line = of_database("Migrating", step(0));
        assert_eq!(line, format!("Migrating: {place}"));
        let line = of_database("Recovering", step(3000));
        assert_eq!(line, format!("Recovering: {place}, 3000 sequences so far"));
    }

    #[test]
    fn a_line_is_updated_in_place_and_erased_once() {
        let screen = Screen::default();
        let progress = Progress::on(Box::new(screen.clone()));
        assert!(progress.is_seen());
        progress.count("Checking", (1, 2), "definitions");
        progress.database("Recovering", step(0));
        progress.erase();
        drop(progress);
        let shown = String::from_utf8(screen.0.lock().clone()).unwrap();
        let lines: Vec<&str> = shown.split(ERASE).collect();
        let (checking, recovering) = (lines[1], lines[2]);
        assert_eq!((lines[0], &lines[3..]), ("", &[""][..]), "{shown:?}");
        assert!(checking.contains("1 of 2 definitions"), "{checking:?}");
        assert!(recovering.contains("database 2 of 3"), "{recovering:?}");
        for line in [checking, recovering] {
            let is_whole = line.starts_with(CUT_OFF) && line.ends_with(&format!("{WRAP}\r"));
            assert!(is_whole, "{line:?}");
        }
    }

    #[test]
    fn without_a_terminal_there_is_no_line() {
        let progress = Progress(None);
        progress.count("Checking", (1, 2), "definitions");
        progress.erase();
        assert!(!progress.is_seen());
    }
}
