//! The export of spans to a collector: which spans arrive, and that no call waits for the export.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::support::{Backend, Client, Options, Program, Reply, TestDatabase, raw, run, wait};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const SENT_WITHIN: Duration = Duration::from_secs(15);
const ENDPOINT: &str = "ODOMETER_TELEMETRY__OTLP_ENDPOINT";
/// More calls than the queue can hold spans.
const N_CALLS: usize = 2500;

/// A collector's treatment of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Accepts,
    /// The collector takes the request, and never answers.
    IsSilent,
}

/// A collector that does nothing but receive spans, as protobuf over HTTP.
struct Collector {
    address: String,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
    accepting: JoinHandle<()>,
}

impl Collector {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bodies);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(receive(stream, manner, Arc::clone(&kept)));
            }
        });
        Self {
            address,
            bodies,
            accepting,
        }
    }

    fn bodies(&self) -> Vec<Vec<u8>> {
        let bodies = self.bodies.lock();
        bodies.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether one request had all of `parts`, as bytes.
    fn has(&self, parts: &[&[u8]]) -> bool {
        let bodies = self.bodies();
        bodies.iter().any(|body| {
            let has = |part: &&[u8]| body.windows(part.len()).any(|found| found == *part);
            parts.iter().all(has)
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Answers the requests of one connection, one after the other.
async fn receive(mut stream: TcpStream, manner: Manner, kept: Arc<Mutex<Vec<Vec<u8>>>>) {
    let mut received = Vec::new();
    loop {
        let Some((head, body)) = raw::message(&received) else {
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
            continue;
        };
        assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
        let media_type = raw::header(head, "content-type");
        assert_eq!(media_type, Some("application/x-protobuf"), "{head}");
        let (body, end) = (body.to_vec(), head.len() + 4 + body.len());
        received.drain(..end);
        kept.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(body);
        if manner == Manner::IsSilent {
            std::future::pending::<()>().await;
        }
        let answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal"))
        .collect()
}

/// Returns options of the tests' build, which can export, with all guards in place.
fn exporting(database: &TestDatabase, collector: &str) -> Options {
    Program::options()
        .without_guards("")
        .database(&database.url)
        .env(ENDPOINT, format!("http://{collector}"))
}

async fn next(client: &Client, path: &str, headers: &[(&str, &str)]) -> Reply {
    let path = format!("/v1/sequences/{path}/next");
    let reply = client.send(Method::POST, &path, headers, None).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
    reply
}

/// Returns the trace and the span that a reply names.
fn told(reply: &Reply) -> (Vec<u8>, Vec<u8>) {
    let told = reply.header("traceparent").expect("a trace");
    let parts: Vec<&str> = told.split('-').collect();
    (bytes(parts[1]), bytes(parts[2]))
}

#[test]
fn a_collector_gets_the_spans_of_cold_calls_and_of_what_is_done_for_them() {
    run(async {
        let collector = Collector::start(Manner::Accepts).await;
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = exporting(&database, &collector.address).start_ready().await;
        let client = program.client();
        let given = format!("00-{TRACE}-{SPAN}-01");
        let reply = next(&client, "spanned", &[("traceparent", &given)]).await;
        let (trace, span) = told(&reply);
        assert_eq!(trace, bytes(TRACE));
        // A call without a trace begins a trace, if memory cannot answer the call.
        let begun = next(&client, "begun", &[]).await;
        let (begun_trace, begun_span) = told(&begun);
        // The program sends no span if the caller does not keep the trace, or if memory answers.
        let unkept_trace = TRACE.replace('4', "6");
        let unkept = format!("00-{unkept_trace}-{SPAN}-00");
        let unkept = next(&client, "unkept", &[("traceparent", &unkept)]).await;
        let warm = next(&client, "spanned", &[("traceparent", &given)]).await;
        // Spans are sent in the order in which they end, so the last one arrives after the others.
        let last = next(&client, "last", &[("traceparent", &given)]).await;
        wait::until("spans are sent", SENT_WITHIN, async || {
            let call: [&[u8]; 6] = [
                &trace,
                &span,
                &bytes(SPAN),
                b"call",
                b"/v1/sequences/{name}/next",
                b"http.response.status_code",
            ];
            let reservation: [&[u8]; 4] = [&trace, &span, b"reserve", b"spanned"];
            let begun: [&[u8]; 3] = [&begun_trace, &begun_span, b"begun"];
            let (_, last) = told(&last);
            let is_all = [&call[..], &reservation, &begun, &[&last, b"call"]];
            is_all
                .iter()
                .all(|parts| collector.has(parts))
                .then_some(())
        })
        .await;
        program.stop().await;
        for (what, (_, span)) in [("unkept", told(&unkept)), ("warm", told(&warm))] {
            assert!(!collector.has(&[&span]), "{what}");
        }
        assert!(!collector.has(&[&bytes(&unkept_trace)]));
    });
}

#[test]
fn a_collector_that_never_answers_or_is_away_costs_no_call() {
    run(async {
        let silent = Collector::start(Manner::IsSilent).await;
        let away = {
            let gone = Collector::start(Manner::Accepts).await;
            gone.address.clone()
        };
        for collector in [silent.address.as_str(), &away] {
            let database = TestDatabase::prepared(Backend::Sqlite).await;
            let program = exporting(&database, collector).start_ready().await;
            let client = program.client();
            for at in 0..N_CALLS {
                // These calls go by the routes, so that each of them has a span.
                let reply = next(&client, "order%73", &[]).await;
                assert_eq!(reply.number(), i64::try_from(at).expect("few") + 1);
            }
            if collector == silent.address {
                let asked = async || (!silent.bodies().is_empty()).then_some(());
                wait::until("the collector is asked", SENT_WITHIN, asked).await;
            }
            // The program ends in order, and by itself.
            program.stop().await;
        }
    });
}

#[test]
fn the_shipped_build_says_that_it_exports_nothing() {
    let refused = Program::options()
        .env(ENDPOINT, "http://127.0.0.1:4318")
        .run(&["check"]);
    assert_eq!(refused.code, Some(78), "{refused}");
    let said = &refused.errors;
    assert!(
        said.contains("telemetry.otlp_endpoint") && said.contains("`otlp`"),
        "{said}"
    );
}

#[test]
fn what_is_no_way_to_a_collector_is_refused_before_anything_starts() {
    for endpoint in [
        "",
        "127.0.0.1:4318",
        "https://127.0.0.1:4318",
        "http://user:secret@127.0.0.1:4318",
        "http://127.0.0.1:4318?a=b",
    ] {
        let refused = Program::options()
            .without_guards("")
            .env(ENDPOINT, endpoint)
            .run(&["check"]);
        assert_eq!(refused.code, Some(78), "{endpoint}: {refused}");
        let said = &refused.errors;
        let is_named = said.contains("ODOMETER_TELEMETRY__OTLP_ENDPOINT")
            || said.contains("telemetry.otlp_endpoint");
        assert!(is_named && !said.contains("secret"), "{said}");
    }
}
