//! Messages of the commands, and their questions before they act.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::support::{Backend, Program, TestDatabase, directory, for_each_backend, run, settings};

/// Runs a command on a terminal of its own and types `answer`. Returns the exit code and the text
/// that the terminal showed.
fn on_a_terminal(database: &TestDatabase, command: &str, answer: &str) -> (Option<i32>, String) {
    let program = settings::shipped_program();
    let line = format!("{} {command}", program.display());
    let home = directory("terminal");
    let mut process = Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &line,
            "/dev/null",
        ])
        .current_dir(home.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("ODOMETER_DATABASE_URL", &database.url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("script is there: apt-get install bsdutils");
    let mut typing = process.stdin.take().expect("standard input is piped");
    writeln!(typing, "{answer}").expect("it reads");
    let ended = process.wait_with_output().expect("it ends");
    drop(typing);
    let shown = String::from_utf8_lossy(&ended.stdout).into_owned();
    (ended.status.code(), shown)
}

for_each_backend!(recover_asks_on_a_terminal_and_needs_yes_without_one);

async fn recover_asks_on_a_terminal_and_needs_yes_without_one(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    let client = program.client();
    for name in ["short", "shorter"] {
        client.define(name, &json!({"max": 500})).await;
        client.next(name).await;
    }
    client.next("long").await;
    program.stop().await;
    let before = database.next_value("long").await;

    let refused = options.run(&["recover", "--skip", "1000"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(refused.errors.contains("--yes"), "{refused}");
    assert_eq!(database.next_value("long").await, before);
    let (code, shown) = on_a_terminal(&database, "recover --skip 1000", "no");
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("Do it?") && shown.contains("not confirmed"),
        "{shown}"
    );
    assert_eq!(database.next_value("long").await, before);

    // The command names exhausted sequences, before and after the recovery.
    let (code, shown) = on_a_terminal(&database, "recover --skip 1000", "yes");
    assert_eq!(code, Some(0), "{shown}");
    let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
    for named in ["  short", "  shorter"] {
        let n_named = lines.iter().filter(|line| **line == named).count();
        assert_eq!(n_named, 2, "{named}:\n{shown}");
    }
    assert!(!lines.contains(&"  long"), "{shown}");
    let raised = before.map(|next| next + 1000);
    assert_eq!(database.next_value("long").await, raised);
    let repeated = options.run(&["recover", "--skip", "1000", "--yes"]);
    assert_eq!(repeated.code, Some(0), "{repeated}");
    assert!(!repeated.output.contains("Do it?"), "{repeated}");
    assert!(
        repeated.output.contains("a replica of an earlier version"),
        "{repeated}"
    );
}

for_each_backend!(recover_says_when_worker_ids_can_be_used_again_if_any_may_be_leased);

async fn recover_says_when_worker_ids_can_be_used_again_if_any_may_be_leased(backend: Backend) {
    let said = "all ids can be used again in";
    for is_sequence in [false, true] {
        let database = TestDatabase::prepared(backend).await;
        let options = Program::options().database(&database.url);
        options.start_ready().await.stop().await;
        let rehearse = || options.run(&["recover", "--skip", "1000", "--dry-run"]);
        let without = rehearse();
        assert_eq!(without.code, Some(0), "{without}");
        assert!(!without.output.contains(said), "{without}");
        let program = options.start_ready().await;
        let client = program.client();
        if is_sequence {
            client
                .define("moments", &json!({"kind": "snowflake"}))
                .await;
        } else {
            client.lease("pool", 4, 1_000, "somebody").await;
        }
        program.stop().await;
        if is_sequence {
            // The leases of a sequence may be among the lost commits.
            database.execute("DELETE FROM worker_lease").await;
        }
        let with = rehearse();
        assert!(with.output.contains(said), "{with}");
    }
}

for_each_backend!(migrate_says_from_which_version_to_which);

async fn migrate_says_from_which_version_to_which(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let options = Program::options().database(&database.url);
    let migrate = |options: crate::support::Options, wanted: &str| {
        let finished = options.run(&["migrate"]);
        assert_eq!(finished.code, Some(0), "{finished}");
        assert!(finished.errors.contains(wanted), "no {wanted}: {finished}");
    };
    migrate(options.clone(), "the schema was created, at version 8");
    migrate(options.clone(), "is at version 8 already: nothing to do");
    migrate(
        options.without_guards("next-schema"),
        "was brought from version 8 to version 1000",
    );
}

#[test]
fn apply_says_how_far_it_is_unless_it_is_to_be_quiet() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let folder = directory("many");
        let file = folder.path().join("definitions.toml");
        let mut definitions = String::new();
        for n in 0..250 {
            writeln!(definitions, "[sequences.s{n}]").expect("text grows");
        }
        fs::write(&file, definitions).expect("a file");
        let file = file.display().to_string();
        let dry = options.run(&["apply", &file, "--dry-run"]);
        assert_eq!(dry.code, Some(0), "{dry}");
        for said in ["Checked 100 of 250", "Checked 200 of 250"] {
            assert!(dry.errors.contains(said), "no {said}: {}", dry.errors);
        }
        assert_eq!(dry.output.lines().count(), 251, "{dry}");
        for (arguments, sum) in [
            (&["--dry-run", "--quiet"][..], "250 would be created"),
            (&["--quiet"], "250 created"),
        ] {
            let quiet = options.run(&[&["apply", &file], arguments].concat());
            assert_eq!(quiet.code, Some(0), "{quiet}");
            assert!(!quiet.errors.contains("Checked"), "{}", quiet.errors);
            let told: Vec<&str> = quiet.output.lines().collect();
            assert!(told.len() == 1 && told[0].contains(sum), "{told:?}");
        }
        // The command prints a refusal in spite of `--quiet`.
        fs::write(&file, "[sequences.s1]\nstep = 7\n").expect("a file");
        let refused = options.run(&["apply", &file, "--quiet"]);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.output.contains("! s1:"), "{refused}");
    });
}

