//! Tests the list of the crates in the program (SBOM).

use std::path::Path;

use serde_json::Value;

use super::{
    release::file,
    tools::{from_pypi, outcome},
    yaml::{items, text},
};
use crate::support::directory;

const VALIDATES: &str = "import sys\n\
    from cyclonedx.schema import SchemaVersion\n\
    from cyclonedx.validation.json import JsonStrictValidator\n\
    with open(sys.argv[1]) as file:\n  \
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read())\n\
    if wrong: sys.exit(str(wrong)[:300])";

/// Checks a file against the strict schema of CycloneDX 1.6.
fn is_valid(file: &Path) -> (bool, String) {
    outcome(from_pypi("python").args(["-c", VALIDATES]).arg(file))
}

fn bill() -> Value {
    let text = std::fs::read_to_string(file(".cdx.json")).expect("the list is there");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn the_list_of_crates_fits_the_schema_of_cyclonedx() {
    let (fits, said) = is_valid(&file(".cdx.json"));
    assert!(fits, "{said}");

    // Negative control: a crate without a name is found.
    let mut wrong = bill();
    let first = wrong["components"][0].as_object_mut().expect("a crate");
    first.remove("name").expect("it has a name");
    let home = directory("bill");
    let place = home.path().join("wrong.json");
    std::fs::write(&place, wrong.to_string()).expect("our directory");
    let (fits, said) = is_valid(&place);
    assert!(!fits && said.contains("'name'"), "{said}");
}

#[test]
fn the_list_has_the_crates_of_the_shipped_program_and_no_others() {
    let bill = bill();
    let crates = items(&bill["components"]);
    let has = |name: &str| crates.iter().any(|of| of["name"] == name);
    for name in ["tokio", "sea-orm", "libsqlite3-sys", "odometer-store"] {
        assert!(has(name), "{name}");
    }
    // Of tests, of a feature that is not shipped, of the build, and of the compiler.
    for name in ["proptest", "opentelemetry-otlp", "cc", "serde_derive"] {
        assert!(!has(name), "{name}");
    }
}

#[test]
fn each_crate_of_the_list_has_licence_and_checksum_and_is_used() {
    let bill = bill();
    let lock = super::tools::command("cat").arg("Cargo.lock").output();
    let lock = String::from_utf8(lock.expect("the lock file is there").stdout);
    let lock = lock.expect("it is text");
    let mut n_published = 0;
    for of in items(&bill["components"]) {
        let name = text(&of["name"]);
        let licence = &of["licenses"][0]["expression"];
        assert!(licence.is_string() && !text(licence).contains('/'), "{of}");
        if let Some(package) = of["purl"].as_str() {
            n_published += 1;
            let version = text(&of["version"]);
            assert_eq!(package, format!("pkg:cargo/{name}@{version}"));
            let checksum = text(&of["hashes"][0]["content"]);
            let wanted = format!("checksum = \"{checksum}\"");
            assert!(checksum.len() == 64 && lock.contains(&wanted), "{of}");
        }
        let uses = items(&bill["dependencies"]).iter();
        let mut used = uses.flat_map(|by| items(&by["dependsOn"]));
        assert!(used.any(|used| *used == of["bom-ref"]), "{name}: unused");
    }
    assert!(n_published >= 100, "vacuous: {n_published} crates");
}
