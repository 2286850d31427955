//! Tests who may change sequences, and what the log says about each change.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::program;
use crate::support::changes::call;
use crate::support::{Backend, Client, Options, Program, Reply, TestDatabase, raw, run, wait};

const TOKEN: &str = "a-token-of-the-administrator";
const LOG_LIMIT: Duration = Duration::from_secs(10);

/// Returns every call that changes a sequence, each with a valid body.
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

/// Starts a program that listens on all addresses. The client reaches the program by loopback.
async fn far(options: Options, token: Option<&str>) -> (Program, Client) {
    let mut options = options
        .env("ODOMETER_LISTEN", "0.0.0.0:0")
        .env("ODOMETER_UNKNOWN", "create");
    if let Some(token) = token {
        options = options.env("ODOMETER_ADMIN_TOKEN", token);
    }
    let program = options.start_ready().await;
    let client = program.client();
    (program, client)
}

/// Waits until the log has exactly `n_lines` lines about changes, and returns these lines.
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
        .filter(|line: &Value| line["target"] == "odometer::audit" && line["what"].is_string())
        .collect()
}

/// Checks that nobody releases worker ids without the token.
async fn releases_are_refused(client: &Client, status: u16, code: &str) {
    let lease = client.lease("far", 10, 60_000, "holder").await;
    let of_one = format!("/v1/workers/far/{}?force=true", lease.worker);
    for path in ["/v1/workers/far", &of_one] {
        let reply = client.send(Method::DELETE, path, &[], None).await;
        refused(&reply.expect("a reply"), status, code, path);
    }
    let renewed = client.renew(&lease, None).await.expect("a reply");
    assert_eq!(renewed.status, 200, "it is held on: {renewed:?}");
}

#[test]
fn every_change_from_afar_needs_the_token() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let (mut program, client) = far(options.clone(), None).await;
        assert_eq!(client.next("far").await, 1);
        for (method, path, body) in changes() {
            let reply = call(&client, method.clone(), path, body.as_ref(), &[]).await;
            refused(&reply, 403, "forbidden", path);
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains("ODOMETER_ADMIN_TOKEN"), "{path}: {detail}");
        }
        releases_are_refused(&client, 403, "forbidden").await;
        program.kill();
        drop(program);

        let (program, client) = far(options, Some(TOKEN)).await;
        for (method, path, body) in changes() {
            let basic = format!("Basic {TOKEN}");
            let longer = format!("Bearer {TOKEN}x");
            // After ten wrong tokens in a minute, further tokens of this address are slowed down.
            // This test shows fewer than ten.
            let is_first = path == "far" && method == Method::PUT;
            let wrong_ones: &[&str] = if is_first {
                &["", "Bearer", "Bearer a-token", &basic, &longer]
            } else {
                &["", &longer]
            };
            for wrong in wrong_ones.iter().copied() {
                let headers: &[_] = match wrong {
                    "" => &[],
                    wrong => &[("authorization", wrong)],
                };
                let reply = call(&client, method.clone(), path, body.as_ref(), headers).await;
                refused(&reply, 401, "unauthenticated", path);
                assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{path}");
            }
        }
        releases_are_refused(&client, 401, "unauthenticated").await;
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
        // Callers who may not change sequences may still take numbers.
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
        // An attacker can point a name of his own at this machine. To the browser, the page and the
        // program then have the same site.
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
        // A program that is no browser may send any host, for example if the service has another
        // name.
        let (method, path, body) = &calls[0];
        let named = [("host", "numbers.example")];
        let reply = call(&client, method.clone(), path, body.as_ref(), &named).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        // A page that the service itself served is not foreign.
        let own = format!("http://{}", program.address());
        let own = [("origin", own.as_str()), ("sec-fetch-site", "same-origin")];
        let (method, path, body) = calls.swap_remove(0);
        let reply = call(&client, method, path, body.as_ref(), &own).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(client.next("far").await, 1);
    });
}

#[test]
fn changes_that_anybody_may_make_are_found_out() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().without_guards("anybody-changes");
        let (_program, client) = far(options.database(&database.url), Some(TOKEN)).await;
        assert_eq!(client.next("far").await, 1);
        let (method, path, body) = changes()[0].clone();
        let reply = call(&client, method.clone(), path, body.as_ref(), &[]).await;
        assert_eq!(reply.status, 200, "without the token: {reply:?}");
        let foreign = [("origin", "https://elsewhere.example")];
        let reply = call(&client, method, path, body.as_ref(), &foreign).await;
        assert_eq!(reply.status, 200, "by a page of another site: {reply:?}");
        let told = client.describe("far").await;
        assert_eq!(told["definition"]["description"], "x", "{told}");
    });
}

