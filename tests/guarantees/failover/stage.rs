//! A server with a copy that follows it, and the replicas of Odometer that use them.

use std::fs;

use serde_json::json;

use super::{LIMIT, SKIP, WENT_BACK, is_early, is_passing, recover};
use crate::support::{
    Answer, Backend, Client, Finished, Ledger, Options, PgBouncer, Product, Program, Range,
    ReplicaPair, SecondStandby, Server, Standby, TestDatabase, directory, wait,
};

/// The names that are used before and after the failover. The last one has strict order.
pub(super) const NAMES: [&str; 4] = ["orders", "invoices", "parts", STRICT];
pub(super) const STRICT: &str = "tickets";
/// A sequence whose ids begin with the time.
pub(super) const MOMENTS: &str = "moments";
/// How many numbers of each name are taken before the copy lags, and afterwards.
pub(super) const N_BEFORE: u64 = 50;
pub(super) const N_AFTER: u64 = 100;

/// A server, and a copy that follows it.
enum Pair {
    Standby(Standby),
    Replica(ReplicaPair),
}

impl Pair {
    fn copy(&self) -> &Server {
        match self {
            Self::Standby(pair) => pair.standby(),
            Self::Replica(pair) => pair.replica(),
        }
    }

    async fn catch_up(&self) {
        match self {
            Self::Standby(pair) => pair.catch_up().await,
            Self::Replica(pair) => pair.catch_up().await,
        }
    }

    fn hold(&self) {
        match self {
            Self::Standby(pair) => pair.hold(),
            Self::Replica(pair) => pair.hold(),
        }
    }

    fn lose_primary(&mut self) {
        match self {
            Self::Standby(pair) => pair.lose_primary(),
            Self::Replica(pair) => pair.lose_primary(),
        }
    }

    async fn promote(&self) {
        match self {
            Self::Standby(pair) => pair.promote().await,
            Self::Replica(pair) => pair.promote().await,
        }
    }

    fn lead_to_copy(&self) {
        match self {
            Self::Standby(pair) => pair.lead_to_standby(),
            Self::Replica(pair) => pair.lead_to_replica(),
        }
    }
}

/// A server with a copy, and a database that replicas of Odometer use.
pub(super) struct Stage {
    pair: Pair,
    pub(super) database: TestDatabase,
    pub(super) options: Options,
    pub(super) ledger: Ledger,
}

impl Stage {
    /// Starts the servers, and returns the stage. `options` are those of each replica.
    pub(super) async fn new(backend: Backend, options: Options) -> Self {
        let product = Product::drawn(backend);
        if backend == Backend::Postgres {
            return Self::of(Server::start_of(product).await, options).await;
        }
        let pair = ReplicaPair::start(product).await;
        let database = TestDatabase::prepared_on(pair.primary()).await;
        let url = database.url_through(&pair.callers, pair.primary());
        Self::with(Pair::Replica(pair), database, options.database(&url))
    }

    /// Starts a standby of this PostgreSQL server, and returns the stage.
    pub(super) async fn of(primary: Server, options: Options) -> Self {
        let database = TestDatabase::prepared_on(&primary).await;
        let pair = Standby::of(primary).await;
        let url = database.url_through(&pair.callers, pair.primary());
        Self::with(Pair::Standby(pair), database, options.database(&url))
    }

    fn with(pair: Pair, database: TestDatabase, options: Options) -> Self {
        Self {
            pair,
            database,
            options: polling(options),
            ledger: Ledger::default(),
        }
    }

    /// Puts a pooler between the replicas and the PostgreSQL servers.
    pub(super) async fn pooled(mut self) -> (Self, PgBouncer) {
        let Pair::Standby(pair) = &self.pair else {
            panic!("the pooler is one of PostgreSQL");
        };
        // By default it answers errors for 15 s if it finds no server once.
        let pooler = PgBouncer::to(pair.callers.port(), "server_login_retry = 1").await;
        let url = self.database.url_through(&pair.callers, pair.primary());
        self.options = self.options.database(&pooler.url(&url));
        (self, pooler)
    }

    pub(super) fn copy(&self) -> &Server {
        self.pair.copy()
    }

    pub(super) async fn catch_up(&self) {
        self.pair.catch_up().await;
    }

