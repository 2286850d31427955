//! `odometer token`: makes the token of a caller.

use odometer_core::name::SequenceName;

use super::failure::CommandFailure;
use super::output::print_text;
use crate::access::token::{hash, make, to_hex};

/// The examples that `odometer token --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer token billing-prod --role billing
  odometer token report --role reader";

/// The options of `token`.
#[derive(Clone, Debug, clap::Args)]
pub struct TokenOptions {
    /// The name of the caller, as the log and the metrics are to show it.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The role of the caller, one of `[access.roles]`.
    #[arg(long, value_name = "ROLE")]
    pub role: String,
}

/// Prints a new token, and the section for the file of callers. Stores neither.
///
/// # Errors
/// A name cannot be used, or the output cannot be written.
pub fn token(options: &TokenOptions) -> Result<(), CommandFailure> {
    let TokenOptions { name, role } = options;
    for (option, given) in [("NAME", name), ("--role", role)] {
        SequenceName::check(given)
            .map_err(|error| CommandFailure::usage(format!("{option}: {error}")))?;
    }
    let token = make();
    let token = token.expose();
    let digits = to_hex(&hash(token).unwrap_or_default());
    print_text(&format!(
        "# The token of {name}. Give it to the caller. It is not stored anywhere.\n\
         {token}\n\
         # The section for the file of callers, `access.callers_file`.\n\
         [\"{name}\"]\n\
         role = \"{role}\"\n\
         sha256 = [\"{digits}\"]\n"
    ))
}
