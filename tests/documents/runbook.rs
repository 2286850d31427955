//! Tests on every database that the statements of the runbook do what its sections promise.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use super::{commands::RESTORE, markdown::Document};
use crate::support::{
    Answer, Backend, Options, PASSWORD, Product, Program, Scrape, Server, TestDatabase, directory,
    for_each_backend, for_each_server, settings, wait,
};

/// The number by which the runbook's example raises counters.
const RAISED_BY: i64 = 1_000_000;
/// Longer than two polls of a second each take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The next value that the runbook's example gives a lost counter.
const FIRST_AGAIN: i64 = 5_001;

/// The first line of statements that are for one kind of server.
const OF_ONE_SERVER: [(Backend, &str); 2] = [
    (Backend::Postgres, "-- PostgreSQL\n"),
    (Backend::MariaDb, "-- MySQL and MariaDB\n"),
];
const LOST_COUNTER: &str = "A sequence without its counter";
const DURABILITY: &str = "Weak durability";

/// Returns the sections that have statements, each with its statements.
fn blocks_of_statements() -> Vec<(String, String)> {
    let fences = Document::read("docs/runbook.md").fences().into_iter();
    let found = fences.filter(|fence| fence.kind == "sql");
    found.map(|fence| (fence.section, fence.text)).collect()
}

/// Returns the statements of a block for this database, or `None` if they are for another database.
fn of_this_server(block: &str, backend: Backend) -> Option<&str> {
    // A block below a numbered step is indented.
    let block = block.trim_start();
    let mut marked = OF_ONE_SERVER.iter();
    match marked.find(|(_, mark)| block.starts_with(mark)) {
        Some((its, mark)) if *its == backend => block.strip_prefix(mark),
        Some(_) => None,
        None => Some(block),
    }
}

fn statements(section: &str, backend: Backend) -> Vec<String> {
    let mut found = Vec::new();
    for (place, block) in blocks_of_statements() {
        if place == section {
            let ours = of_this_server(&block, backend).unwrap_or_default();
            let each = ours.split(';').map(str::trim);
            found.extend(each.filter(|one| !one.is_empty()).map(str::to_owned));
        }
    }
    found
}

async fn follow(database: &TestDatabase, section: &str) {
    for statement in statements(section, database.backend) {
        if statement.starts_with("SELECT") || statement.starts_with("SHOW") {
            database.query(&statement).await;
        } else {
            database.execute(&statement).await;
        }
    }
}

/// Takes one number and stops the program, which returns the rest of the block.
async fn take_one(options: &Options) -> i64 {
    let program = options.start_ready().await;
    let number = program.client().next("orders").await;
    program.stop().await;
    number
}

for_each_backend!(the_statements_of_the_runbook_mend_what_they_are_for);

async fn the_statements_of_the_runbook_mend_what_they_are_for(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFAULT__BLOCK__MIN", 100);
    assert_eq!(take_one(&options).await, 1);
    // Control: before any section is followed, the returned rest is adopted.
    assert_eq!(take_one(&options).await, 2);

    database
        .execute("DELETE FROM counter WHERE sequence = 'orders'")
        .await;
    let program = options.start_ready().await;
    let path = "/v1/sequences/orders/next";
    let reply = program.client().post(path).await.expect("a reply");
    assert_eq!(reply.status, 500, "{reply:?}");
    program.stop().await;
    follow(&database, LOST_COUNTER).await;
    assert_eq!(take_one(&options).await, FIRST_AGAIN);

    let sections = blocks_of_statements()
        .into_iter()
        .map(|(section, _)| section);
    let mut sections: BTreeSet<String> = sections.collect();
    // Each of these sections has a test of its own.
    for followed in [LOST_COUNTER, RESTORE, DURABILITY] {
        assert!(sections.remove(followed), "no statement below {followed}");
    }
    assert!(sections.len() >= 6, "vacuous: {sections:?}");
    for section in sections {
        follow(&database, &section).await;
    }
}

for_each_server!(the_runbook_mends_weak_durability);

async fn the_runbook_mends_weak_durability(backend: Backend) {
    let server = Server::start(backend).await;
    let database = TestDatabase::prepared_on(&server).await;
    let weaken: &[&str] = match backend {
        Backend::MariaDb => &[
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
            "SET GLOBAL sync_binlog = 0",
        ],
        Backend::Postgres | Backend::Sqlite => &[
            "ALTER SYSTEM SET fsync = off",
            "ALTER SYSTEM SET full_page_writes = off",
            "SELECT pg_reload_conf()",
        ],
    };
    for statement in weaken {
        database.execute(statement).await;
    }
    until_it_is_shown(&database, true).await;
    let statements = statements(DURABILITY, backend);
    assert!(statements.len() >= 2, "vacuous: {statements:?}");
    follow(&database, DURABILITY).await;
    until_it_is_shown(&database, false).await;
}

