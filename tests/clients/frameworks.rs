//! The library for Python in programs that fork, and as the default of models.
//!
//! The programs of these tests lie in `python/`. They take numbers from the real program, and print
//! each number with the process that got it.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde_json::json;

use crate::support::{
    Backend, Ledger, Program, Range, TestDatabase, directory, keeper, pypi, run, settings,
};

/// The folder of the programs, relative to `tests/`.
const FOLDER: &str = "clients/python";
/// The time limit of one program, in seconds.
const LIMIT: &str = "240";
const SEQUENCE: &str = "orders";
/// A sequence of which the programs take printed ids.
const PRINTED: &str = "invoices";
/// The least number of numbers that programs with several processes take.
const MIN_NUMBERS: u64 = 300;

/// The programs from PyPI, which tests/install-programs installs.
static PROGRAMS: LazyLock<PathBuf> = LazyLock::new(|| pypi::programs(FOLDER));

/// What a program in Python took.
#[derive(Default)]
struct Taken {
    ledger: Ledger,
    processes: BTreeSet<u32>,
}

/// Whether a process looks if it was forked. Without this check it takes itself for its parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ForkCheck {
    There,
    TakenOut,
}

/// Runs a program in Python on a service of its own. Returns the numbers that it printed.
async fn taken_by(script: &str, arguments: &[&str], check: ForkCheck) -> Taken {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    client.define(SEQUENCE, &json!({})).await;
    let format = json!({"format": "INV-{value:06}"});
    client.define(PRINTED, &format).await;

    let home = directory("frameworks");
    let folder = settings::repository().join("tests").join(FOLDER);
    let library = settings::repository().join("client/python");
    let paths = std::env::join_paths([&library, &folder]).expect("the paths can be joined");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT])
        .arg(PROGRAMS.join("python"))
        .arg(folder.join(script))
        .args(arguments)
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
        .env("PYTHONPATH", paths)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ODOMETER_URL", program.url())
        .env("NO_PROXY", "*")
        .stdin(Stdio::null());
    if check == ForkCheck::TakenOut {
        command.env("WITHOUT_FORK_CHECK", "1");
    }
    let output = command.output().expect("timeout runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{script}: {status}\n{said}\n{errors}");
    let mut taken = Taken::default();
    for line in said.lines() {
        let (process, number) = numbers_in(line).unwrap_or_else(|| panic!("{script}: {line}"));
        taken.processes.insert(process);
        taken.ledger.record(SEQUENCE, &[Range::single(number)]);
    }
    taken
}

/// Reads a line with a process and a number.
fn numbers_in(line: &str) -> Option<(u32, i64)> {
    let (process, number) = line.split_once(' ')?;
    Some((process.parse().ok()?, number.parse().ok()?))
}

/// Checks that several processes took numbers, and that none of the numbers came twice.
async fn check_processes(script: &str, arguments: &[&str]) {
    let taken = taken_by(script, arguments, ForkCheck::There).await;
    let (n_processes, n_numbers) = (taken.processes.len(), taken.ledger.n_numbers());
    assert!(
        n_processes >= 3 && n_numbers >= MIN_NUMBERS,
        "vacuous: {n_numbers} numbers of {n_processes} processes"
    );
    assert_eq!(taken.ledger.n_duplicates(), 0, "{script} {arguments:?}");
}

/// Checks that the same check finds numbers that came twice if a child takes itself for its parent.
async fn check_control(script: &str, arguments: &[&str]) {
    let taken = taken_by(script, arguments, ForkCheck::TakenOut).await;
    let n_numbers = taken.ledger.n_numbers();
    assert!(
        taken.ledger.n_duplicates() > 0,
        "{script} {arguments:?}: the check finds nothing in {n_numbers} numbers"
    );
}

/// Rule C8.
#[test]
fn workers_of_gunicorn_never_repeat_a_number() {
    run(check_processes("workers.py", &[]));
}

#[test]
fn without_the_fork_check_workers_of_gunicorn_repeat_numbers() {
    run(check_control("workers.py", &[]));
}

/// Rule C8.
#[test]
fn processes_of_a_pool_never_repeat_a_number() {
    run(async {
        for method in ["fork", "forkserver", "spawn"] {
            check_processes("processes.py", &[method]).await;
        }
    });
}

#[test]
fn without_the_fork_check_processes_of_a_pool_repeat_numbers() {
    run(async {
        for method in ["fork", "forkserver"] {
            check_control("processes.py", &[method]).await;
        }
    });
}

#[test]
fn models_get_their_numbers() {
    run(async {
        for (script, n_numbers) in [("django_models.py", 41), ("sqlalchemy_models.py", 21)] {
            let taken = taken_by(script, &[], ForkCheck::There).await;
            assert_eq!(taken.ledger.n_numbers(), n_numbers, "{script}");
            assert_eq!(taken.ledger.n_duplicates(), 0, "{script}");
        }
    });
}
