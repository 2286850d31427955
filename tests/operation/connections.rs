//! Databases that give the program no connection, no right, no disk space or no time. Each case has
//! a message of its own.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{
    ACCOUNT, Backend, Link, Options, PASSWORD, PgBouncer, Product, Program, Proxy, Server,
    SmallDisk, TestDatabase, directory, for_each_backend, for_each_server, run, wait,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until the log says `said`. The log must hold no secret.
async fn says(program: &Program, said: &str) {
    wait::until(&format!("it says {said:?}"), LIMIT, async || {
        program.log().contains(said).then_some(())
    })
    .await;
    assert!(!program.log().contains(PASSWORD), "{}", program.log());
}

/// Returns `url` with another account. Both accounts have the same password.
fn as_account(url: &str, account: &str) -> String {
    url.replace(&format!("//{ACCOUNT}:"), &format!("//{account}:"))
}

fn account() -> String {
    format!("a_{}", &uuid::Uuid::new_v4().simple().to_string()[..12])
}

for_each_server!(a_place_where_no_database_is_has_its_sentence);

async fn a_place_where_no_database_is_has_its_sentence(backend: Backend) {
    let scheme = backend.scheme();
    for (place, said) in [
        ("no-such-host.invalid", "the name of its host is not known"),
        ("127.0.0.1:1", "nothing listens at its host and port"),
    ] {
        let url = format!("{scheme}://odometer:{PASSWORD}@{place}/odometer");
        let options = Program::options().database(&url);
        let finished = options.run(&["check"]);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.errors.contains(said), "{finished}");
        let program = options.start().await;
        says(&program, said).await;
        program.stop().await;
    }
}

for_each_server!(a_server_without_a_connection_left_counts_as_away);

async fn a_server_without_a_connection_left_counts_as_away(backend: Backend) {
    let full = FullServer::new(backend).await;
    let finished = full.options().run(&["check"]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.errors.contains("no connection left"), "{finished}");
    let mut program = full.options().start().await;
    says(&program, "no connection left").await;
    full.give_more().await;
    program.ready().await;
    assert_eq!(program.client().next("served").await, 1);
    program.stop().await;
}

for_each_server!(a_server_without_a_connection_left_that_is_not_waited_for_is_found_out);

async fn a_server_without_a_connection_left_that_is_not_waited_for_is_found_out(backend: Backend) {
    let full = FullServer::new(backend).await;
    let options = full.options().without_guards("codes-unread");
    let options = options.env("ODOMETER_LISTEN", "127.0.0.1:0");
    let ended = options.run(&["serve"]);
    assert_eq!(ended.code, Some(78), "{ended}");
    assert!(!ended.errors.contains("no connection left"), "{ended}");
}

/// An account that may open no connection until [`FullServer::give_more`].
struct FullServer {
    server: &'static Server,
    url: String,
    more: String,
    /// The one connection that MariaDB allows. The test holds it.
    _taken: Option<sea_orm::DatabaseConnection>,
}

impl FullServer {
    async fn new(backend: Backend) -> Self {
        let server = Server::shared(backend).await;
        let database = TestDatabase::prepared(backend).await;
        let account = account();
        let (_, name) = database.url.rsplit_once('/').expect("a database's name");
        let (make, more) = match backend {
            Backend::Postgres => (
                vec![format!(
                    "CREATE ROLE {account} LOGIN PASSWORD '{PASSWORD}' IN ROLE {ACCOUNT} CONNECTION LIMIT 0"
                )],
                format!("ALTER ROLE {account} CONNECTION LIMIT 20"),
            ),
            Backend::MariaDb | Backend::Sqlite => (
                vec![
                    format!(
                        "CREATE USER {account}@'%' IDENTIFIED BY '{PASSWORD}' WITH MAX_USER_CONNECTIONS 1"
                    ),
                    format!("GRANT ALL ON {name}.* TO {account}@'%'"),
                ],
                format!("ALTER USER {account}@'%' WITH MAX_USER_CONNECTIONS 20"),
            ),
        };
        for statement in make {
            server.administrate(&statement).await;
        }
        let url = as_account(&database.url, &account);
        let taken = match backend {
            Backend::Postgres => None,
            Backend::MariaDb | Backend::Sqlite => Some(hold_a_connection(&url).await),
        };
        Self {
            server,
            url,
            more,
            _taken: taken,
        }
    }

    fn options(&self) -> Options {
        Program::options().database(&self.url)
    }

