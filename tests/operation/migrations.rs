//! Bringing the schema up: several at once, as often as one likes.

use std::time::Duration;

use sea_orm::{ConnectOptions, ConnectionTrait, Database};

use crate::support::{Backend, Product, Program, Server, TestDatabase, for_each_server, run, wait};

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
        // Otherwise this test says nothing.
        assert!(!database.answers("SELECT MD5('odometer')").await);
    });
}

/// What a version before this one takes.
#[test]
fn a_migration_waits_for_one_of_the_version_before() {
    run(async {
        let server = Server::shared_of(Product::MariaDb).await;
        let database = TestDatabase::empty_on(server).await;
        let lock = "SELECT GET_LOCK(CONCAT('odometer:', MD5(DATABASE())), 0)";
        a_migration_waits(&database, lock, &waiting_for_a_name(&database)).await;
    });
}

/// How many wait for a lock that has a name.
fn waiting_for_a_name(database: &TestDatabase) -> String {
    let sessions = database.server().sessions();
    format!("SELECT COUNT(*) FROM {sessions} WHERE state = 'User lock' AND db = DATABASE()")
}

/// As the first process of a container it has no end by default.
async fn a_migration_that_waits_for_another_ends_at_sigterm(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    // What another one would hold, and who waits for it.
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

/// A migration that waits for who holds `lock`, as `waiting` counts, and ends when it is told to.
async fn a_migration_waits(database: &TestDatabase, lock: &str, waiting: &str) {
    let mut options = ConnectOptions::new(database.url.clone());
    options.max_connections(1).sqlx_logging(false);
    let other = Box::pin(Database::connect(options)).await;
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

    // Nothing of it is in the way of the next.
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

    // Once more: nothing changes, nothing is lost.
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
