//! Tests that the map in `ARCHITECTURE.md` and the front pages of the crates agree with the files.

use std::path::Path;

use super::markdown::{Document, inline_code};
use super::names::SOURCES;
use crate::support::settings;

/// Crates with a front page that says what they own and where to begin.
const CRATES: [&str; 9] = [
    "core",
    "process",
    "database",
    "entity",
    "migration",
    "store",
    "sequence",
    "service",
    "client/rust",
];

/// The files that a front page names to be read first.
const N_READ_FIRST: usize = 5;

/// The most lines of a front page, so that it fits on a screen.
const MAX_LINES: usize = 60;

#[test]
fn every_step_of_a_walk_is_where_the_map_says() {
    let document = Document::read("ARCHITECTURE.md");
    let steps = document.inline_code();
    let steps: Vec<&str> = steps
        .into_iter()
        .filter(|it| it.contains(".rs: "))
        .collect();
    assert!(steps.len() >= 30, "vacuous: {} steps", steps.len());
    for step in steps {
        assert!(has_function(step), "{step}");
    }
}

#[test]
fn a_step_that_moved_is_found_out() {
    assert!(has_function("core/src/cursor/mod.rs: take"));
    assert!(!has_function("core/src/cursor/mod.rs: takes"));
    assert!(!has_function("core/src/cursor/moved.rs: take"));
    assert!(is_there("core/src/cursor/mod.rs"));
    assert!(!is_there("core/src/cursor/moved.rs"));
}

/// Returns whether the file of an anchor `file: function` has this function.
fn has_function(anchor: &str) -> bool {
    let Some((file, function)) = anchor.split_once(": ") else {
        return false;
    };
    let source = std::fs::read_to_string(settings::repository().join(file));
    let definitions = [format!("fn {function}("), format!("fn {function}<")];
    source.is_ok_and(|source| definitions.iter().any(|it| source.contains(it)))
}

/// Returns whether the file or folder exists, if the text names one.
fn is_there(code: &str) -> bool {
    !code.contains('/') || settings::repository().join(code).exists()
}

#[test]
fn the_code_map_shows_what_there_is() {
    let rows = Document::read("ARCHITECTURE.md");
    let rows = rows.rows_of(&["Path", "Owns", "Does not depend on", "Start reading at"]);
    assert!(rows.len() >= 12, "vacuous: {} rows", rows.len());
    for cell in rows.iter().flatten() {
        for code in inline_code(cell) {
            assert!(is_there(code), "{code}");
        }
    }
    let folders: Vec<&str> = rows.iter().flat_map(|row| inline_code(&row[0])).collect();
    for folder in CRATES.iter().chain(&["client", "tests", "bench"]) {
        let shown = format!("{folder}/");
        assert!(folders.contains(&shown.as_str()), "{folder} is not shown");
    }
}

#[test]
fn what_to_touch_for_a_new_thing_is_there() {
    let document = Document::read("ARCHITECTURE.md");
    let (_, lists) = document
        .text
        .split_once("## Where to add what")
        .expect("the map says where to add what");
    for code in inline_code(lists) {
        assert!(is_there(code), "{code}");
    }
    let named: Vec<&str> = lists
        .lines()
        .filter(|line| line.starts_with("Test"))
        .flat_map(inline_code)
        .collect();
    assert!(named.len() >= 10, "vacuous: {named:?}");
    for test in named.chunks(2) {
        let anchor = format!("{}: {}", test[1], test[0]);
        assert!(has_function(&anchor), "{anchor}");
    }
}

#[test]
fn the_front_page_of_each_crate_says_where_to_begin() {
    for folder in CRATES {
        let source = settings::repository().join(folder).join("src");
        let page = front_page(&source.join("lib.rs"));
        assert!(
            page.lines().count() <= MAX_LINES,
            "{folder}: more than a screen"
        );
        for words in ["owns", "knows"] {
            assert!(
                page.contains(words),
                "{folder} does not say what it {words}"
            );
        }
        let Some((_, first)) = page.split_once("Read first:") else {
            panic!("{folder} does not say what to read first");
        };
        let named = first.lines().filter_map(|line| line.strip_prefix("- "));
        let named = named.filter_map(|line| inline_code(line).first().copied());
        let named: Vec<&str> = named.collect();
        assert_eq!(named.len(), N_READ_FIRST, "{folder}: {named:?}");
        for file in named {
            assert!(source.join(file).exists(), "{folder}: {file}");
        }
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (path, source) in SOURCES.iter() {
        assert!(source.starts_with("//!"), "{path:?} begins without a word");
    }
    assert!(SOURCES.len() > 500, "vacuous: {} files", SOURCES.len());
}

/// Returns the documentation at the head of a file.
fn front_page(file: &Path) -> String {
    let source = std::fs::read_to_string(file).expect("a crate has a front page");
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(|line| line.strip_prefix(' ').unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}
