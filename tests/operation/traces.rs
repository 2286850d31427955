//! The trace of a caller: in the reply to a call, and in the log lines about the call.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Backend, Client, Program, Reply, Server, TestDatabase, for_each_backend, raw, run, wait,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
/// A name whose numbers are in memory, and the same name in a form that only the routes know.
const PATHS: [&str; 2] = ["/v1/sequences/orders/next", "/v1/sequences/order%73/next"];
const LOGGED_WITHIN: Duration = Duration::from_secs(20);

fn header(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{SPAN}-{flags}")
}

async fn post(client: &Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    let reply = client.send(Method::POST, path, headers, None).await;
    reply.expect("a reply")
}

/// Returns the trace, the span and the flags that a reply names; `None` if it names none.
fn told(reply: &Reply) -> Option<(String, String, String)> {
    let told = reply.header("traceparent")?;
    let parts: Vec<&str> = told.split('-').collect();
    let [version, trace, span, flags] = parts.as_slice() else {
        panic!("no traceparent: {told}");
    };
    assert_eq!(
        (*version, trace.len(), span.len()),
        ("00", 32, 16),
        "{told}"
    );
    Some(((*trace).to_owned(), (*span).to_owned(), (*flags).to_owned()))
}

#[test]
fn a_reply_names_the_trace_of_its_call() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        assert_eq!(client.next("orders").await, 1);
        for path in PATHS {
            for flags in ["00", "01"] {
                let given = header(TRACE, flags);
                let reply = post(&client, path, &[("traceparent", &given)]).await;
                assert_eq!(reply.status, 200, "{reply:?}");
                let (trace, span, told_flags) = told(&reply).expect("a trace");
                assert_eq!((trace.as_str(), told_flags.as_str()), (TRACE, flags));
                assert_ne!(span, SPAN, "{path}: the span is the caller's");
            }
            let reply = post(&client, path, &[]).await;
            assert_eq!(told(&reply), None, "{path}: nobody asked");
            // The headers are incomplete, without a trace, and with broken flags.
            let broken = ["00-1", &header(&"0".repeat(32), "01"), &header(TRACE, "0")];
            for given in broken {
                let reply = post(&client, path, &[("traceparent", given)]).await;
                assert_eq!(reply.status, 200, "{reply:?}");
                let (trace, _, flags) = told(&reply).expect("a new trace");
                assert!(trace != TRACE && flags == "00", "{given}: {reply:?}");
            }
            let twice = header(TRACE, "01");
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\n\
                 traceparent: {twice}\r\ntraceparent: {twice}\r\n\r\n"
            );
            let reply = raw::exchange(program.address(), request.as_bytes()).await;
            let (trace, _, _) = told(&reply).expect("a new trace");
            assert!(reply.status == 200 && trace != TRACE, "{reply:?}");
        }
        let given = header(TRACE, "01");
        for (path, status) in [
            ("/v1/sequences/orders/next?count=0", 400),
            ("/nowhere", 404),
        ] {
            let reply = post(&client, path, &[("traceparent", &given)]).await;
            assert_eq!(reply.status, status, "{reply:?}");
            assert_eq!(told(&reply).expect("a trace").0, TRACE);
        }
    });
}

/// Returns the lines with this message, as soon as one of them `fits`.
async fn lines_of(program: &Program, message: &str, fits: impl Fn(&Value) -> bool) -> Vec<Value> {
    wait::until(message, LOGGED_WITHIN, async || {
        let lines = program.log_lines().into_iter();
        let lines = lines.map(|line| serde_json::from_str(&line).expect("JSON"));
        let told: Vec<Value> = lines
            .filter(|line: &Value| line["message"] == message)
            .collect();
        told.iter().any(&fits).then_some(told)
    })
    .await
}

for_each_backend!(what_is_logged_of_a_call_names_its_trace);

async fn what_is_logged_of_a_call_names_its_trace(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    // Other parts do this work for a call: the actor, the store, a task that outlives the caller.
    let other = TRACE.replace('4', "5");
    for (name, trace, id) in [("first", TRACE, "r-1"), ("second", other.as_str(), "r-2")] {
        let given = header(trace, "01");
        let headers = [("traceparent", given.as_str()), ("x-request-id", id)];
        let path = format!("/v1/sequences/{name}");
        let reply = post(&client, &format!("{path}/next"), &headers).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let body = json!({"floor": "5"}).to_string().into_bytes();
        let path = format!("{path}/advance");
        let mut headers = headers.to_vec();
        headers.push(("content-type", "application/json"));
        let reply = client.send(Method::POST, &path, &headers, Some(body)).await;
        assert_eq!(reply.expect("a reply").status, 200);
    }
    // The control: a call without a trace has none in the log.
    assert_eq!(client.next("third").await, 1);
    let id_of = |line: &Value| match line["sequence"].as_str() {
        Some("first") => (json!(TRACE), Some("r-1")),
        Some("second") => (json!(other), Some("r-2")),
        _ => (Value::Null, None),
    };
    for (message, last, n_lines) in [
        ("a sequence was created", "third", 3),
        ("a sequence was changed", "second", 2),
    ] {
        let lines = lines_of(&program, message, |line| line["sequence"] == last).await;
        assert_eq!(lines.len(), n_lines, "{lines:?}");
        for line in &lines {
            let (trace, id) = id_of(line);
            assert_eq!(line["trace_id"], trace, "{line}");
            assert!(id.is_none_or(|id| line["request_id"] == id), "{line}");
        }
    }
}

#[test]
fn a_refused_call_is_found_in_the_log_by_its_trace() {
    run(async {
        let mut server = Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let program = Program::options()
            .database(&database.url)
            // The line appears even if little is logged.
            .env("ODOMETER_LOG__LEVEL", "warn")
            .start_ready()
            .await;
        server.kill();
        let given = header(TRACE, "00");
        let headers = [("traceparent", given.as_str())];
        let reply = post(&program.client(), PATHS[0], &headers).await;
        assert_eq!(reply.status, 503, "{reply:?}");
        let fits = |line: &Value| line["trace_id"] == TRACE;
        let lines = lines_of(&program, "a call was refused", fits).await;
        let line = lines.iter().find(|line| fits(line)).expect("it is there");
        assert_eq!(line["sequence"], "orders", "{line}");
        assert_eq!(line["request_id"].as_str(), reply.header("x-request-id"));
    });
}