    /// Starts a replica, and defines the sequences of the test.
    pub(super) async fn start(&self) -> Program {
        let program = self.options.start_ready().await;
        let client = program.client();
        client.define(STRICT, &json!({"order": "strict"})).await;
        client.define(MOMENTS, &json!({"kind": "snowflake"})).await;
        program
    }

    /// Takes `n` numbers of each name. Only an answer that the database is away may come in
    /// between.
    pub(super) async fn take(&mut self, client: &Client, n: u64) {
        take(&mut self.ledger, client, &NAMES, n).await;
    }

    /// Takes numbers, lets the copy lag, takes more, and loses the primary.
    pub(super) async fn lose_commits(&mut self, client: &Client) {
        self.take(client, N_BEFORE).await;
        self.pair.catch_up().await;
        self.pair.hold();
        self.take(client, N_AFTER).await;
        self.pair.lose_primary();
    }

    /// Makes the copy take writes. Returns how many of the numbers were reserved in commits that
    /// are lost.
    pub(super) async fn promote(&mut self) -> i64 {
        self.pair.promote().await;
        self.database = TestDatabase::on(self.pair.copy(), self.database.name());
        let highest = NAMES.iter().filter_map(|name| self.ledger.highest(name));
        let kept = self.reserved().await.unwrap_or_default();
        highest.sum::<i64>() - kept
    }

    /// Returns the highest numbers that the counters have reserved, together.
    pub(super) async fn reserved(&self) -> Option<i64> {
        reserved(&self.database).await
    }

    pub(super) fn lead_to_copy(&self) {
        self.pair.lead_to_copy();
    }

    /// Fails over to a copy that lags. The numbers of more than a hundred calls are lost.
    pub(super) async fn fail_over(&mut self, client: &Client) {
        self.lose_commits(client).await;
        let n_lost = self.promote().await;
        assert!(n_lost > 100, "vacuous: {n_lost} numbers lost");
        self.lead_to_copy();
    }

    /// Fails over to a copy that has all commits.
    pub(super) async fn switch_over(&mut self, replica: &Program) {
        self.take(&replica.client(), N_BEFORE).await;
        // A heartbeat after the copy has caught up would be lost.
        self.database.stop(replica).await;
        self.pair.catch_up().await;
        self.pair.lose_primary();
        replica.thaw();
        self.promote().await;
        self.lead_to_copy();
    }

    /// Lets a new standby follow the server that took over. PostgreSQL only.
    pub(super) async fn follow_again(self) -> Self {
        let Pair::Standby(pair) = self.pair else {
            panic!("only a standby can be followed");
        };
        let pair = Pair::Standby(pair.follow_again().await);
        Self { pair, ..self }
    }

    /// Lets replicas fence a copy by themselves. A fence counts from so long before the last
    /// heartbeat as a statement may last.
    pub(super) fn fencing(mut self) -> Self {
        let options = self.options.env("ODOMETER_FAILOVER__WITHIN", "15m");
        self.options = options.env("ODOMETER_STORE__TIMEOUT", "1s");
        self
    }

    /// Lets replicas fence a copy with the settings that they have by default.
    pub(super) fn fencing_by_default(mut self) -> Self {
        let options = self.options.env("ODOMETER_FAILOVER__WITHIN", "15m");
        self.options = options.env("ODOMETER_DEFINITION_REFRESH", "10s");
        self
    }

    /// Starts another standby of the primary. PostgreSQL only.
    pub(super) async fn second(&self) -> SecondStandby {
        self.standby().second().await
    }

    /// Keeps from a second standby all that is committed after now.
    pub(super) async fn hold_second(&self, second: &SecondStandby) {
        second.catch_up_and_hold(self.standby()).await;
    }

    fn standby(&self) -> &Standby {
        match &self.pair {
            Pair::Standby(pair) => pair,
            Pair::Replica(_) => panic!("PostgreSQL has standbys"),
        }
    }

    /// Loses the copy, too, and fails over to a second standby.
    pub(super) async fn fail_over_to(&mut self, second: &SecondStandby) {
        match &mut self.pair {
            Pair::Standby(pair) => pair.fail_over_to(second).await,
            Pair::Replica(_) => panic!("PostgreSQL has standbys"),
        }
        self.database = TestDatabase::on(&second.server, self.database.name());
    }

