//! Servers that may lose commits in a crash. The program refuses them at its start, and shows them
//! later.

use std::time::Duration;

use crate::support::{
    Backend, Product, Program, Scrape, Server, TestDatabase, for_each_server, run, wait,
};

const LIMIT: Duration = Duration::from_secs(60);
const DURABILITY: &str = "ODOMETER_STORE__DURABILITY";

for_each_server!(a_server_that_may_forget_commits_is_refused_unless_its_store_takes_that);

async fn a_server_that_may_forget_commits_is_refused_unless_its_store_takes_that(backend: Backend) {
    let server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    let (setting, weaken, strengthen) = match backend {
        Backend::Postgres => (
            "fsync",
            "ALTER SYSTEM SET fsync = off",
            "ALTER SYSTEM SET fsync = on",
        ),
        Backend::MariaDb | Backend::Sqlite => (
            "innodb_flush_log_at_trx_commit",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        ),
    };
    let set = async |statement: &str| {
        server.administrate(statement).await;
        if backend == Backend::Postgres {
            server.administrate("SELECT pg_reload_conf()").await;
        }
    };
    let options = Program::options()
        .env("ODOMETER_LISTEN", "127.0.0.1:0")
        .database(&database.url);
    let program = options.start_ready().await;
    let client = program.client();
    let shown = async |wanted: f64| {
        let what = format!("weak durability is shown as {wanted}");
        wait::until(&what, LIMIT, async || {
            let scrape = Scrape::of(&client).await;
            (scrape.sum("odometer_database_durability_weak", &[]) == wanted).then_some(())
        })
        .await;
    };
    shown(0.0).await;

    // A replica that serves goes on, and shows the weak durability until it is gone.
    set(weaken).await;
    shown(1.0).await;
    assert_eq!(client.next("x").await, 1);
    is_refused(&options, setting);
    let weak = options.clone().env(DURABILITY, "weak");
    let checked = weak.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert!(format!("{checked}").contains(setting), "{checked}");
    let second = weak.start_ready().await;
    second.client().next("x").await;
    assert!(second.stop().await.contains(setting));

    set(strengthen).await;
    shown(0.0).await;
    let log = program.stop().await;
    assert_eq!(log.matches("can be issued twice").count(), 1, "{log}");
}

fn is_refused(options: &crate::support::Options, setting: &str) {
    for command in ["serve", "check"] {
        let finished = options.run(&[command]);
        assert_eq!(finished.code, Some(78), "{command}: {finished}");
        for said in [setting, "can be issued twice", "durability = "] {
            assert!(finished.errors.contains(said), "{command}: {finished}");
        }
    }
}

/// Checks that a refused start has written no row.
async fn has_no_row(database: &TestDatabase) {
    let n_rows = database.number("SELECT COUNT(*) FROM replica").await;
    assert_eq!(n_rows, Some(0));
}

/// MariaDB's setting 3 flushes the log more often than necessary, and loses no more than the
/// setting 1.
#[test]
fn a_mariadb_that_flushes_its_log_more_often_is_as_good() {
    run(async {
        let server = Server::start_of(Product::MariaDb).await;
        let database = TestDatabase::prepared_on(&server).await;
        server
            .administrate("SET GLOBAL innodb_flush_log_at_trx_commit = 3")
            .await;
        let checked = Program::options().database(&database.url).run(&["check"]);
        assert_eq!(checked.code, Some(0), "{checked}");
        assert!(!format!("{checked}").contains("innodb"), "{checked}");
    });
}

/// A binary log of statements accepts no write of InnoDB at READ COMMITTED.
#[test]
fn a_binary_log_of_statements_is_refused() {
    run(async {
        for product in [Product::MariaDb, Product::MySql] {
            // MySQL has a binary log even without these arguments.
            let with_a_log = ["--log-bin=log", "--sync-binlog=1"].map(str::to_owned);
            let server = Server::start_of_with(product, with_a_log.to_vec()).await;
            let database = TestDatabase::prepared_on(&server).await;
            let set = async |format: &str| {
                let set = format!("SET GLOBAL binlog_format = '{format}'");
                server.administrate(&set).await;
            };
            set("STATEMENT").await;
            let options = Program::options()
                .env("ODOMETER_LISTEN", "127.0.0.1:0")
                .database(&database.url);
            for command in ["serve", "check"] {
                let finished = options.run(&[command]);
                assert_eq!(finished.code, Some(78), "{product} {command}: {finished}");
                for said in ["1665", "binlog_format = ROW or MIXED"] {
                    assert!(finished.errors.contains(said), "{product}: {finished}");
                }
            }
            has_no_row(&database).await;
            for format in ["MIXED", "ROW"] {
                set(format).await;
                let program = options.start_ready().await;
                program.client().next("x").await;
                program.stop().await;
            }
        }
    });
}

/// When a server starts again, it rolls back the transactions that its binary log has lost.
#[test]
fn a_binary_log_that_may_be_lost_is_refused() {
    run(async {
        let server = Server::start_of(Product::MySql).await;
        let database = TestDatabase::prepared_on(&server).await;
        server.administrate("SET GLOBAL sync_binlog = 0").await;
        let options = Program::options()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .database(&database.url);
        is_refused(&options, "sync_binlog");
        has_no_row(&database).await;
        // A single store may have this setting, too.
        let program = Program::options()
            .env("ODOMETER_STORES__DEFAULT__DATABASE", &database.url)
            .env("ODOMETER_STORES__DEFAULT__DURABILITY", "weak")
            .start_ready()
            .await;
        assert_eq!(program.client().next("x").await, 1);
        program.stop().await;
    });
}

/// A replica of MySQL without this setting may commit a transaction before an earlier one, so what
/// it lacks at a failover cannot be known.
#[test]
fn a_mysql_whose_replicas_may_lose_the_order_of_commits_is_warned_of() {
    run(async {
        let server = Server::start_of(Product::MySql).await;
        let database = TestDatabase::prepared_on(&server).await;
        let options = Program::options().database(&database.url);
        for (value, lossless, n_told) in [("ON", false, 0), ("OFF", false, 1), ("OFF", true, 0)] {
            let set = format!("SET GLOBAL replica_preserve_commit_order = {value}");
            server.administrate(&set).await;
            let options = options.clone().env("ODOMETER_FAILOVER__LOSSLESS", lossless);
            let checked = options.run(&["check"]);
            assert_eq!(checked.code, Some(0), "{checked}");
            let log = options.start_ready().await.stop().await;
            for said in [format!("{checked}"), log] {
                let n_said = said.matches("replica_preserve_commit_order").count();
                assert_eq!(n_said, n_told, "{value} {lossless}: {said}");
            }
        }
    });
}