#[test]
fn each_change_that_was_made_is_logged_once_with_what_it_changed() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        let body = json!({"block": {"min": 5}});
        client.define("noted", &body).await;
        // The second call changes nothing, so nothing is logged.
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
        let of = |line: &Value, field: &str| line[field].clone();
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

/// Starts a program that listens on loopback and has a token for changes.
async fn with_token(database: &TestDatabase, options: crate::support::Options) -> Program {
    options
        .database(&database.url)
        .env("ODOMETER_ADMIN_TOKEN", TOKEN)
        .start_ready()
        .await
}

#[test]
fn a_configured_token_is_asked_for_on_loopback_too() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = with_token(&database, Program::options()).await;
        let client = program.client();
        assert_eq!(client.next("far").await, 1);
        let bearer = format!("Bearer {TOKEN}");
        for (method, path, body) in changes() {
            let reply = call(&client, method.clone(), path, body.as_ref(), &[]).await;
            refused(&reply, 401, "unauthenticated", path);
            let headers = [("authorization", bearer.as_str())];
            let reply = call(&client, method, path, body.as_ref(), &headers).await;
            assert!(matches!(reply.status, 200 | 204 | 409), "{path}: {reply:?}");
        }
        let replica = client.get("/v1/replica").await.expect("a reply");
        assert_eq!(replica.json()["token_needed"], true, "{replica:?}");
    });
}

#[test]
fn a_token_that_cannot_be_sent_ends_the_start_and_a_short_one_is_warned_of() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        for wrong in [
            "gehe\u{ef}mnis-und-lang-genug",
            "a-token\twith-a-tab-in-it",
            "a-token-with-a-blank-behind-it ",
        ] {
            let options = options.clone().env("ODOMETER_ADMIN_TOKEN", wrong);
            let finished = options.run(&["check"]);
            assert_eq!(finished.code, Some(78), "{finished}");
            assert!(finished.errors.contains("ADMIN_TOKEN"), "{finished}");
            assert!(!finished.to_string().contains(wrong), "{finished}");
        }
        for (token, is_warned_of) in [("fifteen-letters", true), ("sixteen-letters!", false)] {
            let program = options
                .clone()
                .env("ODOMETER_ADMIN_TOKEN", token)
                .start_ready()
                .await;
            let log = program.stop().await;
            assert_eq!(log.contains("can be guessed"), is_warned_of, "{log}");
            assert!(!log.contains(token), "{log}");
        }
    });
}

/// After this many wrong tokens from one address, further tokens from this address wait.
const N_AT_ONCE: usize = 10;
/// The most tokens from one address that wait at the same time.
const N_WAITING: usize = 8;
/// Calls that show the right token at the same moment.
const N_RIGHT: usize = 40;

/// The outcome of calls with the right token, all at once, after ten wrong tokens.
struct Guessed {
    /// The number of calls that were answered with 200, after a wait or at once.
    n_given: usize,
    /// The number of calls that were refused because their token was not compared.
    n_refused: usize,
    /// The lines about wrong tokens, up to the end of the log.
    lines: Vec<Value>,
}

