//! Packages of npm below `target/`, as the lock files of the repository name them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::settings;

/// What npm and the scripts of a package make in its folder.
const MADE: [&str; 3] = ["node_modules", "dist", "built"];

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

/// Copies a folder of the repository, which has a package of ours, to a folder below `target/`.
/// Installs the packages there that the lock file names.
///
/// # Panics
/// If npm cannot get the packages; the message has npm's output.
pub fn copy(folder: &str) -> PathBuf {
    let place = settings::repository().join("target").join(folder);
    copy_all(&settings::repository().join(folder), &place);
    install(&place);
    place
}

fn copy_all(source: &Path, place: &Path) {
    std::fs::create_dir_all(place).expect("target is ours");
    for entry in std::fs::read_dir(source).expect("the repository can be read") {
        let from = entry.expect("the repository can be read").path();
        let name = from.file_name().expect("an entry has a name");
        if MADE.iter().any(|made| name == *made) {
            continue;
        }
        let to = place.join(name);
        if from.is_dir() {
            // Files that are not in the repository any more go.
            let _absent = std::fs::remove_dir_all(&to);
            copy_all(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("target is ours");
        }
    }
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
        .args(["240", "npm", "ci", "--ignore-scripts"])
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
