//! Sequences that several databases share. Each database gives its own numbers, and any of them is
//! enough to go on.

mod changes;
mod copies;
mod creations;
mod outages;
mod periods;
mod reading;
mod silent;
mod stamps;

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::support::{
    Backend, Client, Finished, Ledger, Link, Options, Program, Proxy, Range, Reply, Server,
    TestDatabase, settled, wait,
};

/// The kinds of the databases that share a sequence.
pub(super) const KINDS: [Backend; 3] = [Backend::MariaDb, Backend::MariaDb, Backend::Postgres];
const N: i64 = 3;
/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Databases that share their sequences, each behind a proxy.
pub(super) struct Stripes {
    databases: Vec<TestDatabase>,
    proxies: Vec<Proxy>,
    urls: Vec<String>,
}

impl Stripes {
    /// Creates the databases on the servers that all tests share.
    pub(super) async fn new() -> Self {
        let mut databases = Vec::new();
        for kind in KINDS {
            databases.push(TestDatabase::empty(kind).await);
        }
        let direct: Vec<&str> = databases.iter().map(|it| it.url.as_str()).collect();
        let migrated = configured(Program::options(), &direct).run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        let (proxies, urls) = behind_proxies(&databases).await;
        Self {
            databases,
            proxies,
            urls,
        }
    }

    pub(super) fn options(&self, options: Options) -> Options {
        let urls: Vec<&str> = self.urls.iter().map(String::as_str).collect();
        configured(options, &urls)
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 5)
            .env("ODOMETER_DEFAULT__BLOCK__MAX", 10)
            .env("ODOMETER_FAILOVER__WITHIN", "0s")
            .env("ODOMETER_DEFINITION_REFRESH", "2s")
            .env("ODOMETER_STORE__TIMEOUT", "1s")
    }

    /// Starts a replica that defines a sequence. Returns the replica, and numbers from every
    /// database.
    async fn serving(&self, sequence: &str, definition: &Value) -> (Program, Vec<i64>) {
        let program = self.options(Program::options()).start_ready().await;
        let client = program.client();
        client.define(sequence, definition).await;
        let values = until_all_give(&client, sequence).await;
        (program, values)
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        let direct: Vec<&str> = self.databases.iter().map(|it| it.url.as_str()).collect();
        configured(Program::options(), &direct).run(arguments)
    }

    /// Makes one database unreachable, or reachable again.
    fn set(&self, k: usize, link: Link) {
        self.proxies[k].set(link);
    }

    /// Returns the number that a query gives in each database.
    async fn numbers(&self, query: &str) -> Vec<Option<i64>> {
        let mut numbers = Vec::new();
        for database in &self.databases {
            numbers.push(database.number(query).await);
        }
        numbers
    }
}

/// Starts another proxy in front of each of these databases. Returns the proxies and their URLs.
async fn behind_proxies(databases: &[TestDatabase]) -> (Vec<Proxy>, Vec<String>) {
    let (mut proxies, mut urls) = (Vec::new(), Vec::new());
    for database in databases {
        let server = Server::shared(database.backend).await;
        let proxy = Proxy::to(server.port()).await;
        urls.push(database.url_through(&proxy, server));
        proxies.push(proxy);
    }
    (proxies, urls)
}

/// Adds a default store of these databases.
fn configured(options: Options, databases: &[&str]) -> Options {
    options.env("ODOMETER_STORES__DEFAULT__DATABASES", databases.join(","))
}

/// Returns the index of the database that gave a number. The sequence must start at 1.
pub(super) fn residue(value: i64) -> usize {
    usize::try_from((value - 1).rem_euclid(N)).expect("a residue is not negative")
}

fn residues(values: &[i64]) -> BTreeSet<usize> {
    values.iter().copied().map(residue).collect()
}

/// Takes a number of a name that may be new. The creation needs more than half of the databases,
/// and a database that is slow just then is passed over for a moment.
async fn first(client: &Client, sequence: &str) -> i64 {
    let path = format!("/v1/sequences/{sequence}/next");
    settled(|| client.post(&path)).await.number()
}

/// Makes `n_calls` calls for one number each, all of which must be answered.
async fn take(client: &Client, sequence: &str, n_calls: usize) -> Vec<i64> {
    let path = format!("/v1/sequences/{sequence}/next");
    let mut values = Vec::new();
    for _ in 0..n_calls {
        let reply = client.post(&path).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        values.extend(reply.values());
    }
    values
}

/// Takes numbers until every database has given some, and returns all of them.
async fn until_all_give(client: &Client, sequence: &str) -> Vec<i64> {
    until_so_many_give(client, sequence, KINDS.len()).await
}

/// Does the same for `n_databases` databases. A slow database is passed over for a moment.
async fn until_so_many_give(client: &Client, sequence: &str, n_databases: usize) -> Vec<i64> {
    let mut all = Vec::new();
    wait::until("so many databases give numbers", LIMIT, async || {
        let values = take(client, sequence, 40).await;
        let is_spread = residues(&values).len() == n_databases;
        all.extend(values);
        is_spread.then_some(())
    })
    .await;
    all
}

fn n_twice(values: &[i64]) -> u64 {
    let mut ledger = Ledger::default();
    let singles: Vec<Range> = values.iter().copied().map(Range::single).collect();
    ledger.record("all", &singles);
    ledger.n_duplicates()
}

/// Makes a change, which needs every database. A database that is slow just then is passed over for
/// a moment.
async fn change(client: &Client, method: &str, path: &str, body: Option<Value>) -> Reply {
    settled(|| async { Ok(call(client, method, path, body.clone()).await) }).await
}

async fn call(client: &Client, method: &str, path: &str, body: Option<Value>) -> Reply {
    let method = method.parse().expect("a method");
    let headers: &[(&str, &str)] = match body {
        Some(_) => &[("content-type", "application/json")],
        None => &[],
    };
    let body = body.map(|body| body.to_string().into_bytes());
    let reply = client.send(method, path, headers, body).await;
    reply.expect("a reply")
}
