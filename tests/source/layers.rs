//! Tests that imports go one way: `service` → `sequence` → `store` → `database`. `core` and
//! `process` import none of them. Cargo enforces this as long as no manifest names a crate above
//! its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{parsed, workspace};
use crate::support::settings;

/// What each crate may depend on: our own crates, and the libraries in `GUARDED`.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("odometer-core", &[]),
    ("odometer-process", &[]),
    (
        "odometer-database",
        &[
            "odometer-process",
            "sea-orm",
            "sea-query-sqlx",
            "sqlx",
            "tokio",
        ],
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
            "tokio",
        ],
    ),
    (
        "odometer-sequence",
        &[
            "odometer-core",
            "odometer-process",
            "odometer-store",
            "actix",
            "tokio",
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
            "tokio",
        ],
    ),
    ("odometer-client", &["odometer-core"]),
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
    "tokio",
];

/// Folders, and the words that no source below them may contain. No manifest can enforce these
/// rules.
const BANNED: [(&str, &[&str]); 6] = [
    (
        "core/src",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::time::Instant",
            "std::time::SystemTime",
        ],
    ),
    (
        "service/src/edge",
        &[
            "odometer_sequence",
            "odometer_store",
            "crate::application",
            "crate::calls",
            "crate::http",
            "crate::resp",
        ],
    ),
    (
        "service/src/calls",
        &[
            "actix_http",
            "actix_web",
            "odometer_store",
            "crate::application",
            "crate::edge",
            "crate::http",
            "crate::resp",
        ],
    ),
    (
        "service/src/http",
        &["odometer_store", "crate::application", "crate::resp"],
    ),
    (
        "service/src/resp",
        &[
            "actix_http",
            "odometer_store",
            "crate::application",
            "crate::http",
        ],
    ),
    (
        "service/src/remote",
        &[
            "actix_web",
            "odometer_sequence",
            "odometer_store",
            "crate::application",
            "crate::http",
        ],
    ),
];

#[test]
fn no_manifest_names_a_crate_above_its_own() {
    let metadata = workspace::metadata();
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
fn a_banned_path_is_found_however_it_is_written() {
    let banned = ["std::fs", "crate::store"];
    for bad in [
        "use std::fs;",
        "use std::{env, fs::File};",
        "use crate::{sequence::Directory, store};",
        "fn f() { crate::store::f(); }",
        "fn f() -> std::fs::File { todo() }",
    ] {
        assert_eq!(written(bad, &banned).len(), 1, "{bad}");
    }
    for good in [
        "//! As std::fs does.\nuse std::fmt;",
        "use crate::storekeeper::Store;",
        "use crate::sequence::store;",
    ] {
        assert!(written(good, &banned).is_empty(), "{good}");
    }
}

/// Returns the banned paths that a source imports or writes out.
fn written<'a>(source: &str, banned: &[&'a str]) -> Vec<&'a str> {
    let parsed = syn::parse_file(source).expect("a source can be parsed");
    let written = parsed::source_of(&parsed, &[]).written;
    let is_there = |path: &&str| {
        let path: Vec<&str> = path.split("::").collect();
        let mut written = written.iter();
        written.any(|written| {
            written
                .iter()
                .map(String::as_str)
                .take(path.len())
                .eq(path.clone())
        })
    };
    banned.iter().copied().filter(is_there).collect()
}

/// Returns the sources below a folder, without files and folders that contain only tests.
pub(super) fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let is_for_tests = |part: &std::path::Component<'_>| {
        let part = Path::new(part);
        part.file_stem().is_some_and(|stem| stem == "tests")
    };
    let mut files = all_sources_below(folder);
    files.retain(|file| {
        let below = file.strip_prefix(folder).unwrap_or(file);
        !below.components().any(|part| is_for_tests(&part))
    });
    files
}

/// Returns all sources below a folder.
pub(super) fn all_sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(all_sources_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