async fn guess(options: crate::support::Options) -> Guessed {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = with_token(&database, options).await;
    let client = program.client();
    assert_eq!(client.next("far").await, 1);
    for n in 0..N_AT_ONCE {
        let wrong = format!("Bearer guess-{n}");
        let headers = [("authorization", wrong.as_str())];
        let reply = call(&client, Method::DELETE, "far", None, &headers).await;
        refused(&reply, 401, "unauthenticated", &wrong);
        assert_eq!(reply.header("connection"), None, "{reply:?}");
    }
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..N_RIGHT {
        let address = program.address().to_owned();
        let body = r#"{"description":"y"}"#;
        let request = format!(
            "PUT /v1/sequences/far?dry_run=true HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        calls.spawn(async move { raw::exchange(&address, request.as_bytes()).await });
    }
    let (mut n_given, mut n_refused) = (0, 0);
    for reply in calls.join_all().await {
        if reply.status == 200 {
            n_given += 1;
        } else {
            refused(&reply, 503, "overloaded", "one of too many");
            assert_eq!(reply.header("connection"), Some("close"), "{reply:?}");
            n_refused += 1;
        }
    }
    let scrape = crate::support::Scrape::of(&client).await;
    let counted = scrape.sum("odometer_tokens_refused_total", &[]);
    assert_eq!(counted, N_AT_ONCE as f64);
    assert_eq!(scrape.sum("odometer_http_in_flight_requests", &[]), 0.0);
    let log = program.stop().await;
    assert!(!log.contains("guess-") && !log.contains(TOKEN), "{log}");
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let of_tokens = |line: &Value| line["target"] == "odometer::audit" && line["peers"].is_string();
    Guessed {
        n_given,
        n_refused,
        lines: lines.filter(of_tokens).collect(),
    }
}

#[test]
fn wrong_tokens_are_slowed_down_counted_and_told_with_where_they_come_from() {
    run(async {
        let guessed = guess(Program::options()).await;
        // The calls that waited got what they asked for. The others may try again.
        assert!(guessed.n_given >= N_WAITING, "{}", guessed.n_given);
        assert!(guessed.n_refused > 0, "as many as like are compared");
        let [first, ..] = guessed.lines.as_slice() else {
            panic!("no line")
        };
        assert_eq!(first["message"], "wrong tokens were shown", "{first}");
        assert_eq!(first["peers"], "127.0.0.1 1", "{first}");
        // The lines up to the end of the log report the other wrong tokens.
        let counts = guessed.lines.iter().map(|line| line["count"].as_u64());
        let told: u64 = counts.map(|count| count.expect("a count")).sum();
        assert_eq!(told, N_AT_ONCE as u64);
    });
}

/// Negative control: without the delay, every token is compared at once.
#[test]
fn without_the_delay_tokens_can_be_guessed_quickly() {
    run(async {
        let options = Program::options().without_guards("no-token-delay");
        let guessed = guess(options).await;
        assert_eq!((guessed.n_given, guessed.n_refused), (N_RIGHT, 0));
    });
}

const READS: [&str; 8] = [
    "/",
    "/docs/errors",
    "/page/main.js",
    "/metrics",
    "/openapi.json",
    "/v1/replica",
    "/v1/sequences",
    "/v1/sequences/far",
];

/// Reads each path of [`READS`] with this `Host` header and without a browser's headers. Returns
/// the statuses.
async fn read_by(program: &Program, host: &str) -> Vec<u16> {
    let client = program.client();
    let mut statuses = Vec::new();
    for path in READS {
        for method in [Method::GET, Method::HEAD] {
            let reply = client.send(method, path, &[("host", host)], None).await;
            statuses.push(reply.expect("a reply").status);
        }
    }
    statuses
}

#[test]
fn on_loopback_a_foreign_host_reads_nothing() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env(
                "ODOMETER_HTTP__HOSTS",
                "numbers.example:8443, other.example",
            )
            .start_ready()
            .await;
        let client = program.client();
        client.define("far", &json!({})).await;
        let n_reads = 2 * READS.len();
        assert_eq!(read_by(&program, "evil.example").await, vec![403; n_reads]);
        for own in [
            "localhost",
            "127.0.0.1:8080",
            "[::1]",
            "Numbers.example:80",
            "other.example",
        ] {
            assert_eq!(read_by(&program, own).await, vec![200; n_reads], "{own}");
        }
        for probe in ["/livez", "/readyz"] {
            let headers = [("host", "evil.example")];
            let reply = client.send(Method::GET, probe, &headers, None).await;
            assert_eq!(reply.expect("a reply").status, 200, "{probe}");
        }
        let forwarded = [("x-forwarded-for", "192.0.2.7")];
        for (method, path, body) in changes() {
            let reply = call(&client, method, path, body.as_ref(), &forwarded).await;
            refused(&reply, 403, "forbidden", path);
        }
    });
}

/// Negative control: without the check of the `Host` header, a foreign host reads everything.
#[test]
fn without_a_look_at_the_host_a_foreign_one_reads_all() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        let program = options.without_guards("any-host").start_ready().await;
        program.client().define("far", &json!({})).await;
        let statuses = read_by(&program, "evil.example").await;
        assert_eq!(statuses, vec![200; 2 * READS.len()]);
    });
}
