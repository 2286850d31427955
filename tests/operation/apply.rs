//! Definitions as code: `odometer apply` defines sequences as a file says.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use super::configuration::refused;
use crate::support::{
    Backend, Finished, Options, Program, TestDatabase, directory, for_each_backend,
    for_each_server, run, wait,
};

/// A limit far longer than two polls take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

const DEFINITIONS: &str = r#"
[sequences.orders]
start = 1000
description = "orders of the shop"

[sequences."shop.eu:invoices"]
step = 2
block = { min = 5, hold = "1h", refill = "2h" }

[sequences.plain]
"#;

const CHANGED: &str = r#"
[sequences.orders]
start = 1000
description = "orders"
block.hold = "2h"

[sequences."shop.eu:invoices"]
step = 2

[sequences.late]
"#;

const CREATED: [&str; 10] = [
    "+ orders: created",
    "    + description: \"orders of the shop\"",
    "    + start: \"1000\"",
    "+ shop.eu:invoices: created",
    "    + block.hold: \"1h\"",
    "    + block.min: 5",
    "    + block.refill: \"2h\"",
    "    + step: 2",
    "+ plain: created",
    "3 definitions: 3 created, 0 changed, 0 unchanged",
];

const UNCHANGED: [&str; 4] = [
    "  orders: unchanged",
    "  shop.eu:invoices: unchanged",
    "  plain: unchanged",
    "3 definitions: 0 created, 0 changed, 3 unchanged",
];

const WOULD_CHANGE: [&str; 7] = [
    "~ orders: would be changed",
    "    ~ block.hold: \"15m\" → \"2h\"",
    "    ~ description: \"orders of the shop\" → \"orders\"",
    "    warning: `block.refill` (30m) is shorter than `block.hold` (2h): a block lasts for \
     `refill`, so what is in memory does not always last for `hold`.",
    "  shop.eu:invoices: unchanged",
    "+ late: would be created",
    "dry run, nothing was changed; of 3 definitions 1 would be created, 1 changed, 1 left \
     unchanged",
];

/// A file of definitions, and the program that applies it.
struct File {
    home: TempDir,
    options: Options,
}

impl File {
    fn of(database: &TestDatabase) -> Self {
        let home = directory("apply");
        let options = Program::options()
            .in_directory(home.path())
            .database(&database.url)
            .env("ODOMETER_DEFINITION_REFRESH", "1s");
        Self { home, options }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("definitions.toml")
    }

    fn apply(&self, content: &str, arguments: &[&str]) -> Finished {
        std::fs::write(self.path(), content).expect("our directory");
        let all = [&["apply", "definitions.toml"][..], arguments].concat();
        self.options.run(&all)
    }

    /// Applies `content`, which must succeed, and returns the printed lines.
    fn applied(&self, content: &str, arguments: &[&str]) -> Vec<String> {
        let finished = self.apply(content, arguments);
        assert_eq!(finished.code, Some(0), "{finished}");
        finished.output.lines().map(str::to_owned).collect()
    }
}

/// Returns the versions that every change of a definition raises, in `meta` and in the counters.
async fn written(database: &TestDatabase) -> (Option<i64>, Option<i64>) {
    let of_all = "SELECT definitions_version FROM meta";
    let of_one = "SELECT MAX(version) FROM counter";
    (database.number(of_all).await, database.number(of_one).await)
}

for_each_backend!(a_format_that_needs_to_be_confirmed_is_to_be_put);

async fn a_format_that_needs_to_be_confirmed_is_to_be_put(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let file = File::of(&database);
    file.applied("[sequences.orders]\nformat = \"A-{value}\"\n", &[]);
    let recovered = file.options.run(&["recover", "--skip", "10", "--yes"]);
    assert_eq!(recovered.code, Some(0), "{recovered}");
    let refused = file.apply("[sequences.orders]\nformat = \"B-{value}\"\n", &[]);
    assert_eq!(refused.code, Some(1), "{refused}");
    for said in ["! orders:", "PUT /v1/sequences/orders", "\"confirm\": true"] {
        assert!(refused.output.contains(said), "no {said}: {refused}");
    }
}

for_each_backend!(a_file_of_definitions_is_made_so_once);

