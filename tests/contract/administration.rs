//! Who may change sequences, and what the log says of each change.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::lifecycle::{call, program};
use crate::support::{Backend, Client, Program, Reply, TestDatabase, run, wait};

const TOKEN: &str = "a-token-of-the-administrator";
const LOG_LIMIT: Duration = Duration::from_secs(10);

/// Every call that changes a sequence, with a body that would do.
fn changes() -> [(Method, &'static str, Option<Value>); 6] {
    [
        (Method::PUT, "far", Some(json!({"description": "x"}))),
        (
            Method::PUT,
            "far?dry_run=true",
            Some(json!({"description": "y"})),
        ),
        (Method::POST, "far/advance", Some(json!({"floor": 7}))),
        (Method::DELETE, "far", None),
        (Method::POST, "far/restore", None),
        (Method::DELETE, "far/periods/x", None),
    ]
}

fn refused(reply: &Reply, status: u16, code: &str, what: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{what}: {reply:?}");
}

/// Reached by loopback, but listening on all addresses.
async fn far(database: &TestDatabase, token: Option<&str>) -> (Program, Client) {
    let mut options = Program::options()
        .database(&database.url)
        .env("ODOMETER_LISTEN", "0.0.0.0:0");
    if let Some(token) = token {
        options = options.env("ODOMETER_ADMIN_TOKEN", token);
    }
    let mut program = options.start().await;
    let (_, port) = program.address().rsplit_once(':').expect("a port");
    let client = Client::new(&format!("http://127.0.0.1:{port}"));
    wait::until("it is ready", Duration::from_secs(30), async || {
        assert!(!program.has_ended(), "the program ended");
        let reply = client.get("/readyz").await;
        reply.is_ok_and(|reply| reply.status == 200).then_some(())
    })
    .await;
    (program, client)
}

/// So many lines of the log say what was changed, and no more.
async fn audited(program: &Program, n_lines: usize) -> Vec<Value> {
    wait::until("the log has it", LOG_LIMIT, async || {
        let lines = audit(program);
        assert!(lines.len() <= n_lines, "{lines:?}");
        (lines.len() == n_lines).then_some(lines)
    })
    .await
}

fn audit(program: &Program) -> Vec<Value> {
    let lines = program.log_lines();
    let lines = lines
        .iter()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| line["target"] == "odometer::audit")
        .collect()
}

#[test]
fn every_change_from_afar_needs_the_token() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let (mut program, client) = far(&database, None).await;
        assert_eq!(client.next("far").await, 1);
        for (method, path, body) in changes() {
            let reply = call(&client, method.clone(), path, body.as_ref(), &[]).await;
            refused(&reply, 403, "forbidden", path);
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains("ODOMETER_ADMIN_TOKEN"), "{path}: {detail}");
        }
        program.kill();
        drop(program);

        let (program, client) = far(&database, Some(TOKEN)).await;
        for (method, path, body) in changes() {
            let basic = format!("Basic {TOKEN}");
            let longer = format!("Bearer {TOKEN}x");
            for wrong in ["", "Bearer", "Bearer a-token", &basic, &longer] {
                let headers: &[_] = match wrong {
                    "" => &[],
                    wrong => &[("authorization", wrong)],
                };
                let reply = call(&client, method.clone(), path, body.as_ref(), headers).await;
                refused(&reply, 401, "unauthenticated", path);
                assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{path}");
            }
        }
        assert_eq!(audit(&program), Vec::<Value>::new());
        let told = client.describe("far").await;
        assert_eq!(told["definition"]["description"], "", "{told}");
        assert_eq!(told["state"]["retired"], false, "{told}");
        let bearer = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("x-forwarded-for", "192.0.2.7, 198.51.100.9"),
            ("x-request-id", "from-afar-1"),
        ];
        for (method, path, body) in changes() {
            let reply = call(&client, method, path, body.as_ref(), &headers).await;
            assert!(matches!(reply.status, 200 | 204 | 409), "{path}: {reply:?}");
        }
        let changed = audited(&program, 4).await;
        let what: Vec<&Value> = changed.iter().map(|line| &line["what"]).collect();
        assert_eq!(
            what,
            ["define", "advance", "retire", "restore"],
            "{changed:?}"
        );
        for line in &changed {
            assert_eq!(line["who"], "administrator", "{line}");
            assert_eq!(line["sequence"], "far", "{line}");
            assert_eq!(line["request_id"], "from-afar-1", "{line}");
            assert_eq!(line["forwarded_for"], "192.0.2.7, 198.51.100.9", "{line}");
            assert!(line["peer"].to_string().contains("127.0.0.1:"), "{line}");
        }
        // Whoever may not change sequences may take numbers of them.
        assert!(client.next("far").await >= 7);
        assert!(!program.stop().await.contains(TOKEN), "a token in the log");
    });
}

