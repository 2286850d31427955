//! The commands that call a running replica: what they print, and what they say if they cannot.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Backend, Finished, Options, Program, TestDatabase, directory, run, settings, wait,
};

/// A token that no other text contains.
const TOKEN: &str = "t0ken-of-these-tests";
/// How long the picture of `top` may take to come, and to go.
const PICTURE_LIMIT: Duration = Duration::from_secs(20);

/// Returns the options of commands that call this address.
fn caller(address: &str) -> Options {
    Program::options().env("ODOMETER_URL", format!("http://{address}"))
}

/// Checks that a command succeeded, and returns what it printed.
fn printed(finished: &Finished) -> &str {
    assert_eq!(finished.code, Some(0), "{finished}");
    assert_eq!(finished.errors, "", "{finished}");
    assert_secret(finished);
    &finished.output
}

/// Checks that a command failed with one line, and returns this line.
fn refused(finished: &Finished, code: i32) -> &str {
    assert_eq!(finished.code, Some(code), "{finished}");
    assert_eq!(finished.output, "", "{finished}");
    assert_secret(finished);
    let said = finished.errors.strip_prefix("odometer: ");
    let said = said.unwrap_or_else(|| panic!("{finished}"));
    assert_eq!(said.lines().count(), 1, "{finished}");
    said.trim_end()
}

fn assert_secret(finished: &Finished) {
    assert!(!finished.to_string().contains(TOKEN), "{finished}");
}

/// Returns the value behind a name in a list of names with their values.
fn value<'a>(output: &'a str, name: &str) -> &'a str {
    let line = output
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}:\n{output}"))
        .trim()
}

async fn replica() -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let options = Program::options().database(&database.url);
    let program = options.start_ready().await;
    (database, program)
}

#[test]
fn next_prints_ids_and_show_and_list_print_sequences() {
    run(async {
        let (_database, program) = replica().await;
        let caller = caller(program.address());
        assert_eq!(printed(&caller.run(&["next", "orders"])), "1\n");
        let several = caller.run(&["next", "orders", "--count", "3", "--contiguous"]);
        assert_eq!(printed(&several), "2\n3\n4\n");
        let batch = caller.run(&["next", "orders", "--count", "1", "--json"]);
        let batch: Value = serde_json::from_str(printed(&batch)).expect("JSON");
        assert_eq!(batch["ids"], json!(["5"]));
        let client = program.client();
        client
            .define("yearly", &json!({"period": "keyed", "max": 99}))
            .await;
        let keyed = caller.run(&["next", "yearly", "--period", "2026"]);
        assert_eq!(printed(&keyed), "2026-1\n");

        let shown = caller.run(&["show", "orders"]);
        let shown = printed(&shown);
        assert!(shown.starts_with("orders\n"), "{shown}");
        assert!(shown.contains("every field has its default"), "{shown}");
        assert!(value(shown, "Store").ends_with(" answers"), "{shown}");
        let all = caller.run(&["show", "orders", "--all"]);
        assert_eq!(value(printed(&all), "block.hold"), "15m");
        let shown = caller.run(&["show", "yearly", "--period", "2026"]);
        let shown = printed(&shown);
        assert!(shown.starts_with("yearly  by key · 2026\n"), "{shown}");
        assert_eq!(value(shown, "max"), "99");
        let body = caller.run(&["show", "yearly", "--json"]);
        let body: Value = serde_json::from_str(printed(&body)).expect("JSON");
        assert_eq!(body["definition"]["max"], "99");

        let listed = caller.run(&["list"]);
        let lines: Vec<&str> = printed(&listed).lines().collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].starts_with("orders  "), "{lines:?}");
        let listed = caller.run(&["list", "ye", "--json"]);
        let page: Value = serde_json::from_str(printed(&listed)).expect("JSON");
        assert_eq!(page["sequences"][0]["sequence"], "yearly");
        let nothing = caller.run(&["list", "zz"]);
        assert_eq!(
            printed(&nothing),
            "There is no sequence that begins with zz.\n"
        );
    });
}

