//! Bringing the schema up: several at once, as often as one likes.

use std::time::Duration;

use sea_orm::{ConnectOptions, ConnectionTrait, Database};

use crate::support::{Backend, Program, TestDatabase, for_each_server, wait};

for_each_server!(
    four_migrations_at_once_make_one_schema,
    a_migration_that_waits_for_another_ends_at_sigterm,
);

/// As the first process of a container it has no end by default.
async fn a_migration_that_waits_for_another_ends_at_sigterm(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    // What another one would hold, and who waits for it.
    let (lock, waiting) = match backend {
        Backend::MariaDb => (
            "SELECT GET_LOCK(CONCAT('odometer:', MD5(DATABASE())), 0)",
            "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE state = 'User lock' AND db = DATABASE()",
        ),
        Backend::Postgres | Backend::Sqlite => (
            "SELECT pg_advisory_lock(x'6f646f6d657465'::bigint)",
            "SELECT COUNT(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database \
             WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()",
        ),
    };
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
