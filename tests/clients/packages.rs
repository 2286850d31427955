//! What is published for each language, and the tests that a library has in its own language.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;

use super::language::{Language, for_each_language};
use crate::support::{Backend, Program, TestDatabase, directory, keeper, pypi, run, settings};

/// The version of everything that is released together.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// The least number of tests that a library has in its own language.
const MIN_TESTS: u64 = 50;
/// The time limit of these tests together, and of the build of a project, in seconds.
const LIMIT: &str = "240";
/// A program that uses the library for Rust, and nothing else.
const RUST_PROGRAM: &str = r#"
use odometer_client::{Client, Error, Layout};

fn main() -> Result<(), Error> {
    let client = Client::from_environment()?;
    let orders = client.sequence("orders")?;
    println!("{}", orders.next_blocking()?);
    println!("{}", orders.take()?);
    println!("{}", orders.local().take()?);
    println!("{}", orders.range_blocking(3)?.first());
    let ids = client.stamper_blocking("billing", Layout::default(), "program")?;
    println!("{}", Layout::default().read(ids.take()?).is_some());
    ids.close_blocking();
    Ok(())
}
"#;
/// A program that uses the library for Python. It also lists the files that were installed.
const PYTHON_PROGRAM: &str = r#"
import importlib.metadata

from odometer_client import Client

orders = Client.from_environment(deadline=20.0).sequence("orders")
print(orders.next(), orders.take(), orders.range(3)[0])
for file in importlib.metadata.files("odometer-client"):
    print(file)
"#;

for_each_language!(
    a_library_passes_its_own_tests,
    a_library_has_the_version_of_the_service,
    a_library_comes_with_its_licenses,
);

async fn a_library_passes_its_own_tests(language: Language) {
    let Some(tests) = language.tests() else {
        is_tested_by_cargo(language);
        return;
    };
    let (program, arguments) = tests.split_first().expect("a command");
    let mut command = limited(program);
    command
        .args(arguments)
        .current_dir(language.home())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("timeout runs");
    let report = [output.stdout, output.stderr].concat();
    let report = String::from_utf8_lossy(&report);
    assert!(output.status.success(), "{language:?}:\n{report}");
    let n_tests = n_tests_in(&report);
    assert!(
        n_tests >= Some(MIN_TESTS),
        "vacuous: {n_tests:?} tests:\n{report}"
    );
    assert!(!tells_of_skipped_tests(&report), "{report}");
}

/// Checks that `cargo test`, which each commit passes, runs the tests of a library.
fn is_tested_by_cargo(language: Language) {
    let manifest = read(&settings::repository().join("Cargo.toml"));
    let members = manifest.split_once("default-members = [");
    let members = members.and_then(|(_, rest)| rest.split_once(']'));
    let (members, _) = members.expect("it lists the members");
    let member = format!("\"{}\"", language.folder());
    assert!(members.contains(&member), "{member} is no default member");
    let sources = std::fs::read_dir(folder(language).join("src/tests")).expect("it has tests");
    let texts = sources.map(|source| read(&source.expect("our directory").path()));
    let n_tests: usize = texts.map(|text| text.matches("\n#[test]\n").count()).sum();
    let is_enough = u64::try_from(n_tests).is_ok_and(|n_tests| n_tests >= MIN_TESTS);
    assert!(is_enough, "vacuous: {n_tests} tests");
}

