//! `odometer man`: writes the manual pages.

use std::fs;
use std::path::PathBuf;

use super::failure::CommandFailure;

/// The examples that `odometer man --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer man /usr/local/share/man/man1
  odometer man pages";

/// The options of `man`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManualOptions {
    /// The directory that gets the pages. It is made if it is missing.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Writes a page for the program that `description` describes, and a page for each command. Returns
/// the line that says so.
///
/// The pages have no date: a program writes the same pages on any day.
///
/// # Errors
/// The pages cannot be written.
pub fn write_pages(
    options: &ManualOptions,
    description: clap::Command,
) -> Result<String, CommandFailure> {
    let directory = &options.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(description, directory))
        .map_err(|error| {
            CommandFailure::other(format!(
                "the manual pages cannot be written to {} ({error}); give another DIR, or correct \
                 its permissions",
                directory.display()
            ))
        })?;
    Ok(format!("the manual pages are in {}", directory.display()))
}