/// Waits until the metric shows the durability, because a server needs time to reload its settings.
async fn until_it_is_shown(database: &TestDatabase, is_weak: bool) {
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_STORE__DURABILITY", "weak");
    let what = format!("weak durability is shown: {is_weak}");
    wait::until(&what, LIMIT, async || {
        let program = options.start_ready().await;
        let scrape = Scrape::of(&program.client()).await;
        program.stop().await;
        let shown = scrape.sum("odometer_database_durability_weak", &[]);
        ((shown > 0.0) == is_weak).then_some(())
    })
    .await;
}

for_each_backend!(the_runbook_restores_and_recovers_under_a_running_replica);

async fn the_runbook_restores_and_recovers_under_a_running_replica(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_DEFINITION_REFRESH", "1s")
        .env("ODOMETER_DEFAULT__BLOCK__MAX", 10);
    let mut program = Some(options.start_ready().await);
    let own_directory = directory("runbook");
    let home = match database.url.strip_prefix("sqlite:") {
        Some(file) => Path::new(file)
            .parent()
            .expect("a file lies somewhere")
            .to_path_buf(),
        None => own_directory.path().to_path_buf(),
    };
    let mut n_steps = 0;
    for fence in Document::read("docs/runbook.md").fences() {
        let is_shown = fence.section != RESTORE || fence.kind == "text";
        if is_shown || !is_for(backend, &fence.text) {
            continue;
        }
        n_steps += 1;
        let command = fence.text.trim();
        let is_backup = command.contains("dump ") || command.starts_with("sqlite3 ");
        let running = program.as_ref().expect("it runs between two steps");
        let client = running.client();
        if is_backup {
            client.next("orders").await;
            run_step(&database, &home, command);
            for _ in 0..50 {
                client.next("orders").await;
                client.next("created-later").await;
            }
        } else if fence.kind == "sql" {
            database.execute(command).await;
        } else if backend == Backend::Sqlite {
            // Only one process can open the file, so the replica stops for this step.
            program.take().expect("it runs").stop().await;
            run_step(&database, &home, command);
            program = Some(options.start_ready().await);
        } else {
            run_step(&database, &home, command);
        }
    }
    assert_eq!(
        n_steps, 5,
        "backup, rows taken away, restore, dry run, recovery"
    );
    let client = program.as_ref().expect("it runs").client();
    for name in ["orders", "created-later"] {
        // Numbers that were in memory are issued first.
        wait::until("it is served from above", LIMIT, async || {
            let path = format!("/v1/sequences/{name}/next");
            match client.ask(&path).await {
                Answer::Given(ranges) => (ranges[0].first > RAISED_BY).then_some(()),
                Answer::Refused(reply) => {
                    assert_eq!(reply.code().as_deref(), Some("store_went_back"));
                    None
                }
                Answer::NoReply(error) => panic!("{path}: {error}"),
            }
        })
        .await;
    }
    program.take().expect("it runs").stop().await;
}

/// Returns whether a step is for this database or for every database.
fn is_for(backend: Backend, command: &str) -> bool {
    let tools = [
        (Backend::Postgres, ["pg_dump", "psql"]),
        (Backend::MariaDb, ["mariadb-dump", "mariadb "]),
        (Backend::Sqlite, ["sqlite3", "odometer.db"]),
    ];
    let of = |tools: &[&str; 2]| tools.iter().any(|tool| command.contains(tool));
    tools.iter().all(|(_, tools)| !of(tools))
        || tools
            .iter()
            .any(|(its, tools)| *its == backend && of(tools))
}

/// Runs what an operator enters. The server of this test replaces the one that the runbook shows.
fn run_step(database: &TestDatabase, home: &Path, command: &str) {
    let shown = "--user=odometer odometer";
    let mut command = command.replace(shown, &format!("--user=odometer {}", database.name()));
    // MySQL has the same tools under other names, as the runbook says.
    if database.backend != Backend::Sqlite && database.server() == Product::MySql {
        command = command
            .replace(
                "mariadb-dump ",
                "mysqldump --set-gtid-purged=OFF --no-tablespaces ",
            )
            .replace("mariadb ", "mysql ");
    }
    let port = database.url.rsplit(':').next().unwrap_or_default();
    let port = port.split('/').next().unwrap_or_default();
    let program: PathBuf = settings::shipped_program();
    let programs = program.parent().expect("it lies somewhere").display();
    let inherited = std::env::var("PATH").unwrap_or_default();
    let tools = database.tools().unwrap_or_default();
    let enter = || {
        Command::new("timeout")
            .args(["60", "bash", "-o", "pipefail", "-c", &command])
            .env_clear()
            .env(
                "PATH",
                format!("{programs}:{}:{inherited}", tools.display()),
            )
            .env("ODOMETER_DATABASE_URL", &database.url)
            .env("MYSQL_PWD", PASSWORD)
            .env("MYSQL_TCP_PORT", port)
            .current_dir(home)
            .stdin(Stdio::null())
            .output()
            .expect("a shell starts")
    };
    let mut output = enter();
    // After a deadlock nothing was restored, so the command is entered again, as the runbook says.
    while String::from_utf8_lossy(&output.stderr).contains("deadlock detected") {
        output = enter();
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}\n{said}");
}
