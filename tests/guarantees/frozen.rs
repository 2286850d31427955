//! The database stops answering without an error: its processes are stopped, or the network
//! swallows what is sent to it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    Answer, Backend, Client, Ledger, Link, Options, Program, Proxy, Reply, Scrape, Server,
    TestDatabase, for_each_server, settings, wait,
};

const N_WARM: usize = 4;
/// The number of callers is above the number of connections, so that every connection is used.
const N_COLD_CALLERS: usize = 24;
/// The time between two calls for a warm name.
const BETWEEN_CALLS: Duration = Duration::from_millis(5);
/// `pool.max` of the configuration.
const POOL_MAX: usize = 8;
/// The deadline of the configuration, plus time for a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// The time after the database's return within which everything works again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(2);
/// The time after that within which nothing of the outage is left.
const CLEANUP_LIMIT: Duration = Duration::from_secs(30);
/// How many files, threads or tasks may come and go by themselves, for example for a look at the
/// database.
const FEW: usize = 3;

for_each_server!(a_stopped_database_leaves_nothing_behind);

async fn a_stopped_database_leaves_nothing_behind(backend: Backend) {
    let mut stage = Stage::set(backend, &Program::options()).await;
    stage.outage(Outage::Stopped).await.check(&mut stage).await;
}

for_each_server!(a_network_that_swallows_all_leaves_nothing_behind);

async fn a_network_that_swallows_all_leaves_nothing_behind(backend: Backend) {
    let mut stage = Stage::set(backend, &Program::options()).await;
    stage
        .outage(Outage::BlackHole)
        .await
        .check(&mut stage)
        .await;
}

for_each_server!(connections_kept_though_dead_are_found_out);

async fn connections_kept_though_dead_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("keep-dead-pool");
    let stage = Stage::set(backend, &options).await;
    let outcome = stage.outage(Outage::BlackHole).await;
    assert!(
        outcome.recovered_after.is_none(),
        "the check finds nothing: {outcome:?}"
    );
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outage {
    /// A signal stops every process of the server.
    Stopped,
    /// The network swallows all bytes.
    BlackHole,
}

/// Resources of the program that an outage could leave behind.
#[derive(Clone, Copy, Debug)]
struct Held {
    n_files: usize,
    n_threads: usize,
    /// Tasks of the store's runtime.
    n_tasks: usize,
    /// Connections to the database that the program has open.
    n_open: usize,
    /// The same connections, as the server counts them.
    n_connections: usize,
    n_waiters: usize,
    n_reservations: usize,
}

impl Held {
    fn is_no_more_than(&self, before: &Self) -> bool {
        self.n_files <= before.n_files + FEW
            && self.n_threads <= before.n_threads + FEW
            && self.n_tasks <= before.n_tasks + FEW
            // The pool has one connection more, for looks at the database.
            && self.n_open <= POOL_MAX + 1
            && self.n_connections <= POOL_MAX + 1
            && self.n_waiters == 0
            && self.n_reservations == 0
    }
}

struct Stage {
    server: Server,
    proxy: Proxy,
    database: TestDatabase,
    program: Program,
}

#[derive(Debug)]
struct Outcome {
    before: Held,
    /// `None` if the recovery took longer than the limit.
    recovered_after: Option<Duration>,
    warm: Ledger,
    n_warm_in_outage: u64,
    cold: Cold,
}

/// The answers to the callers of names without a reserve.
#[derive(Default, Debug)]
struct Cold {
    n_given: u64,
    n_timed_out: u64,
    n_unavailable: u64,
    longest: Duration,
    wrong: Vec<String>,
}

impl Stage {
    async fn set(backend: Backend, options: &Options) -> Self {
        let server = Server::start(backend).await;
        let proxy = Proxy::to(server.port()).await;
        let database = TestDatabase::prepared_on(&server).await;
        let program = options
            .clone()
            .database(&database.url_through(&proxy, &server))
            .start_ready()
            .await;
        let client = program.client();
        for warm in (0..N_WARM).map(warm) {
            client
                .define(&warm, &json!({"block": {"min": 1_000_000}}))
                .await;
            client.next(&warm).await;
        }
        // These calls open as many connections as there may be.
        let calls: Vec<_> = (0..N_COLD_CALLERS * 4)
            .map(|number| {
                let client = client.clone();
                let path = cold_path(number % N_COLD_CALLERS);
                tokio::spawn(async move { client.ask(&path).await })
            })
            .collect();
        for call in calls {
            let answer = call.await.expect("no panic");
            assert!(matches!(answer, Answer::Given(_)), "{answer:?}");
        }
        Self {
            server,
            proxy,
            database,
            program,
        }
    }