#[test]
fn a_terminal_shows_how_far_a_command_is_and_a_pipe_does_not() {
    const ERASE: &str = "\u{1b}[2K";
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let folder = directory("many");
        let file = folder.path().join("definitions.toml");
        let mut definitions = String::new();
        for n in 0..250 {
            writeln!(definitions, "[sequences.s{n}]").expect("text grows");
        }
        fs::write(&file, definitions).expect("a file");
        let apply = format!("apply {}", file.display());
        for (command, shown) in [
            ("migrate", &["Migrating: database 1 of 1"][..]),
            (
                &apply,
                &[
                    "Checking: 1 of 250 definitions",
                    "Applying: 0 of 250 definitions",
                ],
            ),
            ("recover --skip 10 --yes", &["Recovering: database 1 of 1"]),
            ("recover --skip 10 --dry-run", &["so far"]),
        ] {
            let (code, screen) = on_a_terminal(&database, command, "");
            assert_eq!(code, Some(0), "{command}: {screen:?}");
            for part in shown {
                let (_, after) = screen
                    .split_once(part)
                    .unwrap_or_else(|| panic!("{command}: no {part}: {screen:?}"));
                assert!(after.contains(ERASE), "{command}: {part} stays: {screen:?}");
            }
            assert!(!screen.contains("Checked"), "{command}: {screen:?}");
            let words: Vec<&str> = command.split(' ').collect();
            let piped = options.run(&words);
            assert_eq!(piped.code, Some(0), "{command}: {piped}");
            let both = piped.to_string();
            assert!(!both.contains('\u{1b}'), "{command}: {both:?}");
            for part in shown {
                assert!(!both.contains(part), "{command}: {both:?}");
            }
        }
        let quiet = format!("{apply} --quiet");
        let (code, screen) = on_a_terminal(&database, &quiet, "");
        assert_eq!(code, Some(0), "{screen:?}");
        assert!(!screen.contains("Checking"), "{screen:?}");
    });
}

/// Runs a command whose standard output is full. Returns its exit code, and what it said.
fn with_full_output(database: &TestDatabase, arguments: &[&str]) -> (Option<i32>, String) {
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let home = directory("full");
    let ended = Command::new(settings::shipped_program())
        .args(arguments)
        .current_dir(home.path())
        .env_clear()
        .env("ODOMETER_DATABASE_URL", &database.url)
        .stdin(Stdio::null())
        .stdout(full.expect("Linux has it"))
        .stderr(Stdio::piped())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), said)
}

#[test]
fn a_command_that_cannot_write_says_so_and_does_its_work() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let folder = directory("definitions");
        let file = folder.path().join("definitions.toml");
        fs::write(&file, "[sequences.orders]\n").expect("a file");
        let file = file.display().to_string();
        for arguments in [
            &["init", "-"][..],
            &["config"],
            &["completions", "bash"],
            &["check"],
            &["apply", &file],
            &["recover", "--skip", "5", "--yes"],
        ] {
            let (code, said) = with_full_output(&database, arguments);
            assert_eq!(code, Some(1), "{arguments:?}: {said}");
            let is_told = said.contains("standard output cannot be written");
            assert!(is_told, "{arguments:?}: {said}");
        }
        // What was asked for is done all the same.
        assert_eq!(database.next_value("orders").await, Some(6));
    });
}
