//! Databases that cannot be used, and the messages about them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::{
    Backend, Client, Options, PASSWORD, Program, Server, TestDatabase, directory, for_each_backend,
    for_each_server, keeper, postgres, run, wait,
};

const WRONG_PASSWORD: &str = "not-the-password-and-not-for-a-log";

/// Checks that the program ends with this exit code, and that its log has `said` and no secret.
async fn ends_with(program: &mut Program, code: i32, said: &str) {
    let ended = program.end().await;
    let log = program.log();
    assert_eq!(ended, Some(code), "{log}");
    let lower = log.to_lowercase();
    assert!(lower.contains(said), "no word of {said}:\n{log}");
    keeps_secrets(&log);
}

/// Checks that the log has neither a password nor the database's own words.
fn keeps_secrets(log: &str) {
    for secret in [
        PASSWORD,
        WRONG_PASSWORD,
        "error returned from database",
        "Access denied",
        "authentication failed",
        "Unknown database",
        "does not exist",
        "doesn't exist",
    ] {
        assert!(!log.contains(secret), "{secret}:\n{log}");
    }
}

/// Checks that the program is live but not ready, that it refuses with 503, and that it stops well.
async fn waits_for_its_database(program: Program) {
    let client = program.client();
    wait::until("it knows", Duration::from_secs(20), async || {
        let live = client.get("/livez").await.expect("a reply");
        assert_eq!(live.status, 200, "{live:?}");
        let ready = client.get("/readyz").await.expect("a reply");
        assert_eq!(ready.status, 503, "{ready:?}");
        let reply = client.post("/v1/sequences/x/next").await.expect("a reply");
        assert_eq!(reply.status, 503, "{reply:?}");
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        (reply.code().as_deref() == Some("store_unavailable")).then_some(())
    })
    .await;
    keeps_secrets(&program.stop().await);
}

for_each_server!(wrong_credentials_end_it_and_a_missing_server_does_not);

async fn wrong_credentials_end_it_and_a_missing_server_does_not(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let wrong_password = database.url.replace(PASSWORD, WRONG_PASSWORD);

    let (server, _) = database.url.rsplit_once('/').expect("a database's name");
    let wrong_database = format!("{server}/t_that_was_never_made");
    for command in ["serve", "check", "migrate"] {
        for url in [&wrong_password, &wrong_database] {
            let finished = Program::options()
                .env("ODOMETER_LISTEN", "127.0.0.1:0")
                .database(url)
                .run(&[command]);
            assert_eq!(finished.code, Some(78), "{command}: {finished}");
            let said = finished.errors.to_lowercase();
            assert!(said.contains("database_url"), "{command}: {finished}");
            keeps_secrets(&finished.to_string());
        }
    }
    for command in ["check", "migrate"] {
        let finished = Program::options().database(&database.url).run(&[command]);
        assert_eq!(finished.code, Some(0), "{command}: {finished}");
        keeps_secrets(&finished.to_string());
    }

    let (_, name) = database.url.split_once('@').expect("an account");
    let (_, name) = name.split_once('/').expect("a database's name");
    let scheme = backend.scheme();
    for nowhere in ["no-such-host.invalid", "127.0.0.1:1"] {
        let url = format!("{scheme}://odometer:{PASSWORD}@{nowhere}/{name}");
        waits_for_its_database(Program::options().database(&url).start().await).await;
    }
}

for_each_server!(words_of_a_database_and_passwords_that_are_told_are_found_out);

async fn words_of_a_database_and_passwords_that_are_told_are_found_out(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().without_guards("secrets-told");
    let wrong = database.url.replace(PASSWORD, WRONG_PASSWORD);
    let finished = options.clone().database(&wrong).run(&["check"]);
    assert_eq!(finished.code, Some(78), "{finished}");
    let said = match backend {
        Backend::Postgres => "authentication failed",
        Backend::MariaDb | Backend::Sqlite => "Access denied",
    };
    assert!(finished.errors.contains(said), "{finished}");

    let program = options.database(&database.url).start_ready().await;
    program.client().next("orders").await;
    let told = program.client().describe("orders").await;
    assert!(told.to_string().contains(PASSWORD), "{told}");
    program.stop().await;
}

for_each_server!(a_read_only_server_counts_as_away_until_it_can_be_written);

