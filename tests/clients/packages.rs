//! What is published for each language, and the tests that a library has in its own language.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::language::{Language, for_each_language};
use crate::support::{keeper, settings};

/// The version of everything that is released together.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The least number of tests that a library has in its own language.
const MIN_TESTS: u64 = 50;
/// The time limit of these tests together, in seconds.
const LIMIT: &str = "240";

for_each_language!(
    a_library_passes_its_own_tests,
    a_library_has_the_version_of_the_service,
    a_library_comes_with_its_licenses,
);

async fn a_library_passes_its_own_tests(language: Language) {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT])
        .args(language.tests())
        .current_dir(folder(language))
        .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*");
    let output = command.output().expect("timeout runs");
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language:?}:\n{report}");
    let n_tests = n_tests_in(&report);
    assert!(
        n_tests >= Some(MIN_TESTS),
        "vacuous: {n_tests:?} tests:\n{report}"
    );
}

async fn a_library_has_the_version_of_the_service(language: Language) {
    for (file, begin) in language.versions() {
        let text = read(&folder(language).join(file));
        let line = format!("{begin}\"{VERSION}\"");
        assert!(
            text.lines().any(|it| it.trim_end_matches(';') == line),
            "{file} of {language:?} does not say {line}"
        );
    }
}

async fn a_library_comes_with_its_licenses(language: Language) {
    for license in LICENSES {
        let ours = read(&settings::repository().join(license));
        let copy = read(&folder(language).join(license));
        assert!(copy == ours, "{license} of {language:?} differs");
    }
}

fn folder(language: Language) -> PathBuf {
    settings::repository().join(language.folder())
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns how many tests ran, by the words `Ran N tests` of a report.
fn n_tests_in(report: &str) -> Option<u64> {
    let (_, rest) = report.split_once("Ran ")?;
    let (number, _) = rest.split_once(" tests")?;
    number.parse().ok()
}

#[test]
fn the_number_of_tests_is_read() {
    assert_eq!(n_tests_in("...\nRan 63 tests in 0.8s\n\nOK\n"), Some(63));
    assert_eq!(n_tests_in("Ran out of tests"), None);
}