    pub(super) fn lose_primary(&mut self) {
        self.pair.lose_primary();
    }

    /// Takes numbers until the memory of the replica is used up and the database was asked.
    pub(super) async fn is_refused(&mut self, client: &Client) {
        is_refused(&mut self.ledger, client, &NAMES).await;
    }

    /// Recovers the database, and takes numbers from each replica.
    pub(super) async fn recover(&mut self, replicas: &[&Program]) {
        recover(&self.options, &["--skip", SKIP]);
        for replica in replicas {
            self.is_served_again(&replica.client()).await;
            self.take(&replica.client(), N_AFTER).await;
        }
    }

    /// Takes a number of each name as soon as the replica has seen a recovery.
    pub(super) async fn is_served_again(&mut self, client: &Client) {
        is_served_again(&mut self.ledger, client, &NAMES).await;
    }

    /// Runs `odometer apply` with a definition that changes `orders`.
    pub(super) fn apply(&self, arguments: &[&str]) -> Finished {
        let place = directory("apply");
        let file = place.path().join("definitions.toml");
        let changed = "[sequences.orders]\ndescription = \"late\"\n";
        fs::write(&file, changed).expect("the directory is ours");
        let file = file.display().to_string();
        let all = [&["apply", &file], arguments].concat();
        self.options.run(&all)
    }

    /// Keeps from the copy all that is committed from now on.
    pub(super) fn hold(&self) {
        self.pair.hold();
    }
}

/// Returns the highest numbers that the counters of a database have reserved, together.
pub(super) async fn reserved(database: &TestDatabase) -> Option<i64> {
    let integer = match database.backend {
        Backend::MariaDb => "SIGNED",
        Backend::Postgres | Backend::Sqlite => "BIGINT",
    };
    let reserved = format!(
        "SELECT CAST(SUM(next_value - 1) AS {integer}) FROM counter WHERE sequence <> '{MOMENTS}'"
    );
    database.number(&reserved).await
}

/// Takes `n` numbers of each of `names`. Only an answer that the database is away may come in
/// between.
pub(super) async fn take(ledger: &mut Ledger, client: &Client, names: &[&str], n: u64) {
    for _ in 0..n {
        for name in names {
            let ranges = given(client, name, |code| {
                assert!(is_passing(code), "{name}: {code}");
            });
            ledger.record(name, &ranges.await);
        }
    }
}

/// Takes numbers of each of `names` until the memory of the replica is used up and the database was
/// asked.
pub(super) async fn is_refused(ledger: &mut Ledger, client: &Client, names: &[&str]) {
    for name in names {
        let path = format!("/v1/sequences/{name}/next");
        let what = format!("{name} is refused");
        wait::until(&what, LIMIT, async || match client.ask(&path).await {
            Answer::Given(ranges) => {
                ledger.record(name, &ranges);
                None
            }
            Answer::Refused(reply) => (reply.code().as_deref() == Some(WENT_BACK)).then_some(()),
            Answer::NoReply(error) => panic!("no reply: {error}"),
        })
        .await;
    }
}

/// Takes a number of each of `names` as soon as the replica has seen a recovery.
pub(super) async fn is_served_again(ledger: &mut Ledger, client: &Client, names: &[&str]) {
    for name in names {
        let ranges = given(client, name, |code| {
            assert!(is_early(code), "{name}: {code}");
        });
        ledger.record(name, &ranges.await);
    }
}

/// Asks for the next number until it is given. Each refusal until then must pass `check`.
async fn given(client: &Client, name: &str, check: impl Fn(&str)) -> Vec<Range> {
    let path = format!("/v1/sequences/{name}/next");
    let what = format!("{name} is served");
    wait::until(&what, LIMIT, async || match client.ask(&path).await {
        Answer::Given(ranges) => Some(ranges),
        Answer::Refused(reply) => {
            check(&reply.code().unwrap_or(reply.body));
            None
        }
        Answer::NoReply(error) => panic!("{name}: no reply: {error}"),
    })
    .await
}

/// Makes replicas poll often, and reserve small blocks. An operator says what was lost.
pub(super) fn polling(options: Options) -> Options {
    options
        .env("ODOMETER_FAILOVER__WITHIN", "0s")
        .env("ODOMETER_DEFINITION_REFRESH", "2s")
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 10)
}
