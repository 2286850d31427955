//! Runs two more replicas on a database of their own. All failures happen to them.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::interval,
};

use super::{failures::Step, stage::Stage};
use crate::support::{
    Answer, Backend, Client, HOST, Link, Program, Prometheus, Proxy, Scrape, SecureConnection,
    Server, TestAuthority, TestDatabase, TlsFiles, wait,
};

const LIMIT: Duration = Duration::from_secs(60);
/// More new names in an hour than the alert on creations tolerates.
const N_CREATED: usize = 150;
/// The number of sequences with stalled refills. [`N_WAITING`] callers wait for them before the
/// first scrape. More callers come later, up to [`MAX_WAITING`].
const N_STALLED: usize = 10;
const N_WAITING: usize = 150;
const MAX_WAITING: usize = 400;

/// The file of the token that is removed.
const TOKEN: &str = "token";
/// A file of callers with one that has expired. Nobody has its token.
const CALLERS: &str = "[past]\nrole = \"reader\"\nexpires = 2020-01-01\nsha256 = [\"\
    0000000000000000000000000000000000000000000000000000000000000000\"]\n";
/// More numbers than the alert on abandoned numbers tolerates.
const WIDE: usize = 100_000;

/// Two replicas, and the tasks that cause their failures.
pub(super) struct Faulty {
    database: TestDatabase,
    proxy: Proxy,
    /// A replica that reaches the database through the proxy and soon gives up its statements.
    stalled: Program,
    /// A replica with actors that panic and with a wrong clock.
    troubled: Program,
    /// A replica on a database of its own, which fails over, and its files. One of its callers has
    /// expired, and its certificate soon expires.
    fenced: (Program, TestDatabase, TlsFiles),
    /// The authority of this certificate.
    authority: Arc<TestAuthority>,
    /// Tasks that call these replicas.
    crowd: Vec<JoinHandle<()>>,
    callers: Vec<JoinHandle<()>>,
}

impl Faulty {
    pub(super) async fn start() -> Self {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let server = Server::shared(Backend::Postgres).await;
        let proxy = Proxy::to(server.port()).await;
        let options = Program::options().env("ODOMETER_WORKER", 1);
        let stalled = options
            .clone()
            .database(&database.url_through(&proxy, server))
            .env("ODOMETER_STORE__TIMEOUT", "2s")
            .env("ODOMETER_REFILL__DEADLINE", "300s")
            .env("ODOMETER_POOL__MAX", 32)
            .env("ODOMETER_LIMITS__WAITERS", MAX_WAITING)
            .env("ODOMETER_HTTP__CONNECTIONS", MAX_WAITING * 6 / 5)
            .start_ready()
            .await;
        let client = stalled.client();
        client.define("stamps", &json!({"kind": "snowflake"})).await;
        // This replica gets the one worker id that is configured for both.
        client.next("stamps").await;
        let troubled = options
            .database(&format!(
                "{}?options=-c%20synchronous_commit%3Doff",
                database.url
            ))
            .env("ODOMETER_STORE__DURABILITY", "weak")
            .env("ODOMETER_SHUTDOWN__READY_WAIT", "5m")
            .env("ODOMETER_SHUTDOWN__DEADLINE", "10m")
            .without_guards("actor-panic")
            .clock_ahead(120_000)
            .start_ready()
            .await;
        let copy = TestDatabase::prepared(Backend::Postgres).await;
        let authority = Arc::new(TestAuthority::new("short"));
        let files = TlsFiles::new(&authority.sign_for_days(&[HOST], 3));
        files.set(TOKEN, "a-token-of-the-administrator");
        files.set("callers", CALLERS);
        let fenced = Program::options()
            .database(&copy.url)
            .env("ODOMETER_ADMIN_TOKEN_FILE", files.path(TOKEN).display())
            .env(
                "ODOMETER_ACCESS__CALLERS_FILE",
                files.path("callers").display(),
            )
            .env("ODOMETER_ACCESS__ROLES__READER__LOOK", "*");
        let fenced = files.given_to(fenced).start_ready().await;
        Self {
            database,
            proxy,
            stalled,
            troubled,
            fenced: (fenced, copy, files),
            authority,
            crowd: Vec::new(),
            callers: Vec::new(),
        }
    }

