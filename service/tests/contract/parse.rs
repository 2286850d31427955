//! Tests `parse`, which reads printed numbers back.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::changes::call;
use crate::support::program;
use crate::support::{
    Backend, Client, Link, Program, Proxy, Reply, Server, TestDatabase, for_each_backend,
    for_each_server, run, wait,
};

const LIMIT: Duration = Duration::from_secs(30);

async fn parse(client: &Client, name: &str, id: &str) -> Reply {
    let body = json!({ "id": id });
    call(
        client,
        Method::POST,
        &format!("{name}/parse"),
        Some(&body),
        &[],
    )
    .await
}

fn refused(reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some(code), "{reply:?}");
}

for_each_backend!(what_a_reply_prints_is_read_back);

async fn what_a_reply_prints_is_read_back(backend: Backend) {
    let (_database, program) = program(backend).await;
    let client = program.client();
    for (name, definition, query) in [
        ("plain", json!({}), ""),
        (
            "checked",
            json!({"format": "INV-{value:06}-{check:mod97}"}),
            "",
        ),
        (
            "short",
            json!({"format": "{value:b62}", "start": 238_328}),
            "",
        ),
        ("keyed", json!({"period": "keyed"}), "&period=eod-7"),
        (
            "daily",
            json!({"period": "day", "format": "{yyyy}{JJJ}{value:05}{check:luhn}"}),
            "",
        ),
        (
            "fiscal",
            json!({"period": "year", "year_starts": "04-06"}),
            "",
        ),
        (
            "weekly",
            json!({"period": "week", "format": "{value}/{period}"}),
            "",
        ),
    ] {
        client.define(name, &definition).await;
        let path = format!("{name}/next?count=3{query}");
        let given = call(&client, Method::POST, &path, None, &[]).await.json();
        let first = given["ranges"][0]["first"].as_str().expect("a number");
        let first: i64 = first.parse().expect("a number");
        for (number, id) in (first..).zip(given["ids"].as_array().expect("a list")) {
            let id = id.as_str().expect("an id");
            let read = parse(&client, name, id).await;
            assert_eq!(read.status, 200, "{read:?}");
            assert_eq!(read.header("cache-control"), Some("no-store"));
            let expected = json!({
                "sequence": name, "period": given["period"], "value": number.to_string(),
            });
            assert_eq!(read.json(), expected, "{id}");
        }
    }
    // An id in a former format is still accepted.
    client
        .define("plain", &json!({"format": "P-{value}"}))
        .await;
    for id in ["2", "P-2"] {
        assert_eq!(parse(&client, "plain", id).await.json()["value"], "2");
    }
}

for_each_backend!(what_no_number_is_printed_as_is_refused_saying_why);

async fn what_no_number_is_printed_as_is_refused_saying_why(backend: Backend) {
    let (database, program) = program(backend).await;
    let client = program.client();
    let checked = json!({"format": "INV-{value:06}-{check:luhn}", "start": 10, "step": 10});
    client.define("checked", &checked).await;
    assert_eq!(parse(&client, "checked", "INV-000010-8").await.status, 200);
    for (id, said) in [
        ("INV-000010-3", "check digits"),
        ("INV-000100-8", "check digits"),
        ("inv-000010-2", "\"INV-\" at character 1"),
        ("INV-10-2", "does not have 8 characters"),
        ("INV-0000x0-2", "no number"),
        ("INV-000011-6", "steps of 10"),
        ("INV-000000-9", "has 10 to"),
        (" INV-000010-8", "characters"),
        ("", "0 characters"),
    ] {
        let reply = parse(&client, "checked", id).await;
        refused(&reply, 400, "invalid_id");
        let detail = reply.json()["detail"].clone();
        assert!(
            detail.as_str().expect("a sentence").contains(said),
            "{id}: {detail}"
        );
    }
    client.define("daily", &json!({"period": "day"})).await;
    for id in ["20260230-1", "2026-1", "20261120-01", "20261120-"] {
        refused(&parse(&client, "daily", id).await, 400, "invalid_id");
    }
    // `parse` only reads. It creates no period.
    assert_eq!(parse(&client, "daily", "19991231-1").await.status, 200);
    let periods = "SELECT COUNT(*) FROM counter WHERE sequence = 'daily' AND period <> ''";
    assert_eq!(database.number(periods).await, Some(0));
    refused(
        &parse(&client, "nobody", "1").await,
        404,
        "sequence_not_found",
    );
    assert_eq!(database.next_value("nobody").await, None);
}

