//! `odometer init`: writes a configuration file with a comment on each key.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use super::failure::CommandFailure;
use super::output::{print_lines, print_text};

/// The file that `odometer init` writes: every key with its default, commented out.
pub const TEXT: &str = include_str!("../config/odometer.toml");

/// The examples that `odometer init --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer init
  odometer init -";

/// Only the owner may use the file, because a token or a password may be written into it.
const MODE: u32 = 0o600;

/// The options of `init`.
#[derive(Clone, Debug, clap::Args)]
pub struct InitOptions {
    /// The file to write. A file that exists is never overwritten. If you give `-`, the text is
    /// printed.
    #[arg(value_name = "FILE", default_value = "odometer.toml")]
    pub file: PathBuf,
}

/// Writes the configuration file, or prints it if its name is `-`.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn init(options: &InitOptions) -> Result<(), CommandFailure> {
    if options.file.as_os_str() == "-" {
        print_text(TEXT)
    } else {
        print_lines(&[write_file(options)?])
    }
}

/// Writes the configuration file. Returns the line that says so.
fn write_file(options: &InitOptions) -> Result<String, CommandFailure> {
    let file = options.file.display();
    let mut creation = OpenOptions::new();
    creation.write(true).create_new(true).mode(MODE);
    let written = creation.open(&options.file).and_then(|mut created| {
        created.write_all(TEXT.as_bytes()).inspect_err(|_| {
            // Half a file would be in the way of the next attempt.
            let _left = fs::remove_file(&options.file);
        })
    });
    match written {
        Ok(()) => Ok(format!(
            "{file} has every key with its default, commented out; change what you need"
        )),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(CommandFailure::other(
            format!("{file} exists and was not changed; give another FILE, or - to print the text"),
        )),
        Err(error) => Err(CommandFailure::other(format!(
            "{file} cannot be written ({error}); give another FILE, or correct the permissions of \
             its directory"
        ))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::{Config, Environment, Flags};

    #[test]
    fn the_file_is_new_its_owner_s_alone_and_of_use_as_it_is() {
        let name = format!("odometer-init-{}.toml", uuid::Uuid::new_v4());
        let options = InitOptions {
            file: std::env::temp_dir().join(name),
        };
        let said = write_file(&options).unwrap();
        assert!(said.contains("odometer-init-"), "{said}");
        let mode = fs::metadata(&options.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(fs::read_to_string(&options.file).unwrap(), TEXT);
        let flags = Flags {
            config: Some(options.file.clone()),
            ..Flags::default()
        };
        Config::load(&flags, &Environment::default()).unwrap();

        fs::write(&options.file, "listen = \"127.0.0.1:1\"\n").unwrap();
        let refused = write_file(&options).unwrap_err();
        assert_eq!(refused.exit_code(), 1);
        assert!(refused.to_string().contains("was not changed"), "{refused}");
        let kept = fs::read_to_string(&options.file).unwrap();
        assert_eq!(kept, "listen = \"127.0.0.1:1\"\n");
        fs::remove_file(&options.file).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let options = InitOptions {
            file: "/nowhere/odometer.toml".into(),
        };
        let refused = write_file(&options).unwrap_err();
        assert_eq!(refused.exit_code(), 1);
        let said = refused.to_string();
        assert!(said.starts_with("/nowhere/odometer.toml cannot"), "{said}");
    }
}
