//! A schema that a newer version of Odometer has created.

use crate::support::{
    Answer, Backend, Ledger, Options, Program, TestDatabase, for_each_backend, for_each_server,
};

/// The number of calls to each replica between two restarts.
const N_CALLS: usize = 200;

/// Returns options of a version whose schema is one step ahead of the shipped one. This schema says
/// that the shipped version can work with it.
fn newer() -> Options {
    Program::options().without_guards("next-schema")
}

for_each_server!(two_versions_serve_one_schema_side_by_side);

async fn two_versions_serve_one_schema_side_by_side(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let (older, newer) = (Program::options(), newer());
    let older = older.database(&database.url);
    let newer = newer.database(&database.url);
    let mut ledger = Ledger::default();

    let served_before = older.start_ready().await;
    ask(&served_before, &mut ledger).await;
    let migrated = newer.run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");
    // One replica serves during the migration. Replicas of both versions start after it.
    let started = [older.start_ready().await, newer.start_ready().await];
    for program in [&served_before, &started[0], &started[1]] {
        ask(program, &mut ledger).await;
    }
    // The older version has nothing to migrate, and reports nothing about what it does not know.
    let migrated = older.run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");
    let checked = older.run(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked}");
    assert_eq!(schema_version(&database).await, highest_version());

    served_before.stop().await;
    for program in started {
        ask(&program, &mut ledger).await;
        program.stop().await;
    }
    assert_eq!(ledger.n_duplicates(), 0, "{ledger:?}");
}

for_each_backend!(the_version_before_starts_on_a_newer_schema);

async fn the_version_before_starts_on_a_newer_schema(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let migrated = newer().database(&database.url).run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");
    assert_eq!(schema_version(&database).await, highest_version());
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    assert_eq!(program.client().next("orders").await, 1);
    program.stop().await;
    assert_eq!(schema_version(&database).await, highest_version());
}

for_each_server!(a_version_that_refuses_the_next_schema_is_found_out);

async fn a_version_that_refuses_the_next_schema_is_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let migrated = newer().database(&database.url).run(&["migrate"]);
    assert_eq!(migrated.code, Some(0), "{migrated}");
    let older = Program::options().database(&database.url);
    let checked = older.without_guards("exact-schema").run(&["check"]);
    assert_eq!(checked.code, Some(78), "{checked}");
    assert!(
        checked.errors.contains("start a newer Odometer"),
        "{checked}"
    );
}

async fn schema_version(database: &TestDatabase) -> Option<i32> {
    let rows = database.query("SELECT schema_version FROM meta").await;
    rows.first()
        .map(|row| row.try_get_by_index(0).expect("one number"))
}

/// Returns the schema version that the newer version writes. It does not depend on the shipped
/// version.
fn highest_version() -> Option<i32> {
    Some(1_000)
}

async fn ask(program: &Program, ledger: &mut Ledger) {
    let client = program.client();
    for call in 0..N_CALLS {
        let sequence = format!("side-{}", call % 10);
        match client.ask(&format!("/v1/sequences/{sequence}/next")).await {
            Answer::Given(ranges) => ledger.record(&sequence, &ranges),
            Answer::Refused(reply) => panic!("refused: {reply:?}"),
            Answer::NoReply(error) => panic!("no reply: {error:?}"),
        }
    }
}