async fn a_library_has_the_version_of_the_service(language: Language) {
    for (file, begin) in language.versions() {
        let text = read(&folder(language).join(file));
        let line = format!("{begin}\"{VERSION}\"");
        let mut lines = text.lines().map(|it| it.trim_end_matches([',', ';']));
        assert!(
            lines.any(|it| it == line),
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

#[test]
fn the_crates_as_they_are_published_work_in_an_empty_project() {
    run(async {
        let place = directory("crates");
        let project = project_with_crates(place.path());
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.start_ready().await;
        program.client().define("orders", &json!({})).await;
        let mut cargo = limited("cargo");
        cargo
            .args(["run", "--offline", "--quiet"])
            .current_dir(project)
            .env("CARGO_TARGET_DIR", place.path().join("target"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("ODOMETER_URL", program.url());
        let said = output_of(&mut cargo);
        let numbers = said.lines().filter_map(|line| line.parse().ok());
        let numbers: BTreeSet<i64> = numbers.collect();
        assert_eq!((numbers.len(), numbers.first()), (4, Some(&1)), "{said}");
        assert!(said.ends_with("true\n"), "it stamped no id: {said}");
        program.stop().await;
    });
}

/// Makes the crates as they would be published, and a project that has them from these files.
/// Returns the folder of the project.
fn project_with_crates(place: &Path) -> PathBuf {
    let mut package = limited("cargo");
    package
        .args(["package", "--offline", "--no-verify", "--allow-dirty"])
        // A lock file would say where the core is published, which is nowhere yet.
        .args([
            "--exclude-lockfile",
            "-p",
            "odometer-core",
            "-p",
            "odometer-client",
        ])
        .arg("--target-dir")
        .arg(place)
        .current_dir(settings::repository());
    output_of(&mut package);
    let unpacked = |name: &str| {
        let folder = place.join(format!("{name}-{VERSION}"));
        let file = place.join(format!("package/{name}-{VERSION}.crate"));
        output_of(limited("tar").arg("-xzf").arg(file).current_dir(place));
        folder.display().to_string()
    };
    let (core, client) = (unpacked("odometer-core"), unpacked("odometer-client"));
    let project = place.join("project");
    std::fs::create_dir_all(project.join("src")).expect("our directory");
    let manifest = format!(
        "[package]\nname = \"project\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         odometer-client = {{ path = \"{client}\" }}\n\n[patch.crates-io]\n\
         odometer-core = {{ path = \"{core}\" }}\n"
    );
    // The other crates are those of this workspace, which this machine has.
    let lock = read(&settings::repository().join("Cargo.lock"));
    for (file, text) in [
        ("Cargo.toml", manifest.as_str()),
        ("Cargo.lock", lock.as_str()),
        ("src/main.rs", RUST_PROGRAM),
    ] {
        std::fs::write(project.join(file), text).expect("our directory");
    }
    project
}

#[test]
fn the_wheel_as_it_is_published_works_in_an_empty_environment() {
    run(async {
        let place = directory("wheel");
        let python = environment_with_wheel(place.path());
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.start_ready().await;
        program.client().define("orders", &json!({})).await;
        let mut command = limited(&python);
        command
            .args(["-I", "-c", PYTHON_PROGRAM])
            .env("ODOMETER_URL", program.url());
        let said = output_of(&mut command);
        program.stop().await;

        let mut lines = said.lines();
        let numbers = lines.next().unwrap_or_default().split(' ');
        let numbers: BTreeSet<i64> = numbers.filter_map(|word| word.parse().ok()).collect();
        assert_eq!((numbers.len(), numbers.first()), (3, Some(&1)), "{said}");
        let files: BTreeSet<&str> = lines.collect();
        let about = format!("odometer_client-{VERSION}.dist-info/");
        for license in LICENSES {
            let wanted = format!("{about}licenses/{license}");
            assert!(files.contains(wanted.as_str()), "no {wanted}:\n{said}");
        }
        assert!(files.contains("odometer_client/py.typed"), "{said}");
        // The driver and the tests are not published.
        for file in files {
            let is_ours = file.starts_with("odometer_client/") || file.starts_with(about.as_str());
            assert!(is_ours, "{file}");
        }
    });
}

/// Builds the wheel as it would be published, and installs it from its file into an empty virtual
/// environment. Returns the interpreter of the environment.
fn environment_with_wheel(place: &Path) -> String {
    let builder = pypi::programs("clients/python").join("python");
    let mut build = limited(&builder.display().to_string());
    build
        .args(["-m", "flit_core.wheel", "--outdir"])
        .arg(place)
        .current_dir(folder(Language::Python))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    output_of(&mut build);
    let environment = place.join("environment");
    output_of(limited("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python").display().to_string();

    // Negative control: it is the wheel that has the library.
    let mut without = limited(&python);
    without
        .args(["-I", "-c", "import odometer_client"])
        .stderr(Stdio::null());
    assert!(
        !without.status().expect("timeout runs").success(),
        "vacuous"
    );

    let mut install = limited(&python);
    install
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-cache-dir",
        ])
        .arg(place.join(format!("odometer_client-{VERSION}-py3-none-any.whl")));
    output_of(&mut install);
    python
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

/// Runs a command, which must succeed. Returns what it wrote to its standard output.
fn output_of(command: &mut Command) -> String {
    let output = command.output().expect("timeout runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{errors}");
    String::from_utf8(output.stdout).expect("it is text")
}

fn folder(language: Language) -> PathBuf {
    settings::repository().join(language.folder())
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns how many tests ran, by the words `Ran N tests` or the line `# tests N` of a report.
fn n_tests_in(report: &str) -> Option<u64> {
    let number = match report.split_once("\n# tests ") {
        Some((_, rest)) => rest.lines().next()?,
        None => report.split_once("Ran ")?.1.split_once(" tests")?.0,
    };
    number.parse().ok()
}

/// Returns whether a report says `skipped=N` or `# skipped N`, with a number above 0.
fn tells_of_skipped_tests(report: &str) -> bool {
    let mut numbers = report
        .lines()
        .filter_map(|line| line.strip_prefix("# skipped "));
    numbers.any(|number| number != "0") || report.contains("skipped=")
}

#[test]
fn tests_that_were_skipped_are_found() {
    assert!(tells_of_skipped_tests(
        "Ran 63 tests in 0.8s\n\nOK (skipped=8)\n"
    ));
    assert!(tells_of_skipped_tests(
        "# tests 93\n# skipped 1\n# todo 0\n"
    ));
    assert!(!tells_of_skipped_tests(
        "# tests 93\n# skipped 0\n# todo 0\n"
    ));
    assert!(!tells_of_skipped_tests("Ran 63 tests in 0.8s\n\nOK\n"));
}

#[test]
fn the_number_of_tests_is_read() {
    assert_eq!(n_tests_in("...\nRan 63 tests in 0.8s\n\nOK\n"), Some(63));
    assert_eq!(n_tests_in("ok 1 - a\n# tests 93\n# pass 93\n"), Some(93));
    assert_eq!(n_tests_in("Ran out of tests"), None);
}
