//! Runs two replicas on PostgreSQL and Redis, with every kind of store and under load. Prometheus
//! scrapes them while all is well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{Answer, Backend, Client, Link, Program, Proxy, Redis, Server, TestDatabase};

/// The time between two rounds of the callers. It is short enough for every rate, and long enough
/// for a busy machine.
const BETWEEN_TWO_ROUNDS: Duration = Duration::from_millis(50);

/// Two replicas with every kind of store, and callers that never stop.
pub(super) struct Stage {
    pub(super) replicas: Vec<Program>,
    n_given: Arc<AtomicU64>,
    callers: JoinHandle<()>,
    redis: Redis,
    /// The proxy to the second database of a striped store.
    proxy: Proxy,
    _databases: [TestDatabase; 4],
}

impl Stage {
    pub(super) async fn start() -> Self {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        // From its migration on, a database records which Redis counts for it. So this database is
        // empty.
        let other = TestDatabase::empty(Backend::Postgres).await;
        let redis = Redis::start().await;
        let first = TestDatabase::empty(Backend::Postgres).await;
        let second = TestDatabase::empty(Backend::Postgres).await;
        let server = Server::shared(Backend::Postgres).await;
        let proxy = Proxy::to(server.port()).await;
        let striped = [first.url.clone(), second.url_through(&proxy, server)];
        let options = Program::options()
            .database(&database.url)
            .env("ODOMETER_STORES__FAST__DATABASE", &other.url)
            .env("ODOMETER_STORES__FAST__REDIS", redis.url())
            .env("ODOMETER_STORES__STRIPED__DATABASES", striped.join(","))
            // Each block lasts for an hour, as on a replica that has been in use for long.
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 1_000_000);
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
            redis,
            proxy,
            _databases: [database, other, first, second],
        }
    }

    pub(super) fn lose_redis_and_one_database(&mut self) {
        self.redis.kill();
        self.proxy.set(Link::Cut);
    }

    /// Kills one of the two replicas.
    pub(super) fn lose_a_replica(&mut self) {
        let last = self.replicas.last_mut();
        last.expect("there are two").kill();
    }

    /// Kills the replicas. Panics if the callers ended before, or got too few numbers.
    pub(super) fn kill(&mut self) {
        assert!(!self.callers.is_finished(), "the callers have ended");
        self.callers.abort();
        let n_given = self.n_given.load(Ordering::Relaxed);
        assert!(n_given > 100, "vacuous: {n_given} calls were given numbers");
        for replica in &mut self.replicas {
            replica.kill();
        }
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
            // A panel also shows the errors of callers, such as an unknown name. While a store is
            // away, the answer is 503, because this store may know the name.
            if let Ok(reply) = client.get("/v1/sequences/never-seen").await {
                assert!(matches!(reply.status, 404 | 503), "{reply:?}");
            }
        }
    }
}