#[test]
fn a_question_without_an_id_is_refused() {
    run(async {
        let (_database, program) = program(Backend::Sqlite).await;
        let client = program.client();
        client.define("asked", &json!({})).await;
        let ask = async |body: &str, headers: &[(&str, &str)]| -> Reply {
            let path = "/v1/sequences/asked/parse";
            let body = Some(body.as_bytes().to_vec());
            let reply = client.send(Method::POST, path, headers, body).await;
            reply.expect("a reply")
        };
        let json_type = [("content-type", "application/json")];
        for (body, code) in [
            ("", "invalid_body"),
            ("{}", "invalid_body"),
            ("[]", "invalid_body"),
            ("\"1\"", "invalid_body"),
            ("{\"id\":\"1\",\"id\":\"2\"}", "invalid_body"),
            ("{\"id\":\"1\",\"period\":\"2026\"}", "invalid_body"),
            ("{\"id\":null}", "invalid_id"),
            ("{\"id\":[\"1\"]}", "invalid_id"),
            ("{\"id\":-1}", "invalid_id"),
            ("{\"id\":1.5}", "invalid_id"),
        ] {
            refused(&ask(body, &json_type).await, 400, code);
        }
        // The id may also be a JSON number.
        assert_eq!(ask("{\"id\":7}", &json_type).await.json()["value"], "7");
        refused(
            &ask("{\"id\":\"1\"}", &[]).await,
            415,
            "unsupported_media_type",
        );
        let reply = call(&client, Method::GET, "asked/parse", None, &[]).await;
        refused(&reply, 405, "method_not_allowed");
        assert_eq!(reply.header("allow"), Some("POST"));
        let body = Some(json!({"id": "1"}));
        let reply = call(
            &client,
            Method::POST,
            "asked/parse?id=1",
            body.as_ref(),
            &[],
        )
        .await;
        refused(&reply, 400, "invalid_parameter");
        let long = json!({ "id": "1".repeat(10_000) });
        let reply = call(&client, Method::POST, "asked/parse", Some(&long), &[]).await;
        refused(&reply, 400, "invalid_id");
        assert!(reply.body.len() < 1_000, "{reply:?}");
    });
}

for_each_server!(ids_are_read_with_the_database_away);

async fn ids_are_read_with_the_database_away(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let proxied = database.url_through(&proxy, server);
    let program = Program::options().database(&proxied).start_ready().await;
    let client = program.client();
    let definition = json!({"period": "keyed", "format": "{period}/{value:04}"});
    client.define("away", &definition).await;
    let reply = call(&client, Method::POST, "away/next?period=a", None, &[]).await;
    assert_eq!(reply.json()["id"], "a/0001", "{reply:?}");
    proxy.set(Link::Cut);
    wait::until("the database is away", LIMIT, async || {
        let reply = client.get("/v1/sequences/away/explain?id=a/0001").await;
        (reply.expect("a reply").status == 503).then_some(())
    })
    .await;
    let read = parse(&client, "away", "b/0042").await.json();
    let expected: Value = json!({"sequence": "away", "period": "b", "value": "42"});
    assert_eq!(read, expected);
    refused(
        &parse(&client, "never-used", "1").await,
        503,
        "store_unavailable",
    );
}

#[test]
fn an_id_got_by_a_name_that_shares_is_read_under_it() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let home = crate::support::directory("shared");
        let template = "[[template]]\nmatch = \"small-*\"\nshare = \"misc\"\n";
        std::fs::write(home.path().join("odometer.toml"), template).expect("our directory");
        let file = home.path().join("odometer.toml");
        let options = Program::options().database(&database.url);
        let options = options.env("ODOMETER_CONFIG", file.display());
        let program = options.start_ready().await;
        let client = program.client();
        client
            .define("misc", &json!({"format": "M-{value:04}"}))
            .await;
        // The id is also read under a name that nobody has used on this replica.
        let read = parse(&client, "small-towns", "M-0042").await.json();
        let expected = json!({"sequence": "misc", "period": null, "value": "42"});
        assert_eq!(read, expected);
        let reply = call(&client, Method::POST, "small-towns/next", None, &[]).await;
        assert_eq!(reply.json()["id"], "M-0001", "{reply:?}");
        refused(
            &parse(&client, "other", "M-0042").await,
            404,
            "sequence_not_found",
        );
        client.define("small-own", &json!({})).await;
        assert_eq!(
            parse(&client, "small-own", "42").await.json()["sequence"],
            "small-own"
        );
    });
}
