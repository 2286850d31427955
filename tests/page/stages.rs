//! Tests what an operator does with the page, in a real browser.

use std::{path::Path, time::Duration};

use odometer::access::token::{hash, to_hex};
use serde_json::{Value, json};

use super::driver::{drive, drive_alone};
use crate::support::{
    Backend, Client, Link, Options, Program, Proxy, Server, TestDatabase, directory, run, settings,
};

const TOKEN: &str = "a-token-of-the-test";
/// How long the load runs before the pictures, which show its last minutes.
const PICTURED: Duration = Duration::from_secs(250);

#[test]
fn an_operator_finds_and_does_everything_on_the_page() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        furnish(&program.client()).await;
        let long = format!("{}x", "long-name-".repeat(12));
        take(&program.client(), &long, 1).await;
        let done = drive_alone("tour", &program.url()).await;
        assert_eq!(done.n("step: "), 31);
    });
}

#[test]
fn an_empty_service_leads_to_its_first_sequence() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let done = drive_alone("beginning", &program.url()).await;
        assert_eq!(done.n("step: "), 13);
    });
}

#[test]
fn the_page_of_operators_shows_everything_and_changes_nothing() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_OPERATIONS__LISTEN", "127.0.0.1:0")
            .start_ready()
            .await;
        take(&program.client(), "orders", 3).await;
        let done = drive_alone("operators", &program.operations_url()).await;
        assert_eq!(done.n("step: "), 3);
    });
}

#[test]
fn the_lists_of_the_page_stay_and_say_what_they_lack() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        client.define("imports", &json!({})).await;
        // More names than one page of either list has.
        for n in 1..=120 {
            take(&client, &format!("many-{n:03}"), 1).await;
        }
        let done = drive_alone("lists", &program.url()).await;
        assert_eq!(done.n("step: "), 6);
    });
}

#[test]
fn the_page_makes_the_best_of_odd_and_late_answers() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        for (name, definition) in [
            ("short", json!({"block": {"min": 100, "max": 100}})),
            ("stamps", json!({"kind": "snowflake"})),
            ("tenants", json!({"period": "keyed"})),
        ] {
            client.define(name, &definition).await;
        }
        take(&client, "orders", 1).await;
        take_of_key(&client, "acme").await;
        // `short` stays low while numbers are taken from it. `busy` has blocks for a minute until
        // its average has caught up, which takes longer than this stage.
        let taking = tokio::spawn({
            let client = client.clone();
            async move {
                loop {
                    take(&client, "short", 1).await;
                    take(&client, "busy", 2).await;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        let done = drive_alone("answers", &program.url()).await;
        assert!(!taking.is_finished(), "short is at rest");
        taking.abort();
        assert_eq!(done.n("step: "), 15);
    });
}

#[test]
fn the_page_says_what_is_away_until_it_is_back() {
    run(async {
        let mut server = Server::start(Backend::Postgres).await;
        let database = TestDatabase::prepared_on(&server).await;
        let way = Proxy::to(server.port()).await;
        let program = Program::options()
            .database(&database.url_through(&way, &server))
            .start_ready()
            .await;
        let client = program.client();
        client.define("orders", &json!({})).await;
        take(&client, "orders", 500).await;
        let (_, port) = program.address().rsplit_once(':').expect("a port");
        let proxy = Proxy::to(port.parse().expect("a number")).await;
        let base = format!("http://127.0.0.1:{}", proxy.port());
        let done = drive(
            "outage",
            &base,
            Path::new("."),
            async |wanted| match wanted {
                "the database away" => server.kill(),
                "the database back" => server.start_again().await,
                "the database silent" => way.set(Link::BlackHole),
                "the database speaking" => way.set(Link::Whole),
                "the service away" => proxy.set(Link::Cut),
                "the service back" => proxy.set(Link::Whole),
                other => panic!("what is {other}?"),
            },
        )
        .await;
        assert_eq!(done.n("ask: "), 6);
        assert_eq!(done.n("step: "), 8);
    });
}

#[test]
fn a_change_asks_for_the_token() {
    run(async {
        for (listen, token, stage) in [
            ("0.0.0.0:0", Some(TOKEN), "token"),
            ("127.0.0.1:0", Some(TOKEN), "token"),
            ("0.0.0.0:0", None, "closed"),
        ] {
            let database = TestDatabase::prepared(Backend::Sqlite).await;
            let mut options = Program::options()
                .database(&database.url)
                .env("ODOMETER_LISTEN", listen)
                .env("ODOMETER_UNKNOWN", "create");
            if let Some(token) = token {
                options = options.env("ODOMETER_ADMIN_TOKEN", token);
            }
            let program = options.start_ready().await;
            take(&program.client(), "orders", 1).await;
            let done = drive_alone(stage, &program.url()).await;
            let n_steps = if token.is_some() { 3 } else { 2 };
            assert_eq!(done.n("step: "), n_steps, "{stage}");
            program.stop().await;
        }
    });
}

#[test]
fn who_looks_is_asked_for_a_token_if_there_are_roles() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let folder = directory("access");
        let callers = folder.path().join("callers.toml");
        let program = with_roles(&database, &callers).start_ready().await;
        let bearer = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let client = program.client();
        for (method, path, status) in [
            (reqwest::Method::POST, "/v1/sequences/orders/next", 200),
            (reqwest::Method::PUT, "/v1/sequences/imports", 201),
        ] {
            let body = Some(b"{}".to_vec());
            let reply = client.send(method, path, &headers, body).await;
            assert_eq!(reply.expect("a reply").status, status, "{path}");
        }
        let done = drive("roles", &program.url(), Path::new("."), async |wanted| {
            assert_eq!(wanted, "the token withdrawn");
            let rest = section("billing", "biller");
            std::fs::write(&callers, rest).expect("our directory");
            program.hang_up();
        })
        .await;
        assert_eq!(done.n("ask: "), 1);
        assert_eq!(done.n("step: "), 13);
    });
}

