//! `odometer config`: shows the value of each key, and where each value comes from.

use super::failure::CommandFailure;
use crate::config::{Environment, Flags, effective};

/// The examples that `odometer config --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer config --changed
  odometer config --listen 0.0.0.0:8080 --set refill.deadline=2s";

/// The options of `config`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ShowConfigOptions {
    /// Leave out the keys that have their default because nothing gives them.
    #[arg(long)]
    pub changed: bool,
}

/// Returns the configuration as a TOML file, with the origin of each value in a comment.
///
/// # Errors
/// The configuration cannot be used.
pub fn show(
    options: ShowConfigOptions,
    flags: &Flags,
    environment: &Environment,
) -> Result<String, CommandFailure> {
    Ok(effective(flags, environment, options.changed)?)
}
