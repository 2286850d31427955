//! One direction of imports: `service` → `sequence` → `store` → `database`; `core` and `process`
//! know nobody.

use std::path::{Path, PathBuf};

use super::use_tree;
use crate::support::settings;

/// A folder and what nothing below it may name.
const RULES: [(&str, &[&str]); 8] = [
    (
        "service/src/http",
        &[
            "odometer_store",
            "odometer_database",
            "crate::application",
            "sea_orm",
            "entity",
            "migration",
            "sqlx",
        ],
    ),
    (
        "sequence/src",
        &[
            "odometer",
            "odometer_database",
            "actix_web",
            "sea_orm",
            "entity",
            "migration",
            "sqlx",
        ],
    ),
    (
        "store/src",
        &["odometer", "odometer_sequence", "actix_web", "actix"],
    ),
    (
        "database/src",
        &[
            "odometer",
            "odometer_core",
            "odometer_sequence",
            "odometer_store",
            "actix_web",
            "actix",
            "entity",
            "migration",
        ],
    ),
    (
        "process/src",
        &[
            "odometer",
            "odometer_core",
            "odometer_database",
            "odometer_sequence",
            "odometer_store",
            "actix",
            "sea_orm",
            "sqlx",
        ],
    ),
    (
        "core/src",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::time::Instant",
            "std::time::SystemTime",
            "tokio",
            "actix",
            "actix_web",
            "sea_orm",
            "entity",
            "migration",
            "odometer",
            "odometer_process",
        ],
    ),
    (
        "entity/src",
        &[
            "odometer",
            "odometer_core",
            "migration",
            "actix",
            "actix_web",
        ],
    ),
    (
        "migration/src",
        &["odometer", "odometer_core", "entity", "actix", "actix_web"],
    ),
];

#[test]
fn no_layer_names_one_above_it() {
    let root = settings::repository();
    for (folder, forbidden) in RULES {
        let files = sources_below(&root.join(folder));
        assert!(!files.is_empty(), "vacuous: nothing below {folder}");
        for file in files {
            let source = std::fs::read_to_string(&file).expect("a source can be read");
            let found = violations(&source, forbidden);
            assert!(found.is_empty(), "{} names {found:?}", file.display());
        }
    }
}

#[test]
fn a_layer_that_names_one_above_it_is_found_out() {
    let forbidden = ["crate::store", "sea_orm"];
    for bad in [
        "use crate::store::Store;",
        "use crate::{sequence::Directory, store};",
        "fn f() -> sea_orm::DbErr { todo() }",
        "use sea_orm;",
        "use ::sea_orm::DbErr;",
    ] {
        assert!(!violations(bad, &forbidden).is_empty(), "{bad}");
    }
    for good in [
        "use crate::storekeeper::Store;",
        "//! Nothing of crate::store here.",
        "use crate::sequence::store_error;",
    ] {
        assert_eq!(violations(good, &forbidden), Vec::<String>::new(), "{good}");
    }
}

fn violations(source: &str, forbidden: &[&str]) -> Vec<String> {
    let mut paths = use_tree::paths(source);
    paths.retain(|path| {
        let path = path.trim_start_matches(':');
        forbidden.iter().any(|forbidden| {
            path.strip_prefix(forbidden)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        })
    });
    paths
}

pub(super) fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // What only tests are made of is no part of a layer.
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
