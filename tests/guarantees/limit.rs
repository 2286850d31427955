//! A counter gives no more numbers than its speed limit allows, whichever replicas ask for them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};

use super::{redis, striped};
use crate::support::{
    Backend, Client, Ledger, Options, Program, Range, Reply, Scrape, TestDatabase,
    for_each_backend, for_each_server, run, settled, wait,
};

/// The limit of the sequences that callers empty. What is allowed grows so slowly that the test may
/// be slow, too: all callers want eight bursts, and the rate needs more than 20 minutes for them.
const RATE: u32 = 1;
const BURST: u32 = 200;
const N_CALLERS: usize = 8;
/// How many numbers a call asks for.
const COUNT: u32 = 20;
/// How long an expected event may take. The slow limits of the tests give too little in this time.
const LIMIT: Duration = Duration::from_secs(60);

for_each_server!(
    replicas_together_give_no_more_than_the_limit,
    without_the_limit_replicas_give_more,
    replicas_of_a_strict_sequence_give_no_more_than_the_limit,
    without_the_limit_replicas_of_a_strict_sequence_give_more,
);

async fn replicas_together_give_no_more_than_the_limit(backend: Backend) {
    let outcome = emptied(backend, Program::options(), "relaxed").await;
    outcome.assert_within_limit();
}

async fn without_the_limit_replicas_give_more(backend: Backend) {
    let options = Program::options().without_guards("no-limit");
    let outcome = emptied(backend, options, "relaxed").await;
    assert!(outcome.is_above_limit(), "the check finds nothing");
}

async fn replicas_of_a_strict_sequence_give_no_more_than_the_limit(backend: Backend) {
    let outcome = emptied(backend, Program::options(), "strict").await;
    outcome.assert_within_limit();
}

async fn without_the_limit_replicas_of_a_strict_sequence_give_more(backend: Backend) {
    let options = Program::options().without_guards("no-limit");
    let outcome = emptied(backend, options, "strict").await;
    assert!(outcome.is_above_limit(), "the check finds nothing");
}

/// What callers got of a sequence.
struct Outcome {
    ledger: Ledger,
    /// How many numbers were reserved.
    n_reserved: f64,
    /// The most numbers that may have been reserved.
    allowed: f64,
}

impl Outcome {
    fn is_above_limit(&self) -> bool {
        self.n_reserved > self.allowed
    }

    fn assert_within_limit(&self) {
        let (n_reserved, allowed) = (self.n_reserved, self.allowed);
        assert!(!self.is_above_limit(), "{n_reserved} instead of {allowed}");
        assert_eq!(self.ledger.n_duplicates(), 0);
    }
}

/// Lets callers at two replicas take as many numbers as they get.
async fn emptied(backend: Backend, options: Options, order: &str) -> Outcome {
    let database = TestDatabase::prepared(backend).await;
    let options = options.database(&database.url);
    let programs = [options.start_ready().await, options.start_ready().await];
    emptied_by(&programs, &database, order).await
}

async fn emptied_by(programs: &[Program], database: &TestDatabase, order: &str) -> Outcome {
    let taken = Taken::by(programs, json!({"order": order}), BURST / 2).await;
    let next_value = database.next_value("orders").await.expect("a counter");
    Outcome {
        n_reserved: (next_value - 1) as f64,
        allowed: taken.allowed(),
        ledger: taken.ledger,
    }
}

/// What callers took who took as much as they got.
struct Taken {
    ledger: Ledger,
    started: Instant,
}

impl Taken {
    /// Defines a sequence, and lets callers take its numbers from these programs until each of them
    /// is refused, but at least `useful` numbers. Without a limit, all get what they want.
    async fn by(programs: &[Program], mut definition: Value, useful: u32) -> Self {
        let clients: Vec<Client> = programs.iter().map(Program::client).collect();
        let started = Instant::now();
        definition["limit"] = json!({"rate": RATE, "burst": BURST});
        clients[0].define("orders", &definition).await;
        let n_given = Arc::new(AtomicU64::new(0));
        let callers = clients.iter().cycle().take(N_CALLERS).cloned();
        let callers = callers.map(|client| {
            let n_given = Arc::clone(&n_given);
            tokio::spawn(take_all(client, n_given, useful))
        });
        let mut ledger = Ledger::default();
        for caller in callers.collect::<Vec<_>>() {
            ledger.merge(caller.await.expect("a caller ends"));
        }
        Self { ledger, started }
    }

    /// Returns the most numbers that one counter may have given until now.
    fn allowed(&self) -> f64 {
        let lasted = self.started.elapsed().as_secs_f64();
        // What costs are rounded up by is less than a number.
        f64::from(BURST) + f64::from(RATE) * lasted + 1.0
    }
}

