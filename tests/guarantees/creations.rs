//! Creations of sequences next to changes and recoveries, and which of them waits for which.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{
    Backend, Client, Ledger, Options, Program, Range, Reply, Server, TestDatabase, for_each_server,
    run, wait,
};

const LIMIT: Duration = Duration::from_secs(30);
/// The pause between two looks. InnoDB repeats its answer to looks that are less than 100 ms apart.
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);
/// How many numbers a recovery skips.
const SKIPPED: i64 = 1000;
/// The names that the database has lost.
const LOST: [&str; 2] = ["early-1", "early-2"];

/// The statement in which a change waits, as a pattern of SQL.
const LOCKS_META: &str = "SELECT%FROM%meta%FOR%UPDATE%";

for_each_server!(
    changes_get_through_however_many_creations_there_are,
    a_recovery_gets_through_and_no_creation_passes_it,
    a_creation_that_holds_nothing_is_passed_by_a_recovery,
);

/// Checks that a change completes in spite of any number of creations. On PostgreSQL, creations do
/// not block a change at all. On MariaDB and MySQL, later creations wait behind the change.
async fn changes_get_through_however_many_creations_there_are(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    stage.client.define("changed", &json!({})).await;
    let frozen = stage.database.freeze_creations("early-%").await;
    let early = stage.creations(["early-1", "early-2", "early-3"]);
    let of_early = stage.until_stopped(3).await;
    let client = stage.client.clone();
    let change = tokio::spawn(async move {
        let path = "/v1/sequences/changed";
        let reply = client.put(path, &json!({"description": "new"})).await;
        reply.expect("a reply")
    });
    if backend == Backend::Postgres {
        let reply = change.await.expect("no panic");
        assert_eq!(reply.status, 200, "{reply:?}");
        // All creations are still in the middle of their transactions.
        assert_eq!(stage.stopped().await, of_early);
        frozen.thaw().await;
    } else {
        let of_change = stage.until_blocked(LOCKS_META, &of_early).await;
        let late = stage.creations(["late"]);
        stage.until_blocked("%FROM%meta%", &of_change).await;
        frozen.thaw().await;
        assert_eq!(change.await.expect("no panic").status, 200);
        numbers(late).await;
    }
    assert_eq!(numbers(early).await, [1, 1, 1]);
    stage.program.stop().await;
}

/// The control: later creations overtake a change that waits, so each of them adds to the wait.
#[test]
fn creations_that_hold_more_keep_a_change_waiting() {
    run(async {
        let options = Program::options().without_guards("creation-holds-more");
        let stage = Stage::new(Backend::Postgres, options).await;
        stage.client.define("changed", &json!({})).await;
        let frozen = stage.database.freeze_creations("early").await;
        let early = stage.creations(["early"]);
        let of_early = stage.until_stopped(1).await;
        let client = stage.client.clone();
        let change = tokio::spawn(async move {
            let path = "/v1/sequences/changed";
            let reply = client.put(path, &json!({"description": "new"})).await;
            reply.expect("a reply").status
        });
        stage.until_blocked(LOCKS_META, &of_early).await;
        assert_eq!(numbers(stage.creations(["late"])).await, [1]);
        stage.until_blocked(LOCKS_META, &of_early).await;
        frozen.thaw().await;
        assert_eq!(change.await.expect("no panic"), 200);
        assert_eq!(numbers(early).await, [1]);
        stage.program.stop().await;
    });
}

async fn a_recovery_gets_through_and_no_creation_passes_it(backend: Backend) {
    let stage = Stage::new(backend, Program::options()).await;
    let lost = stage.lose(LOST).await;
    let frozen = stage.database.freeze_creations("early-%").await;
    let early = stage.creations(LOST);
    let of_early = stage.until_stopped(2).await;
    let recovery = stage.recover();
    let recovers = match backend {
        Backend::Postgres => "LOCK TABLE meta%",
        Backend::MariaDb | Backend::Sqlite => "SELECT%FROM%meta%FOR UPDATE",
    };
    let of_recovery = stage.until_blocked(recovers, &of_early).await;
    // Creations that come while the recovery waits stand behind it, so they do not delay it.
    let late = stage.creations(["late"]);
    stage.until_blocked("%FROM%meta%", &of_recovery).await;
    frozen.thaw().await;
    recovery.await.expect("it ends well");
    assert_eq!(numbers(late).await, [SKIPPED + 1]);
    numbers(early).await;
    let given = stage.given_then(lost).await;
    assert_eq!(given.n_duplicates(), 0, "{given:?}");
    stage.program.stop().await;
}

async fn a_creation_that_holds_nothing_is_passed_by_a_recovery(backend: Backend) {
    let options = Program::options().without_guards("creation-unheld");
    let stage = Stage::new(backend, options).await;
    let lost = stage.lose(LOST).await;
    let frozen = stage.database.freeze_creations("early-%").await;
    let early = stage.creations(LOST);
    stage.until_stopped(2).await;
    stage.recover().await.expect("it ends well");
    frozen.thaw().await;
    numbers(early).await;
    let given = stage.given_then(lost).await;
    assert_eq!(given.n_duplicates(), 2, "{given:?}");
    stage.program.stop().await;
}

/// A replica, and a database that shows which sessions wait.
struct Stage {
    database: TestDatabase,
    options: Options,
    program: Program,
    client: Client,
    /// A server for this test alone, because looks of other tests would hide its answers.
    _server: Server,
}