    pub(super) async fn provoke(
        &mut self,
        step: Step,
        stage: &mut Stage,
        prometheus: &mut Prometheus,
    ) {
        match step {
            Step::Troubled => self.make_trouble(prometheus).await,
            Step::Stalled => self.stall(prometheus).await,
            Step::GivenUp => self.give_up().await,
            Step::Draining => self.troubled.terminate(),
            Step::Dead => stage.lose_a_replica(),
            Step::Away => {
                self.proxy.set(Link::Cut);
                stage.lose_redis_and_one_database();
            }
            Step::Over => {
                self.stalled.kill();
                self.troubled.kill();
                self.fenced.0.kill();
                stage.kill();
            }
        }
    }

    async fn make_trouble(&mut self, prometheus: &mut Prometheus) {
        prometheus.watch("troubled", &self.troubled).await;
        let client = self.troubled.client();
        for (name, definition) in [
            ("short", json!({"block": {"min": 1, "max": 2}})),
            ("scarce", json!({"max": "500", "block": {"min": 1}})),
            ("slow", json!({"limit": {"rate": 1, "burst": 5}})),
            ("month", json!({"max": "1500000", "declared_rate": 1})),
            ("week", json!({"max": "259200", "declared_rate": 1})),
            ("lost", json!({"block": {"min": 1, "max": 1}})),
            ("rewound", json!({"block": {"min": 1, "max": 1}})),
            ("doubled", json!({})),
        ] {
            client.define(name, &definition).await;
            served(&client, &format!("{name}/next")).await;
        }
        for statement in [
            "DELETE FROM counter WHERE sequence = 'lost'",
            "UPDATE counter SET next_value = 1, version = 0 WHERE sequence = 'rewound'",
        ] {
            self.database.execute(statement).await;
        }
        self.overlap().await;
        self.fail_over(prometheus).await;
        let slow = call_slow(client.clone());
        self.callers.push(tokio::spawn(slow));
        self.callers.push(tokio::spawn(call_for_ever(client)));
    }

    /// Makes a database look like one that another server stamped, takes the replica's token away,
    /// and calls with another one.
    async fn fail_over(&mut self, prometheus: &mut Prometheus) {
        let (replica, copy, files) = &self.fenced;
        std::fs::remove_file(files.path(TOKEN)).expect("our directory");
        prometheus.watch("fenced", replica).await;
        for _ in 0..8 {
            let (address, authority) = (replica.address().to_owned(), Arc::clone(&self.authority));
            let wrong = call_with_a_wrong_token(address, authority);
            self.callers.push(tokio::spawn(wrong));
        }
        copy.execute("UPDATE meta SET armed_at = 1").await;
        let stamp = "UPDATE lineage SET server = 'another', \
                     written_by = pg_current_xact_id()::text::bigint";
        copy.execute(stamp).await;
    }

    /// Inserts a row into the journal that overlaps the row of `doubled`.
    async fn overlap(&self) {
        wait::until("the row is written", LIMIT, async || {
            let journal = self.database.journal("doubled").await;
            (!journal.is_empty()).then_some(())
        })
        .await;
        let plant = "INSERT INTO block SELECT gen_random_uuid(), sequence, period, last, last + 10, \
                     step, 'planted', reserved_at, 'spent', last + 11 FROM block \
                     WHERE sequence = 'doubled'";
        self.database.execute(plant).await;
    }

    /// Stalls refills. Some callers wait before the first scrape, and more come only after it, so
    /// that a rate shows them.
    async fn stall(&mut self, prometheus: &mut Prometheus) {
        let client = self.stalled.client();
        for number in 0..N_STALLED {
            let name = format!("stalled-{number}");
            let block = json!({"block": {"min": 1, "max": 1}});
            client.define(&name, &block).await;
            client.next(&name).await;
        }
        let frozen = self.database.freeze_counters("stalled-%").await;
        self.crowd.push(tokio::spawn(async move {
            // The rows stay locked until this task ends.
            let _frozen = frozen;
            std::future::pending().await
        }));
        self.crowd.push(tokio::spawn(hold(client.clone())));
        wait::until("many wait", LIMIT, async || {
            let scrape = Scrape::of(&client).await;
            (scrape.sum("odometer_waiters", &[]) >= to_float(N_WAITING)).then_some(())
        })
        .await;
        prometheus.watch("stalled", &self.stalled).await;
        self.crowd.push(tokio::spawn(crowd(client)));
    }