async fn a_file_of_definitions_is_made_so_once(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let file = File::of(&database);
    if backend == Backend::Sqlite {
        let dry = file.applied(DEFINITIONS, &["--dry-run"]);
        assert!(
            dry.contains(&"+ orders: would be created".to_owned()),
            "{dry:?}"
        );
        let path = database.url.trim_start_matches("sqlite:");
        assert!(!PathBuf::from(path).exists(), "a dry run has made it");
    }
    assert_eq!(file.applied(DEFINITIONS, &[]), CREATED);
    let before = written(&database).await;
    assert_eq!(file.applied(DEFINITIONS, &[]), UNCHANGED);
    assert_eq!(written(&database).await, before, "changed by nothing");

    assert_eq!(file.applied(CHANGED, &["--dry-run"]), WOULD_CHANGE);
    assert_eq!(written(&database).await, before, "changed by a dry run");
    let changed = file.apply(CHANGED, &[]);
    assert_eq!(changed.code, Some(0), "{changed}");
    assert!(changed.output.contains("~ orders: changed"), "{changed}");
    let audited: Vec<&str> = changed
        .errors
        .lines()
        .filter(|line| line.contains("a sequence was changed"))
        .collect();
    assert_eq!(audited.len(), 2, "{changed}");
    assert!(
        audited.iter().all(|line| line.contains("command line")),
        "{changed}"
    );

    let program = file.options.start_ready().await;
    let client = program.client();
    assert_eq!(client.next("orders").await, 1000);
    for expected in [1, 3] {
        assert_eq!(client.next("shop.eu:invoices").await, expected);
    }
    let described = client.describe("orders").await["definition"].take();
    assert_eq!(described["block"]["hold"], "2h", "{described}");
    assert_eq!(client.next("late").await, 1);
    program.stop().await;
}

for_each_server!(replicas_that_serve_learn_what_was_applied);

async fn replicas_that_serve_learn_what_was_applied(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let file = File::of(&database);
    let program = file.options.start_ready().await;
    let client = program.client();
    file.applied("[sequences.short]\nmax = 3\n[sequences.other]\n", &[]);
    for expected in 1..=3 {
        assert_eq!(client.next("short").await, expected);
    }
    let path = "/v1/sequences/short/next";
    let reply = client.post(path).await.expect("a reply");
    assert_eq!(reply.code().as_deref(), Some("sequence_exhausted"));
    file.applied("[sequences.short]\nmax = 10\n", &[]);
    wait::until("the replica goes on", LIMIT, async || {
        let reply = client.post(path).await.expect("a reply");
        (reply.status == 200).then(|| assert_eq!(reply.number(), 4))
    })
    .await;
    program.stop().await;
}

/// Two definitions that the program could apply, and between them one that it refuses.
const ONE_REFUSED: &str = r#"
[sequences.first]
description = "new"

[sequences.orders]
start = 5

[sequences.last]
description = "new"
"#;

/// Applies a file of which one definition is refused. Returns how many sequences this has changed.
async fn n_changed_beside_a_refusal(database: &TestDatabase, guards: &str) -> (usize, Finished) {
    let mut file = File::of(database);
    file.applied(
        "[sequences.first]\n[sequences.orders]\n[sequences.last]\n",
        &[],
    );
    file.options = file.options.without_guards(guards);
    let finished = file.apply(ONE_REFUSED, &[]);
    assert_eq!(finished.code, Some(1), "{finished}");
    let told = "! orders: `start` cannot be changed once the sequence exists: it is \"1\".";
    assert!(finished.output.contains(told), "{finished}");
    let rows = database
        .query("SELECT definition FROM sequence ORDER BY name")
        .await;
    let n_changed = rows
        .iter()
        .filter_map(|row| row.try_get::<String>("", "definition").ok())
        .filter_map(|text| serde_json::from_str::<Value>(&text).ok())
        .filter(|definition| definition["description"] == "new")
        .count();
    assert_eq!(rows.len(), 3, "{finished}");
    (n_changed, finished)
}

for_each_backend!(one_definition_that_is_refused_leaves_all_as_they_are);

async fn one_definition_that_is_refused_leaves_all_as_they_are(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let (n_changed, finished) = n_changed_beside_a_refusal(&database, "").await;
    assert_eq!(n_changed, 0, "{finished}");
    assert!(
        finished.errors.contains("nothing was changed"),
        "{finished}"
    );

    // The limit on the number of sequences is also checked before the first creation.
    let mut file = File::of(&database);
    file.options = file.options.env("ODOMETER_MAX_SEQUENCES", 4);
    let finished = file.apply("[sequences.one]\n[sequences.two]\n", &[]);
    assert_eq!(finished.code, Some(1), "{finished}");
    assert!(finished.output.contains("! two: "), "{finished}");
    let n_sequences = database.number("SELECT count(*) FROM sequence").await;
    assert_eq!(n_sequences, Some(3));
    file.applied("[sequences.one]\n", &[]);
}

#[test]
fn definitions_made_so_one_by_one_are_found_out() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let (n_changed, finished) = n_changed_beside_a_refusal(&database, "apply-unchecked").await;
        assert_eq!(n_changed, 1, "{finished}");
    });
}