impl Stage {
    async fn new(backend: Backend, options: Options) -> Self {
        let server = Server::start(backend).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = options
            .database(&database.url)
            .env("ODOMETER_DEFAULT__BLOCK__MIN", 10)
            // These limits are longer than the time for which creations are stopped.
            .env("ODOMETER_STORE__TIMEOUT", "50s")
            .env("ODOMETER_REFILL__DEADLINE", "60s");
        let program = options.start_ready().await;
        Self {
            client: program.client(),
            database,
            options,
            program,
            _server: server,
        }
    }

    /// Takes numbers of each name from a replica that then ends, and deletes the names from the
    /// database. After such a restore no replica can know of the loss. Returns the numbers.
    async fn lose(&self, names: [&str; 2]) -> Ledger {
        let gone = self.options.start_ready().await;
        let mut ledger = Ledger::default();
        for name in names {
            let path = format!("/v1/sequences/{name}/next?count=100");
            let reply = gone.client().post(&path).await.expect("a reply");
            ledger.record(name, &reply.numbers());
        }
        gone.stop().await;
        for table in [
            "block WHERE sequence",
            "counter WHERE sequence",
            "sequence WHERE name",
        ] {
            let forget = format!("DELETE FROM {table} LIKE 'early-%'");
            self.database.execute(&forget).await;
        }
        ledger
    }

    /// Adds one number of each lost name, from a replica that was not there before the recovery.
    /// Returns all issued numbers.
    async fn given_then(&self, mut ledger: Ledger) -> Ledger {
        let fresh = self.options.start_ready().await;
        for name in LOST {
            let number = fresh.client().next(name).await;
            ledger.record(name, &[Range::single(number)]);
        }
        fresh.stop().await;
        ledger
    }

    /// Starts calls that create these names.
    fn creations<const N: usize>(&self, names: [&'static str; N]) -> Vec<JoinHandle<Reply>> {
        let calls = names.map(|name| {
            let client = self.client.clone();
            let path = format!("/v1/sequences/{name}/next");
            tokio::spawn(async move { client.post(&path).await.expect("a reply") })
        });
        calls.into_iter().collect()
    }

    fn recover(&self) -> JoinHandle<()> {
        let recovery = self
            .options
            .begin(&["recover", "--skip", &SKIPPED.to_string(), "--yes"]);
        tokio::task::spawn_blocking(move || {
            let finished = recovery.finish();
            assert_eq!(finished.code, Some(0), "{finished}");
        })
    }

    /// Waits until `n_creations` creations are stopped, and returns their sessions.
    async fn until_stopped(&self, n_creations: usize) -> BTreeSet<i64> {
        let what = format!("{n_creations} creations are stopped");
        wait::until(&what, LIMIT, async || {
            let found = self.stopped().await;
            (found.len() == n_creations).then_some(found)
        })
        .await
    }

    /// Waits until a session with such a statement waits for all sessions in `by`. Returns all
    /// sessions that do so.
    async fn until_blocked(&self, statement: &str, by: &BTreeSet<i64>) -> BTreeSet<i64> {
        let what = format!("{statement} waits for {by:?}");
        wait::until(&what, LIMIT, async || {
            let mut found = BTreeSet::new();
            for session in self.waiting(statement).await {
                if by.is_subset(&self.blockers(session).await) {
                    found.insert(session);
                }
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            (!found.is_empty()).then_some(found)
        })
        .await
    }

    /// Returns the sessions whose creations are stopped.
    async fn stopped(&self) -> BTreeSet<i64> {
        let query = match self.database.backend {
            Backend::Postgres => {
                "SELECT pid::BIGINT FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event = 'advisory'"
            }
            Backend::MariaDb | Backend::Sqlite => &format!(
                "SELECT CAST(id AS SIGNED) FROM {} \
                     WHERE db = DATABASE() AND state = 'User lock'",
                self.database.server().sessions()
            ),
        };
        self.sessions(query).await
    }

    /// Returns the sessions that wait for a lock with a statement that matches this SQL pattern.
    async fn waiting(&self, statement: &str) -> BTreeSet<i64> {
        let statement = statement.to_lowercase();
        let query = match self.database.backend {
            Backend::Postgres => format!(
                "SELECT pid::BIGINT FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock' AND LOWER(REPLACE(query, '\"', '')) LIKE '{statement}'"
            ),
            Backend::MariaDb | Backend::Sqlite => format!(
                "SELECT CAST(id AS SIGNED) FROM {} \
                 WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command <> 'Sleep' \
                 AND LOWER(REPLACE(info, '`', '')) LIKE '{statement}'",
                self.database.server().sessions()
            ),
        };
        self.sessions(&query).await
    }

    /// Returns the sessions that a session waits for.
    async fn blockers(&self, session: i64) -> BTreeSet<i64> {
        let query = match self.database.backend {
            Backend::Postgres => format!("SELECT unnest(pg_blocking_pids({session}))::BIGINT"),
            Backend::MariaDb | Backend::Sqlite => format!(
                "SELECT CAST(blocking_pid AS SIGNED) FROM sys.innodb_lock_waits \
                 WHERE waiting_pid = {session}"
            ),
        };
        self.sessions(&query).await
    }

    async fn sessions(&self, query: &str) -> BTreeSet<i64> {
        let rows = self.database.query(query).await;
        let number = |row: &sea_orm::QueryResult| row.try_get_by_index(0).expect("a number");
        rows.iter().map(number).collect()
    }
}

/// Returns the number that each call got.
async fn numbers(calls: Vec<JoinHandle<Reply>>) -> Vec<i64> {
    let mut numbers = Vec::new();
    for call in calls {
        numbers.push(call.await.expect("no panic").number());
    }
    numbers
}
