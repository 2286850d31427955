//! Migrations of the schema: several at once, and as often as an operator likes.

use std::time::Duration;

use sea_orm::{ConnectionTrait, Database};

use crate::support::{
    Backend, Product, Program, Server, TestDatabase, for_each_server, one_connection, run, wait,
};

for_each_server!(
    four_migrations_at_once_make_one_schema,
    a_migration_that_waits_for_another_ends_at_sigterm,
);

#[test]
fn a_server_without_md5_is_migrated() {
    run(async {
        let server = Server::shared_of(Product::MySql).await;
        let database = TestDatabase::empty_on(server).await;
        let options = Program::options().database(&database.url);
        let finished = options.run(&["migrate"]);
        assert_eq!(finished.code, Some(0), "{finished}");
        let program = options.start_ready().await;
        assert_eq!(program.client().next("orders").await, 1);
        program.stop().await;
        // The server must have no MD5. Otherwise this test proves nothing.
        assert!(!database.answers("SELECT MD5('odometer')").await);
    });
}

/// Checks the lock that an earlier version takes.
#[test]
fn a_migration_waits_for_one_of_the_version_before() {
    run(async {
        let server = Server::shared_of(Product::MariaDb).await;
        let database = TestDatabase::empty_on(server).await;
        let lock = "SELECT GET_LOCK(CONCAT('odometer:', MD5(DATABASE())), 0)";
        a_migration_waits(&database, lock, &waiting_for_a_name(&database)).await;
    });
}

/// Returns a query for the number of sessions that wait for a lock with a name.
fn waiting_for_a_name(database: &TestDatabase) -> String {
    let sessions = database.server().sessions();
    format!("SELECT COUNT(*) FROM {sessions} WHERE state = 'User lock' AND db = DATABASE()")
}

/// Checks that SIGTERM ends a waiting migration. By default, the first process of a container does
/// not end by this signal.
async fn a_migration_that_waits_for_another_ends_at_sigterm(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    // The lock that another migration would hold, and a query for the number of sessions that wait
    // for this lock.
    let (lock, waiting) = match backend {
        Backend::MariaDb => (
            "SELECT GET_LOCK(CONCAT('odometer:', LEFT(SHA2(DATABASE(), 256), 55)), 0)",
            waiting_for_a_name(&database),
        ),
        Backend::Postgres | Backend::Sqlite => (
            "SELECT pg_advisory_lock(x'6f646f6d657465'::bigint)",
            "SELECT COUNT(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database \
             WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
                .to_owned(),
        ),
    };
    a_migration_waits(&database, lock, &waiting).await;
}

/// Checks that a migration waits for the holder of `lock`, and ends by SIGTERM. The query `waiting`
/// counts the sessions that wait.
async fn a_migration_waits(database: &TestDatabase, lock: &str, waiting: &str) {
    let other = Box::pin(Database::connect(one_connection(&database.url))).await;
    let other = other.expect("the database answers");
    other.execute_unprepared(lock).await.expect("nobody has it");

    let options = Program::options().database(&database.url);
    let migration = options.begin(&["migrate"]);
    wait::until("it waits", Duration::from_secs(30), async || {
        (database.number(waiting).await == Some(1)).then_some(())
    })
    .await;
    migration.terminate();
    let ended = migration.finish();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.errors.contains("ended by SIGTERM"), "{ended}");

    // The ended migration does not block the next one.
    other.close().await.expect("a connection closes");
    let finished = options.run(&["migrate"]);
    assert_eq!(finished.code, Some(0), "{finished}");
}

async fn four_migrations_at_once_make_one_schema(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let migrations: Vec<_> = (0..4)
        .map(|_| {
            let options = Program::options().database(&database.url);
            std::thread::spawn(move || options.run(&["migrate"]))
        })
        .collect();
    for migration in migrations {
        let finished = migration.join().expect("no panic");
        assert_eq!(finished.code, Some(0), "{finished}");
    }
    let stamps = "SELECT COUNT(*) FROM meta";
    assert_eq!(database.number(stamps).await, Some(1));

    // Another migration changes nothing and loses nothing.
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    assert_eq!(program.client().next("kept").await, 1);
    database.migrate();
    assert_eq!(program.client().next("kept").await, 2);
    program.stop().await;
    database.migrate();
    let program = options.start_ready().await;
    assert_eq!(program.client().next("kept").await, 3);
    assert_eq!(database.number(stamps).await, Some(1));
}
