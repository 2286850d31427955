//! The TypeScript library as a package: it works in an empty project, and with packages of others.

mod mappers;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::json;

use super::language::Language;
use crate::{
    documents::markdown::Document,
    support::{Backend, Program, TestDatabase, directory, keeper, npm, run, settings},
};

/// The time limit of one command, in seconds.
const LIMIT: &str = "120";
/// The folder of these tests, relative to `tests/`.
const FOLDER: &str = "clients/typescript";
/// The options by which a compiler makes the programs of the empty project, and by which it checks
/// types for a bundler with an old library.
const COMPILERS: [&str; 2] = ["tsconfig.json", "tsconfig.bundler.json"];
/// The programs of the empty project.
const PROGRAMS: [&str; 3] = ["use.mts", "use.cts", "types.ts"];
/// A program of the empty project that never runs: the README's example of all calls.
const EXAMPLE: &str = "readme.mts";
const SEQUENCE: &str = "orders";

/// Returns the folder with the library as it is published, with its driver and its tests. A run
/// builds all of them once.
pub(super) fn library() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = npm::copy(Language::TypeScript.folder());
        for script in ["build", "build:tests"] {
            npm::succeed(limited("npm").args(["run", script]).current_dir(&place));
        }
        place
    })
}

/// Returns a command that is killed after [`LIMIT`].
fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT, program])
        .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
        .env("NO_PROXY", "*");
    command
}

/// Writes the package, as it would be published, to a folder. Returns its file.
fn package(folder: &Path) -> PathBuf {
    let mut pack = limited("npm");
    pack.args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
        .arg(folder)
        .current_dir(library());
    let name = npm::succeed(&mut pack);
    folder.join(name.trim())
}

/// Returns the text of [`EXAMPLE`].
fn example() -> String {
    let readme = Document::read(Path::new(Language::TypeScript.folder()).join("README.md"));
    let mut fences = readme.fences().into_iter();
    let found = fences.find(|fence| fence.kind == "ts" && fence.section == "One minute");
    found.expect("the README has an example").text
}

/// Reads the numbers that a program printed as a list of texts.
fn numbers_in(said: &str) -> Vec<i64> {
    let texts: Vec<String> =
        serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let numbers = texts.iter().map(|text| text.parse().expect("a number"));
    numbers.collect()
}

#[test]
fn the_package_works_in_an_empty_project() {
    run(async {
        let project = directory("npm");
        let place = project.path();
        let source = settings::repository().join("tests").join(FOLDER);
        for file in PROGRAMS.into_iter().chain(COMPILERS) {
            let copied = std::fs::copy(source.join("empty").join(file), place.join(file));
            copied.expect("our directory");
        }
        std::fs::write(place.join(EXAMPLE), example()).expect("our directory");
        let manifest = json!({"private": true}).to_string();
        std::fs::write(place.join("package.json"), manifest).expect("our directory");
        let file = package(place);
        let mut install = limited("npm");
        install
            .args(["install", "--offline", "--no-audit", "--no-fund"])
            .arg(&file)
            .current_dir(place);
        npm::succeed(&mut install);
        let compiler = library().join("node_modules/.bin/tsc");
        for options in COMPILERS {
            let mut compile = limited("node");
            compile.arg(&compiler).args(["-p", options]);
            npm::succeed(compile.current_dir(place));
        }

        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.start_ready().await;
        program.client().define(SEQUENCE, &json!({})).await;
        let mut seen = BTreeSet::new();
        for script in ["use.mjs", "use.cjs"] {
            let mut node = limited("node");
            node.args([script, &program.url()]).current_dir(place);
            let numbers = numbers_in(&npm::succeed(&mut node));
            assert_eq!(numbers.len(), 6, "{script}: {numbers:?}");
            seen.extend(numbers);
        }
        assert_eq!(seen.len(), 12, "a number came twice: {seen:?}");
        program.stop().await;
    });
}

#[test]
fn the_numbers_of_a_program_are_read() {
    let said = "[\"9007199254740993\",\"7\"]\n";
    assert_eq!(numbers_in(said), [9_007_199_254_740_993, 7]);
}