    fn begin(&self, outage: Outage) {
        match outage {
            Outage::Stopped => self.server.freeze(),
            Outage::BlackHole => self.proxy.set(Link::BlackHole),
        }
    }

    fn end(&self, outage: Outage) {
        match outage {
            Outage::Stopped => self.server.thaw(),
            Outage::BlackHole => self.proxy.set(Link::Whole),
        }
    }

    async fn outage(&self, outage: Outage) -> Outcome {
        let time = settings::at_size(Duration::from_secs(8), Duration::from_secs(30));
        let client = self.program.client();
        let before = self.held(&client).await;
        let load = Arc::new(Load::default());
        let warm: Vec<_> = (0..N_WARM)
            .map(|n| tokio::spawn(use_warm(self.program.client(), warm(n), Arc::clone(&load))))
            .collect();
        let cold: Vec<_> = (0..N_COLD_CALLERS)
            .map(|n| tokio::spawn(use_cold(self.program.client(), n, Arc::clone(&load))))
            .collect();
        load.wait_for_cold(100).await;

        self.begin(outage);
        let begun = Instant::now();
        let n_warm_before = load.n_warm.load(Ordering::Relaxed);
        wait::until("the outage is noticed", time, async || {
            let scrape = Scrape::of(&client).await;
            (scrape.sum("odometer_store_up", &[]) == 0.0).then_some(())
        })
        .await;
        // The store is known to be away, so the call does not wait for it.
        let refusal = client.post("/v1/sequences/never-seen/next").await;
        assert_refused(&refusal.expect("a reply"), "store_unavailable");
        let ready = client.get("/readyz").await.expect("a reply");
        assert_eq!(ready.status, 200, "a reserve lasts: {ready:?}");
        tokio::time::sleep(time.saturating_sub(begun.elapsed())).await;
        let n_warm_in_outage = load.n_warm.load(Ordering::Relaxed) - n_warm_before;

        self.end(outage);
        let recovered_after = recovery(&client).await;
        load.over.store(true, Ordering::Relaxed);
        let mut outcome = Outcome {
            before,
            recovered_after,
            warm: Ledger::default(),
            n_warm_in_outage,
            cold: Cold::default(),
        };
        for caller in warm {
            outcome
                .warm
                .merge(caller.await.expect("every warm call was answered"));
        }
        for caller in cold {
            outcome.cold.merge(caller.await.expect("no panic"));
        }
        outcome
    }

    async fn held(&self, client: &Client) -> Held {
        let scrape = Scrape::of(client).await;
        let gauge = |name: &str| to_count(scrape.sum(name, &[]));
        let process = format!("/proc/{}", self.program.id());
        let entries = |what: &str| {
            let listed = std::fs::read_dir(format!("{process}/{what}"));
            listed.expect("the program runs").count()
        };
        let n_connections = self.server.n_connections().await;
        Held {
            n_files: entries("fd"),
            n_threads: entries("task"),
            n_tasks: gauge("odometer_store_tasks"),
            n_open: self.proxy.n_open(),
            n_connections: usize::try_from(n_connections).expect("a count"),
            n_waiters: gauge("odometer_waiters"),
            n_reservations: gauge("odometer_reservations_in_flight"),
        }
    }
}