#[test]
fn define_says_what_was_created_changed_or_left() {
    run(async {
        let (_database, program) = replica().await;
        let caller = caller(program.address());
        let define =
            |arguments: &[&str]| caller.run(&[&["define", "invoices"], arguments].concat());
        let dry = define(&["start=1001", "--dry-run"]);
        let dry = printed(&dry);
        assert!(dry.starts_with("invoices: would be created\n"), "{dry}");
        assert_eq!(value(dry, "Next ids:"), "1001, 1002, 1003");
        assert!(value(dry, "Runway:").ends_with(" to max"), "{dry}");
        let refusal = caller.run(&["show", "invoices"]);
        let said = refused(&refusal, 1);
        assert!(said.ends_with("(sequence_not_found)"), "{said}");

        let folder = directory("definition");
        let file = folder.path().join("invoices.toml");
        fs::write(&file, "start = 1001\n[block]\nhold = \"1h\"\n").expect("our directory");
        let file = file.display().to_string();
        let created = define(&["--file", &file, "block.refill=2h"]);
        let created = printed(&created);
        assert!(created.starts_with("invoices: created\n"), "{created}");
        assert_eq!(value(created, "start"), "1001");
        assert_eq!(value(created, "block.refill"), "2h");
        let changed = define(&["max=9999"]);
        let changed = printed(&changed);
        assert!(changed.starts_with("invoices: changed\n"), "{changed}");
        assert_eq!(value(changed, "max"), "9007199254740991 → 9999");
        assert!(changed.contains("Warning: "), "{changed}");
        let same = define(&["max=9999"]);
        assert!(
            printed(&same).starts_with("invoices: unchanged\n"),
            "{same}"
        );
        let body = define(&["max=9999", "--json"]);
        let body: Value = serde_json::from_str(printed(&body)).expect("JSON");
        assert_eq!(body["definition"]["start"], "1001");

        for (arguments, code) in [
            (&["start=5"][..], "(immutable_field)"),
            (&["colour=red"], "(invalid_definition)"),
            (&["block.min=many"], "(invalid_definition)"),
            (&["max=9999", "--create-only"], "(already_exists)"),
        ] {
            let refusal = define(arguments);
            let said = refused(&refusal, 1);
            assert!(said.ends_with(code), "{said}");
        }
        let wrong = define(&["max"]);
        assert!(refused(&wrong, 2).contains("FIELD=VALUE"), "{wrong}");
    });
}

#[test]
fn a_change_needs_the_token_that_no_output_has() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options
            .env("ODOMETER_ADMIN_TOKEN", TOKEN)
            .start_ready()
            .await;
        let without = caller(program.address());
        let define = ["define", "orders", "max=9999"];
        let missing = without.run(&define);
        let said = refused(&missing, 1);
        assert!(said.contains("(unauthenticated)"), "{said}");
        assert!(said.contains("ODOMETER_TOKEN"), "{said}");
        let other = format!("{TOKEN}s");
        let wrong = without.clone().env("ODOMETER_TOKEN", &other).run(&define);
        let said = refused(&wrong, 1);
        assert!(said.contains("not the right one"), "{said}");

        let right = without.clone().env("ODOMETER_TOKEN", TOKEN);
        assert!(printed(&right.run(&define)).starts_with("orders: created"));
        for arguments in [
            &["next", "orders"][..],
            &["show", "orders"],
            &["status"],
            &["top"],
        ] {
            printed(&right.run(arguments));
        }
        let folder = directory("token");
        let file = folder.path().join("token");
        fs::write(&file, format!("{TOKEN}\n")).expect("our directory");
        let file = file.display().to_string();
        let named = without.run(&[&define[..], &["--token-file", &file]].concat());
        assert!(printed(&named).starts_with("orders: unchanged"));
        let help = right.run(&["define", "--help"]);
        assert!(printed(&help).contains("ODOMETER_TOKEN"));
        let status = right.run(&["status"]);
        assert_eq!(value(printed(&status), "Token"), "needed for changes");
    });
}

#[test]
fn status_and_top_show_what_the_page_shows() {
    run(async {
        let (_database, program) = replica().await;
        let caller = caller(program.address());
        let empty = caller.run(&["top", "--once"]);
        assert!(printed(&empty).contains("No sequence is in memory yet"));
        let client = program.client();
        client.next("orders").await;
        client.define("careful", &json!({"order": "strict"})).await;
        client.next("careful").await;
        // What came in the last moments may be missing.
        wait::until("both are listed", PICTURE_LIMIT, async || {
            let reply = client.get("/v1/replica/sequences").await.ok()?;
            let listed = reply.json()["sequences"].as_array()?.len();
            (listed == 2).then_some(())
        })
        .await;

        let status = caller.run(&["status"]);
        let status = printed(&status);
        assert_eq!(value(status, "Ready"), "Yes");
        assert_eq!(value(status, "Version"), env!("CARGO_PKG_VERSION"));
        assert!(value(status, "default").starts_with("sqlite:"), "{status}");
        let body = caller.run(&["status", "--json"]);
        let body: Value = serde_json::from_str(printed(&body)).expect("JSON");
        assert_eq!(body["ready"], true);

        let by_name = caller.run(&["top", "--once", "--by", "name"]);
        let lines: Vec<&str> = printed(&by_name).lines().collect();
        assert!(lines[0].contains("Ready: Yes · 2 sequences"), "{lines:?}");
        let names: Vec<&str> = lines[2..]
            .iter()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(names, ["Sequence", "careful", "orders"]);
        // Standard output is no terminal here, so the picture comes once without --once, too.
        assert!(printed(&caller.run(&["top"])).contains("Keeps nothing in memory"));
        let often = caller.run(&["top", "--every", "10ms"]);
        assert!(often.errors.contains("give at least 1s"), "{often}");
    });
}

