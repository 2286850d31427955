//! Tests what a program is told.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use super::stub::Stub;
use crate::{
    Client,
    hooks::{DropCause, Hooks, MetricsHooks, RefillReport, SafeHooks},
};

const REPORT: RefillReport<'static> = RefillReport {
    sequence: "orders",
    endpoint: "http://a",
    outcome: "ok",
    duration: Duration::from_millis(5),
    count: 100,
};

struct Panics;

impl Hooks for Panics {
    fn refill(&self, _report: &RefillReport<'_>) {
        panic!("on purpose");
    }

    fn waited(&self, _sequence: &str, _waited: Duration) {
        panic!("on purpose");
    }

    fn traceparent(&self, _sequence: &str) -> String {
        panic!("on purpose");
    }
}

struct Unfit;

impl Hooks for Unfit {
    fn traceparent(&self, _sequence: &str) -> String {
        "no\r\nheader: at all".to_owned()
    }
}

#[test]
fn a_hook_that_panics_harms_nobody() {
    let stub = Stub::start();
    let client = Client::builder()
        .endpoints([&stub.url])
        .hooks(Panics)
        .build()
        .unwrap();
    let orders = client.sequence("orders").unwrap();
    assert_eq!(orders.next_blocking().unwrap(), 1);
    assert!(
        stub.texts()[1]
            .to_ascii_lowercase()
            .contains("traceparent: 00-")
    );
}

#[test]
fn a_header_that_cannot_be_sent_is_replaced() {
    for hooks in [SafeHooks::new(Unfit), SafeHooks::new(Panics)] {
        let header = hooks.traceparent("orders");
        let parts: Vec<&str> = header.split('-').collect();
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [2, 32, 16, 2], "{header}");
        assert_ne!(header, hooks.traceparent("orders"));
    }
}

#[test]
fn the_default_hooks_count_by_metrics() {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        MetricsHooks.refill(&REPORT);
        MetricsHooks.waited("orders", Duration::from_millis(7));
        MetricsHooks.dropped("orders", 3, DropCause::MaxAge);
    });
    let scrape = recorder.handle().render();
    for (name, labels, value) in [
        ("refills_total", "endpoint=\"http://a\" outcome=\"ok\"", "1"),
        ("refilled_numbers_total", "", "100"),
        ("dropped_numbers_total", "cause=\"max_age\"", "3"),
        ("refill_seconds_count", "", "1"),
        ("wait_seconds_count", "", "1"),
    ] {
        let begin = format!("odometer_client_{name}{{");
        let line = scrape.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("{name}\n{scrape}"));
        assert!(line.contains("sequence=\"orders\""), "{line}");
        let mut labels = labels.split_whitespace();
        assert!(labels.all(|label| line.contains(label)), "{line}");
        assert_eq!(line.split(' ').next_back(), Some(value), "{line}");
    }
}

#[test]
fn numbers_that_nobody_lost_are_not_reported() {
    struct Counts(Arc<AtomicU64>);
    impl Hooks for Counts {
        fn dropped(&self, _sequence: &str, _count: u64, _cause: DropCause) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let n_calls = Arc::new(AtomicU64::new(0));
    let hooks = SafeHooks::new(Counts(Arc::clone(&n_calls)));
    hooks.dropped("orders", 0, DropCause::Forget);
    hooks.dropped("orders", 1, DropCause::Forget);
    assert_eq!(n_calls.load(Ordering::Relaxed), 1);
}

/// Keeps the names of spans, and the fields that were recorded.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl Visit for Spans {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{} {value:?}", field.name());
        self.0.lock().unwrap().push(text);
    }
}

impl Subscriber for Spans {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let name = span.metadata().name().to_owned();
        self.0.lock().unwrap().push(name);
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn a_call_for_numbers_has_a_span() {
    let stub = Stub::start();
    stub.define("order", "strict");
    let client = Client::builder().endpoints([&stub.url]).build().unwrap();
    let orders = client.sequence("orders").unwrap();
    // Its kind is known now, so the next call is made in this thread.
    orders.next_blocking().unwrap();
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), || orders.next_blocking().unwrap());
    let seen = spans.0.lock().unwrap().join("\n");
    for expected in [
        "odometer.refill",
        "sequence \"orders\"",
        "traceparent \"00-",
        "endpoint \"http://127.0.0.1:",
        "outcome \"ok\"",
        "count 1",
    ] {
        assert!(seen.contains(expected), "{expected}\n{seen}");
    }
}
