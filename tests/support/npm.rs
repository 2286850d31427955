//! Packages of npm below `target/`, as a lock file of the repository names them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::settings;

/// Copies `files` of a folder of the tests to a folder below `target/`. Installs the packages there
/// that the lock file names.
///
/// # Panics
/// If npm cannot get the packages; the message has npm's output.
pub fn workshop(folder: &str, files: &[&str]) -> PathBuf {
    let source = settings::repository().join("tests").join(folder);
    let place = settings::repository().join("target").join(folder);
    std::fs::create_dir_all(&place).expect("target is ours");
    for file in files {
        std::fs::copy(source.join(file), place.join(file)).expect("target is ours");
    }
    install(&place);
    place
}

fn install(place: &Path) {
    let wanted = std::fs::read(place.join("package-lock.json")).expect("it is there");
    // This file is written when all packages are installed.
    let note = place.join("node_modules/installed.json");
    if std::fs::read(&note).is_ok_and(|installed| installed == wanted) {
        return;
    }
    let mut command = Command::new("timeout");
    command
        .args(["180", "npm", "ci", "--ignore-scripts"])
        .args(["--no-audit", "--no-fund"])
        .current_dir(place);
    succeed(&mut command);
    std::fs::write(note, wanted).expect("target is ours");
}

/// Runs a command to its end, which must be a success, and returns its standard output.
///
/// # Panics
/// If the command fails; the message has its output.
pub fn succeed(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .expect("timeout is part of every system");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}\n{wrong}");
    said
}
