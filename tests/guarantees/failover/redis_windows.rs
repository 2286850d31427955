//! The database of a store that counts in Redis fails over to a copy that lost windows.

use serde_json::json;

use super::{
    ARM, FENCES, LIMIT,
    stage::{N_AFTER, N_BEFORE, polling},
};
use crate::{
    guarantees::redis::configured,
    support::{
        Answer, Backend, Client, Ledger, Options, Product, Program, Range, Redis, Server, Standby,
        TestDatabase, run, wait,
    },
};

const STRICT: &str = "tickets";
const NEXT: &str = "/v1/sequences/tickets/next";

/// A server with a standby, and a Redis that counts in front of it.
struct Stage {
    pair: Standby,
    database: TestDatabase,
    redis: Redis,
    /// The options of a replica that reaches the server by the way of the callers.
    options: Options,
    fallback: &'static str,
    ledger: Ledger,
}

impl Stage {
    async fn new(options: Options, fallback: &'static str) -> Self {
        let primary = Server::start_of(Product::drawn(Backend::Postgres)).await;
        let database = TestDatabase::empty_on(&primary).await;
        let redis = Redis::start().await;
        let pair = Standby::of(primary).await;
        let options = polling(options)
            .env("ODOMETER_FAILOVER__WITHIN", "15m")
            .env("ODOMETER_STORE__TIMEOUT", "1s");
        let url = database.url_through(&pair.callers, pair.primary());
        let options = configured(options, &url, &redis.url(), fallback);
        let migrated = options.run(&["migrate"]);
        assert_eq!(migrated.code, Some(0), "migrate: {migrated}");
        Self {
            pair,
            database,
            redis,
            options,
            fallback,
            ledger: Ledger::default(),
        }
    }

    /// Takes `n` numbers, each as soon as there is one. They must rise, unless a guard is missing.
    async fn take(&mut self, client: &Client, n: u64) {
        for _ in 0..n {
            let given = wait::until("a number is given", LIMIT, async || number(client).await);
            let given = given.await;
            let last = self.ledger.highest(STRICT);
            let lacks_guards = self.options.lacks_guards();
            assert!(lacks_guards || Some(given) > last, "{given} after {last:?}");
            self.ledger.record(STRICT, &[Range::single(given)]);
        }
    }

    /// Fails over to a copy that has lost the last window, and numbers of it.
    async fn fail_over(&mut self, old: &Program) {
        let client = old.client();
        let large = json!({"order": "strict", "block": {"min": 100, "max": 100}});
        client.define(STRICT, &large).await;
        self.database.execute(ARM).await;
        self.take(&client, N_BEFORE).await;
        self.pair.catch_up().await;
        self.pair.hold();
        assert_eq!(self.redis.ask(&["FLUSHALL"]), "OK");
        self.take(&client, N_AFTER).await;
        self.pair.lose_primary();
        self.pair.promote().await;
        let name = self.database.name().to_owned();
        self.database = TestDatabase::on(self.pair.standby(), &name);
        let kept = self.database.next_value(STRICT).await;
        assert!(self.ledger.highest(STRICT) >= kept, "vacuous: {kept:?}");
    }

    /// Starts a replica that reaches the copy. Others are still cut off from it.
    async fn fresh(&self) -> Program {
        let options = self.options.clone();
        let (url, redis) = (&self.database.url, self.redis.url());
        configured(options, url, &redis, self.fallback)
            .start()
            .await
    }

    async fn is_fenced(&self) {
        assert_eq!(self.database.number(FENCES).await, Some(1));
    }
}

/// Returns the next number, if one is given.
async fn number(client: &Client) -> Option<i64> {
    match client.ask(NEXT).await {
        Answer::Given(ranges) => Some(ranges[0].first),
        Answer::Refused(_) => None,
        Answer::NoReply(error) => panic!("no reply: {error}"),
    }
}

/// Checks that a replica goes on from a lost window while it is cut off from the database, and ends
/// before another one gives the next number.
#[test]
fn a_lost_window_is_used_until_the_next_one_is_and_no_longer() {
    run(async {
        let mut stage = Stage::new(Program::options(), "none").await;
        let old = stage.options.start_ready().await;
        stage.fail_over(&old).await;
        stage.take(&old.client(), 1).await;
        let fresh = stage.fresh().await;
        stage.take(&fresh.client(), N_BEFORE).await;
        stage.is_fenced().await;
        assert_eq!(number(&old.client()).await, None);
        stage.pair.lead_to_standby();
        for replica in [&old, &fresh, &old] {
            stage.take(&replica.client(), N_BEFORE).await;
        }
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}

/// Loses the database's last commits and all data of Redis, while a replica is cut off from the
/// database. Returns how many numbers were given twice.
async fn both_go_back(options: Options) -> u64 {
    let mut stage = Stage::new(options, "none").await;
    let old = stage.options.start_ready().await;
    stage.fail_over(&old).await;
    assert_eq!(stage.redis.ask(&["FLUSHALL"]), "OK");
    let fresh = stage.fresh().await;
    stage.take(&fresh.client(), 3).await;
    for _ in 0..3 {
        if let Some(given) = number(&old.client()).await {
            stage.ledger.record(STRICT, &[Range::single(given)]);
        }
    }
    stage.ledger.n_duplicates()
}

#[test]
fn a_window_that_was_lost_has_the_number_of_no_other_one() {
    run(async {
        assert_eq!(both_go_back(Program::options()).await, 0);
    });
}

#[test]
fn a_fence_that_keeps_the_numbers_of_windows_repeats_numbers() {
    run(async {
        let options = Program::options().without_guards("fence-keeps-windows");
        let n_twice = both_go_back(options).await;
        assert!(n_twice > 0, "nothing is found");
    });
}

/// Checks that the row goes on above a lost window if Redis is away, too.
#[test]
fn a_row_that_counts_for_redis_goes_on_above_a_lost_window() {
    run(async {
        let mut stage = Stage::new(Program::options(), "database").await;
        let old = stage.options.start_ready().await;
        stage.fail_over(&old).await;
        stage.redis.kill();
        stage.pair.lead_to_standby();
        let fresh = stage.fresh().await;
        for replica in [&old, &fresh] {
            stage.take(&replica.client(), N_BEFORE).await;
        }
        stage.is_fenced().await;
        stage.redis.start_again().await;
        for replica in [&fresh, &old] {
            stage.take(&replica.client(), N_BEFORE).await;
        }
        assert_eq!(stage.ledger.n_duplicates(), 0);
    });
}
