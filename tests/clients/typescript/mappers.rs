//! Packages that map objects to tables of PostgreSQL. The rows get their ids from the service.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde_json::json;

use super::{FOLDER, SEQUENCE, limited, numbers_in, package};
use crate::support::{Backend, Program, TestDatabase, directory, npm, run};

const FILES: [&str; 9] = [
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "schema.prisma",
    "insert.ts",
    "with_drizzle.ts",
    "with_prisma.ts",
    "with_sequelize.ts",
    "with_typeorm.ts",
];
/// The first id. JavaScript's `number` has no such value, so an id that was one is found out.
const FIRST: i64 = 9_007_199_254_740_993;
/// How many rows a program inserts: at once into each table, and together into the first one.
const N_AT_ONCE: usize = 20;
const N_TOGETHER: usize = 30;

/// Returns the folder with the compiled programs and all packages, ours as well.
fn workshop() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = npm::workshop(FOLDER, &FILES);
        unpack_ours(&place.join("node_modules/odometer-client"));
        let home = directory("prisma");
        let mut generate = limited("node");
        generate
            .args(["node_modules/.bin/prisma", "generate"])
            .args(["--schema", "schema.prisma"])
            // Only migrations need this program. The package would load it from elsewhere.
            .env("PRISMA_SCHEMA_ENGINE_BINARY", "/bin/true")
            .env("CHECKPOINT_DISABLE", "1")
            .env("PRISMA_HIDE_UPDATE_MESSAGE", "1")
            .env("HOME", home.path())
            .current_dir(&place);
        npm::succeed(&mut generate);
        let mut compile = limited("node");
        compile.arg("node_modules/.bin/tsc").current_dir(&place);
        npm::succeed(&mut compile);
        place
    })
}

fn unpack_ours(place: &Path) {
    let folder = directory("npm");
    let file = package(folder.path());
    // The package of an earlier run.
    let _absent = std::fs::remove_dir_all(place);
    std::fs::create_dir_all(place).expect("target is ours");
    let mut unpack = limited("tar");
    unpack
        .args(["--extract", "--strip-components=1", "--file"])
        .arg(file)
        .arg("--directory")
        .arg(place);
    npm::succeed(&mut unpack);
}

/// Inserts rows into `tables` by a package, and compares the ids in the tables with those that the
/// package reports.
async fn check(package: &str, tables: &[&str]) {
    let database = TestDatabase::empty(Backend::Postgres).await;
    let of_service = TestDatabase::prepared(Backend::Sqlite).await;
    let options = Program::options().database(&of_service.url);
    let program = options.start_ready().await;
    let start = json!({"start": FIRST.to_string(), "max": (i64::MAX - 1).to_string()});
    program.client().define(SEQUENCE, &start).await;

    let mut insert = limited("node");
    insert
        .args(["built/insert.js", package, &database.url, &program.url()])
        .current_dir(workshop());
    let reported = numbers_in(&npm::succeed(&mut insert));
    assert_eq!(reported.len(), N_AT_ONCE * tables.len() + N_TOGETHER);
    let distinct: BTreeSet<i64> = reported.iter().copied().collect();
    assert_eq!(distinct.len(), reported.len(), "{reported:?}");
    assert!(distinct.iter().all(|id| *id >= FIRST), "{reported:?}");
    let mut stored = BTreeSet::new();
    for table in tables {
        let rows = database.query(&format!("SELECT id FROM {table}")).await;
        let ids = rows.iter().map(|row| row.try_get_by_index::<i64>(0));
        stored.extend(ids.map(|id| id.expect("a number")));
    }
    assert_eq!(stored, distinct, "the ids in {tables:?}");
    program.stop().await;
}

#[test]
fn rows_of_sequelize_get_their_ids_from_the_service() {
    run(check("sequelize", &["with_default", "with_hook"]));
}

#[test]
fn rows_of_typeorm_get_their_ids_from_the_service() {
    run(check("typeorm", &["with_default"]));
}

#[test]
fn rows_of_drizzle_get_their_ids_from_the_service() {
    run(check("drizzle", &["with_default"]));
}

#[test]
fn rows_of_prisma_get_their_ids_from_the_service() {
    run(check("prisma", &["with_default"]));
}
