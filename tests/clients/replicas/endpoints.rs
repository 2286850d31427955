//! Endpoints that hang, lose replies and cut connections, while others work.

use std::time::Duration;

use serde_json::Value;

use super::{Replicas, load::Load, options};
use crate::{
    clients::language::{Language, for_each_language_and_server},
    support::{Backend, CutPoint, Link, Proxy, TestDatabase, settings, wait},
};

/// How long the library waits for a reply. It bounds how long a lost reply holds callers up.
const REFILL_TIMEOUT_MS: u64 = 700;
const LIMIT: Duration = Duration::from_secs(60);

/// Two replicas, each behind a proxy.
struct Endpoints {
    _database: TestDatabase,
    _replicas: Replicas,
    proxies: Vec<Proxy>,
    load: Load,
}

impl Endpoints {
    async fn start(language: Language, backend: Backend) -> Self {
        let database = TestDatabase::prepared(backend).await;
        let replicas = Replicas::start(&database, 2).await;
        let mut proxies = Vec::new();
        for port in &replicas.ports {
            proxies.push(Proxy::to(*port).await);
        }
        let addresses = proxies
            .iter()
            .map(|it| format!("http://127.0.0.1:{}", it.port()));
        let mut options = options(&addresses.collect::<Vec<_>>());
        options["refill_timeout_ms"] = Value::from(REFILL_TIMEOUT_MS);
        Self {
            load: Load::start(language, &options).await,
            _database: database,
            _replicas: replicas,
            proxies,
        }
    }

    /// Lets each endpoint in turn treat its connections as `link` says, while the other one works.
    async fn suffer(&self, link: Link) {
        for proxy in &self.proxies {
            self.load.goes_on().await;
            proxy.set(link);
            self.load.goes_on().await;
            proxy.set(Link::Whole);
        }
    }
}

for_each_language_and_server!(
    endpoints_that_hang_or_lose_replies_repeat_no_number_and_fail_no_caller,
    replies_that_are_cut_repeat_no_number_and_fail_no_caller,
);

/// Rules C4, C5 and C6.
async fn endpoints_that_hang_or_lose_replies_repeat_no_number_and_fail_no_caller(
    language: Language,
    backend: Backend,
) {
    let endpoints = Endpoints::start(language, backend).await;
    for _ in 0..settings::at_size(1, 10) {
        for link in [Link::BlackHole, Link::RepliesLost, Link::Cut] {
            endpoints.suffer(link).await;
        }
    }
    let outcome = endpoints.load.end().await;
    outcome.check();
    for met in ["timeout", "connection"] {
        assert!(
            outcome.hooks.n_with(&[met]) > 0,
            "vacuous: no refill met a {met}"
        );
    }
}

/// Rule C5: half a reply is none.
async fn replies_that_are_cut_repeat_no_number_and_fail_no_caller(
    language: Language,
    backend: Backend,
) {
    let endpoints = Endpoints::start(language, backend).await;
    let points = [
        CutPoint::BeforeForwarding,
        CutPoint::BeforeReply,
        CutPoint::WithinReply(20),
        CutPoint::WithinReply(150),
    ];
    for point in points {
        endpoints.load.goes_on().await;
        let n_before: usize = endpoints.proxies.iter().map(Proxy::n_cuts).sum();
        for proxy in &endpoints.proxies {
            proxy.cut_after(0, point);
        }
        wait::until("a reply is cut", LIMIT, async || {
            let n_now: usize = endpoints.proxies.iter().map(Proxy::n_cuts).sum();
            (n_now > n_before).then_some(())
        })
        .await;
    }
    endpoints.load.goes_on().await;
    let outcome = endpoints.load.end().await;
    outcome.check();
    let n_met = outcome.hooks.n_unanswered();
    assert!(
        n_met >= points.len(),
        "vacuous: {n_met} refills met {} cuts",
        points.len()
    );
}
