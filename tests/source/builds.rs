//! Tests that the builds of `tests/run` and `bench/run` share their compiled dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::support::settings;

/// The arguments that select the program that users run.
const SHIPPED: &str = "-p odometer";

/// Returns the packages and features that each `cargo` command of `script` selects for a release
/// build.
fn selections(script: &str) -> Vec<String> {
    let text = std::fs::read_to_string(settings::repository().join(script));
    let text = text.expect("the script can be read");
    let commands = text.lines().filter_map(|line| {
        let (_, options) = line.split_once(" --release --locked ")?;
        line.contains("cargo ").then_some(options)
    });
    commands
        .map(|options| {
            let words: Vec<&str> = options.split_whitespace().collect();
            let chosen = words
                .chunks(2)
                .filter(|pair| ["-p", "--features"].contains(&pair[0]));
            chosen.flatten().copied().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Returns the features of each dependency, once for each time that the dependency is compiled.
fn features(selection: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut tree = Command::new("cargo");
    tree.current_dir(settings::repository())
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["-e", "normal,no-proc-macro", "-f", "{p}|{f}"])
        .args(selection.split(' '));
    let output = tree.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{selection}: {errors}");
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line = line.trim_end_matches(" (*)").trim_end();
        // Packages of the workspace are listed with their path.
        if let Some((package, features)) = line.split_once('|')
            && !package.ends_with(')')
        {
            let of_package = found.entry(package.to_owned()).or_default();
            of_package.insert(features.trim_end().to_owned());
        }
    }
    found
}

/// Returns the dependencies of the shipped program that `selection` compiles a second time.
fn compiled_again(selection: &str) -> Vec<String> {
    let selected = features(selection);
    let mut shipped = features(SHIPPED);
    shipped.retain(|package, features| selected.get(package).is_some_and(|of| of != features));
    shipped.into_keys().collect()
}

#[test]
fn no_build_compiles_a_dependency_of_the_program_again() {
    let mut builds = selections("tests/run");
    builds.extend(selections("bench/run"));
    for part in ["--features sabotage", "odometer-tests", "odometer-bench"] {
        assert!(builds.iter().any(|build| build.contains(part)), "{part}");
    }
    // Builds of `odometer-core` are left out. Its dependencies for tests are small, and cargo
    // cannot list the dependencies of an example alone.
    builds.retain(|build| !build.contains("odometer-core"));
    for build in builds {
        let again = compiled_again(&build);
        assert!(
            again.is_empty(),
            "`{build}` has other features of {again:?}: see the end of service/Cargo.toml"
        );
    }
    // Negative control: a selection with other features is found.
    let of_entity_alone = compiled_again("-p entity");
    assert!(!of_entity_alone.is_empty());
}
