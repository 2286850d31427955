//! Changes whose caller does not wait for them, and changes whose outcome the database does not
//! report.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{
    Backend, Client, Link, Options, Program, Proxy, Reply, Server, TestDatabase, for_each_backend,
    for_each_server, raw, wait,
};

const LIMIT: Duration = Duration::from_secs(60);

for_each_server!(
    a_change_is_finished_for_a_caller_that_hangs_up,
    a_change_that_ends_with_its_call_is_found_out,
    a_change_of_which_the_database_says_nothing_may_have_been_made,
);

async fn a_change_is_finished_for_a_caller_that_hangs_up(backend: Backend) {
    let (program, _database) = retire_and_hang_up(backend, &Program::options()).await;
    let client = program.client();
    wait::until("it is retired, also in memory", LIMIT, async || {
        let reply = next(&client).await;
        assert!(matches!(reply.status, 200 | 410), "{reply:?}");
        (reply.status == 410).then_some(())
    })
    .await;
    let audit = audit(&program, 2).await;
    assert_eq!(audit[1]["what"], "retire", "{audit:?}");
}

async fn a_change_that_ends_with_its_call_is_found_out(backend: Backend) {
    let options = Program::options().without_guards("change-unfinished");
    let (program, _database) = retire_and_hang_up(backend, &options).await;
    // The store has retired the sequence, but memory does not know it.
    let reply = next(&program.client()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let audit = audit(&program, 1).await;
    assert_eq!(audit[0]["what"], "create", "{audit:?}");
}

for_each_backend!(
    a_store_that_went_back_takes_no_change,
    changes_of_a_store_that_went_back_are_found_out,
);

async fn a_store_that_went_back_takes_no_change(backend: Backend) {
    for reply in changes_after_the_store_went_back(backend, &Program::options()).await {
        assert_eq!(reply.status, 503, "{reply:?}");
        assert_eq!(reply.code().as_deref(), Some("store_went_back"));
    }
}

async fn changes_of_a_store_that_went_back_are_found_out(backend: Backend) {
    let options = Program::options().without_guards("no-went-back-checks");
    for reply in changes_after_the_store_went_back(backend, &options).await {
        assert!(matches!(reply.status, 200 | 201), "{reply:?}");
    }
}

/// Sends three changes to a store that went back, and returns the replies. The first is for a
/// sequence whose counter is older than before, the second for one that is gone. The third is for a
/// new sequence, after the replica's own row is gone.
async fn changes_after_the_store_went_back(backend: Backend, options: &Options) -> [Reply; 3] {
    let database = TestDatabase::prepared(backend).await;
    let program = options.clone().database(&database.url).start_ready().await;
    let client = program.client();
    for name in ["older", "gone"] {
        client.define(name, &json!({"block": {"min": 100}})).await;
        assert_eq!(client.next(name).await, 1);
    }
    let put = async |name: &str| -> Reply {
        let path = format!("/v1/sequences/{name}");
        let body = json!({"description": "after"});
        client.put(&path, &body).await.expect("a reply")
    };
    let older = "UPDATE counter SET next_value = 1, version = 0 WHERE sequence = 'older'";
    database.execute(older).await;
    let older = put("older").await;
    for table in ["counter WHERE sequence", "sequence WHERE name"] {
        let gone = format!("DELETE FROM {table} = 'gone'");
        database.execute(&gone).await;
    }
    let gone = put("gone").await;
    database.execute("DELETE FROM replica").await;
    [older, gone, put("fresh").await]
}

/// Retires a sequence with numbers in memory. The caller hangs up while the database is locked.
/// Returns when the store has the change.
async fn retire_and_hang_up(backend: Backend, options: &Options) -> (Program, TestDatabase) {
    let database = TestDatabase::prepared(backend).await;
    let program = options
        .clone()
        .database(&database.url)
        // The limits are longer than the tables stay locked, and no poll reports the change.
        .env("ODOMETER_STORE__TIMEOUT", "50s")
        .env("ODOMETER_REFILL__DEADLINE", "60s")
        .env("ODOMETER_DEFINITION_REFRESH", "1h")
        .start_ready()
        .await;
    let client = program.client();
    let definition = json!({"block": {"min": 1000}});
    client.define("left", &definition).await;
    client.next("left").await;
    wait::until("numbers are in memory", LIMIT, async || {
        let told = client.describe("left").await;
        told["state"]["block"].is_object().then_some(())
    })
    .await;
    let frozen = database.freeze().await;
    let mut stream = TcpStream::connect(program.address())
        .await
        .expect("it listens");
    let request = raw::request("DELETE", b"/v1/sequences/left", "", b"");
    stream.write_all(&request).await.expect("it reads");
    wait::until("the call has arrived", LIMIT, async || {
        (in_flight(&client).await != "0").then_some(())
    })
    .await;
    drop(stream);
    wait::until("its end was noticed", LIMIT, async || {
        (in_flight(&client).await == "0").then_some(())
    })
    .await;
    frozen.thaw().await;
    wait::until("the store has it", LIMIT, async || {
        let retired = "SELECT COUNT(*) FROM sequence WHERE state = 'retired'";
        (database.number(retired).await == Some(1)).then_some(())
    })
    .await;
    (program, database)
}

async fn next(client: &Client) -> Reply {
    let reply = client.post("/v1/sequences/left/next").await;
    reply.expect("a reply")
}

async fn in_flight(client: &Client) -> String {
    let scrape = client.get("/metrics").await.expect("a reply").body;
    let series = "odometer_http_in_flight_requests ";
    let value = scrape.lines().find_map(|line| line.strip_prefix(series));
    value.expect("it is in each scrape").to_owned()
}

/// Waits until the log has `n_lines` lines about changes, and fails if it has more.
async fn audit(program: &Program, n_lines: usize) -> Vec<Value> {
    wait::until("the log has it", LIMIT, async || {
        let lines = program.log_lines();
        let lines = lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Value> = lines
            .filter(|line: &Value| line["target"] == "odometer::audit")
            .collect();
        assert!(lines.len() <= n_lines, "{lines:?}");
        (lines.len() == n_lines).then_some(lines)
    })
    .await
}

async fn a_change_of_which_the_database_says_nothing_may_have_been_made(backend: Backend) {
    let server = Server::shared(backend).await;
    let proxy = Proxy::to(server.port()).await;
    let database = TestDatabase::prepared(backend).await;
    let direct = format!(":{}/", server.port());
    let through_proxy = database
        .url
        .replace(&direct, &format!(":{}/", proxy.port()));
    assert_ne!(through_proxy, database.url);
    let program = Program::options()
        .database(&through_proxy)
        .env("ODOMETER_STORE__TIMEOUT", "1s")
        .start_ready()
        .await;
    let client = program.client();
    client.define("unsure", &json!({})).await;
    proxy.set(Link::RepliesLost);
    let reply = advance(&client).await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(reply.code().as_deref(), Some("store_unavailable"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let detail = reply.json()["detail"].to_string();
    assert!(detail.contains("may have been"), "{detail}");
    let noted = audit(&program, 2).await;
    assert_eq!(noted[1]["what"], "advance", "{noted:?}");
    let message = noted[1]["message"].to_string();
    assert!(message.contains("may have been"), "{message}");
    proxy.set(Link::Cut);
    proxy.set(Link::Whole);
    // A second attempt makes the change, with any outcome of the first one.
    wait::until("the database is back", LIMIT, async || {
        let reply = advance(&client).await;
        assert!(matches!(reply.status, 200 | 503), "{reply:?}");
        (reply.status == 200).then_some(())
    })
    .await;
    // A change may be confirmed before the replica knows that its database is back.
    let next = wait::until("a number is given", LIMIT, async || {
        let reply = client
            .post("/v1/sequences/unsure/next")
            .await
            .expect("a reply");
        assert!(matches!(reply.status, 200 | 503), "{reply:?}");
        (reply.status == 200).then(|| reply.json()["value"].clone())
    });
    assert_eq!(next.await, "100");
}

async fn advance(client: &Client) -> Reply {
    let path = "/v1/sequences/unsure/advance";
    let json = [("content-type", "application/json")];
    let body = Some(br#"{"floor":100}"#.to_vec());
    let reply = client.send(Method::POST, path, &json, body).await;
    reply.expect("a reply")
}