    async fn give_more(&self) {
        self.server.administrate(&self.more).await;
    }
}

async fn hold_a_connection(url: &str) -> sea_orm::DatabaseConnection {
    let mut options = sea_orm::ConnectOptions::new(url.to_owned());
    options.min_connections(1).max_connections(1);
    Box::pin(sea_orm::Database::connect(options))
        .await
        .expect("the first connection is had")
}

for_each_server!(a_user_without_rights_on_the_schema_serves_and_cannot_migrate);

async fn a_user_without_rights_on_the_schema_serves_and_cannot_migrate(backend: Backend) {
    let server = Server::shared(backend).await;
    let database = TestDatabase::empty(backend).await;
    let account = account();
    let (_, name) = database.url.rsplit_once('/').expect("a database's name");
    let rights = "SELECT, INSERT, UPDATE, DELETE";
    let user = match backend {
        Backend::Postgres => format!("CREATE ROLE {account} LOGIN PASSWORD '{PASSWORD}'"),
        Backend::MariaDb | Backend::Sqlite => {
            format!("CREATE USER {account}@'%' IDENTIFIED BY '{PASSWORD}'")
        }
    };
    server.administrate(&user).await;
    if backend == Backend::MariaDb {
        // The grant comes before the tables, because MariaDB accepts grants on tables that do not
        // exist yet.
        let grant = format!("GRANT {rights} ON {name}.* TO {account}@'%'");
        server.administrate(&grant).await;
    }
    let options = Program::options().database(&as_account(&database.url, &account));

    let finished = options.run(&["migrate"]);
    assert_eq!(finished.code, Some(78), "{finished}");
    assert!(
        finished.errors.contains("may not create or change tables"),
        "{finished}"
    );
    assert_eq!(finished.errors.trim().lines().count(), 1, "{finished}");
    let program = options.start().await;
    says(&program, "has no schema of Odometer").await;
    program.stop().await;

    database.migrate();
    if backend == Backend::Postgres {
        let finished = options.run(&["check"]);
        assert_eq!(finished.code, Some(78), "{finished}");
        let said = "grant it SELECT, INSERT, UPDATE and DELETE";
        assert!(finished.errors.contains(said), "{finished}");
        let grant = format!("GRANT {rights} ON ALL TABLES IN SCHEMA public TO {account}");
        database.execute(&grant).await;
    }
    let finished = options.run(&["check"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let program = options.start_ready().await;
    assert_eq!(program.client().next("served").await, 1);
    program
        .client()
        .define(
            "served",
            &serde_json::json!({ "description": "by two users" }),
        )
        .await;
    program.stop().await;
    let journal = database.journal("served").await;
    assert!(
        journal.iter().any(|row| row.fate == "returned"),
        "{journal:?}"
    );
}

#[test]
fn a_secret_in_a_file_may_end_its_line_and_may_be_changed() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let home = directory("secrets");
        let file = home.path().join("url");
        let options = Program::options().env("ODOMETER_DATABASE_URL_FILE", file.display());
        for end in ["", "\n", "\r\n"] {
            std::fs::write(&file, format!("{}{end}", database.url)).expect("our file");
            let finished = options.run(&["check"]);
            assert_eq!(finished.code, Some(0), "{end:?}: {finished}");
        }
        let former = database.url.replace(PASSWORD, "the-former-one");
        std::fs::write(&file, format!("{former}\n")).expect("our file");
        let finished = options.run(&["check"]);
        assert_eq!(finished.code, Some(78), "{finished}");
        assert!(finished.errors.contains("user or password"), "{finished}");
        assert!(!finished.errors.contains("former"), "{finished}");
        std::fs::write(&file, format!("{}\n", database.url)).expect("our file");
        assert_eq!(options.run(&["check"]).code, Some(0));
    });
}

fn impatient(url: &str) -> Options {
    Program::options()
        .database(url)
        .env("ODOMETER_STORE__TIMEOUT", "1s")
        .env("ODOMETER_REFILL__DEADLINE", "1s")
}

