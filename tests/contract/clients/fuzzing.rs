//! Runs Schemathesis against the real program. Schemathesis sends valid and invalid calls, and the
//! program must answer each call as the OpenAPI description says.

use serde_json::{Value, json};

use super::{Service, TOKEN, file, outcome};
use crate::support::{Scrape, dice, run, settings};

/// Examples for each operation.
const N_EXAMPLES: &str = "30";
/// The fewest calls of a run. With fewer calls, Schemathesis probably left out an operation.
const MIN_CALLS: u64 = 1000;

/// Creates sequences of each kind, so that calls reach more than a 404.
async fn prepare(service: &Service) {
    let client = service.program.client();
    let authorization = format!("Bearer {TOKEN}");
    for (name, definition) in [
        ("orders", json!({})),
        (
            "invoices",
            json!({"period": "year", "format": "INV-{yyyy}-{value:06}"}),
        ),
        ("tickets", json!({"period": "keyed"})),
        ("ids", json!({"kind": "snowflake"})),
        ("old", json!({})),
    ] {
        let path = format!("/v1/sequences/{name}");
        let headers = [("authorization", authorization.as_str())];
        let reply = client.put_with(&path, &definition, &headers).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 201, "{reply:?}");
    }
}

/// Returns the seed of Schemathesis: the configured seed, or else a draw from this test's dice.
fn seed() -> u64 {
    let seed = settings::schemathesis_seed().unwrap_or_else(|| dice::roll(0..=u64::from(u32::MAX)));
    println!("ODOMETER_TESTS_SCHEMATHESIS_SEED={seed}");
    seed
}

/// Runs Schemathesis. Returns whether it found nothing, its output, and its report.
fn ask(service: &Service, seed: u64, only: &[&str]) -> (bool, String, Value) {
    // Schemathesis looks for both files in the directory in which it runs.
    for name in ["schemathesis.toml", "hooks.py"] {
        std::fs::copy(file(name), service.home.path().join(name)).expect("our directory");
    }
    let report = service.home.path().join("report.json");
    let mut command = service.pypi_command("schemathesis");
    command
        .args(["run", "openapi.json", "--url", &service.program.url()])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", N_EXAMPLES])
        .args(["--seed", &seed.to_string()])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--report", "json", "--report-json-path"])
        .arg(&report)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONHASHSEED", "0");
    for operation in only {
        command.args(["--include-operation-id", operation]);
    }
    let (found_nothing, said) = outcome(&mut command);
    let report = std::fs::read(&report).unwrap_or_else(|error| panic!("{error}: {said}"));
    let report = serde_json::from_slice(&report).expect("the report is JSON");
    (found_nothing, said, report)
}

#[test]
fn each_call_is_answered_as_the_description_says() {
    run(async {
        let service = Service::start().await;
        prepare(&service).await;
        let (found_nothing, said, report) = ask(&service, seed(), &[]);
        println!("{said}");
        assert!(found_nothing, "{said}");
        assert_eq!(report["complete"], true, "{report}");
        let paths = service.description()["paths"].as_object().map(|paths| {
            let items = paths.values().filter_map(Value::as_object);
            items.map(|item| item.len()).sum::<usize>()
        });
        assert_eq!(report["operations"]["tested"], json!(paths), "{report}");
        let n_calls = report["test_cases"]["generated"].as_u64().unwrap_or(0);
        assert!(n_calls >= MIN_CALLS, "vacuous: {n_calls} calls");

        // Each route has succeeded at least once. Routes that need the token of a lease are not in
        // this list, because no generated call can guess a token.
        let scrape = Scrape::of(&service.program.client()).await;
        for route in [
            "next",
            "blocks",
            "parse",
            "sequence",
            "explain",
            "advance",
            "restore",
            "period",
            "sequences",
            "replica",
            "lease",
            "workers",
        ] {
            let n_done: f64 = ["200", "201", "204"]
                .map(|status| {
                    let labels = [("route", route), ("status", status)];
                    scrape.sum("odometer_http_requests_total", &labels)
                })
                .iter()
                .sum();
            assert!(n_done >= 1.0, "vacuous: no {route} did what it is for");
        }
    });
}

#[test]
fn a_description_that_says_what_is_not_so_is_found() {
    run(async {
        let service = Service::start().await;
        prepare(&service).await;
        let seed = seed();
        let honest = service.description();
        let next = "/paths/~1v1~1sequences~1{name}~1next/post";
        for (pointer, wrong, finding) in [
            // The description offers a count that the program refuses.
            (
                format!("{next}/parameters/1/schema/maximum"),
                json!(20_000),
                "invalid_count",
            ),
            // The description forbids a count that the program accepts.
            (
                format!("{next}/parameters/1/schema/maximum"),
                json!(5),
                "Schema-violating request accepted",
            ),
            // The description gives a reply another form than the program does.
            (
                "/components/schemas/IssuedNumber/properties/value".to_owned(),
                json!({"type": "integer"}),
                "Response violates schema",
            ),
        ] {
            let mut description = honest.clone();
            let place = description.pointer_mut(&pointer);
            *place.unwrap_or_else(|| panic!("vacuous: {pointer}")) = wrong;
            service.describe(&description);
            let (found_nothing, said, _) = ask(&service, seed, &["takeNumbers"]);
            assert!(
                !found_nothing && said.contains(finding),
                "{finding}: {said}"
            );
        }
    });
}
