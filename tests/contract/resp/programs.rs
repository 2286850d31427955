//! Tests real clients: tools for the command line, and libraries of five languages.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{RespService, configured};
use crate::support::{Ledger, Range, keeper, npm, pypi, resp_number, run, settings};

/// The folder of the programs, relative to `tests/`.
const FOLDER: &str = "contract/resp/clients";
const PASSWORD: &str = "a-password-of-the-tests";
/// The time limit of one program, in seconds.
const LIMIT: &str = "120";
/// The keys of Django lead to the same sequence.
const RULES: &str = "[[resp.key]]\nmatch = \":1:*\"\nsequence = \"$1\"\n";

/// Starts a program with a password, and with a sequence that is in use.
async fn start() -> (TempDir, RespService) {
    let (folder, options) = configured(RULES);
    let options = options
        .without_speed_limit()
        .env("ODOMETER_RESP__PASSWORD", PASSWORD);
    let service = RespService::with(options).await;
    assert_eq!(service.program.client().next("orders").await, 1);
    (folder, service)
}

/// Returns the host and the port of the listener.
fn place(service: &RespService) -> [String; 2] {
    let address = service.program.resp_address();
    let (host, port) = address.rsplit_once(':').expect("a port");
    [host.to_owned(), port.to_owned()]
}

fn file(name: &str) -> PathBuf {
    settings::repository().join("tests").join(FOLDER).join(name)
}

/// Runs a program to its end, which must be a success, and returns what it prints.
fn said(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=10", LIMIT])
        .arg(program)
        .args(arguments)
        .env("TESTS_RUN_DIRECTORY", keeper::run_directory())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*");
    npm::succeed(&mut command)
}

/// Lets a script take numbers, and returns what each library in it got.
fn taken(service: &RespService, program: &Path, script: &Path) -> Vec<Value> {
    let script = script.display().to_string();
    let [host, port] = place(service);
    let said = said(program, &[&script, &host, &port, PASSWORD]);
    let lines = said.lines();
    let given = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    given.collect()
}

/// Checks that each number came once, and that a command that takes one back was refused.
fn check(given: &[Value], libraries: &[&str]) {
    let mut ledger = Ledger::default();
    let named: Vec<&str> = given
        .iter()
        .filter_map(|it| it["library"].as_str())
        .collect();
    assert_eq!(named, libraries);
    for given in given {
        let number = |value: &Value| {
            let number = value.as_i64();
            number.unwrap_or_else(|| panic!("no number: {given}"))
        };
        let mut ranges = vec![Range::single(number(&given["one"]))];
        if let Some(last) = given["last"].as_i64() {
            ranges.push(Range::between(last - 4, last));
        }
        for list in ["transaction", "together"] {
            let list = given[list].as_array().into_iter().flatten();
            ranges.extend(list.map(|value| Range::single(number(value))));
        }
        assert!(ranges.len() >= 3, "{given}");
        ledger.record("orders", &ranges);
        let refused = given["refused"].as_str().unwrap_or_default();
        assert!(refused.ends_with("a number is never taken back"), "{given}");
    }
    assert_eq!(ledger.n_duplicates(), 0, "{given:?}");
}

#[test]
fn the_libraries_of_python_take_numbers() {
    run(async {
        let (_folder, service) = start().await;
        let python = pypi::programs(FOLDER).join("python");
        let given = taken(&service, &python, &file("take.py"));
        check(&given, &["redis-py, RESP2", "redis-py, RESP3", "Django"]);
        let unknown = &given[2]["unknown"];
        assert_eq!(unknown, "Key ':1:none' not found.", "{given:?}");
    });
}

#[test]
fn the_libraries_of_javascript_take_numbers() {
    run(async {
        let (_folder, service) = start().await;
        let files = ["package.json", "package-lock.json", "take.js"];
        let script = npm::workshop(FOLDER, &files).join("take.js");
        let given = taken(&service, Path::new("node"), &script);
        check(&given, &["ioredis", "redis for Node.js"]);
    });
}

#[test]
fn the_libraries_of_php_and_ruby_take_numbers() {
    run(async {
        let (_folder, service) = start().await;
        let given = taken(&service, Path::new("php"), &file("take.php"));
        check(&given, &["phpredis"]);
        let given = taken(&service, Path::new("ruby"), &file("take.rb"));
        check(&given, &["redis-rb"]);
    });
}

#[test]
fn the_library_of_rust_takes_numbers() {
    run(async {
        let (_folder, service) = start().await;
        let address = service.program.resp_address();
        for protocol in ["resp2", "resp3"] {
            let url = format!("redis://:{PASSWORD}@{address}/?protocol={protocol}");
            let client = redis::Client::open(url).expect("a URL");
            let connection = Box::pin(client.get_multiplexed_async_connection()).await;
            let mut connection = connection.expect("it logs in");
            let one: i64 = redis::cmd("INCR")
                .arg("orders")
                .query_async(&mut connection)
                .await
                .expect("a number");
            let last: i64 = redis::cmd("INCRBY")
                .arg("orders")
                .arg(5)
                .query_async(&mut connection)
                .await
                .expect("a number");
            let mut both = redis::pipe();
            both.atomic();
            both.cmd("INCR").arg("orders").cmd("INCR").arg("orders");
            let both: Vec<i64> = both
                .query_async(&mut connection)
                .await
                .expect("two numbers");
            let refused: redis::RedisResult<i64> = redis::cmd("DECR")
                .arg("orders")
                .query_async(&mut connection)
                .await;
            let refused = refused.expect_err("it is refused");
            let given = json!({
                "library": protocol,
                "one": one,
                "last": last,
                "transaction": both,
                "refused": refused.detail(),
            });
            check(&[given], &[protocol]);
        }
    });
}

#[test]
fn the_tools_of_redis_take_numbers() {
    run(async {
        let (_folder, service) = start().await;
        let [host, port] = place(&service);
        let common = ["-h", &host, "-p", &port, "-a", PASSWORD];
        let cli = |arguments: &[&str]| {
            let arguments = [&common[..], &["--no-auth-warning"], arguments].concat();
            said(Path::new("redis-cli"), &arguments).trim().to_owned()
        };
        assert_eq!(cli(&["INCR", "orders"]), "2");
        assert_eq!(cli(&["-3", "INCR", "orders"]), "3");
        assert_eq!(cli(&["-r", "3", "INCR", "orders"]), "4\n5\n6");
        let refused = cli(&["DEL", "orders"]);
        assert_eq!(refused, "ERR a number is never taken back");

        let load = ["-n", "2000", "-c", "8", "-P", "4", "-t", "incr", "-q"];
        let load = [&common[..], &load].concat();
        let told = said(Path::new("redis-benchmark"), &load);
        assert!(told.contains("INCR: "), "{told}");
        let mut client = service.connect().await;
        assert_eq!(client.ask(&format!("AUTH {PASSWORD}")).await, "+OK");
        let next = client.ask("INCR counter:__rand_int__").await;
        assert!(resp_number(&next) > 2000, "{next}");
    });
}