#[test]
fn an_open_page_follows_the_rights_of_its_caller() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let folder = directory("access");
        let callers = folder.path().join("callers.toml");
        let options = with_roles(&database, &callers);
        // In one step, so that the program never finds an empty file.
        let write = |sections: &str| {
            let beside = callers.with_extension("new");
            std::fs::write(&beside, sections).expect("our directory");
            std::fs::rename(&beside, &callers).expect("our directory");
        };
        write(&section("desk", "reader"));
        let program = options.start_ready().await;
        let bearer = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let definition = json!({"start": "770001", "description": "Paper of the bank"});
        let body = Some(definition.to_string().into_bytes());
        let path = "/v1/sequences/cheques";
        let client = program.client();
        let made = client.send(reqwest::Method::PUT, path, &headers, body);
        assert_eq!(made.await.expect("a reply").status, 201);
        let done = drive("rights", &program.url(), Path::new("."), async |wanted| {
            write(&match wanted {
                "more rights" => section("desk", "operator"),
                "fewer rights" => section("desk", "reader"),
                "another name" => section_by("counter", "operator", "desk"),
                "no right to look" => section("desk", "biller"),
                "the token withdrawn" => section("billing", "biller"),
                other => panic!("what is {other}?"),
            });
            program.hang_up();
        })
        .await;
        assert_eq!(done.n("ask: "), 11);
        assert_eq!(done.n("step: "), 10);
    });
}

#[test]
fn who_may_look_without_a_token_can_give_one() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let folder = directory("access");
        let program = with_roles(&database, &folder.path().join("callers.toml"))
            .env("ODOMETER_ACCESS__ANONYMOUS", "reader")
            .start_ready()
            .await;
        let done = drive_alone("anonymous", &program.url()).await;
        assert_eq!(done.n("step: "), 2);
    });
}

/// Returns a program with a role that may only look, and one that may only take. Each has a caller.
/// A third role may look, take and define, and has no caller.
fn with_roles(database: &TestDatabase, callers: &Path) -> Options {
    let sections = section("report", "reader") + &section("billing", "biller");
    std::fs::write(callers, sections).expect("our directory");
    Program::options()
        .database(&database.url)
        .env("ODOMETER_ADMIN_TOKEN", TOKEN)
        .env("ODOMETER_ACCESS__CALLERS_FILE", callers.display())
        .env("ODOMETER_ACCESS__ROLES__READER__LOOK", "*")
        .env("ODOMETER_ACCESS__ROLES__BILLER__TAKE", "orders,invoice-*")
        .env("ODOMETER_ACCESS__ROLES__BILLER__NUMBERS", "5k/s")
        .env("ODOMETER_ACCESS__ROLES__OPERATOR__LOOK", "*")
        .env("ODOMETER_ACCESS__ROLES__OPERATOR__TAKE", "*")
        .env("ODOMETER_ACCESS__ROLES__OPERATOR__DEFINE", "*")
}

