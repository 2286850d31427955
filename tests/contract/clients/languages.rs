//! Tests clients that are generated from the OpenAPI description, against the running program.

use std::path::Path;

use serde_json::Value;

use super::{FOLDER, Service, TOKEN, file, outcome};
use crate::support::{npm, run};

/// The files that come with the TypeScript client.
const FILES: [&str; 4] = [
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "use.ts",
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn number(value: &Value) -> i64 {
    value
        .as_i64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Checks that a client got what it asked for: the number `1000`, a batch of three, a block of ten,
/// and a lease that was renewed and ended.
fn check(said: &str, prefix: &str) {
    let given: Value = serde_json::from_str(said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(given["kind"], "block", "{given}");
    assert_eq!(given["one"]["value"], "1000", "{given}");
    assert_eq!(given["one"]["id"], format!("{prefix}-001000"), "{given}");
    let ids = given["batch"]["ids"].as_array().expect("a batch has ids");
    let mut seen = vec![1000];
    for id in ids {
        let digits = text(id).rsplit('-').next().expect("there is a number");
        seen.push(digits.parse().expect("it is a number"));
    }
    let block = |end: &str| text(&given["block"][end]).parse().expect("a number");
    let (first, last): (i64, i64) = (block("first"), block("last"));
    assert_eq!(
        (last - first + 1, &given["block"]["count"]),
        (10, &Value::from(10))
    );
    seen.extend(first..=last);
    assert_eq!(seen.len(), 14, "{given}");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 14, "a number came twice: {given}");

    let (lease, renewed) = (&given["lease"], &given["renewed"]);
    assert_eq!(lease["token"], renewed["token"], "{given}");
    assert_eq!(number(&lease["worker"]), 0, "{given}");
    assert!(
        number(&renewed["until_ms"]) > number(&lease["until_ms"]),
        "{given}"
    );
    assert_eq!(number(&given["ended"]), 204, "{given}");
    assert_eq!(given["refused"], "sequence_not_found", "{given}");
}

fn generate_types(service: &Service, workshop: &Path) {
    let generator = workshop.join("node_modules/.bin/openapi-typescript");
    let (is_made, said) = outcome(
        service
            .command(&generator)
            .arg("openapi.json")
            .arg("--output")
            .arg(workshop.join("schema.ts")),
    );
    assert!(is_made, "{said}");
}

#[test]
fn a_client_in_typescript_is_made_of_the_description_and_works() {
    run(async {
        let service = Service::start().await;
        let workshop = npm::workshop(FOLDER, &FILES);
        generate_types(&service, &workshop);
        let compile = || {
            let compiler = workshop.join("node_modules/.bin/tsc");
            outcome(service.command(&compiler).current_dir(&workshop))
        };
        let (compiles, said) = compile();
        assert!(compiles, "{said}");
        let (works, said) = outcome(
            service
                .command(Path::new("node"))
                .arg(workshop.join("built/use.js"))
                .args([&service.program.url(), TOKEN]),
        );
        assert!(works, "{said}");
        check(&said, "TS");

        // Negative control: a field of a reply is missing from the description.
        let mut description = service.description();
        let schemas = &mut description["components"]["schemas"];
        let fields = schemas["WorkerLease"]["properties"].as_object_mut();
        let removed = fields.expect("it has fields").remove("until_ms");
        assert!(removed.is_some(), "vacuous");
        service.describe(&description);
        generate_types(&service, &workshop);
        let (compiles, said) = compile();
        assert!(!compiles && said.contains("until_ms"), "{said}");
    });
}

#[test]
fn a_client_in_python_is_made_of_the_description_and_works() {
    run(async {
        let service = Service::start().await;
        let client = service.home.path().join("odometer_client");
        let (is_made, said) = outcome(
            service
                .pypi_command("openapi-python-client")
                .args(["generate", "--path", "openapi.json", "--meta", "none"])
                .arg("--fail-on-warning")
                .arg("--config")
                .arg(file("generator.yaml"))
                .arg("--output-path")
                .arg(&client),
        );
        assert!(is_made, "{said}");
        let (works, said) = outcome(
            service
                .pypi_command("python")
                .arg(file("use.py"))
                .args([&service.program.url(), TOKEN])
                .env("PYTHONPATH", service.home.path())
                .env("PYTHONDONTWRITEBYTECODE", "1"),
        );
        assert!(works, "{said}");
        check(&said, "PY");
    });
}