/// Returns the program's statements that wait for a lock now. Each has a text that distinguishes it
/// from a later statement.
async fn waiting(database: &TestDatabase) -> Vec<String> {
    let (_, name) = database.url.rsplit_once('/').expect("a database's name");
    let query = match database.backend {
        Backend::Postgres => format!(
            "SELECT concat(pid, ' ', query_start) AS one FROM pg_stat_activity \
             WHERE datname = '{name}' AND usename = '{ACCOUNT}' AND wait_event_type = 'Lock'"
        ),
        // MySQL numbers no statements in this table, so the connection's number stands for the
        // statement. A later statement comes on another connection: the program gives up a
        // connection together with its statement.
        Backend::MariaDb | Backend::Sqlite => format!(
            "SELECT CAST({} AS CHAR CHARACTER SET utf8mb4) AS one \
             FROM {} \
             WHERE db = '{name}' AND user = '{ACCOUNT}' AND state LIKE 'Waiting for table%'",
            if database.server() == Product::MySql {
                "id"
            } else {
                "query_id"
            },
            database.server().sessions()
        ),
    };
    let rows = database.query(&query).await;
    rows.iter()
        .map(|row| row.try_get("", "one").expect("a text"))
        .collect()
}

/// Takes the first number of the sequence that the test locks later. An impatient program may need
/// several attempts for it.
async fn created(program: &Program) {
    let client = program.client();
    wait::until("it is created", LIMIT, async || {
        let reply = client.post("/v1/sequences/locked/next").await;
        (reply.expect("a reply").status == 200).then_some(())
    })
    .await;
}

/// Waits until one of the program's statements waits for the lock that the test holds. Returns this
/// statement.
async fn abandoned(database: &TestDatabase, program: &Program) -> String {
    let path = "/v1/sequences/locked/blocks?size=1";
    let reply = program.client().post(path).await.expect("a reply");
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some("refill_timeout"), "{reply:?}");
    let found = wait::until("a statement waits for the lock", LIMIT, async || {
        let found = waiting(database).await.pop();
        if found.is_none() {
            let _again = program.client().post(path).await;
        }
        found
    });
    found.await
}

for_each_server!(a_statement_that_nobody_waits_for_ends_on_the_server);

async fn a_statement_that_nobody_waits_for_ends_on_the_server(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    ends_on_the_server(&database, &database.url).await;
}

#[test]
fn behind_a_pooler_it_ends_on_the_server_as_well() {
    run(async {
        let server = Server::shared(Backend::Postgres).await;
        let pooler = PgBouncer::start(server, "").await;
        let database = TestDatabase::prepared(Backend::Postgres).await;
        ends_on_the_server(&database, &pooler.url(&database.url)).await;
    });
}

/// Checks that a statement that nobody waits for ends on the server. The program reaches `database`
/// by `url`.
async fn ends_on_the_server(database: &TestDatabase, url: &str) {
    let program = impatient(url).start_ready().await;
    created(&program).await;
    let frozen = database.freeze().await;
    let one = abandoned(database, &program).await;
    wait::until("the server has ended it", LIMIT, async || {
        (!waiting(database).await.contains(&one)).then_some(())
    })
    .await;
    frozen.thaw().await;
    let client = program.client();
    wait::until("it serves again", LIMIT, async || {
        let reply = client.post("/v1/sequences/locked/blocks?size=1").await;
        reply.is_ok_and(|reply| reply.status == 200).then_some(())
    })
    .await;
}

for_each_server!(without_bounds_on_the_server_the_statement_lives_on);

async fn without_bounds_on_the_server_the_statement_lives_on(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = impatient(&database.url).without_guards("no-server-bounds,keep-dead-pool");
    let program = options.start_ready().await;
    created(&program).await;
    let frozen = database.freeze().await;
    let one = abandoned(&database, &program).await;
    // A server may also end the statements of a connection that is given up, so this program keeps
    // such connections. The limit is several times as long as the bound would be, and the test
    // holds the lock all the time.
    let ended = tokio::time::timeout(Duration::from_secs(8), async {
        while waiting(&database).await.contains(&one) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(ended.await.is_err(), "it ended without a bound");
    frozen.thaw().await;
}

for_each_server!(connections_are_made_even_if_that_takes_longer_than_a_statement_may);

async fn connections_are_made_even_if_that_takes_longer_than_a_statement_may(backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url_through(&proxy, server))
        .env("ODOMETER_STORE__TIMEOUT", "1s")
        .env("ODOMETER_POOL__ACQUIRE", "10s")
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 10)
        .start_ready()
        .await;
    let client = program.client();
    client.next("orders").await;
    proxy.delay_connections(Duration::from_millis(1500));
    proxy.set(Link::Cut);
    proxy.set(Link::Whole);
    // The call asks for more numbers than memory has.
    wait::until("numbers are reserved again", LIMIT, async || {
        let path = "/v1/sequences/orders/next?count=1000";
        let reply = client.post(path).await.expect("a reply");
        (reply.status == 200).then_some(())
    })
    .await;
}

