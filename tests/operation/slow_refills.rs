//! Log lines about refills: a few lines for many slow refills, and none for single numbers.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    Backend, Client, Link, Options, Program, Proxy, Reply, Scrape, Server, TestDatabase,
    for_each_server, run,
};

const SLOW: &str = "a refill was slow";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// The number of names that are used for the first time while the database is slow.
const N_NAMES: usize = 16;
/// The delay of each reply. It exceeds the threshold, so that every creation is slow.
const DELAY: Duration = Duration::from_millis(60);
const THRESHOLD: &str = "50ms";
/// The deadline of a refill. Each creation takes many replies, and a busy machine is slow.
const PATIENCE: &str = "25s";
const LONGER_THAN_A_RUN: &str = "10m";
/// The seconds between two lines about one store.
const PAUSE_S: u64 = 10;
/// The most lines of a start and a stop, including those about delays on a busy machine.
const FEW: usize = 30;

async fn next(client: Client, name: String) -> Reply {
    let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let headers = [
        ("x-request-id", name.as_str()),
        ("traceparent", traceparent.as_str()),
    ];
    let path = format!("/v1/sequences/{name}/next");
    let reply = client.send(Method::POST, &path, &headers, None).await;
    reply.expect("a reply")
}

fn lines(log: &str) -> Vec<Value> {
    let lines = log.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn slow_ones(log: &str) -> Vec<Value> {
    let mut lines = lines(log);
    lines.retain(|line| line["message"] == SLOW);
    lines
}

/// Uses names for the first time while the database is slow. Returns the log, and how long the
/// calls took.
async fn slow_creations(options: &Options, proxy: &Proxy) -> (String, Duration) {
    let options = options
        .clone()
        .env("ODOMETER_REFILL__DEADLINE", PATIENCE)
        .env("ODOMETER_POOL__ACQUIRE", PATIENCE);
    let program = options.start_ready().await;
    let client = program.client();
    proxy.delay_replies(DELAY);
    let began = Instant::now();
    let mut callers: JoinSet<Reply> = (0..N_NAMES)
        .map(|at| next(client.clone(), format!("slow-{at}")))
        .collect();
    while let Some(reply) = callers.join_next().await {
        let reply = reply.expect("it ended");
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let scrape = client.get("/metrics").await.expect("a reply");
    let lasted = began.elapsed();
    proxy.delay_replies(Duration::ZERO);
    let scrape = Scrape::parse(&scrape.body);
    let n_refills = scrape.sum("odometer_reservation_duration_seconds_count", &[]);
    assert!(n_refills >= N_NAMES as f64, "vacuous: {n_refills} refills");
    (program.stop().await, lasted)
}

for_each_server!(slow_refills_are_logged_but_not_each);

async fn slow_refills_are_logged_but_not_each(backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url_through(&proxy, server));
    let told = options.clone().env("ODOMETER_LOG__SLOW_REFILL", THRESHOLD);
    let (log, lasted) = slow_creations(&told, &proxy).await;
    let slow = slow_ones(&log);
    let most = 1 + usize::try_from(lasted.as_secs() / PAUSE_S).expect("a few") + 1;
    assert!((1..=most).contains(&slow.len()), "{lasted:?}: {log}");
    let first = &slow[0];
    let name = first["sequence"].as_str().expect("a sequence");
    assert!(name.starts_with("slow-"), "{first}");
    assert_eq!(first["level"], "WARN");
    assert!(
        first["duration_ms"].as_u64().is_some_and(|ms| ms >= 50),
        "{first}"
    );
    assert!(
        first["attempts"].as_u64().is_some_and(|n| n >= 1),
        "{first}"
    );
    let rest = ["outcome", "store", "request_id", "trace_id"].map(|field| &first[field]);
    assert_eq!(rest, ["reserved", "default", name, TRACE], "{first}");
    assert_eq!(first["n_untold"], 0, "{first}");
}

for_each_server!(refills_below_the_threshold_are_no_event);

/// The control of the threshold: the names are as slow as above, but the threshold is higher.
async fn refills_below_the_threshold_are_no_event(backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url_through(&proxy, server))
        .env("ODOMETER_LOG__SLOW_REFILL", LONGER_THAN_A_RUN);
    let (log, _) = slow_creations(&options, &proxy).await;
    assert_eq!(slow_ones(&log), Vec::<Value>::new(), "{log}");
}

for_each_server!(a_refill_that_fails_slowly_is_logged_with_the_reason);

async fn a_refill_that_fails_slowly_is_logged_with_the_reason(backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url_through(&proxy, server))
        .env("ODOMETER_LOG__SLOW_REFILL", THRESHOLD)
        .env("ODOMETER_REFILL__DEADLINE", "1s")
        .start_ready()
        .await;
    proxy.set(Link::RepliesLost);
    let reply = next(program.client(), "lost".to_owned()).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    proxy.set(Link::Whole);
    let log = program.stop().await;
    let slow = slow_ones(&log);
    let line = slow.first().unwrap_or_else(|| panic!("no line: {log}"));
    assert_eq!(line["sequence"], "lost", "{line}");
    assert_eq!(line["outcome"], "failed", "{line}");
    assert!(line["error"].is_string(), "{line}");
    assert_eq!(line["trace_id"], TRACE, "{line}");
}

/// Returns how many lines a program logs while `ask` runs.
async fn n_lines_of<F: Future<Output = ()>>(ask: impl FnOnce(Client) -> F) -> usize {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    ask(program.client()).await;
    program.stop().await.lines().count()
}

async fn post(client: &Client, path: &str, body: Option<&Value>) {
    let headers = [("content-type", "application/json")];
    let headers = if body.is_some() { &headers[..] } else { &[] };
    let body = body.map(|body| body.to_string().into_bytes());
    let reply = client.send(Method::POST, path, headers, body).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn no_number_is_an_event() {
    const N_CALLS: usize = 300;
    run(async {
        let n_lines = n_lines_of(async |client: Client| {
            client.define("strict", &json!({"order": "strict"})).await;
            for _ in 0..N_CALLS {
                // These calls take from memory, by the routes, from the store, and with a write
                // each.
                for path in [
                    "orders/next",
                    "orders/next?count=100",
                    "order%73/next",
                    "orders/blocks?size=10",
                    "strict/next",
                ] {
                    post(&client, &format!("/v1/sequences/{path}"), None).await;
                }
            }
        })
        .await;
        assert!(n_lines <= FEW, "{n_lines} lines");
        // The control: each call of this kind is an event and is found.
        let n_lines = n_lines_of(async |client: Client| {
            client.define("orders", &json!({})).await;
            for floor in 0..N_CALLS {
                let body = json!({"floor": (floor + 2).to_string()});
                post(&client, "/v1/sequences/orders/advance", Some(&body)).await;
            }
        })
        .await;
        assert!(n_lines >= N_CALLS, "{n_lines} lines");
    });
}
