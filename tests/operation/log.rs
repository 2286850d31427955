//! The log on standard error.

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
    // The log line of a creation has the name of the sequence.
    assert!(
        lines.iter().any(|line| line["sequence"] == "logged"),
        "{log}"
    );
    // Nothing went wrong, so no line may be an error.
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

#[test]
fn a_flood_of_what_is_malformed_or_refused_is_a_line_each() {
    run(async {
        let mut server = crate::support::Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        server.kill();
        let started = std::time::Instant::now();
        for _ in 0..200 {
            let reply = crate::support::raw::exchange(program.address(), b"NO HTTP\r\n\r\n").await;
            assert_eq!(reply.status, 400, "{reply:?}");
        }
        let client = program.client();
        for n in 0..200 {
            let path = format!("/v1/sequences/flood-{}/next", n % 2);
            let reply = client.send(Method::POST, &path, &[], None).await;
            assert_eq!(reply.expect("a reply").status, 503);
        }
        crate::support::wait::until(
            "all are counted",
            std::time::Duration::from_secs(10),
            async || {
                let scrape = crate::support::Scrape::of(&client).await;
                let n_malformed = scrape.sum("odometer_http_malformed_total", &[]);
                (n_malformed == 200.0).then_some(())
            },
        )
        .await;
        // The program logs the rest of each kind although nothing more happens.
        let lines = crate::support::wait::until(
            "each is told",
            std::time::Duration::from_secs(60),
            async || {
                let lines: Vec<Value> =
                    program.log_lines().iter().map(|line| parse(line)).collect();
                let told = FLOODS.map(|(what, sequence, _)| told(&lines, what, sequence));
                let is_all = told.iter().zip(FLOODS).all(|((_, n), flood)| *n == flood.2);
                is_all.then_some(lines)
            },
        )
        .await;
        // Each kind may have one line in ten seconds, and one for ten seconds that began before.
        let n_each = started.elapsed().as_secs() / 10 + 2;
        for (what, sequence, _) in FLOODS {
            let (n_lines, _) = told(&lines, what, sequence);
            assert!((1..=n_each).contains(&n_lines), "{}", program.log());
        }
    });
}

/// The message of a line, its sequence, and how often the event happens.
const FLOODS: [(&str, Option<&str>, u64); 3] = [
    ("is not HTTP", None, 200),
    ("a call was refused", Some("flood-0"), 100),
    ("a call was refused", Some("flood-1"), 100),
];

/// Returns the number of lines with the message `what`, and the number of events that they report.
fn told(lines: &[Value], what: &str, sequence: Option<&str>) -> (u64, u64) {
    let found = lines.iter().filter(|line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.contains(what) && line["sequence"].as_str() == sequence
    });
    found.fold((0, 0), |(n_lines, n_times), line| {
        let n_untold = line["n_untold"].as_u64().expect("how many had no line");
        (n_lines + 1, n_times + 1 + n_untold)
    })
}

#[test]
fn what_had_no_line_yet_is_told_at_the_end() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        for _ in 0..30 {
            let reply = crate::support::raw::exchange(program.address(), b"NO HTTP\r\n\r\n").await;
            assert_eq!(reply.status, 400, "{reply:?}");
        }
        let log = program.stop().await;
        let lines: Vec<Value> = log.lines().map(parse).collect();
        assert_eq!(told(&lines, "is not HTTP", None).1, 30, "{log}");
    });
}