    /// Makes a write commit after the program gave it up. The next write for the same name finds
    /// this.
    async fn give_up(&mut self) {
        let client = self.stalled.client();
        // Ends the tasks of the step before: the callers, and the lock on the counters.
        for task in self.crowd.drain(..) {
            task.abort();
        }
        served(&client, "wide/blocks?size=1").await;
        let reserve = format!("/v1/sequences/wide/blocks?size={WIDE}");
        // Repeats, because the server may have ended the statement before the lock was released.
        wait::until("numbers are abandoned", LIMIT, async || {
            let n_before = Scrape::of(&client).await.n_reservations("uncertain");
            let frozen = self.database.freeze_counters("wide").await;
            let (asking, reserve) = (client.clone(), reserve.clone());
            let asked = tokio::spawn(async move { asking.ask(&reserve).await });
            wait::until("the write is given up", LIMIT, async || {
                let scrape = Scrape::of(&client).await;
                (scrape.n_reservations("uncertain") > n_before).then_some(())
            })
            .await;
            frozen.thaw().await;
            let _answer = asked.await.expect("no panic");
            let scrape = Scrape::of(&client).await;
            (scrape.n_abandoned() >= to_float(WIDE)).then_some(())
        })
        .await;
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        for task in self.crowd.iter().chain(&self.callers) {
            task.abort();
        }
    }
}

/// Asks until a number is given, because an actor may have died.
async fn served(client: &Client, call: &str) {
    let path = format!("/v1/sequences/{call}");
    wait::until("a number is given", LIMIT, async || {
        let answer = client.ask(&path).await;
        matches!(answer, Answer::Given(_)).then_some(())
    })
    .await;
}

/// Goes on calling with a wrong token. Each reply comes after a second.
async fn call_with_a_wrong_token(address: String, authority: Arc<TestAuthority>) {
    let mut rounds = interval(Duration::from_millis(50));
    loop {
        rounds.tick().await;
        let opened = SecureConnection::open(&address, &authority, None).await;
        if let Ok(mut connection) = opened {
            let _reply = connection
                .call("DELETE", "/v1/sequences/a", "another-token")
                .await;
        }
    }
}

/// Makes calls that meet every failure, again and again.
async fn call_for_ever(client: Client) {
    let mut rounds = interval(Duration::from_millis(50));
    for round in 0.. {
        rounds.tick().await;
        // The answers do not matter. The metrics show the outcome.
        for call in [
            "short/next",
            "lost/blocks?size=1",
            "rewound/blocks?size=1",
            "stamps/next",
        ] {
            let _answer = client.ask(&format!("/v1/sequences/{call}")).await;
        }
        // A call in each second keeps `scarce` in use while its numbers last.
        if round % 20 == 0 {
            let _answer = client.ask("/v1/sequences/scarce/next").await;
        }
        if round < N_CREATED {
            let _answer = client
                .ask(&format!("/v1/sequences/typo-{round}/next"))
                .await;
        }
        let holder = format!("program-{}", round % 3);
        let wanted = json!({"pool": "small", "bits": 1, "ttl_ms": 60_000, "holder": holder});
        let _reply = client.ask_for_worker(&wanted).await;
    }
}

/// Takes numbers as fast as the speed limit allows.
async fn call_slow(client: Client) {
    let mut rounds = interval(Duration::from_millis(50));
    loop {
        rounds.tick().await;
        let _answer = client.ask("/v1/sequences/slow/next").await;
    }
}

/// Sends callers for the stalled sequences, all at once. There are more than [`N_WAITING`], because
/// the first callers get numbers from memory.
async fn hold(client: Client) {
    let mut callers = JoinSet::new();
    for number in 0..N_WAITING + 4 * N_STALLED {
        callers.spawn(wait_for(client.clone(), number));
    }
    callers.join_all().await;
}

async fn wait_for(client: Client, number: usize) {
    let stalled = format!("/v1/sequences/stalled-{}/next", number % N_STALLED);
    let _answer = client.ask(&stalled).await;
}

/// Sends more and more callers for the stalled sequences. Some callers ask for another sequence and
/// are served.
async fn crowd(client: Client) {
    let mut callers = JoinSet::new();
    let mut turns = interval(Duration::from_millis(25));
    for number in 0_usize.. {
        turns.tick().await;
        while callers.try_join_next().is_some() {}
        callers.spawn(wait_for(client.clone(), number));
        if number % 40 == 0 {
            let caller = client.clone();
            callers.spawn(async move {
                let _answer = caller.ask("/v1/sequences/free/blocks?size=1").await;
            });
        }
    }
}

fn to_float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}