for_each_backend!(a_full_disk_is_told_of_and_waited_for);

async fn a_full_disk_is_told_of_and_waited_for(backend: Backend) {
    let megabytes = if backend == Backend::Sqlite { 4 } else { 256 };
    let disk = SmallDisk::mount(megabytes);
    let (url, _server) = if backend == Backend::Sqlite {
        (
            format!("sqlite:{}", disk.path().join("o.db").display()),
            None,
        )
    } else {
        let arguments = match Product::drawn(backend) {
            // With a binary log, MySQL itself waits for disk space, a minute at a time, and reports
            // nothing.
            Product::MySql => vec!["--disable-log-bin".to_owned()],
            Product::Postgres15 | Product::Postgres18 | Product::MariaDb => Vec::new(),
        };
        let server = Server::start_with(backend, disk.directory(), arguments).await;
        let database = TestDatabase::prepared_on(&server).await;
        (database.url, Some(server))
    };
    let program = Program::options().database(&url).start_ready().await;
    let client = program.client();
    client
        .define("warm", &serde_json::json!({ "block": { "min": 100_000 } }))
        .await;
    assert_eq!(client.next("warm").await, 1);

    disk.fill();
    let mut n_created = 0;
    let refused = wait::until("a call is refused", LIMIT, async || {
        n_created += 1;
        let path = format!("/v1/sequences/new-{n_created}/next");
        let reply = client.post(&path).await.expect("a reply");
        (reply.status != 200).then_some(reply)
    })
    .await;
    assert_eq!(
        refused.code().as_deref(),
        Some("store_unavailable"),
        "{refused:?}"
    );
    let said = "the database's disk is full";
    says(&program, said).await;
    for _ in 0..10 {
        let path = format!("/v1/sequences/new-{n_created}/next");
        let reply = client.post(&path).await.expect("a reply");
        // A smaller write may still find disk space.
        assert!(matches!(reply.status, 200 | 503), "{reply:?}");
    }
    assert_eq!(program.log().matches("nothing can be reserved").count(), 1);
    assert!(client.next("warm").await > 1, "what is in memory is issued");

    disk.free();
    wait::until("it serves again", LIMIT, async || {
        let reply = client.post("/v1/sequences/afterwards/next").await;
        reply.is_ok_and(|reply| reply.status == 200).then_some(())
    })
    .await;
    program.stop().await;
}

/// Returns when each of the program's connections was last used.
async fn last_uses(database: &TestDatabase) -> Vec<(i32, String)> {
    let (_, name) = database.url.rsplit_once('/').expect("a database's name");
    let query = format!(
        "SELECT pid, query_start::text AS used FROM pg_stat_activity \
         WHERE datname = '{name}' AND usename = '{ACCOUNT}' ORDER BY pid"
    );
    let rows = database.query(&query).await;
    let use_of = |row: &sea_orm::QueryResult| {
        let process = row.try_get("", "pid").expect("a number");
        (process, row.try_get("", "used").expect("a text"))
    };
    rows.iter().map(use_of).collect()
}

/// Devices between the program and the database close a connection that nobody uses for long, and
/// do not report that.
#[test]
fn no_connection_is_left_unused_by_what_transactions_and_statements_share() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        let names: Vec<String> = (0..8).map(|n| format!("busy-{n}")).collect();
        wait::until("there are several connections", LIMIT, async || {
            // A transaction writes a definition, and a single statement reserves a block.
            let mut changes = JoinSet::new();
            for name in names.clone() {
                let client = program.client();
                changes
                    .spawn(async move { client.define(&name, &json!({"max": "1000000"})).await });
            }
            changes.join_all().await;
            (last_uses(&database).await.len() >= 3).then_some(())
        })
        .await;
        let before = last_uses(&database).await;
        for _ in 0..4 {
            for name in &names {
                let path = format!("/v1/sequences/{name}/blocks?size=1");
                assert_eq!(client.post(&path).await.expect("a reply").status, 200);
            }
        }
        let after = last_uses(&database).await;
        let unused: Vec<_> = before.iter().filter(|use_| after.contains(use_)).collect();
        assert!(unused.is_empty(), "{unused:?} of {before:?}");
    });
}