/// Returns the section of a caller in the file of callers. Its token is the one of `access.mjs`.
fn section(caller: &str, role: &str) -> String {
    section_by(caller, role, caller)
}

/// Returns the section of a caller that has the token of `other`.
fn section_by(caller: &str, role: &str, other: &str) -> String {
    let token = format!("odo_{other:0<43}");
    let digits = to_hex(&hash(&token).expect("it has the form of a token"));
    format!("[{caller}]\nrole = \"{role}\"\nsha256 = [\"{digits}\"]\n")
}

/// Negative control of all stages: each check finds the fault that it looks for.
#[test]
fn what_is_wrong_on_the_page_is_noticed() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        take(&program.client(), "orders", 1).await;
        let done = drive_alone("controls", &program.url()).await;
        assert_eq!(done.n("found: "), 13);
    });
}

/// Checks that the pictures of the page in the documents can be drawn. Replacing them takes four
/// minutes.
#[test]
fn the_page_pictures_can_be_drawn() {
    run(async {
        // The database is the default, a SQLite file.
        let program = Program::options().start_ready().await;
        let client = program.client();
        furnish(&client).await;
        let is_renewed = settings::renews_pictures();
        let load = tokio::spawn(use_as_a_shop_would(client));
        if is_renewed {
            tokio::time::sleep(PICTURED).await;
        }
        let place = directory("pictures");
        let pictures = settings::repository().join("docs/pictures");
        let target = if is_renewed { &*pictures } else { place.path() };
        let done = drive("pictures", &program.url(), target, async |_| {}).await;
        assert_eq!(done.n("step: "), 4);
        assert!(!load.is_finished(), "the load ended before the pictures");
        load.abort();
        let shown = std::fs::read_dir(&pictures).expect("the pictures are there");
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown.len(), 4);
        for entry in shown {
            let name = entry.expect("it can be listed").file_name();
            let drawn = std::fs::read(target.join(&name)).expect("it was drawn, too");
            assert!(drawn.starts_with(b"\x89PNG"), "{name:?}");
        }
    });
}

async fn take(client: &Client, name: &str, count: u64) {
    let path = format!("/v1/sequences/{name}/next?count={count}");
    let reply = client.post(&path).await.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
}

async fn take_of_key(client: &Client, key: &str) {
    let path = format!("/v1/sequences/tenants/next?period={key}");
    let reply = client.post(&path).await.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// Creates one sequence of each kind. Most of them are in use.
async fn furnish(client: &Client) {
    let all: [(&str, Value); 8] = [
        ("orders", json!({"description": "Orders of the shop"})),
        (
            "invoices",
            json!({
                "start": "1001", "period": "month", "format": "INV-{yyyy}{MM}-{value:05}",
                "description": "Invoices <b>by month</b> <img src=x onerror=alert(1)>",
            }),
        ),
        ("ledger", json!({"order": "strict"})),
        ("events", json!({"kind": "snowflake"})),
        (
            "vouchers",
            json!({"max": "500000", "format": "V{value:06}"}),
        ),
        ("tenants", json!({"period": "keyed"})),
        ("old-orders", json!({})),
        ("imports", json!({})),
    ];
    for (name, definition) in &all {
        client.define(name, definition).await;
    }
    for name in [
        "orders",
        "invoices",
        "ledger",
        "events",
        "vouchers",
        "old-orders",
    ] {
        take(client, name, 1).await;
    }
    for key in ["acme", "globex"] {
        take_of_key(client, key).await;
    }
    let path = "/v1/sequences/old-orders";
    let retired = client.send(reqwest::Method::DELETE, path, &[], None).await;
    assert_eq!(retired.expect("a reply").status, 204);
}

/// Takes numbers of each kind at a rate that rises and falls, until the task is aborted.
async fn use_as_a_shop_would(client: Client) {
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    for n in 0_u64.. {
        ticks.tick().await;
        // The rate rises and falls within a minute, and varies a little.
        let wave = (n % 600).abs_diff(300) + n * 7919 % 60;
        take(&client, "orders", 40 + wave).await;
        take(&client, "events", 20 + n % 30).await;
        match n % 10 {
            0 | 4 | 7 => take(&client, "invoices", 1).await,
            1 => take(&client, "ledger", 1).await,
            2 | 6 => take_of_key(&client, "acme").await,
            3 => take(&client, "vouchers", 2).await,
            _ => {}
        }
    }
}
