//! The builds that `tests/run` and `bench/run` make share their compiled dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::support::settings;

/// How the program that users run is selected.
const SHIPPED: &str = "-p odometer";

/// What selects packages and features in each `cargo` command of `script` for the release.
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

/// From each dependency to the features that it has, once for each time it is compiled.
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
        // The packages of the workspace stand with their path.
        if let Some((package, features)) = line.split_once('|')
            && !package.ends_with(')')
        {
            let of_package = found.entry(package.to_owned()).or_default();
            of_package.insert(features.trim_end().to_owned());
        }
    }
    found
}

/// Dependencies of the shipped program that `selection` compiles once more.
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
    // Its dependencies for tests are small, and cargo tells none of an example apart.
    builds.retain(|build| !build.contains("odometer-core"));
    for build in builds {
        let again = compiled_again(&build);
        assert!(
            again.is_empty(),
            "`{build}` has other features of {again:?}: see the end of service/Cargo.toml"
        );
    }
    // A selection of other features is seen.
    let of_entity_alone = compiled_again("-p entity");
    assert!(!of_entity_alone.is_empty());
}
