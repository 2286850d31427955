//! Tests that imports go one way: `service` → `sequence` → `store` → `database`. `core` and
//! `process` import none of them. Cargo enforces this as long as no manifest names a crate above
//! its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::settings;

/// What each crate may depend on: our own crates, and the libraries in `GUARDED`.
const MAY_USE: [(&str, &[&str]); 8] = [
    ("odometer-core", &[]),
    ("odometer-process", &[]),
    (
        "odometer-database",
        &["odometer-process", "sea-orm", "sea-query-sqlx", "sqlx"],
    ),
    ("entity", &["sea-orm"]),
    ("migration", &["sea-orm-migration"]),
    (
        "odometer-store",
        &[
            "odometer-core",
            "odometer-process",
            "odometer-database",
            "entity",
            "migration",
            "sea-orm",
        ],
    ),
    (
        "odometer-sequence",
        &[
            "odometer-core",
            "odometer-process",
            "odometer-store",
            "actix",
        ],
    ),
    (
        "odometer",
        &[
            "odometer-core",
            "odometer-process",
            "odometer-store",
            "odometer-sequence",
            "actix-http",
            "actix-service",
            "actix-web",
        ],
    ),
];

/// Libraries that belong to one layer.
const GUARDED: [&str; 9] = [
    "actix",
    "actix-http",
    "actix-service",
    "actix-web",
    "sea-orm",
    "sea-orm-migration",
    "sea-query-sqlx",
    "sqlx",
    "tokio-postgres",
];

/// Folders, and the words that no source below them may contain. No manifest can enforce these
/// rules.
const BANNED: [(&str, &[&str]); 2] = [
    (
        "core/src",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "Instant::now",
            "SystemTime",
            "async fn",
        ],
    ),
    (
        "service/src/http",
        &["odometer_store", "crate::application"],
    ),
];

#[test]
fn no_manifest_names_a_crate_above_its_own() {
    let mut metadata = Command::new("cargo");
    metadata.current_dir(settings::repository()).args([
        "metadata",
        "--locked",
        "--offline",
        "--no-deps",
        "--format-version",
        "1",
    ]);
    let output = metadata.output().expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let packages = metadata["packages"].as_array().expect("it has packages");
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    for (name, may_use) in MAY_USE {
        let package = packages.iter().find(|it| it["name"] == name);
        let package = package.unwrap_or_else(|| panic!("vacuous: there is no {name}"));
        let dependencies = package["dependencies"].as_array().expect("it has some");
        let used = dependencies.iter().filter(|it| it["kind"].is_null());
        let used = used.filter_map(|it| it["name"].as_str());
        let used = used.filter(|it| ours.contains(it) || GUARDED.contains(it));
        let used: BTreeSet<&str> = used.collect();
        assert_eq!(used, may_use.iter().copied().collect(), "{name}");
    }
}

#[test]
fn no_layer_writes_what_is_not_its_own() {
    let root = settings::repository();
    for (folder, banned) in BANNED {
        let files = sources_below(&root.join(folder));
        assert!(!files.is_empty(), "vacuous: nothing below {folder}");
        for file in files {
            let source = std::fs::read_to_string(&file).expect("a source can be read");
            let found = written(&source, banned);
            assert!(found.is_empty(), "{} writes {found:?}", file.display());
        }
    }
}

#[test]
fn a_banned_word_is_found_and_one_in_a_comment_is_not() {
    let banned = ["std::fs", "crate::store"];
    assert_eq!(written("use std::fs;", &banned), ["std::fs"]);
    assert_eq!(written("    crate::store::f();", &banned), ["crate::store"]);
    assert!(written("//! As std::fs does.\nuse std::fmt;", &banned).is_empty());
}

/// Returns the banned words that a source contains outside of comments.
fn written<'a>(source: &str, banned: &[&'a str]) -> Vec<&'a str> {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code: Vec<&str> = source.lines().filter(is_code).collect();
    let is_there = |word: &&str| code.iter().any(|line| line.contains(word));
    banned.iter().copied().filter(is_there).collect()
}

pub(super) fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Files and folders that contain only tests are no part of a layer.
        let is_for_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_for_tests {
            continue;
        }
        if path.is_dir() {
            files.extend(sources_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