impl Outcome {
    async fn check(self, stage: &mut Stage) {
        assert_eq!(self.cold.wrong, Vec::<String>::new());
        assert!(self.cold.longest < ANSWER_LIMIT, "{:?}", self.cold);
        assert!(self.cold.n_timed_out > 0, "vacuous: {:?}", self.cold);
        assert!(self.cold.n_unavailable > 0, "vacuous: {:?}", self.cold);
        assert!(
            self.n_warm_in_outage >= 100,
            "vacuous: {}",
            self.n_warm_in_outage
        );
        assert!(
            self.recovered_after.is_some(),
            "not back within {RECOVERY_LIMIT:?}"
        );
        println!("{:?}, {:?}", self.recovered_after, self.cold);
        let client = stage.program.client();
        let started = Instant::now();
        loop {
            let held = stage.held(&client).await;
            if held.is_no_more_than(&self.before) {
                println!("{held:?} after {:?}", started.elapsed());
                break;
            }
            assert!(
                started.elapsed() < CLEANUP_LIMIT,
                "left behind: {held:?}, before: {:?}",
                self.before
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(self.warm.n_duplicates(), 0);
        for name in (0..N_WARM).map(warm) {
            let stored = stage.database.next_value(&name).await;
            assert!(self.warm.highest(&name) < stored, "given but not reserved");
        }
        assert!(!stage.program.has_ended());
    }
}

#[derive(Default)]
struct Load {
    n_warm: AtomicU64,
    n_cold: AtomicU64,
    over: AtomicBool,
}

impl Load {
    async fn wait_for_cold(&self, n_calls: u64) {
        wait::until("there is load", Duration::from_secs(20), async || {
            (self.n_cold.load(Ordering::Relaxed) >= n_calls).then_some(())
        })
        .await;
    }
}

impl Cold {
    fn merge(&mut self, other: Self) {
        self.n_given += other.n_given;
        self.n_timed_out += other.n_timed_out;
        self.n_unavailable += other.n_unavailable;
        self.longest = self.longest.max(other.longest);
        self.wrong.extend(other.wrong);
    }
}

fn warm(number: usize) -> String {
    format!("warm-{number}")
}

/// Returns a path that only the store can answer.
fn cold_path(number: usize) -> String {
    format!("/v1/sequences/cold-{number}/blocks?size=1")
}

/// Uses a warm name until the load is over. Each call must get a number.
async fn use_warm(client: Client, name: String, load: Arc<Load>) -> Ledger {
    let path = format!("/v1/sequences/{name}/next");
    let mut ledger = Ledger::default();
    let mut ticks = tokio::time::interval(BETWEEN_CALLS);
    while !load.over.load(Ordering::Relaxed) {
        ticks.tick().await;
        match client.ask(&path).await {
            Answer::Given(ranges) => ledger.record(&name, &ranges),
            Answer::Refused(reply) => panic!("{name} refused: {reply:?}"),
            Answer::NoReply(error) => panic!("{name} did not answer: {error:?}"),
        }
        load.n_warm.fetch_add(1, Ordering::Relaxed);
    }
    ledger
}

async fn use_cold(client: Client, number: usize, load: Arc<Load>) -> Cold {
    let mut cold = Cold::default();
    while !load.over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match client.ask(&cold_path(number)).await {
            Answer::Given(_) => cold.n_given += 1,
            Answer::Refused(reply) => match reply.code().as_deref() {
                Some("refill_timeout") => cold.n_timed_out += 1,
                Some("store_unavailable") => cold.n_unavailable += 1,
                _ => cold.wrong.push(format!("{reply:?}")),
            },
            Answer::NoReply(error) => cold.wrong.push(format!("{error:?}")),
        }
        cold.longest = cold.longest.max(asked.elapsed());
        load.n_cold.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cold
}

/// Measures how long it takes until names in every state get numbers again. Returns `None` if the
/// limit has passed.
async fn recovery(client: &Client) -> Option<Duration> {
    let returned = Instant::now();
    for path in [
        "never-seen/next",
        "cold-0/blocks?size=1",
        "warm-0/blocks?size=1",
    ] {
        let path = format!("/v1/sequences/{path}");
        loop {
            let left = RECOVERY_LIMIT.checked_sub(returned.elapsed())?;
            match tokio::time::timeout(left, client.ask(&path)).await.ok()? {
                Answer::Given(_) => break,
                Answer::Refused(reply) => assert_eq!(reply.status, 503, "{reply:?}"),
                Answer::NoReply(error) => panic!("{path}: {error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Some(returned.elapsed())
}

fn assert_refused(reply: &Reply, code: &str) {
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
}

/// Converts the value of a gauge to a whole number.
fn to_count(value: f64) -> usize {
    format!("{value:.0}").parse().expect("a count")
}