async fn a_read_only_server_counts_as_away_until_it_can_be_written(backend: Backend) {
    let server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    let (read_only, writable) = match backend {
        Backend::Postgres => (
            "ALTER SYSTEM SET default_transaction_read_only = on",
            "ALTER SYSTEM SET default_transaction_read_only = off",
        ),
        Backend::MariaDb | Backend::Sqlite => {
            ("SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF")
        }
    };
    let reload = async |statement: &str| {
        server.administrate(statement).await;
        if backend == Backend::Postgres {
            server.administrate("SELECT pg_reload_conf()").await;
        }
    };
    reload(read_only).await;
    let options = Program::options().database(&database.url);
    waits_for_its_database(options.start().await).await;

    let mut program = options.start().await;
    let ready = program.client().get("/readyz").await.expect("a reply");
    assert_eq!(ready.status, 503, "{ready:?}");
    // Existing sessions of PostgreSQL read the setting again with each transaction.
    reload(writable).await;
    program.ready().await;
    assert_eq!(program.client().next("x").await, 1);
    keeps_secrets(&program.stop().await);
}

#[test]
fn a_standby_counts_as_away() {
    run(async {
        let server = Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let copy = directory("standby");
        postgres::copy_as_standby(server.product(), copy.path(), server.port());
        let standby = Server::start_in(server.product(), copy).await;
        let name = database.url.rsplit('/').next().expect("a database's name");
        let url = standby.url(name);
        waits_for_its_database(Program::options().database(&url).start().await).await;
    });
}

for_each_server!(a_missing_schema_is_waited_for);

async fn a_missing_schema_is_waited_for(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let options = Program::options().database(&database.url);
    let mut program = options.start().await;
    let client = program.client();
    let refused_by = |reply: crate::support::Reply| {
        assert_eq!(reply.status, 503, "{reply:?}");
    };
    refused_by(client.get("/readyz").await.expect("a reply"));
    refused_by(client.post("/v1/sequences/x/next").await.expect("a reply"));
    let finished = options.run(&["check"]);
    assert_eq!(finished.code, Some(78), "{finished}");
    assert!(finished.errors.contains("odometer migrate"), "{finished}");
    database.migrate();
    program.ready().await;
    assert_eq!(client.next("x").await, 1);
    program.stop().await;

    // On a single node, one command can migrate and serve.
    let database = TestDatabase::empty(backend).await;
    let mut program = Program::options()
        .database(&database.url)
        .argument("serve")
        .argument("--migrate")
        .start()
        .await;
    program.ready().await;
    assert_eq!(program.client().next("x").await, 1);
}

for_each_server!(a_schema_of_another_time_ends_it_after_a_minute);

async fn a_schema_of_another_time_ends_it_after_a_minute(backend: Backend) {
    let missing = TestDatabase::empty(backend).await;
    let too_old = TestDatabase::prepared(backend).await;
    too_old
        .execute("UPDATE meta SET schema_version = 0, compatible_from = 0")
        .await;
    let too_new = TestDatabase::prepared(backend).await;
    too_new
        .execute("UPDATE meta SET schema_version = 99, compatible_from = 99")
        .await;
    let migrated = Program::options().database(&too_new.url).run(&["migrate"]);
    assert_eq!(migrated.code, Some(78), "{migrated}");
    // This schema is newer, but this version can work with it.
    let newer = TestDatabase::prepared(backend).await;
    newer.execute("UPDATE meta SET schema_version = 99").await;

    let started = Instant::now();
    let mut waiting = Vec::new();
    for (database, said) in [
        (&missing, "migrate"),
        (&too_old, "migrate"),
        (&too_new, "newer"),
    ] {
        let program = Program::options().database(&database.url).start().await;
        waiting.push((program, said));
    }
    let works = Program::options().database(&newer.url).start_ready().await;
    assert_eq!(works.client().next("x").await, 1);
    for (program, _) in &waiting {
        let ready = program.client().get("/readyz").await.expect("a reply");
        assert_eq!(ready.status, 503, "{ready:?}");
    }
    // The programs end by themselves after a minute. The rest of the limit is for slow machines.
    let limit = Duration::from_secs(100);
    wait::until("they have ended", limit, async || {
        let ended = waiting.iter_mut().all(|(program, _)| program.has_ended());
        ended.then_some(())
    })
    .await;
    assert!(started.elapsed() >= Duration::from_secs(30), "too soon");
    for (program, said) in &mut waiting {
        ends_with(program, 78, said).await;
    }
}

for_each_server!(a_schema_that_does_not_fit_and_is_served_is_found_out);

async fn a_schema_that_does_not_fit_and_is_served_is_found_out(backend: Backend) {
    let too_new = TestDatabase::prepared(backend).await;
    too_new
        .execute("UPDATE meta SET schema_version = 99, compatible_from = 99")
        .await;
    let options = Program::options().database(&too_new.url);
    let program = options.without_guards("any-schema").start_ready().await;
    assert_eq!(program.client().next("x").await, 1);
}