#[test]
fn a_foreign_page_changes_nothing() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        client.define("far", &json!({})).await;
        let mut calls = changes().to_vec();
        calls.push((Method::POST, "far/next", None));
        calls.push((Method::POST, "far/blocks?size=1", None));
        for foreign in [
            ("origin", "https://elsewhere.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
        ] {
            for (method, path, body) in &calls {
                let reply = call(&client, method.clone(), path, body.as_ref(), &[foreign]).await;
                refused(&reply, 403, "forbidden", path);
            }
        }
        // A name that its owner had lead to this machine: to a browser the same site.
        for browser in [
            ("origin", "http://evil.example:8080"),
            ("sec-fetch-site", "same-origin"),
        ] {
            let headers = [browser, ("host", "evil.example:8080")];
            for (method, path, body) in &calls {
                let reply = call(&client, method.clone(), path, body.as_ref(), &headers).await;
                refused(&reply, 403, "forbidden", path);
                let detail = reply.json()["detail"].to_string();
                assert!(detail.contains("localhost"), "{path}: {detail}");
            }
        }
        let told = client.describe("far").await;
        assert_eq!(told["definition"]["description"], "", "{told}");
        // Not a page but a program says any host, as behind a name of one's own.
        let (method, path, body) = &calls[0];
        let named = [("host", "numbers.example")];
        let reply = call(&client, method.clone(), path, body.as_ref(), &named).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        // The same page from where it was served is no stranger.
        let own = format!("http://{}", program.address());
        let own = [("origin", own.as_str()), ("sec-fetch-site", "same-origin")];
        let (method, path, body) = calls.swap_remove(0);
        let reply = call(&client, method, path, body.as_ref(), &own).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(client.next("far").await, 1);
    });
}

#[test]
fn each_change_that_was_made_is_logged_once_with_what_it_changed() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let body = json!({"block": {"min": 5}});
        client.define("noted", &body).await;
        // Nothing changes, so nothing is noted.
        client.define("noted", &body).await;
        let described = json!({"description": "said \"so\""});
        client.define("noted", &described).await;
        let advance = json!({"floor": "41"});
        for _ in 0..2 {
            call(&client, Method::POST, "noted/advance", Some(&advance), &[]).await;
        }
        for _ in 0..2 {
            call(&client, Method::DELETE, "noted", None, &[]).await;
        }
        for _ in 0..2 {
            call(&client, Method::POST, "noted/restore", None, &[]).await;
        }
        let noted = audited(&program, 5).await;
        let of = |line: &Value, field: &str| -> Value {
            let text = line[field].as_str().unwrap_or("null");
            serde_json::from_str(text).expect("JSON")
        };
        let what: Vec<&Value> = noted.iter().map(|line| &line["what"]).collect();
        assert_eq!(
            what,
            ["create", "define", "advance", "retire", "restore"],
            "{noted:?}"
        );
        for (at, line) in noted.iter().enumerate() {
            assert_eq!(line["who"], "loopback", "{line}");
            assert_eq!(line["version"], at + 1, "{line}");
            assert_eq!(
                line["level"].to_string().to_lowercase(),
                "\"info\"",
                "{line}"
            );
            assert!(
                line["request_id"].as_str().is_some_and(|id| id.len() == 36),
                "{line}"
            );
        }
        assert_eq!(of(&noted[0], "before"), Value::Null);
        assert_eq!(of(&noted[0], "after")["block"]["min"], 5);
        assert_eq!(of(&noted[1], "before"), json!({"description": ""}));
        assert_eq!(of(&noted[1], "after"), described);
        let at = |floor: &str| json!({"floor": floor, "high_water_mark": floor});
        assert_eq!(of(&noted[2], "before"), at("1"));
        assert_eq!(of(&noted[2], "after"), at("41"));
        assert_eq!(of(&noted[3], "before"), json!({"state": "live"}));
        assert_eq!(of(&noted[3], "after"), json!({"state": "retired"}));
        assert_eq!(of(&noted[4], "after"), json!({"state": "live"}));
    });
}
