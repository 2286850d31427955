//! `odometer completions`: prints a script by which a shell completes command lines.

use clap_complete::Shell;

/// The examples that `odometer completions --help` shows.
pub const EXAMPLES: &str = "\
Examples:
  odometer completions bash > odometer.bash
  odometer completions zsh > _odometer";

/// The options of `completions`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct CompletionsOptions {
    /// The shell that the script is for.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Returns the script of a shell for the command line that `description` describes.
pub fn completions(options: CompletionsOptions, mut description: clap::Command) -> String {
    let name = description.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut description, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