/// Takes numbers until the caller has a whole burst, or until the limit holds the caller back.
///
/// Callers who are refused together may leave a part of the burst. So a refusal counts once all
/// callers together have `useful` numbers.
async fn take_all(client: Client, n_given: Arc<AtomicU64>, useful: u32) -> Ledger {
    let path = format!("/v1/sequences/orders/next?count={COUNT}");
    let mut ledger = Ledger::default();
    while ledger.n_numbers() < u64::from(BURST) {
        let reply = settled(|| client.post(&path)).await;
        if reply.status != 429 {
            let values = reply.values().into_iter().map(Range::single);
            ledger.record("orders", &values.collect::<Vec<_>>());
            n_given.fetch_add(u64::from(COUNT), Ordering::Relaxed);
        } else if n_given.load(Ordering::Relaxed) >= u64::from(useful) {
            break;
        }
    }
    ledger
}

for_each_server!(
    windows_of_redis_are_paid_for,
    without_the_limit_windows_of_redis_have_more,
);

async fn windows_of_redis_are_paid_for(backend: Backend) {
    emptied_redis(backend, Program::options())
        .await
        .assert_within_limit();
}

async fn without_the_limit_windows_of_redis_have_more(backend: Backend) {
    let options = Program::options().without_guards("no-limit");
    let outcome = emptied_redis(backend, options).await;
    assert!(outcome.is_above_limit(), "the check finds nothing");
}

/// Lets callers at two replicas take as many numbers as they get, from windows of Redis.
async fn emptied_redis(backend: Backend, options: Options) -> Outcome {
    let stage = redis::Stage::new(backend, "none").await;
    let programs = stage.start(options).await;
    let outcome = emptied_by(&programs, &stage.database, "strict").await;
    let n_steps = redis::n_steps(&programs).await;
    assert!(n_steps > 0.0, "vacuous: Redis did not count");
    outcome
}

#[test]
fn each_of_several_databases_gives_no_more_than_the_limit() {
    run(async {
        let (taken, n_given, allowed) = emptied_stripes(Program::options()).await;
        assert_eq!(taken.ledger.n_duplicates(), 0);
        for (k, n_given) in n_given.into_iter().enumerate() {
            assert!(n_given <= allowed, "{n_given} instead of {allowed} by {k}");
        }
    });
}

#[test]
fn without_the_limit_one_of_several_databases_gives_more() {
    run(async {
        let options = Program::options().without_guards("no-limit");
        let (_taken, n_given, allowed) = emptied_stripes(options).await;
        let is_above = n_given.into_iter().any(|n_given| n_given > allowed);
        assert!(is_above, "the check finds nothing");
    });
}

/// Lets callers at two replicas take as many numbers as they get, from several databases. Returns
/// what they took, how much each database gave, and the most that it may give.
async fn emptied_stripes(options: Options) -> (Taken, Vec<f64>, f64) {
    let stripes = striped::Stripes::new().await;
    let options = stripes.options(options);
    let programs = [options.start_ready().await, options.start_ready().await];
    let block = json!({"min": 50, "max": 500});
    // This is more than one database may give. What they skip to catch up with each other is at
    // most a quarter of their bursts.
    let taken = Taken::by(&programs, json!({"block": block}), 2 * BURST).await;
    let allowed = taken.allowed();
    let given = taken.ledger.given("orders").iter();
    let given: Vec<usize> = given.map(|range| striped::residue(range.first)).collect();
    let n_given = (0..striped::KINDS.len()).map(|k| {
        let of_k = given.iter().filter(|residue| **residue == k);
        of_k.count() as f64
    });
    let n_given = n_given.collect();
    (taken, n_given, allowed)
}

for_each_backend!(
    a_caller_is_refused_if_the_bucket_fills_too_slowly,
    a_refill_is_cut_to_what_the_limit_has_left,
    each_period_has_a_bucket_of_its_own,
    what_is_skipped_is_paid_for,
    another_limit_keeps_what_was_used,
    a_clock_that_was_set_back_stops_no_counter,
);

/// A replica whose callers do not wait long for the bucket.
struct Stage {
    database: TestDatabase,
    client: Client,
    _program: Program,
}

impl Stage {
    async fn new(backend: Backend) -> Self {
        Self::that_waits(backend, "2s").await
    }

    /// Starts a replica whose callers wait for `deadline`.
    async fn that_waits(backend: Backend, deadline: &str) -> Self {
        let database = TestDatabase::prepared(backend).await;
        let options = Program::options().database(&database.url);
        let options = options.env("ODOMETER_REFILL__DEADLINE", deadline);
        let program = options.start_ready().await;
        Self {
            database,
            client: program.client(),
            _program: program,
        }
    }

    async fn define(&self, definition: Value) {
        self.client.define("orders", &definition).await;
    }

    /// Takes a block of the sequence, or of one of its periods.
    async fn block(&self, size: u32, period: &str) -> Reply {
        let path = format!("/v1/sequences/orders/blocks?size={size}{period}");
        settled(|| self.client.post(&path)).await
    }
}

