//! Strict order through Redis. The numbers come from Redis, and the database sets the ceiling below
//! which Redis may issue.

mod away;
mod changes;
mod cut;
mod ends;
mod recovered;
mod replaced;
mod servers;
mod windows;

use std::time::{Duration, Instant};

use serde_json::json;

use super::order::{Call, SEQUENCE};
use crate::support::{
    Backend, Client, Finished, Options, Program, Proxy, Redis, Scrape, Server, TestDatabase,
};

const N_REPLICAS: usize = 2;
const N_CALLERS: usize = 16;
/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A database, a Redis behind a proxy that distinguishes its callers, and the fallback of the
/// store.
pub(super) struct Stage {
    pub(super) database: TestDatabase,
    redis: Redis,
    proxy: Proxy,
    fallback: &'static str,
}

impl Stage {
    pub(super) async fn new(backend: Backend, fallback: &'static str) -> Self {
        Self::on(TestDatabase::empty(backend).await, fallback).await
    }

    async fn on_server(server: &Server, fallback: &'static str) -> Self {
        Self::on(TestDatabase::empty_on(server).await, fallback).await
    }

    async fn on(database: TestDatabase, fallback: &'static str) -> Self {
        let redis = Redis::start().await;
        let proxy = Proxy::by_caller(redis.port()).await;
        let stage = Self {
            database,
            redis,
            proxy,
            fallback,
        };
        let migrated = stage.migrate();
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        stage
    }

    fn migrate(&self) -> Finished {
        self.options(Program::options()).run(&["migrate"])
    }

    fn options(&self, options: Options) -> Options {
        let redis = format!("redis://127.0.0.1:{}", self.proxy.port());
        // An operator says what was lost.
        let options = options.env("ODOMETER_FAILOVER__WITHIN", "0s");
        configured(options, &self.database.url, &redis, self.fallback)
    }

    pub(super) async fn start(&self, options: Options) -> Vec<Program> {
        let options = self.options(options);
        let mut programs = Vec::new();
        for _ in 0..N_REPLICAS {
            programs.push(options.start_ready().await);
        }
        let definition = json!({"order": "strict"});
        programs[0].client().define(SEQUENCE, &definition).await;
        programs
    }

    /// Returns the number of the window that was opened last.
    async fn window(&self) -> i64 {
        window(&self.database, SEQUENCE).await
    }
}

/// Adds a default store with one database and these Redis servers.
pub(super) fn configured(options: Options, database: &str, redis: &str, fallback: &str) -> Options {
    options
        .env("ODOMETER_STORES__DEFAULT__DATABASE", database)
        .env("ODOMETER_STORES__DEFAULT__REDIS", redis)
        .env("ODOMETER_STORES__DEFAULT__FALLBACK", fallback)
}

async fn window(database: &TestDatabase, sequence: &str) -> i64 {
    counted(database, "window", sequence).await
}

/// Returns whether a window is open.
async fn is_open(database: &TestDatabase, sequence: &str) -> bool {
    let query =
        format!("SELECT count(*) FROM counter WHERE sequence = '{sequence}' AND window_open");
    database.number(&query).await == Some(1)
}

async fn counted(database: &TestDatabase, column: &str, sequence: &str) -> i64 {
    let column = match database.backend {
        Backend::MariaDb => format!("`{column}`"),
        Backend::Postgres | Backend::Sqlite => format!("\"{column}\""),
    };
    let query = format!("SELECT max({column}) FROM counter WHERE sequence = '{sequence}'");
    database.number(&query).await.expect("it was created")
}

/// Returns how many steps Redis made for all programs.
pub(super) async fn n_steps(programs: &[Program]) -> f64 {
    sum(programs, "odometer_redis_steps_total").await
}

async fn sum(programs: &[Program], metric: &str) -> f64 {
    let mut sum = 0.0;
    for program in programs {
        sum += Scrape::of(&program.client()).await.sum(metric, &[]);
    }
    sum
}

/// Returns how long after `moment` every replica had answered a call that was sent later.
fn back_after(calls: &[Call], moment: Instant) -> Duration {
    let of = |replica: usize| {
        let own = calls.iter().filter(|call| call.replica == replica);
        let later = own.filter(|call| call.sent >= moment);
        later.map(|call| call.answered - moment).min()
    };
    let replicas = (0..N_REPLICAS).map(of);
    replicas
        .map(|back| back.expect("every replica is called until the end"))
        .max()
        .expect("there are replicas")
}

/// Returns the `code` of a refused call for a number; `None` if the number was issued.
async fn refusal(client: &Client, sequence: &str) -> Option<String> {
    let path = format!("/v1/sequences/{sequence}/next");
    let reply = client.post(&path).await.expect("a reply");
    (reply.status != 200).then(|| reply.code().unwrap_or(reply.body))
}
