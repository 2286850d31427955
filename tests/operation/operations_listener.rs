//! The listener of operators: what it serves, and that callers cannot keep it busy.

use std::time::Duration;

use reqwest::Method;
use tokio::net::TcpStream;

use crate::support::{Backend, Client, Options, Program, TestDatabase, run, wait};

const LIMIT: Duration = Duration::from_secs(20);
/// How long a probe waits for its reply. The default of Kubernetes is a second.
const PROBE: Duration = Duration::from_secs(3);
/// The fewest connections that the configuration allows.
const CONNECTIONS: usize = 16;

fn with_operations(options: Options) -> Options {
    options.env("ODOMETER_OPERATIONS__LISTEN", "127.0.0.1:0")
}

fn operations(program: &Program) -> Client {
    Client::new(&program.operations_url())
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).await.expect("a reply").status
}

#[test]
fn operators_see_everything_and_change_nothing_at_their_listener() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = with_operations(Program::options().database(&database.url));
        let mut program = options
            .env("ODOMETER_SHUTDOWN__READY_WAIT", "5s")
            .start_ready()
            .await;
        let (callers, operations) = (program.client(), operations(&program));
        assert_eq!(callers.next("orders").await, 1);
        let of_both = [
            "/livez",
            "/readyz",
            "/openapi.json",
            "/docs/",
            "/v1/replica",
            "/v1/replica/sequences",
            "/v1/replica/sequences/orders",
            "/v1/sequences",
            "/v1/sequences/orders",
            "/v1/sequences/orders/explain?id=1",
        ];
        for path in of_both {
            assert_eq!(status(&callers, path).await, 200, "callers: {path}");
            assert_eq!(status(&operations, path).await, 200, "operators: {path}");
        }
        for path in ["/metrics", "/", "/page/main.js"] {
            assert_eq!(status(&operations, path).await, 200, "{path}");
            let elsewhere = callers.get(path).await.expect("a reply");
            assert_eq!(elsewhere.status, 404, "{path}");
            let detail = elsewhere.json()["detail"].to_string();
            assert!(detail.contains("`operations.listen`"), "{detail}");
        }
        for (method, path) in [
            (Method::POST, "/v1/sequences/orders/next"),
            (Method::POST, "/v1/sequences/orders/blocks?size=1"),
            (Method::PUT, "/v1/sequences/orders"),
            (Method::DELETE, "/v1/sequences/orders"),
            (Method::POST, "/v1/sequences/orders/advance"),
            (Method::POST, "/v1/sequences/orders/restore"),
            (Method::DELETE, "/v1/sequences/orders/periods/a"),
            (Method::POST, "/v1/workers"),
            (Method::DELETE, "/v1/workers/a/0"),
            (Method::POST, "/v1/workers/a/0/renew"),
        ] {
            let refused = operations.send(method, path, &[], None).await;
            let refused = refused.expect("a reply");
            assert_eq!(refused.status, 404, "{path}: {refused:?}");
            let detail = refused.json()["detail"].to_string();
            assert!(detail.contains("`listen`"), "{detail}");
        }
        for (client, shows_only) in [(&callers, false), (&operations, true)] {
            let replica = client.get("/v1/replica").await.expect("a reply").json();
            assert_eq!(replica["shows_only"], shows_only, "{replica}");
        }
        assert_eq!(callers.next("orders").await, 2, "nothing was taken");

        program.terminate();
        wait::until("it says that it stops", LIMIT, async || {
            (status(&operations, "/readyz").await == 503).then_some(())
        })
        .await;
        assert_eq!(program.end().await, Some(0), "{}", program.log());
    });
}

/// Returns whether `/livez` answers in time while all connections of callers are taken.
async fn probe_beside_callers(options: Options, probed: impl Fn(&Program) -> Client) -> bool {
    let program = options
        .env("ODOMETER_HTTP__CONNECTIONS", CONNECTIONS)
        .env("ODOMETER_HTTP__WORKERS", 1)
        .env("ODOMETER_HTTP__HEAD", "60s")
        .start_ready()
        .await;
    let probed = probed(&program);
    // More than there may be, so that new ones wait in the kernel.
    let mut taken = Vec::new();
    for _ in 0..CONNECTIONS * 2 {
        let connection = TcpStream::connect(program.address()).await;
        taken.push(connection.expect("the kernel takes it"));
    }
    let answered = tokio::time::timeout(PROBE, probed.get("/livez")).await;
    matches!(answered, Ok(Ok(reply)) if reply.status == 200)
}

#[test]
fn callers_cannot_keep_a_probe_waiting() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = with_operations(Program::options().database(&database.url));
        assert!(probe_beside_callers(options, operations).await);
    });
}

/// Negative control: without a listener of its own, the probe waits.
#[test]
fn a_probe_among_callers_waits() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options().database(&database.url);
        // No connection that a test before kept may serve the probe.
        let client = |program: &Program| Client::new(&program.url());
        assert!(!probe_beside_callers(options, client).await);
    });
}

#[test]
fn a_thread_of_callers_that_stands_still_is_no_life() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = Program::options()
            .without_guards("worker-stands-still")
            .database(&database.url);
        let program = with_operations(options).start().await;
        let operations = operations(&program);
        assert_eq!(status(&operations, "/livez").await, 200, "it is too early");
        // It is given 30 s.
        let limit = Duration::from_secs(60);
        wait::until("the probe finds it", limit, async || {
            let reply = operations.get("/livez").await.expect("a reply");
            (reply.status == 503).then_some(())
        })
        .await;
    });
}
