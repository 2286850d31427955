//! Programs from PyPI below `target/`, where `tests/install-programs` puts them.

use std::path::PathBuf;

use super::settings;

/// Returns the folder with the programs that `requirements.txt` in a folder of the tests names.
///
/// # Panics
/// If the programs are not installed, or if others are.
pub fn programs(folder: &str) -> PathBuf {
    let repository = settings::repository();
    let place = repository.join("target").join(folder);
    let wanted = repository
        .join("tests")
        .join(folder)
        .join("requirements.txt");
    let wanted = std::fs::read_to_string(&wanted).expect("it is there");
    let installed = std::fs::read_to_string(place.join("installed.txt"));
    assert!(
        installed.is_ok_and(|installed| installed == wanted),
        "{} has not what tests/{folder}/requirements.txt names: run tests/install-programs",
        place.display()
    );
    place.join("venv/bin")
}
