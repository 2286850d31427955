//! Runs the commands of other projects, including the ones from PyPI.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use crate::support::{pypi, settings};

/// The time limit of one command in seconds, downloads included.
const LIMIT: &str = "240";

/// The folder of the programs from PyPI, which tests/install-programs installs.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| pypi::programs("deployment"));

/// Returns a command for a program from PyPI.
pub(super) fn from_pypi(name: &str) -> Command {
    command(PROGRAMS.join(name))
}

/// Returns a command that runs in the root of the repository and is killed after [`LIMIT`].
pub(super) fn command(program: impl Into<PathBuf>) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT])
        .arg(program.into())
        .current_dir(settings::repository())
        .stdin(Stdio::null());
    command
}

/// Runs a command. Returns whether the command succeeded, and its whole output.
pub(super) fn outcome(command: &mut Command) -> (bool, String) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install has what is needed"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

/// Runs a command that must succeed. Returns its standard output.
pub(super) fn succeeds(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install has what is needed"));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}\n{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}
