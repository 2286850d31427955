//! Writes what commands say to standard output.

use std::io::{self, ErrorKind, Write as _};

use super::failure::CommandFailure;

/// Prints a text as it is, with a line feed at its end.
///
/// # Errors
/// Standard output cannot be written. If its reader has stopped reading, that is no error.
pub fn print_text(text: &str) -> Result<(), CommandFailure> {
    let mut output = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(output, "{text}{end}").and_then(|()| output.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CommandFailure::other(format!(
            "standard output cannot be written ({error})"
        ))),
        _ => Ok(()),
    }
}

/// Prints lines for people. Characters that steer a terminal are replaced.
///
/// # Errors
/// The errors of [`print_text`].
pub fn print_lines(lines: &[String]) -> Result<(), CommandFailure> {
    if lines.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    print_text(&lines.join("\n"))
}

/// Prints the JSON text of a reply. Characters that steer a terminal are printed as escapes, so a
/// program reads the same values.
///
/// # Errors
/// The errors of [`print_text`].
pub fn print_json(body: &str) -> Result<(), CommandFailure> {
    print_text(&escaped(body))
}

/// Replaces characters that steer a terminal, which a replica could have sent.
pub fn clean(text: &str) -> String {
    let shown = |found: char| if steers(found) { '\u{fffd}' } else { found };
    text.chars().map(shown).collect()
}

/// In JSON the characters that steer stand in strings alone, if they are no white space.
fn escaped(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for found in json.chars() {
        if steers(found) && !matches!(found, '\n' | '\r' | '\t') {
            shown.push_str(&format!("\\u{:04x}", u32::from(found)));
        } else {
            shown.push(found);
        }
    }
    shown
}

/// Whether a character changes what a terminal shows around it: a control character, or one that
/// turns the direction of the text.
fn steers(found: char) -> bool {
    found.is_control()
        || matches!(found, '\u{61c}' | '\u{200e}' | '\u{200f}')
        || ('\u{202a}'..='\u{202e}').contains(&found)
        || ('\u{2066}'..='\u{2069}').contains(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_not_printed() {
        assert_eq!(clean("a \u{1b}[2Jb\nc"), "a \u{fffd}[2Jb\u{fffd}c");
        assert_eq!(clean("12\u{202e}34\u{9b}"), "12\u{fffd}34\u{fffd}");
        assert_eq!(clean("12 000 – Größe"), "12 000 – Größe");
    }

    #[test]
    fn json_keeps_its_values_without_what_steers() {
        let sent = "{\"description\": \"a\u{9b}b\u{202e}Größe\"}\n";
        let shown = escaped(sent);
        assert_eq!(shown, "{\"description\": \"a\\u009bb\\u202eGröße\"}\n");
        let values =
            [sent, &shown].map(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        assert!(values[0].is_some() && values[0] == values[1]);
    }
}
