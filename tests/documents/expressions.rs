//! What people look at gives data: every expression runs on a real Prometheus, which scrapes two
//! replicas on PostgreSQL under load.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::task::JoinHandle;

use super::dashboards;
use crate::support::{
    Answer, Backend, Client, Program, Prometheus, Redis, TestDatabase, run, settings, wait,
};

/// Between two rounds of the callers: enough for every rate, little for a busy machine.
const BETWEEN_TWO_ROUNDS: Duration = Duration::from_millis(50);
/// Until every expression has data: a rate needs two scrapes, on a busy machine more.
const LIMIT: Duration = Duration::from_secs(60);
/// What no expression may be short of: fewer were not read.
const LEAST_EXPRESSIONS: usize = 90;

/// An expression, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) place: String,
    pub(super) text: String,
}

/// Two replicas with all that they can have, and callers that never rest.
struct Stage {
    replicas: Vec<Program>,
    n_given: Arc<AtomicU64>,
    callers: JoinHandle<()>,
    _databases: [TestDatabase; 2],
    _redis: Redis,
}

impl Stage {
    async fn start() -> Self {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        // A database keeps on record which Redis counts for it, from its migration on.
        let other = TestDatabase::empty(Backend::Postgres).await;
        let redis = Redis::start().await;
        let options = Program::options()
            .database(&database.url)
            .env("ODOMETER_STORES__FAST__DATABASE", &other.url)
            .env("ODOMETER_STORES__FAST__REDIS", redis.url())
            // Small, so that there are refills all the time.
            .env("ODOMETER_DEFAULT__BLOCK__MAX", 50);
        let migrated = options.run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "{migrated}");
        let replicas = vec![options.start_ready().await, options.start_ready().await];
        let client = replicas[0].client();
        let strict = json!({"order": "strict", "store": "fast"});
        client.define("receipts", &strict).await;
        let time_ordered = json!({"kind": "snowflake"});
        client.define("events", &time_ordered).await;
        let n_given = Arc::new(AtomicU64::new(0));
        let clients = replicas.iter().map(Program::client).collect();
        Self {
            callers: tokio::spawn(call_for_ever(clients, Arc::clone(&n_given))),
            replicas,
            n_given,
            _databases: [database, other],
            _redis: redis,
        }
    }

    /// Ends the callers, which must have been there all the time.
    fn end(self) {
        assert!(!self.callers.is_finished(), "the callers have ended");
        self.callers.abort();
        let n_given = self.n_given.load(Ordering::Relaxed);
        assert!(n_given > 100, "vacuous: {n_given} calls were given numbers");
    }
}

async fn call_for_ever(clients: Vec<Client>, n_given: Arc<AtomicU64>) {
    let mut rounds = tokio::time::interval(BETWEEN_TWO_ROUNDS);
    loop {
        rounds.tick().await;
        for client in &clients {
            for call in [
                "orders/next",
                "invoices/next",
                "receipts/next",
                "events/next",
                "orders/blocks?size=3",
            ] {
                let answer = client.ask(&format!("/v1/sequences/{call}")).await;
                if matches!(answer, Answer::Given(_)) {
                    n_given.fetch_add(1, Ordering::Relaxed);
                }
            }
            // What callers get wrong is on a panel as well.
            if let Ok(reply) = client.get("/v1/sequences/never-seen").await {
                assert_eq!(reply.status, 404, "{reply:?}");
            }
        }
    }
}

/// Those of `expressions` that have given no number within `limit`.
///
/// # Panics
/// When Prometheus refuses one.
async fn without_data(
    prometheus: &Prometheus,
    expressions: &[Expression],
    limit: Duration,
) -> Vec<Expression> {
    let started = Instant::now();
    let mut silent = expressions.to_vec();
    loop {
        let mut still = Vec::new();
        for expression in silent {
            let Expression { place, text } = &expression;
            let values = prometheus.query(text).await;
            let values = values.unwrap_or_else(|error| panic!("{place}: {text}: {error}"));
            if values.iter().all(|value| value.is_nan()) {
                still.push(expression);
            }
        }
        silent = still;
        if silent.is_empty() || started.elapsed() > limit {
            return silent;
        }
        tokio::time::sleep(Prometheus::SCRAPE_INTERVAL).await;
    }
}

#[test]
fn every_expression_gives_data_on_a_real_prometheus() {
    run(async {
        let stage = Stage::start().await;
        let prometheus = Prometheus::start(&stage.replicas, &[]).await;
        let expressions = dashboards::expressions();
        let n_expressions = expressions.len();
        assert!(n_expressions >= LEAST_EXPRESSIONS, "{n_expressions}");
        let silent = without_data(&prometheus, &expressions, LIMIT).await;
        assert!(silent.is_empty(), "without data: {silent:#?}");

        // The same look finds what gives none, and what is no expression.
        let misspelt = [
            "rate(odometer_numbers_isued_total[10s])",
            "odometer_build_info{job=\"odometr\"}",
            "0 / (odometer_store_up * 0)",
        ]
        .map(|text| Expression {
            place: "a control".to_owned(),
            text: text.to_owned(),
        });
        let silent = without_data(&prometheus, &misspelt, Duration::ZERO).await;
        assert_eq!(silent.len(), misspelt.len(), "{silent:#?}");
        let unclosed = prometheus.query("sum(odometer_waiters").await;
        assert!(unclosed.is_err(), "{unclosed:?}");
        stage.end();
    });
}

#[test]
fn the_dashboards_show_the_metrics_that_there_are() {
    run(async {
        let stage = Stage::start().await;
        let client = stage.replicas[0].client();
        let expressions = dashboards::expressions();
        let shown: BTreeSet<String> = expressions
            .iter()
            .flat_map(|expression| metrics_in(&expression.text))
            .collect();
        // Those of a sequence are there once it was called.
        let exposed = wait::until("every metric that is shown is there", LIMIT, async || {
            let exposed = exposed(&client).await;
            shown.is_subset(&exposed).then_some(exposed)
        })
        .await;
        let unseen: Vec<_> = exposed.difference(&shown).collect();
        assert!(unseen.is_empty(), "on no panel: {unseen:?}");
        for asked in dashboards::queries_of_variables() {
            for name in metrics_in(&asked) {
                assert!(exposed.contains(&name), "{name} of {asked}");
            }
        }
    });
}

/// The metrics of a scrape, of a histogram its buckets, which are what is asked for.
async fn exposed(client: &Client) -> BTreeSet<String> {
    let reply = client.get("/metrics").await.expect("a reply");
    let declared = reply
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    declared
        .map(|(name, kind)| {
            let part = if kind == "histogram" { "_bucket" } else { "" };
            format!("{name}{part}")
        })
        .collect()
}

/// The metrics of ours that an expression names.
fn metrics_in(expression: &str) -> Vec<String> {
    expression
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("odometer_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_configuration_of_prometheus_is_one() {
    let root = settings::repository();
    crate::support::prometheus::check("config", &root.join("dashboards/prometheus.yaml"));
}