#[test]
fn a_retired_sequence_is_not_defined_by_a_file() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let file = File::of(&database);
        let program = file.options.start_ready().await;
        let client = program.client();
        client.next("gone").await;
        let path = "/v1/sequences/gone";
        let reply = client.send(reqwest::Method::DELETE, path, &[], None).await;
        assert_eq!(reply.expect("a reply").status, 204);
        program.stop().await;
        let finished = file.apply("[sequences.gone]\nstep = 1\n", &[]);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.output.contains("/gone/restore"), "{finished}");
    });
}

#[test]
fn a_sqlite_file_that_is_served_takes_no_file_of_definitions() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let file = File::of(&database);
        let program = file.options.start_ready().await;
        assert_eq!(program.client().next("orders").await, 1);
        let finished = file.apply(DEFINITIONS, &[]);
        assert_eq!(finished.code, Some(75), "{finished}");
        for said in ["held by another process", "PUT /v1/sequences"] {
            assert!(finished.errors.contains(said), "{finished}");
        }
        // A dry run is allowed, and finds that one definition may not be changed.
        let finished = file.apply(DEFINITIONS, &["--dry-run"]);
        assert_eq!(finished.code, Some(1), "{finished}");
        assert!(finished.output.contains("! orders: `start`"), "{finished}");
        assert!(finished.output.contains("+ plain: would be"), "{finished}");
        program.stop().await;
        file.applied("[sequences.orders]\nstart = 1\n", &[]);
    });
}

#[test]
fn a_file_of_definitions_that_cannot_be_used_is_named_with_its_line() {
    let home = directory("apply");
    let options = Program::options()
        .in_directory(home.path())
        .database("postgres://nobody:nothing@127.0.0.1:1/nowhere");
    for (content, said) in [
        (
            "[sequences.a]\nformt = \"x\"\n",
            "sequences.a.formt in definitions.toml:2",
        ),
        ("[sequences.a]\nmax = 1\nmax = 2\n", "definitions.toml:3"),
        ("[sequences.a\n", "definitions.toml:1"),
        ("[sequences.\"a b\"]\n", "b\\\" in definitions.toml:1"),
        (
            "[[template]]\nmatch = \"a\"\n",
            "template in definitions.toml:1",
        ),
        ("", "definitions.toml"),
    ] {
        std::fs::write(home.path().join("definitions.toml"), content).expect("our directory");
        let finished = options.run(&["apply", "definitions.toml"]);
        refused(&finished, said, content);
    }
    let finished = options.run(&["apply", "missing.toml"]);
    refused(&finished, "missing.toml", "a file that is not there");
    let finished = options.run(&["apply"]);
    assert_eq!(finished.code, Some(2), "{finished}");
    // The file is good, but no database answers.
    std::fs::write(home.path().join("definitions.toml"), DEFINITIONS).expect("our directory");
    let finished = options.run(&["apply", "definitions.toml"]);
    assert_eq!(finished.code, Some(1), "{finished}");
}

for_each_server!(a_missing_schema_is_named_by_apply);

async fn a_missing_schema_is_named_by_apply(backend: Backend) {
    let database = TestDatabase::empty(backend).await;
    let finished = File::of(&database).apply(DEFINITIONS, &[]);
    assert_eq!(finished.code, Some(78), "{finished}");
    assert!(finished.errors.contains("odometer migrate"), "{finished}");
}

for_each_server!(files_of_definitions_that_meet_leave_one_truth);

async fn files_of_definitions_that_meet_leave_one_truth(backend: Backend) {
    const N_AT_ONCE: usize = 4;
    let database = TestDatabase::prepared(backend).await;
    let content: String = (0..20)
        .map(|n| format!("[sequences.meeting-{n}]\nstep = {}\n", n + 1))
        .collect();
    let files: Vec<File> = (0..N_AT_ONCE).map(|_| File::of(&database)).collect();
    let outcomes: Vec<Finished> = std::thread::scope(|scope| {
        let started: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| file.apply(&content, &[])))
            .collect();
        let ended = started.into_iter();
        ended.map(|one| one.join().expect("it ends")).collect()
    });
    for finished in &outcomes {
        // A slower process may report a conflict. Its file is applied again below.
        assert!(matches!(finished.code, Some(0 | 1)), "{finished}");
    }
    for file in &files {
        file.applied(&content, &[]);
    }
    let n_sequences = database.number("SELECT count(*) FROM sequence").await;
    assert_eq!(n_sequences, Some(20));
    let printed = files[0].applied(&content, &[]);
    let summary = "20 definitions: 0 created, 0 changed, 20 unchanged";
    assert_eq!(printed.last().map(String::as_str), Some(summary));
}
