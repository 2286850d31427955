//! Tests that each file is short enough to be read in one sitting.

use super::layers::all_sources_below;
use crate::support::settings;

const MAX_LINES: usize = 600;

#[test]
fn no_file_is_longer_than_600_lines() {
    let root = settings::repository();
    let mut n_files = 0;
    let folders = super::parsed::CRATES.iter().chain(&["tests"]);
    for folder in folders {
        for file in all_sources_below(&root.join(folder)) {
            n_files += 1;
            let name = file.strip_prefix(&root).expect("it is below").to_owned();
            let text = std::fs::read_to_string(&file).expect("a source can be read");
            let n_lines = text.lines().count();
            assert!(n_lines <= MAX_LINES, "{name:?}: {n_lines}");
        }
    }
    assert!(n_files > 500, "vacuous: {n_files} files");
}