fn assert_limited(reply: &Reply) {
    assert_eq!(reply.status, 429, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some("rate_limited"));
    let wait = reply.header("retry-after").and_then(|it| it.parse().ok());
    let wait: u32 = wait.expect("seconds");
    assert!((1..=60).contains(&wait), "{reply:?}");
}

async fn a_caller_is_refused_if_the_bucket_fills_too_slowly(backend: Backend) {
    let stage = Stage::new(backend).await;
    for order in ["relaxed", "strict"] {
        let name = format!("orders-{order}");
        let definition = json!({"order": order, "limit": {"rate": 1, "burst": 100}});
        stage.client.define(&name, &definition).await;
        let ask = async |path: &str| {
            let path = format!("/v1/sequences/{name}/{path}");
            settled(|| stage.client.post(&path)).await
        };
        for path in ["blocks?size=101", "next?count=101"] {
            let reply = ask(path).await;
            assert_eq!(reply.status, 400, "{reply:?}");
            assert_eq!(reply.code().as_deref(), Some("invalid_count"));
            assert!(reply.body.contains("100"), "{reply:?}");
        }
        assert_eq!(ask("blocks?size=100").await.status, 200);
        assert_limited(&ask("next?count=50").await);
        assert_limited(&ask("blocks?size=50").await);
    }
    let wide = json!({"limit": {"rate": 1, "burst": 100}, "block": {"min": 101}});
    let reply = stage.client.put("/v1/sequences/wide", &wide).await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.code().as_deref(), Some("invalid_definition"));
}

async fn a_refill_is_cut_to_what_the_limit_has_left(backend: Backend) {
    let stage = Stage::that_waits(backend, "20s").await;
    let started = Instant::now();
    let limit = json!({"rate": 2, "burst": 200});
    stage
        .define(json!({"limit": limit, "block": {"min": 150}}))
        .await;
    // The first block has 150 numbers, and the second only what is left: it would take 50 seconds
    // until the limit allows as many again. Then each number comes by itself.
    for count in [100, 100, 4] {
        let path = format!("/v1/sequences/orders/next?count={count}");
        let reply = settled(|| stage.client.post(&path)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    let lasted = started.elapsed();
    assert!(lasted > Duration::from_millis(1_990), "only {lasted:?}");
    let scrape = Scrape::of(&stage.client).await;
    assert!(scrape.n_reservations("limited") > 0.0);
    assert!(scrape.n_reservations("conflict") < 1.0);
}

async fn each_period_has_a_bucket_of_its_own(backend: Backend) {
    let stage = Stage::new(backend).await;
    let limit = json!({"rate": 1, "burst": 100});
    stage
        .define(json!({"period": "keyed", "limit": limit}))
        .await;
    for period in ["&period=eod-1", "&period=eod-2"] {
        assert_eq!(stage.block(100, period).await.status, 200);
        assert_limited(&stage.block(50, period).await);
    }
}

async fn what_is_skipped_is_paid_for(backend: Backend) {
    let stage = Stage::new(backend).await;
    stage
        .define(json!({"limit": {"rate": 1, "burst": 100}}))
        .await;
    let advance = async |floor: u32| {
        let body = json!({"floor": floor.to_string(), "confirm": true});
        let path = "/v1/sequences/orders/advance";
        let headers = [("content-type", "application/json")];
        let body = Some(body.to_string().into_bytes());
        let send = || {
            let body = body.clone();
            stage.client.send(Method::POST, path, &headers, body)
        };
        let reply = settled(send).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    };
    advance(91).await;
    assert_limited(&stage.block(50, "").await);
    // What the limit never allows at once is skipped, and nothing is paid for.
    advance(10_000).await;
    assert_eq!(stage.block(10, "").await.status, 200);
}

async fn another_limit_keeps_what_was_used(backend: Backend) {
    let stage = Stage::new(backend).await;
    let limited = |rate: u32, burst: u32| json!({"limit": {"rate": rate, "burst": burst}});
    stage.define(limited(1, 1_000)).await;
    assert_eq!(stage.block(900, "").await.status, 200);
    // Nine hundred numbers are used, whatever they cost now: half as much time.
    stage.define(limited(2, 10_000)).await;
    assert_limited(&stage.block(10_000, "").await);
    assert_eq!(stage.block(9_000, "").await.status, 200);
    stage.define(limited(1, 500)).await;
    assert_limited(&stage.block(250, "").await);
}

async fn a_clock_that_was_set_back_stops_no_counter(backend: Backend) {
    let stage = Stage::new(backend).await;
    stage
        .define(json!({"limit": {"rate": 1, "burst": 100}}))
        .await;
    assert_eq!(stage.block(100, "").await.status, 200);
    assert_limited(&stage.block(50, "").await);
    let hour = "UPDATE counter SET paced_until_us = paced_until_us + 3600000000";
    stage.database.execute(hour).await;
    wait::until("the time counts as now", LIMIT, async || {
        (stage.block(100, "").await.status == 200).then_some(())
    })
    .await;
    assert_limited(&stage.block(50, "").await);
}
