//! Writes the findings and results of commands to standard output.

use std::io::Write as _;

/// Prints lines on standard output.
pub fn print(lines: Vec<String>) {
    let mut output = std::io::stdout().lock();
    for line in lines {
        // If the reader of the output stops reading, the command still goes on.
        let _unread = writeln!(output, "{line}");
    }
}

/// Prints a text on standard output as it is.
pub fn print_text(text: &[u8]) {
    let mut output = std::io::stdout().lock();
    // If the reader of the output stops reading, there is nothing else to do.
    let _unread = output.write_all(text).and_then(|()| output.flush());
}
