//! What is written to standard error.

use reqwest::Method;
use serde_json::Value;

use crate::support::{Backend, Program, TestDatabase, for_each_backend, run};

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"))
}

for_each_backend!(every_line_is_json_with_the_promised_fields);

async fn every_line_is_json_with_the_promised_fields(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    assert_eq!(program.client().next("logged").await, 1);
    let log = program.stop().await;
    let lines: Vec<Value> = log.lines().map(parse).collect();
    assert!(lines.len() >= 3, "{log}");
    for line in &lines {
        let time = line["time"].as_str().expect("a time");
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
        let level = line["level"].as_str().expect("a level").to_lowercase();
        assert!(
            matches!(
                level.as_str(),
                "error" | "warn" | "info" | "debug" | "trace"
            ),
            "{line}"
        );
        assert!(line["message"].is_string(), "{line}");
    }
    // A creation is logged with the name it is about.
    assert!(
        lines.iter().any(|line| line["sequence"] == "logged"),
        "{log}"
    );
    // Nothing went wrong, and nothing says so.
    for line in &lines {
        let level = line["level"].as_str().unwrap_or_default().to_lowercase();
        assert!(level != "error", "{line}");
    }
}

#[test]
fn a_failed_call_is_found_in_the_log_by_its_request_id() {
    run(async {
        let mut server = crate::support::Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        server.kill();
        let path = "/v1/sequences/failing/next";
        let headers = [("x-request-id", "asked-by-me-17")];
        let client = program.client();
        let reply = client.send(Method::POST, path, &headers, None).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 503, "{reply:?}");
        assert_eq!(reply.header("x-request-id"), Some("asked-by-me-17"));
        crate::support::wait::until(
            "the log has it",
            std::time::Duration::from_secs(20),
            async || {
                let lines = program.log_lines();
                lines
                    .iter()
                    .map(|line| parse(line))
                    .any(|line| {
                        line["request_id"] == "asked-by-me-17" && line["sequence"] == "failing"
                    })
                    .then_some(())
            },
        )
        .await;
        let log = program.log();
        assert!(!log.contains(crate::support::PASSWORD), "{log}");
    });
}

#[test]
fn text_is_written_where_it_is_asked_for() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_LOG__FORMAT", "text")
            .start_ready()
            .await;
        let log = program.stop().await;
        let first = log.lines().next().expect("a line");
        assert!(serde_json::from_str::<Value>(first).is_err(), "{first}");
    });
}
