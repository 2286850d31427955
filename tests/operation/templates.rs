//! Templates: the definitions of names that nobody has defined.

use std::path::Path;

use serde_json::{Value, json};

use super::configuration::refused;
use crate::support::{
    Backend, Client, Options, Program, TestDatabase, directory, for_each_backend, run,
};

/// The templates of the tests. The last glob also matches names that the others match. So a program
/// that takes the last match is found out.
const TEMPLATES: &str = r#"
[default]
start = 50

[default.block]
hold = "1h"

[[template]]
match = "inv-*"
start = 1000
step = 10
description = "invoices"

[[template]]
match = "t[0-9]?"
max = 500
block = { min = 7 }

[[template]]
match = "*[0-9]*"
start = 3
"#;

/// Each name with its first number, its step, its `max` and its `block.min`.
const EXPECTED: [(&str, i64, i64, &str, u64); 6] = [
    ("inv-eu", 1000, 10, "9007199254740991", 1),
    ("inv-7", 1000, 10, "9007199254740991", 1),
    ("t1a", 50, 1, "500", 7),
    ("t12", 50, 1, "500", 7),
    ("t123", 3, 1, "9007199254740991", 1),
    ("Inv-x7", 3, 1, "9007199254740991", 1),
];

fn configured(home: &Path, templates: &str, database: &TestDatabase) -> Options {
    std::fs::write(home.join("odometer.toml"), templates).expect("our directory");
    Program::options()
        .in_directory(home)
        .database(&database.url)
        .env("ODOMETER_UNKNOWN", "reject")
}

/// Takes the first number of a new name. Returns the number and the name's definition.
async fn created(client: &Client, name: &str) -> (i64, Value) {
    let first = client.next(name).await;
    (first, client.describe(name).await["definition"].take())
}

/// Returns how many names differ from the first template that matches them.
async fn n_wrong(client: &Client) -> usize {
    let mut n_wrong = 0;
    for (name, first, step, max, block_min) in EXPECTED {
        let (number, definition) = created(client, name).await;
        let is_right = number == first
            && definition["step"] == step
            && definition["max"] == max
            && definition["block"]["min"] == block_min;
        n_wrong += usize::from(!is_right);
        assert_eq!(definition["block"]["hold"], "1h", "{name}: {definition}");
    }
    n_wrong
}

for_each_backend!(a_name_never_seen_gets_the_first_template_that_fits_it);

async fn a_name_never_seen_gets_the_first_template_that_fits_it(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let home = directory("templates");
    let program = configured(home.path(), TEMPLATES, &database);
    let program = program.start_ready().await;
    let client = program.client();
    assert_eq!(n_wrong(&client).await, 0);
    let path = "/v1/sequences/inv/next";
    let reply = client.post(path).await.expect("a reply");
    assert_eq!(reply.code().as_deref(), Some("sequence_not_found"));

    // A definition takes what it leaves out from its template, or from the default.
    for (name, start, description) in [("inv-defined", "1000", "invoices"), ("t-defined", "50", "")]
    {
        let reply = client.define(name, &json!({"step": 2})).await;
        let definition = reply.json()["definition"].take();
        assert_eq!(definition["step"], 2, "{definition}");
        assert_eq!(definition["start"], start, "{definition}");
        assert_eq!(definition["description"], description, "{definition}");
    }
    program.stop().await;

    // An existing sequence keeps the definition that it was created with.
    let other = "[[template]]\nmatch = \"*\"\nstart = 7\n";
    let program = configured(home.path(), other, &database);
    let program = program.start_ready().await;
    let client = program.client();
    assert_eq!(client.next("inv-eu").await, 1010);
    assert_eq!(
        client.describe("inv-eu").await["definition"]["start"],
        "1000"
    );
    assert_eq!(client.next("inv-new").await, 7);
    program.stop().await;
}

#[test]
fn the_last_template_instead_of_the_first_is_found_out() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let home = directory("templates");
        let program = configured(home.path(), TEMPLATES, &database)
            .without_guards("last-template")
            .start_ready()
            .await;
        assert_eq!(n_wrong(&program.client()).await, 3);
    });
}

for_each_backend!(names_that_share_get_the_numbers_of_one_sequence);

