//! Tests that everything that the documents name exists: tests, files, folders, links, and
//! sections.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use super::markdown::{Document, anchor, inline_code};
use crate::support::settings;

/// Columns with cells that name tests.
const COLUMNS_OF_TESTS: [&str; 3] = ["Test", "Control", "Held by the test"];
/// Prefixes of words that have many underscores and are no tests.
const NO_TESTS: [&str; 3] = ["odometer_", "innodb_", "idle_in_"];
/// The macros that make tests of the functions or cases that they name.
const MACROS_OF_TESTS: [&str; 5] = [
    "for_each_backend!(",
    "for_each_server!(",
    "for_each_language!(",
    "for_each_language_and_server!(",
    "for_each_case!(",
];
const CRATES: [&str; 11] = [
    "core",
    "process",
    "database",
    "entity",
    "migration",
    "store",
    "sequence",
    "service",
    "client/rust",
    "tests",
    "bench",
];

/// Every source of the workspace, with its text.
pub(super) static SOURCES: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
    let root = settings::repository();
    let mut found = Vec::new();
    for folder in CRATES {
        collect(&root.join(folder), &mut found);
    }
    found
});

static TESTS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let found = SOURCES.iter().flat_map(|(_, source)| tests_of(source));
    found.collect()
});

fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("a source can be read");
            found.push((path, source));
        }
    }
}

/// Returns the names of the tests in a source: functions with a test attribute, and arguments of
/// our macros.
fn tests_of(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_marked = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            is_marked |= line.ends_with("test]");
            continue;
        }
        let function = line.strip_prefix("async fn ").or(line.strip_prefix("fn "));
        if let (true, Some(function)) = (is_marked, function) {
            found.extend(function.split('(').next().map(str::to_owned));
        }
        is_marked = false;
    }
    for each in MACROS_OF_TESTS {
        for given in source.split(each).skip(1) {
            let given = given.split(')').next().unwrap_or_default();
            let names = given.split(',').map(str::trim);
            found.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    found
}

/// Returns whether `tests/run NAME` would find a test.
pub(super) fn is_part_of_a_test(name: &str) -> bool {
    TESTS.iter().any(|test| test.contains(name))
}

/// Returns whether `bench/run --row NAME` would find a row.
pub(super) fn is_measured(name: &str) -> bool {
    let entries = settings::repository().join("bench/src/rows/mod.rs");
    let entries = std::fs::read_to_string(entries).expect("the measurements are there");
    entries.contains(&format!(" name: \"{name}"))
}

pub(super) fn is_package(name: &str) -> bool {
    let line = format!("name = \"{name}\"\n");
    CRATES.iter().any(|folder| {
        let manifest = settings::repository().join(folder).join("Cargo.toml");
        std::fs::read_to_string(manifest).is_ok_and(|text| text.contains(&line))
    })
}

#[test]
fn every_test_that_the_documents_name_exists() {
    let mut n_named = 0;
    for document in Document::all() {
        let mut named: Vec<String> = Vec::new();
        for table in document.tables() {
            for (column, title) in table.header.iter().enumerate() {
                if COLUMNS_OF_TESTS.contains(&title.as_str()) {
                    let cells = table.rows.iter().filter_map(|row| row.get(column));
                    named.extend(cells.flat_map(|cell| inline_code(cell)).map(str::to_owned));
                }
            }
        }
        let words = document.inline_code().into_iter().filter(|word| {
            word.matches('_').count() >= 4
                && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && word.starts_with(|c: char| c.is_ascii_lowercase())
                && !NO_TESTS.iter().any(|prefix| word.starts_with(prefix))
        });
        named.extend(words.map(str::to_owned));
        n_named += named.len();
        for name in named {
            assert!(
                TESTS.contains(&name),
                "{name} of {}",
                document.path.display()
            );
        }
    }
    assert!(n_named >= 60, "vacuous: {n_named} tests named");
}

/// Checks that each invariant and each promise has a test.
#[test]
fn every_invariant_and_every_promise_has_a_test() {
    for (document, columns) in [
        ("docs/invariants.md", ["#", "Invariant", "Held by the test"]),
        ("GUARANTEES.md", ["#", "Promise", "Test"]),
    ] {
        let rows = Document::read(document).rows_of(&columns);
        assert!(rows.len() >= 10, "vacuous: {} rows", rows.len());
        for row in rows {
            assert!(!inline_code(&row[2]).is_empty(), "{document}: {row:?}");
        }
    }
}

/// Promises whose control is not written yet. A promise with a control is not listed.
const WITHOUT_CONTROL: [&str; 0] = [];
/// The most promises that have no guard to take out. With more, the reason would be an excuse.
const MAX_WITHOUT_GUARD: usize = 4;

/// Checks the controls, because a check that never finds anything may check nothing.
#[test]
fn every_promise_has_a_control_or_says_why_it_has_none() {
    let rows = Document::read("GUARANTEES.md").rows_of(&["#", "Promise", "Test", "Control"]);
    assert!(rows.len() >= 60, "vacuous: {} promises", rows.len());
    let mut without_control = Vec::new();
    let mut n_without_guard = 0;
    for row in &rows {
        if row[3].starts_with("No guard: ") {
            n_without_guard += 1;
        } else if inline_code(&row[3]).is_empty() {
            without_control.push(row[0].as_str());
        }
    }
    assert_eq!(without_control, WITHOUT_CONTROL);
    assert!(
        n_without_guard <= MAX_WITHOUT_GUARD,
        "{n_without_guard} promises say that no guard can be taken out"
    );
}

#[test]
fn a_test_is_told_from_a_function() {
    let source = "#[test]\n#[should_panic]\nfn one() {}\nfn two() {}\n#[actix_web::test]\n\
                  async fn three() {}\n#[inline]\nfn four() {}\nfor_each_backend!(\n    five,\n    \
                  six,\n);\nasync fn five(_: B) {}\nfor_each_case!(seven);\n";
    assert_eq!(tests_of(source), ["one", "three", "five", "six", "seven"]);
}

#[test]
fn every_link_leads_somewhere() {
    let mut n_links = 0;
    for document in Document::all() {
        let folder = document.path.parent().expect("a document has a folder");
        for link in document.links() {
            if link.starts_with("https://") {
                continue;
            }
            n_links += 1;
            let place = format!("{link} of {}", document.path.display());
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.path.clone(),
                file => folder.join(file),
            };
            assert!(settings::repository().join(&target).exists(), "{place}");
            if !fragment.is_empty() {
                let target = Document::read(target);
                let mut anchors = target.headings().into_iter().map(anchor);
                assert!(anchors.any(|anchor| anchor == fragment), "{place}");
            }
        }
    }
    assert!(n_links >= 20, "vacuous: {n_links} links");
}

/// Checks that the runbook has each section that an error message names.
#[test]
fn every_section_that_a_message_names_is_in_the_runbook() {
    const BEFORE: &str = "the runbook, \\\"";
    let runbook = Document::read("docs/runbook.md");
    let anchors: Vec<String> = runbook.headings().into_iter().map(anchor).collect();
    let mut n_named = 0;
    for (path, source) in SOURCES.iter() {
        if path.starts_with(settings::repository().join("tests")) {
            continue;
        }
        for named in source.split(BEFORE).skip(1) {
            let named = named.split('\\').next().unwrap_or_default();
            n_named += 1;
            assert!(anchors.contains(&anchor(named)), "{named} of {path:?}");
        }
    }
    assert!(n_named > 0, "vacuous: no message names a section");
}