#[test]
fn top_on_a_terminal_leaves_it_clean() {
    run(async {
        let (_database, program) = replica().await;
        program.client().next("orders").await;
        let shipped = settings::shipped_program();
        // The shell says its number, then becomes the program.
        let line = format!(
            "echo pid=$$; exec {} top --url http://{}",
            shipped.display(),
            program.address()
        );
        let mut script = Command::new("script")
            .args([
                "--quiet",
                "--return",
                "--flush",
                "--command",
                &line,
                "/dev/null",
            ])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is there: apt-get install bsdutils");
        let mut output = script.stdout.take().expect("standard output is piped");
        let shown = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let reader = std::thread::spawn({
            let shown = std::sync::Arc::clone(&shown);
            move || {
                let mut part = [0; 4096];
                while let Ok(n @ 1..) = output.read(&mut part) {
                    let text = String::from_utf8_lossy(&part[..n]).into_owned();
                    shown.lock().expect("nobody panics").push_str(&text);
                }
            }
        });
        let so_far = || shown.lock().expect("nobody panics").clone();
        // Two pictures: the second one is drawn over the first.
        wait::until("top draws twice", PICTURE_LIMIT, async || {
            (so_far().matches("\x1b[H").count() >= 2).then_some(())
        })
        .await;
        let text = so_far();
        assert!(text.contains("\x1b[?1049h\x1b[?25l"), "{text:?}");
        assert!(text.contains("orders"), "{text:?}");
        let pid = text
            .split_once("pid=")
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or_else(|| panic!("{text:?}"));
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let ended = wait::until("top ends", PICTURE_LIMIT, async || {
            script.try_wait().expect("our child")
        })
        .await;
        reader.join().expect("reading does not fail");
        assert_eq!(ended.code(), Some(0));
        let text = so_far();
        assert!(
            text.trim_end().ends_with("\x1b[?25h\x1b[?1049l"),
            "{text:?}"
        );
    });
}

#[test]
fn what_is_not_a_replica_is_named() {
    run(async {
        // Nothing listens there.
        let address = "127.0.0.1:1".to_owned();
        for arguments in [&["next", "orders"][..], &["status"], &["top"], &["list"]] {
            let unreachable = caller(&address).run(arguments);
            let said = refused(&unreachable, 1);
            let expected = format!("http://{address}/ cannot be reached (connection refused)");
            assert!(said.starts_with(&expected), "{said}");
            assert!(said.contains("`odometer serve`"), "{said}");
        }
        let secret = Program::options().env("ODOMETER_URL", format!("http://a:{TOKEN}@{address}"));
        let said = refused(&secret.run(&["status"]), 2).to_owned();
        assert!(said.contains("ODOMETER_URL: the URL has a user"), "{said}");

        for (reply, expected) in [
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK",
                "a reply of status 200 that is not",
            ),
            (
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
                "a reply of status 404",
            ),
            (
                "HTTP/1.1 302 Found\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n",
                "a redirect to http://192.0.2.1/, which is not followed",
            ),
            ("", "Numbers may be used up"),
        ] {
            let (address, server) = answering(reply);
            let finished = caller(&address)
                .env("ODOMETER_TOKEN", TOKEN)
                .run(&["next", "orders"]);
            let said = refused(&finished, 1);
            assert!(said.contains(expected), "{said}");
            let request = server.join().expect("it answers");
            assert!(request.contains(TOKEN), "{request}");
            assert!(!finished.to_string().contains(TOKEN), "{finished}");
        }
        let (address, server) = answering(
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\ncontent-length: 49\r\n\r\n\
             {\"detail\":\"It rests.\",\"code\":\"store_unavailable\"}",
        );
        let said = refused(&caller(&address).run(&["list"]), 1).to_owned();
        server.join().expect("it answers");
        assert!(
            said.contains("It rests. (store_unavailable); try again in 7 s"),
            "{said}"
        );
    });
}

/// Answers one connection with this text, and hangs up. Returns its address and the request.
fn answering(reply: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a caller");
        let mut request = Vec::new();
        let mut part = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let n = connection.read(&mut part).expect("a request");
            assert!(n > 0, "the request ends early");
            request.extend_from_slice(&part[..n]);
        }
        connection.write_all(reply.as_bytes()).expect("it reads");
        String::from_utf8_lossy(&request).into_owned()
    });
    (address, server)
}

#[test]
fn flags_of_other_commands_are_refused_and_the_configuration_is_not_read() {
    run(async {
        let (_database, program) = replica().await;
        // A configuration with an error does not matter.
        let caller = caller(program.address()).env("ODOMETER_LISTEN", "nonsense");
        printed(&caller.run(&["next", "orders"]));
        let given = caller.run(&["next", "orders", "--listen", "127.0.0.1:0"]);
        assert_eq!(given.code, Some(2), "{given}");
        let given = caller.run(&["--listen", "127.0.0.1:0", "next", "orders"]);
        assert_eq!(given.code, Some(2), "{given}");
        assert!(given.errors.contains("reads no configuration"), "{given}");
        let help = caller.run(&["next", "--help"]);
        let help = printed(&help);
        assert!(
            help.contains("--url") && !help.contains("--database-url"),
            "{help}"
        );
    });
}