async fn names_that_share_get_the_numbers_of_one_sequence(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let home = directory("templates");
    let templates = "[[template]]\nmatch = \"small-*\"\nshare = \"misc\"\n\
                     [[template]]\nmatch = \"misc\"\nstart = 500\n";
    let program = configured(home.path(), templates, &database);
    let program = program.start_ready().await;
    let client = program.client();
    for expected in 500..520 {
        let name = format!("small-{}", expected % 3);
        let reply = client.post(&format!("/v1/sequences/{name}/next")).await;
        let reply = reply.expect("a reply");
        assert_eq!(reply.number(), expected, "{reply:?}");
        assert_eq!(reply.json()["sequence"], "misc", "{reply:?}");
    }
    // A name that is defined becomes a sequence of its own.
    client.define("small-9", &json!({"start": 7})).await;
    assert_eq!(client.next("small-9").await, 7);
    let shown = client.get("/v1/sequences?prefix=").await.expect("a reply");
    let listed = shown.json()["sequences"].take();
    let names: Vec<&Value> = listed
        .as_array()
        .into_iter()
        .flatten()
        .map(|line| &line["sequence"])
        .collect();
    assert_eq!(names, ["misc", "small-9"], "{listed}");
    program.stop().await;
}

#[test]
fn a_template_that_cannot_be_used_ends_it_before_it_listens() {
    let home = directory("templates");
    for (text, key) in [
        (
            "match = \"a*\"\n[[template]]\nmatch = \"a*\"",
            "template[1].match",
        ),
        ("match = \"a*\"\nformt = \"x\"", "template[0].formt"),
        ("match = \"a[\"", "template[0].match"),
        ("match = \"a*\"\nstep = 0", "template[0].step"),
        (
            "match = \"a*\"\nshare = \"x\"\nstep = 1",
            "template[0].share",
        ),
        (
            "match = \"a*\"\nshare = \"b\"\n[[template]]\nmatch = \"b*\"\nshare = \"c\"",
            "template[0].share",
        ),
    ] {
        let file = format!("[[template]]\n{text}\n");
        std::fs::write(home.path().join("odometer.toml"), &file).expect("our directory");
        for command in ["serve", "check"] {
            let finished = Program::options().in_directory(home.path()).run(&[command]);
            refused(&finished, key, &file);
        }
    }
}

#[test]
fn check_says_what_a_name_would_get_without_a_database() {
    let home = directory("templates");
    let text = format!("{TEMPLATES}\n[[template]]\nmatch = \"s-*\"\nshare = \"all\"\n");
    std::fs::write(home.path().join("odometer.toml"), text).expect("our directory");
    let options = Program::options()
        .in_directory(home.path())
        .database("postgres://nobody:nothing@127.0.0.1:1/nowhere");
    for (name, unknown, said) in [
        (
            "inv-7",
            "create",
            &["template[0]", "\"inv-*\"", "[sequences.inv-7]", "step = 10"][..],
        ),
        (
            "t12",
            "reject",
            &["template[1]", "max = \"500\"", "min = 7"],
        ),
        (
            "s-a",
            "reject",
            &[
                "template[3]",
                "shares the numbers of all",
                "[sequences.all]",
            ],
        ),
        (
            "other",
            "create",
            &["[default]", "start = \"50\"", "hold = \"1h\""],
        ),
        ("other", "reject", &["404", "unknown = \"reject\""]),
    ] {
        let options = options.clone().env("ODOMETER_UNKNOWN", unknown);
        let finished = options.run(&["check", "--name", name]);
        assert_eq!(finished.code, Some(0), "{name}: {finished}");
        for part in said {
            assert!(finished.output.contains(part), "{name}: {part}: {finished}");
        }
        let is_shown = finished.output.contains("[sequences.");
        assert_eq!(is_shown, !said.contains(&"404"), "{name}: {finished}");
    }
    let finished = options.run(&["check", "--name", "a b"]);
    assert_eq!(finished.code, Some(2), "{finished}");

    let text = "[[template]]\nmatch = \"a*\"\n[[template]]\nmatch = \"ab\"\n";
    std::fs::write(home.path().join("odometer.toml"), text).expect("our directory");
    let finished = Program::options().in_directory(home.path()).run(&["check"]);
    assert_eq!(finished.code, Some(0), "{finished}");
    let warned = "warning: template[1] (match \"ab\") is never used";
    assert!(finished.output.contains(warned), "{finished}");
}
