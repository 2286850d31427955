//! A server is started again, or its tables are rewritten. Neither loses anything.

use std::time::Duration;

use super::{LIMIT, one};
use crate::support::{
    Backend, Options, PgBouncer, Product, Program, Server, TestDatabase, run, wait,
};

/// Returns the query for a hash of what the stamp says of the server.
fn stamp(database: &TestDatabase) -> &'static str {
    match database.backend {
        Backend::Postgres => "SELECT CAST(hashtext(server || started) AS BIGINT) FROM lineage",
        Backend::MariaDb | Backend::Sqlite => {
            "SELECT CAST(CRC32(CONCAT(server, started)) AS SIGNED) FROM lineage"
        }
    }
}

#[test]
fn a_restart_of_the_server_costs_nothing() {
    run(async {
        let mut server = Server::start_of(Product::drawn(Backend::Postgres)).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = patient(&database);
        let old = options.start_ready().await;
        let before = database.number(stamp(&database)).await;
        let mut numbers = vec![one(&old.client()).await];
        server.kill();
        server.start_again().await;
        for replica in [&old, &options.start_ready().await] {
            numbers.push(one(&replica.client()).await);
        }
        assert_eq!(numbers, (1..4).map(Ok).collect::<Vec<_>>());
        assert_ne!(database.number(stamp(&database)).await, before, "vacuous");
        assert!(!old.log().contains("went back"), "{}", old.log());
    });
}

#[test]
fn a_restart_of_mariadb_or_mysql_costs_nothing() {
    run(async {
        let mut server = Server::start_of(Product::drawn(Backend::MariaDb)).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = patient(&database);
        let old = options.start_ready().await;
        let first = database.number(stamp(&database)).await;
        let mut numbers = vec![one(&old.client()).await];
        // A stamp names the second of the start.
        let clock = "SELECT UNIX_TIMESTAMP()";
        let now = database.number(clock).await;
        wait::until("the next second", LIMIT, async || {
            (database.number(clock).await > now).then_some(())
        })
        .await;
        server.kill();
        server.start_again().await;
        numbers.push(one(&old.client()).await);
        let second = database.number(stamp(&database)).await;
        assert_ne!(second, first, "vacuous");
        // Connections of other seconds say the same of the start.
        for _ in 0..5 {
            numbers.push(one(&options.start_ready().await.client()).await);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert_eq!(numbers, (1..8).map(Ok).collect::<Vec<_>>());
        assert_eq!(database.number(stamp(&database)).await, second);
        assert!(!old.log().contains("went back"), "{}", old.log());
    });
}

#[test]
fn a_table_that_is_rewritten_keeps_its_stamp() {
    run(async {
        let database = TestDatabase::prepared(Backend::Postgres).await;
        let rewrites = [
            "VACUUM FULL lineage",
            "VACUUM FREEZE lineage",
            "CLUSTER lineage USING lineage_pkey",
            "SELECT * FROM lineage FOR UPDATE",
        ];
        keeps_its_stamp(&database, &rewrites).await;
    });
}

#[test]
fn a_table_of_mariadb_or_mysql_that_is_rewritten_keeps_its_stamp() {
    run(async {
        let server = Server::shared_of(Product::drawn(Backend::MariaDb)).await;
        let database = TestDatabase::prepared_on(server).await;
        // MariaDB alters a table with system versioning only if it is told to keep the history.
        let alter = match database.server() {
            Product::MariaDb => {
                "SET system_versioning_alter_history = KEEP; ALTER TABLE lineage FORCE"
            }
            Product::MySql | Product::Postgres15 | Product::Postgres18 => {
                "ALTER TABLE lineage FORCE"
            }
        };
        let rewrites = [
            "OPTIMIZE TABLE lineage",
            alter,
            "ANALYZE TABLE lineage",
            "SELECT * FROM lineage FOR UPDATE",
        ];
        keeps_its_stamp(&database, &rewrites).await;
    });
}

/// The options of programs that wait for a slow server. A block whose reply came too late would be a
/// gap.
fn patient(database: &TestDatabase) -> Options {
    Program::options()
        .env("ODOMETER_REFILL__DEADLINE", "60s")
        .env("ODOMETER_STORE__TIMEOUT", "30s")
        .database(&database.url)
}

async fn keeps_its_stamp(database: &TestDatabase, rewrites: &[&str]) {
    let options = patient(database);
    let program = options.start_ready().await;
    let before = database.number(stamp(database)).await;
    let mut numbers = vec![one(&program.client()).await];
    for rewrite in rewrites {
        database.execute(rewrite).await;
        numbers.push(one(&program.client()).await);
    }
    options.start_ready().await.stop().await;
    assert_eq!(numbers, (1..6).map(Ok).collect::<Vec<_>>());
    assert_eq!(database.number(stamp(database)).await, before);
    assert!(!program.log().contains("went back"), "{}", program.log());
}

#[test]
fn a_server_that_does_not_say_which_one_it_is_is_refused() {
    run(async {
        let server = Server::start_of(Product::drawn(Backend::Postgres)).await;
        let database = TestDatabase::prepared_on(&server).await;
        let hide = "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC";
        server.administrate_in(database.name(), hide).await;
        let options = Program::options()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .database(&database.url);
        for command in ["check", "serve"] {
            let finished = options.run(&[command]);
            assert_eq!(finished.code, Some(78), "{command}: {finished}");
            let is_told = finished.errors.contains("failover.lossless");
            assert!(is_told, "{command}: {finished}");
        }
        let options = options.env("ODOMETER_FAILOVER__LOSSLESS", "true");
        let program = options.start_ready().await;
        assert_eq!(one(&program.client()).await, Ok(1));
        let pooler = PgBouncer::to(server.port(), "").await;
        let pooled = options.database(&pooler.url(&database.url));
        assert_eq!(one(&pooled.start_ready().await.client()).await, Ok(2));
    });
}