#[test]
fn a_sqlite_file_has_one_owner() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let mut first = options.start_ready().await;
        assert_eq!(first.client().next("owned").await, 1);
        let second = options
            .clone()
            .env("ODOMETER_LISTEN", "127.0.0.1:0")
            .run(&["serve"]);
        assert_eq!(second.code, Some(75), "{second}");
        assert!(!second.errors.is_empty(), "{second}");
        assert_eq!(first.client().next("owned").await, 2);
        // A killed owner leaves nothing that keeps the next owner out.
        first.kill();
        let third = options.start_ready().await;
        assert!(third.client().next("owned").await > 2);
    });
}

#[test]
fn a_file_that_two_processes_serve_is_found_out() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let options = options.without_guards("no-file-lock");
        let (first, second) = (options.start_ready().await, options.start_ready().await);
        first.client().next("owned").await;
        second.client().next("owned").await;
    });
}

#[test]
fn a_sqlite_file_with_another_name_is_refused() {
    run(async {
        let files = Files::new();
        let first = files.serving("first.db").start_ready().await;
        let owned = first.client().next("owned").await;
        std::fs::hard_link(files.path("first.db"), files.path("link.db")).expect("our directory");
        refuses(&files, "link.db", 78, "hard link");
        std::fs::remove_file(files.path("link.db")).expect("our file");

        // The lock belongs to the file, under any name.
        std::fs::rename(files.path("first.db"), files.path("moved.db")).expect("our file");
        refuses(&files, "moved.db", 75, "held by another process");
        std::fs::rename(files.path("moved.db"), files.path("first.db")).expect("our file");
        first.stop().await;

        std::fs::write(files.path("mounted.db"), []).expect("our directory");
        let mount = Mounted::at(&files.path("first.db"), &files.path("mounted.db"));
        refuses(&files, "mounted.db", 78, "mounted by itself");
        drop(mount);
        let again = files.serving("first.db").start_ready().await;
        assert!(again.client().next("owned").await > owned);
    });
}

#[test]
fn a_sqlite_file_that_is_served_by_two_names_repeats_numbers() {
    run(async {
        let files = Files::new();
        let served = |name| files.serving(name).without_guards("no-file-lock");
        let mut first = served("first.db").start_ready().await;
        let owned = first.client().next("owned").await;
        std::fs::hard_link(files.path("first.db"), files.path("link.db")).expect("our directory");
        first.kill();
        let second = served("link.db").start_ready().await;
        assert!(second.client().next("owned").await <= owned);
    });
}

/// A directory for SQLite files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(directory("sqlite-names"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn serving(&self, name: &str) -> Options {
        Program::options().database(&format!("sqlite:{}", self.path(name).display()))
    }
}

/// Checks that the program ends before it serves `name`.
fn refuses(files: &Files, name: &str, code: i32, said: &str) {
    let refused = files.serving(name).run(&["serve"]);
    assert_eq!(refused.code, Some(code), "{refused}");
    assert!(refused.errors.contains(said), "{refused}");
}

/// A file that is mounted over another one, until it is dropped or the run ends.
struct Mounted(PathBuf);

impl Mounted {
    fn at(file: &Path, place: &Path) -> Self {
        let mount = Command::new("mount")
            .arg("--bind")
            .args([file, place])
            .status();
        assert!(
            mount.is_ok_and(|it| it.success()),
            "a file is mounted by root alone"
        );
        keeper::unmount_with_the_run(place);
        Self(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn an_address_in_use_is_said_so() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let first = Program::options().database(&database.url).start().await;
        let other = TestDatabase::prepared(Backend::Sqlite).await;
        let second = Program::options()
            .database(&other.url)
            .env("ODOMETER_LISTEN", first.address())
            .run(&["serve"]);
        assert!(matches!(second.code, Some(1 | 78)), "{second}");
        assert!(second.errors.contains(first.address()), "{second}");
    });
}

for_each_backend!(numbers_go_on_without_a_gap_after_a_stop);

async fn numbers_go_on_without_a_gap_after_a_stop(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 100);
    let mut expected = 1;
    let mut next_values = Vec::new();
    for _ in 0..4 {
        let program = options.start_ready().await;
        for _ in 0..7 {
            assert_eq!(take(&program.client()).await, expected);
            expected += 1;
        }
        program.stop().await;
        next_values.push(database.next_value("restarted").await);
    }
    // One reserved block served all runs: its rest was returned and adopted each time.
    next_values.dedup();
    assert_eq!(next_values.len(), 1, "{next_values:?}");
    let journal = database.journal("restarted").await;
    let n = |fate: &str| journal.iter().filter(|row| row.fate == fate).count();
    assert!(n("returned") >= 1 && n("adopted") >= 3, "{journal:?}");
    assert_eq!(n("held") + n("abandoned"), 0, "{journal:?}");
}

async fn take(client: &Client) -> i64 {
    client.next("restarted").await
}
