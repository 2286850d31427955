//! Tests what a program is told.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use super::{stub::Stub, until};
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

/// Keeps the text of each span: its name, and a line for each field.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct SpanText<'a>(&'a mut String);

impl Visit for SpanText<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let line = format!("\n{} {value:?}", field.name());
        self.0.push_str(&line);
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        span.record(&mut SpanText(&mut text));
        let mut spans = self.0.lock().unwrap();
        spans.push(text);
        Id::from_u64(u64::try_from(spans.len()).unwrap())
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let at = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut SpanText(&mut self.0.lock().unwrap()[at]));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn each_call_for_numbers_has_a_span() {
    let (stub, spans) = (Stub::start(), Spans::default());
    // The calls are made in threads of the client. No other test may set it.
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    let client = Client::builder().endpoints([&stub.url]).build().unwrap();
    for order in ["relaxed", "strict"] {
        stub.define("order", order);
        let name = format!("traced-{order}");
        client.sequence(&name).unwrap().next_blocking().unwrap();
        let n_numbers = if order == "strict" { 1 } else { 100 };
        let expected: [&str; 6] = [
            "odometer.refill",
            &format!("sequence {name:?}"),
            "traceparent \"00-",
            "endpoint \"http://127.0.0.1:",
            "outcome \"ok\"",
            &format!("count {n_numbers}"),
        ];
        until("the span has ended", || {
            let spans = spans.0.lock().unwrap();
            let has_all = |text: &String| expected.iter().all(|part| text.contains(*part));
            spans.iter().any(has_all)
        });
    }
}

/// Is held up at its first report of a refill.
struct Slow {
    held: Mutex<Option<mpsc::Receiver<()>>>,
    is_held: Arc<AtomicBool>,
}

impl Hooks for Slow {
    fn refill(&self, _report: &RefillReport<'_>) {
        let held = self.held.lock().unwrap().take();
        if let Some(held) = held {
            self.is_held.store(true, Ordering::Release);
            let _released = held.recv_timeout(Duration::from_secs(30));
        }
    }
}

#[test]
fn a_slow_hook_holds_up_no_caller_and_no_refill() {
    for order in ["relaxed", "strict"] {
        let (stub, is_held) = (Stub::start(), Arc::new(AtomicBool::new(false)));
        stub.define("order", order);
        let (gate, held) = mpsc::channel();
        let hooks = Slow {
            held: Mutex::new(Some(held)),
            is_held: Arc::clone(&is_held),
        };
        let builder = Client::builder().endpoints([&stub.url]).hooks(hooks);
        let client = builder.build().unwrap();
        let orders = client.sequence("orders").unwrap();
        assert_eq!(orders.next_blocking().unwrap(), 1);
        until("the hook is held up", || is_held.load(Ordering::Acquire));
        for expected in 2..=250 {
            assert_eq!(orders.next_blocking().unwrap(), expected);
        }
        assert_eq!(gate.send(()), Ok(()), "the hook was not held up");
    }
}
