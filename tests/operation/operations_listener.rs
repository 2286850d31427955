//! The operations listener: what it serves, and that callers cannot keep it busy.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
        let program = options.start_ready().await;
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
        let n_refused = refuses_every_change(&operations).await;
        assert!(n_refused >= 10, "vacuous: {n_refused}");
        for (client, shows_only) in [(&callers, false), (&operations, true)] {
            let replica = client.get("/v1/replica").await.expect("a reply").json();
            assert_eq!(replica["shows_only"], shows_only, "{replica}");
        }
        assert_eq!(callers.next("orders").await, 2, "nothing was taken");
        program.stop().await;
    });
}

/// Sends each call of the description that is no `GET` to the operations listener, and returns
/// how many it refused. It must refuse all but reading a printed id.
async fn refuses_every_change(operations: &Client) -> usize {
    let description = operations.get("/openapi.json").await.expect("a reply");
    let paths = description.json()["paths"].clone();
    let mut n_refused = 0;
    for (path, item) in paths.as_object().expect("it has paths") {
        for method in ["PUT", "POST", "DELETE"] {
            if item.get(method.to_lowercase()).is_none() {
                continue;
            }
            // The parameters may have any value: no route looks at them.
            let sent = path.replace(['{', '}'], "");
            let method = method.parse().expect("a method");
            let reply = operations.send(method, &sent, &[], None).await;
            let reply = reply.expect("a reply");
            let problem = reply.json();
            let is_elsewhere = problem["code"] == "route_not_found";
            assert_eq!(is_elsewhere, !path.ends_with("/parse"), "{path}: {problem}");
            if is_elsewhere {
                let detail = problem["detail"].to_string();
                assert!(detail.contains("the address of `listen`"), "{detail}");
                n_refused += 1;
            }
        }
    }
    n_refused
}

/// Begins a call whose body never comes, and returns its connection when the service waits for it.
async fn begin_a_call(program: &Program) -> TcpStream {
    let connection = TcpStream::connect(program.address()).await;
    let mut connection = connection.expect("it listens");
    let head = b"POST /v1/workers HTTP/1.1\r\nHost: localhost\r\n\
                 Expect: 100-continue\r\nContent-Length: 10\r\n\r\n";
    connection.write_all(head).await.expect("it reads");
    let mut begins = [0; 12];
    let read = connection.read_exact(&mut begins).await;
    read.expect("it answers");
    assert_eq!(&begins, b"HTTP/1.1 100");
    connection
}

#[test]
fn a_probe_sees_a_stop_to_its_end() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let options = with_operations(Program::options().database(&database.url));
        let mut program = options.start_ready().await;
        let operations = operations(&program);
        let unfinished = begin_a_call(&program).await;
        program.terminate();
        wait::until("the listener of callers is closed", LIMIT, async || {
            let connection = TcpStream::connect(program.address()).await;
            connection.is_err().then_some(())
        })
        .await;
        assert_eq!(status(&operations, "/readyz").await, 503);
        assert_eq!(status(&operations, "/livez").await, 200);
        drop(unfinished);
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
