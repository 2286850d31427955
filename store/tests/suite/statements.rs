//! How many statements each operation sends if nobody disturbs it, and which.

use std::{
    collections::HashMap,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use odometer_core::name::SequenceName;
use odometer_store::{Condition, LeaseWanted, WorkerChoice, WorkerPool};
use odometer_tests::Backend;
use tracing::{
    Event, Instrument as _, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

use crate::{
    for_each_backend,
    stage::{Stage, define, name},
};

/// The log target of each statement that is sent.
const TARGET: &str = "odometer::database::statement";
/// The name of the span whose statements are collected.
const COLLECTED: &str = "collected";

/// The statements of each span, by its id.
type Sent = Mutex<HashMap<u64, Vec<String>>>;

fn sent() -> &'static Sent {
    static SENT: OnceLock<Sent> = OnceLock::new();
    SENT.get_or_init(|| {
        tracing_subscriber::registry().with(Collector).init();
        Sent::default()
    })
}

/// Collects the statements that are sent within a span.
struct Collector;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != TARGET {
            return;
        }
        let mut scope = context.event_scope(event).into_iter().flatten();
        let Some(span) = scope.find(|span| span.name() == COLLECTED) else {
            return;
        };
        let mut sql = Sql::default();
        event.record(&mut sql);
        let mut sent = sent().lock().expect("nobody panics with it");
        sent.entry(span.id().into_u64()).or_default().push(sql.0);
    }
}

#[derive(Default)]
struct Sql(String);

impl Visit for Sql {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "sql" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

/// Does something, and returns its outcome and the statements that it sent, in their order: what
/// each one does, and to which table.
async fn statements_of<T>(work: impl Future<Output = T>) -> (T, Vec<String>) {
    sent();
    let span = tracing::info_span!(COLLECTED);
    let id = span.id().expect("it is collected").into_u64();
    let outcome = work.instrument(span).await;
    let statements = sent().lock().expect("nobody panics with it").remove(&id);
    let statements = statements.unwrap_or_default();
    (outcome, statements.iter().map(|sql| short(sql)).collect())
}

/// The verb of a statement, and its first table.
fn short(sql: &str) -> String {
    let plain = sql.replace(['"', '`', '(', ')', ','], " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let verb = words.first().copied().unwrap_or_default();
    let before = match verb {
        "SELECT" | "DELETE" => "FROM",
        "INSERT" => "INTO",
        "UPDATE" => "UPDATE",
        _ => return verb.to_owned(),
    };
    // A count selects from a query, whose own table is meant. PostgreSQL's clock is read with
    // `EXTRACT(EPOCH FROM …)`, and the stamp is compared next to what is read.
    let others = [
        "SELECT",
        "CLOCK_TIMESTAMP",
        "STATEMENT_TIMESTAMP",
        "lineage",
    ];
    let is_table = |word: &str| !others.contains(&word);
    let pairs = words.windows(2);
    let mut tables = pairs.filter(|pair| pair[0] == before && is_table(pair[1]));
    let table = tables.next().map(|pair| pair[1]);
    format!("{verb} {}", table.unwrap_or_default())
}

for_each_backend!(a_first_use_sends_these_statements);

async fn a_first_use_sends_these_statements(backend: Backend) {
    let stage = Stage::new(backend).await;
    let (known, sent) = statements_of(stage.resolve_or_create()).await;
    known.expect("it is created");
    assert_eq!(
        sent,
        [
            "SELECT meta",
            // The sequences are counted: at the first creation, and rarely after it.
            "SELECT sequence",
            "BEGIN",
            "SELECT meta",
            "INSERT sequence",
            "INSERT counter",
            "COMMIT",
        ]
    );
    let (known, sent) = statements_of(stage.resolve_or_create()).await;
    assert_eq!(sent, ["SELECT meta"]);
    let known = known.expect("it is there");
    let (reserved, sent) = statements_of(stage.reserve(10, Some(&known))).await;
    assert_eq!(sent, ["UPDATE counter"]);
    let known = reserved.expect("a block").known;
    let (reserved, sent) = statements_of(stage.reserve(10, Some(&known))).await;
    assert_eq!(sent, ["UPDATE counter"]);
    reserved.expect("a block");
}

for_each_backend!(a_change_sends_these_statements);

async fn a_change_sends_these_statements(backend: Backend) {
    let stage = Stage::new(backend).await;
    let (created, sent) = statements_of(stage.alter(define("{}"), Condition::None)).await;
    created.expect("it is created");
    assert_eq!(
        sent,
        [
            "BEGIN",
            "SELECT sequence",
            "SELECT sequence",
            "SELECT meta",
            "SELECT meta",
            "UPDATE meta",
            "INSERT sequence",
            "INSERT counter",
            "COMMIT",
        ]
    );
    let act = define("{\"max\": 1000}");
    let (changed, sent) = statements_of(stage.alter(act.clone(), Condition::None)).await;
    assert!(changed.expect("it is changed").is_written);
    assert_eq!(
        sent,
        [
            "BEGIN",
            "SELECT sequence",
            "UPDATE counter",
            "SELECT meta",
            "SELECT meta",
            "SELECT sequence",
            "UPDATE meta",
            "UPDATE sequence",
            "UPDATE counter",
            "COMMIT",
        ]
    );
    let (changed, sent) = statements_of(stage.alter(act, Condition::None)).await;
    assert!(!changed.expect("it is as wanted").is_written);
    let nothing = [
        "BEGIN",
        "SELECT sequence",
        "SELECT meta",
        "SELECT sequence",
        "ROLLBACK",
    ];
    assert_eq!(sent, nothing, "{}", name());
}

for_each_backend!(a_lease_sends_these_statements);

async fn a_lease_sends_these_statements(backend: Backend) {
    let stage = Stage::new(backend).await;
    let wanted = |holder: &str| LeaseWanted {
        pool: WorkerPool::Named(SequenceName::parse("billing").expect("it is a name")),
        bits: 3,
        holder: holder.into(),
        ttl: Duration::from_secs(600),
        choice: WorkerChoice::Any,
        usable_by_ms: None,
    };
    // The first lease of a process looks at the schema and counts the pools.
    let first = stage.store().lease("default", wanted("one")).await;
    first.expect("a lease");
    let (lease, sent) = statements_of(stage.store().lease("default", wanted("two"))).await;
    let lease = lease.expect("a lease");
    assert_eq!(sent, ["SELECT worker_lease", "INSERT worker_lease"]);
    let renewing = stage.store().renew_lease(&lease.key, None);
    let (renewed, sent) = statements_of(renewing).await;
    let renewed = renewed.expect("it is renewed");
    assert_eq!(sent, ["UPDATE worker_lease"]);
    let ending = stage.store().give_back_lease(&renewed.key, None);
    let (ended, sent) = statements_of(ending).await;
    ended.expect("it is given back");
    assert_eq!(sent, ["UPDATE worker_lease"]);
}
