//! Commands of others, and those of them that come from PyPI.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use crate::support::{pypi, settings};

/// For one command, downloads included.
const LIMIT: &str = "240";

/// Where their programs are, which tests/install-programs installs.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| pypi::programs("deployment"));

/// A program from PyPI.
pub(super) fn from_pypi(name: &str) -> Command {
    command(PROGRAMS.join(name))
}

/// A program in the root of the repository, which is ended when it takes too long.
pub(super) fn command(program: impl Into<PathBuf>) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT])
        .arg(program.into())
        .current_dir(settings::repository())
        .stdin(Stdio::null());
    command
}

/// Whether a command ends well, and all that it said.
pub(super) fn outcome(command: &mut Command) -> (bool, String) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/install has what is needed"));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

/// What a command prints that must end well.
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
