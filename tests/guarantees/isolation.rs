//! Servers whose default isolation level is not the level that the program's transactions rest on.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::support::{
    Backend, Client, PgBouncer, Program, Server, TestDatabase, for_each_server, run, wait,
};

const LIMIT: Duration = Duration::from_secs(60);
/// The number of sequences on which a change must wait for the creation of a period.
const ROUNDS: usize = 3;
/// The most sequences that are tried. After the creation, a change may overtake the first numbers,
/// and then the sequence does not count.
const MAX_ROUNDS: usize = 30;

/// The outcome of all changes.
#[derive(Default, Debug)]
struct Outcome {
    n_accepted: usize,
    /// Ids that were printed for two numbers.
    repeated: BTreeSet<String>,
}

for_each_server!(a_change_that_waited_for_a_creation_sees_its_numbers);

async fn a_change_that_waited_for_a_creation_sees_its_numbers(backend: Backend) {
    let server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    for level in levels(backend) {
        set_default(&server, &database, level).await;
        let outcome = changes_that_wait(&Program::options(), &database, &database.url).await;
        assert_eq!(outcome.n_accepted, 0, "{level}: {outcome:?}");
        if backend == Backend::Postgres {
            let pooler = PgBouncer::start(&server, "").await;
            let url = pooler.url(&database.url);
            let outcome = changes_that_wait(&Program::options(), &database, &url).await;
            assert_eq!(outcome.n_accepted, 0, "{level}, pooled: {outcome:?}");
        }
    }
}

/// The control: each transaction runs at the level that is the server's default.
#[test]
fn at_the_server_s_own_isolation_a_change_brings_back_an_id() {
    run(async {
        let server = Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        set_default(&server, &database, "REPEATABLE READ").await;
        let pooler = PgBouncer::start(&server, "").await;
        let options = Program::options().without_guards("servers-isolation");
        for url in [&database.url, &pooler.url(&database.url)] {
            let outcome = changes_that_wait(&options, &database, url).await;
            assert!(outcome.n_accepted > 0, "{outcome:?}");
            assert!(!outcome.repeated.is_empty(), "{outcome:?}");
        }
    });
}

fn levels(backend: Backend) -> &'static [&'static str] {
    match backend {
        Backend::Postgres => &["REPEATABLE READ", "SERIALIZABLE"],
        Backend::MariaDb | Backend::Sqlite => {
            &["READ UNCOMMITTED", "READ COMMITTED", "SERIALIZABLE"]
        }
    }
}

/// Sets the default level of sessions that begin from now on.
async fn set_default(server: &Server, database: &TestDatabase, level: &str) {
    let statement = match database.backend {
        Backend::Postgres => format!(
            "ALTER DATABASE {} SET default_transaction_isolation = '{}'",
            database.name(),
            level.to_lowercase()
        ),
        Backend::MariaDb | Backend::Sqlite => {
            format!("SET GLOBAL TRANSACTION ISOLATION LEVEL {level}")
        }
    };
    server.administrate(&statement).await;
}

/// Lets one replica begin a period and issue the first numbers of the sequence. Meanwhile another
/// replica changes the format, and then issues more numbers.
async fn changes_that_wait(
    options: &crate::support::Options,
    database: &TestDatabase,
    url: &str,
) -> Outcome {
    let options = options
        .clone()
        .database(url)
        // With these settings, nothing else waits for a lock.
        .env("ODOMETER_DEFINITION_REFRESH", "1h")
        .env("ODOMETER_STORE__TIMEOUT", "30s")
        .env("ODOMETER_REFILL__DEADLINE", "30s");
    let replicas = [options.start_ready().await, options.start_ready().await];
    let clients = [replicas[0].client(), replicas[1].client()];
    let mut outcome = Outcome::default();
    let mut n_waited = 0;
    for _ in 0..MAX_ROUNDS {
        let is_met = one_change_that_waits(&clients, database, &mut outcome).await;
        n_waited += usize::from(is_met);
        if n_waited == ROUNDS {
            break;
        }
    }
    assert_eq!(n_waited, ROUNDS, "vacuous: {outcome:?}");
    for replica in replicas {
        replica.stop().await;
    }
    outcome
}

/// Returns whether the first numbers were printed before the change was made.
async fn one_change_that_waits(
    [bearing, changing]: &[Client; 2],
    database: &TestDatabase,
    outcome: &mut Outcome,
) -> bool {
    let name = format!("s{}", uuid::Uuid::new_v4().simple());
    let block = json!({"min": 10, "max": 10});
    let definition = json!({"period": "keyed", "format": "{period}-{value}", "block": block});
    bearing.define(&name, &definition).await;
    let taken = format!("/v1/sequences/{name}/next?period=k&count=10");

    // The creation holds the lock of the sequence's row, and waits.
    let creations = database.freeze_creations(&name).await;
    let call = (bearing.clone(), taken.clone());
    let creation = tokio::spawn(async move { call.0.post(&call.1).await.expect("a reply") });
    they_wait(database, false).await;
    let call = (changing.clone(), format!("/v1/sequences/{name}"));
    let format = json!({"format": "{period}-{value:b36}"});
    let change = tokio::spawn(async move { call.0.put(&call.1, &format).await.expect("a reply") });
    they_wait(database, true).await;
    creations.thaw().await;

    let (creation, change) = (
        creation.await.expect("a task"),
        change.await.expect("a task"),
    );
    assert_eq!(creation.status, 200, "{creation:?}");
    let mut printed: BTreeSet<String> = ids(&creation.json()).collect();
    if !printed.contains("k-10") {
        // The change came first, so the ids have its format.
        assert_eq!(change.status, 200, "{change:?}");
        return false;
    }
    match change.status {
        200 => outcome.n_accepted += 1,
        _ => assert_eq!(
            change.code().as_deref(),
            Some("immutable_field"),
            "{change:?}"
        ),
    }
    for _ in 0..4 {
        let reply = changing.post(&taken).await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        for id in ids(&reply.json()) {
            if !printed.insert(id.clone()) {
                outcome.repeated.insert(id);
            }
        }
    }
    true
}

fn ids(reply: &Value) -> impl Iterator<Item = String> {
    let ids = reply["ids"].as_array().expect("a batch").clone();
    ids.into_iter()
        .map(|id| id.as_str().expect("a text").to_owned())
}

/// Waits until the creation waits, and with `is_changing` also the change.
async fn they_wait(database: &TestDatabase, is_changing: bool) {
    let (query, wanted) = match database.backend {
        Backend::Postgres => (
            "SELECT count(*) FROM pg_stat_activity \
             WHERE wait_event_type = 'Lock' AND datname = current_database()"
                .to_owned(),
            1 + i64::from(is_changing),
        ),
        Backend::MariaDb | Backend::Sqlite => {
            let waiting = match is_changing {
                // In the trigger, the session has the user who made the trigger.
                false => "state = 'User lock'",
                true => "user = 'odometer' AND info LIKE '%FROM `sequence`%FOR UPDATE%'",
            };
            let sessions = database.server().sessions();
            (
                format!("SELECT COUNT(*) FROM {sessions} WHERE {waiting}"),
                1,
            )
        }
    };
    wait::until("they wait", LIMIT, async || {
        (database.number(&query).await == Some(wanted)).then_some(())
    })
    .await;
}
