//! Tests which requests are refused and how, and that no refused request uses up a number.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    Backend, Client, PASSWORD, Program, Reply, TestDatabase, for_each_backend, raw, run,
};

/// The sequence that every bad request names. Its next number must stay 1.
const NAME: &str = "untouched";

struct Target {
    _database: TestDatabase,
    program: Program,
    client: Client,
}

impl Target {
    async fn start() -> Self {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let client = program.client();
        Self {
            _database: database,
            program,
            client,
        }
    }

    async fn send(&self, method: &str, target: impl AsRef<[u8]>) -> Reply {
        self.send_with(method, target, "", b"").await
    }

    async fn send_with(
        &self,
        method: &str,
        target: impl AsRef<[u8]>,
        headers: &str,
        body: &[u8],
    ) -> Reply {
        let request = raw::request(method, target.as_ref(), headers, body);
        raw::exchange(self.program.address(), &request).await
    }

    /// Checks that no number was issued or lost, and stops the program.
    async fn untouched(self) {
        assert_eq!(self.client.next(NAME).await, 1);
        self.program.stop().await;
    }
}

/// Checks that the reply is a problem with this status and code, and says what to do.
fn refused(reply: &Reply, status: u16, code: &str, what: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    assert_eq!(
        reply.header("content-type"),
        Some("application/problem+json"),
        "{what}: {reply:?}"
    );
    assert_eq!(reply.header("cache-control"), Some("no-store"), "{what}");
    let problem = reply.json();
    assert_eq!(problem["code"], code, "{what}: {problem}");
    assert_eq!(problem["status"], status, "{what}: {problem}");
    let kind = format!("/docs/errors/{code}");
    assert_eq!(problem["type"], kind.as_str(), "{what}: {problem}");
    for key in ["title", "detail"] {
        let sentence = problem[key].as_str().unwrap_or_default();
        assert!(sentence.len() >= 8, "{what}: no {key} in {problem}");
    }
    assert!(!reply.body.contains(PASSWORD), "{what}");
}

#[test]
fn unknown_routes_are_not_found() {
    run(async {
        let target = Target::start().await;
        for (method, path) in [
            ("GET", "/nowhere"),
            ("POST", "/v1"),
            ("POST", "/v1/sequences/untouched/nxt"),
            ("POST", "/v1/sequences/untouched/next/"),
            ("POST", "/v1/sequences/untouched/extra/next"),
            ("POST", "/v2/sequences/untouched/next"),
            ("POST", "/v1/Sequences/untouched/next"),
            ("GET", "/v1/sequences/a/b/c/d"),
        ] {
            let reply = target.send(method, path).await;
            refused(&reply, 404, "route_not_found", path);
        }
        target.untouched().await;
    });
}

#[test]
fn a_wrong_method_names_the_right_one() {
    run(async {
        let target = Target::start().await;
        for (method, path, allowed) in [
            ("GET", "/v1/sequences/untouched/next", "POST"),
            ("HEAD", "/v1/sequences/untouched/next", "POST"),
            ("PUT", "/v1/sequences/untouched/next", "POST"),
            ("DELETE", "/v1/sequences/untouched/next", "POST"),
            ("PATCH", "/v1/sequences/untouched/next", "POST"),
            ("GET", "/v1/sequences/untouched/blocks", "POST"),
            ("POST", "/v1/sequences/untouched", "PUT"),
            ("PATCH", "/v1/sequences/untouched", "DELETE"),
            ("GET", "/v1/sequences/untouched/advance", "POST"),
            ("PUT", "/v1/sequences/untouched/advance", "POST"),
            ("GET", "/v1/sequences/untouched/restore", "POST"),
            ("DELETE", "/v1/sequences/untouched/restore", "POST"),
            ("GET", "/v1/sequences/untouched/periods/x", "DELETE"),
            ("POST", "/v1/sequences/untouched/periods/x", "DELETE"),
            ("POST", "/v1/sequences", "GET"),
            ("POST", "/livez", "GET"),
            ("POST", "/readyz", "GET"),
            ("DELETE", "/metrics", "GET"),
            ("PUT", "/openapi.json", "GET"),
        ] {
            let what = format!("{method} {path}");
            let reply = if method == "HEAD" {
                let reply = target.client.send(reqwest::Method::HEAD, path, &[], None);
                reply.await.expect("a reply")
            } else {
                let reply = target.send(method, path).await;
                refused(&reply, 405, "method_not_allowed", &what);
                reply
            };
            assert_eq!(reply.status, 405, "{what}");
            let allow = reply.header("allow").unwrap_or_default();
            let methods: Vec<&str> = allow.split(',').map(str::trim).collect();
            assert!(methods.contains(&allowed), "{what}: {allow}");
            assert!(!methods.contains(&method), "{what}: {allow}");
        }
        target.untouched().await;
    });
}

#[test]
fn names_are_refused_and_never_mended() {
    run(async {
        let target = Target::start().await;
        let too_long = "n".repeat(129);
        for name in [
            "a%2Fb",
            "%2F",
            "a%20b",
            "untouched%20",
            "%20untouched",
            "untouched%00",
            "%00",
            "untouched%0A",
            "untouched%09",
            "caf%C3%A9",
            "%FF",
            "%C3%28",
            "%",
            "%2",
            "%zz",
            "%256Frders",
            "a+b",
            "a*b",
            "a~b",
            "a'b",
            "a\"b",
            "a%22b",
            "a,b",
            "a@b",
            "-a",
            ".a",
            "_a",
            ":a",
            "..",
            "%2E%2E",
            "%EF%BC%91",
            &too_long,
        ] {
            for (method, rest) in [("POST", "/next"), ("POST", "/blocks?size=1"), ("GET", "")] {
                let path = format!("/v1/sequences/{name}{rest}");
                let reply = target.send(method, &path).await;
                refused(&reply, 400, "invalid_name", &path);
            }
            let path = format!("/v1/sequences/{name}");
            let json = "Content-Type: application/json\r\n";
            let reply = target.send_with("PUT", &path, json, b"{}").await;
            refused(&reply, 400, "invalid_name", &format!("PUT {path}"));
        }
        // A percent-encoded name is the same name.
        let reply = target.send("POST", "/v1/sequences/%6Frders/next").await;
        assert_eq!(reply.json()["sequence"], "orders", "{reply:?}");
        let reply = target.send("POST", "/v1/sequences/orders/%6eext").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.number(), 2);
        target.untouched().await;
    });
}

#[test]
fn bytes_that_no_url_may_hold_are_refused() {
    run(async {
        let target = Target::start().await;
        for name in [
            &b"untouched "[..],
            b"a b",
            b"untouched\0",
            b"untouched\x01",
            b"untouched\xff",
            "caf\u{e9}".as_bytes(),
            b"",
        ] {
            let path = [b"/v1/sequences/", name, b"/next"].concat();
            let reply = target.send("POST", &path).await;
            let what = String::from_utf8_lossy(&path).into_owned();
            assert!(matches!(reply.status, 400 | 404), "{what}: {reply:?}");
        }
        for garbage in [
            &b"NONSENSE\r\n\r\n"[..],
            b"POST /v1/sequences/untouched/next HTTP/9.9\r\n\r\n",
            b"POST /v1/sequences/untouched/next HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            b"POST /v1/sequences/untouched/next HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        ] {
            let reply = raw::exchange(target.program.address(), garbage).await;
            assert_eq!(reply.status, 400, "{reply:?}");
        }
        target.untouched().await;
    });
}

#[test]
fn a_count_is_a_number_from_one_to_ten_thousand() {
    run(async {
        let target = Target::start().await;
        for query in [
            "count=0",
            "count=-1",
            "count=10001",
            "count=abc",
            "count=18446744073709551616",
            "count=99999999999999999999999999",
            "count=",
            "count",
            "count=1&count=1",
            "count=1&count=2",
            "count=1.0",
            "count=1e3",
            "count=0x10",
            "count=%201",
            "count=1%20",
            "count=+1",
            "count=%EF%BC%91",
        ] {
            let path = format!("/v1/sequences/{NAME}/next?{query}");
            refused(
                &target.send("POST", &path).await,
                400,
                "invalid_count",
                query,
            );
        }
        for query in [
            "size=0",
            "size=-1",
            "size=abc",
            "size=18446744073709551616",
            "size=9223372036854775807",
            "size=",
            "size=1&size=1",
            "",
        ] {
            let path = format!("/v1/sequences/{NAME}/blocks?{query}");
            refused(
                &target.send("POST", &path).await,
                400,
                "invalid_count",
                query,
            );
        }
        target.untouched().await;
    });
}

#[test]
fn unknown_parameters_are_named() {
    run(async {
        let target = Target::start().await;
        for (query, named) in [
            ("n=3", "n"),
            ("Count=3", "Count"),
            ("count=3&cuont=4", "cuont"),
            ("contiguous=maybe", "contiguous"),
            ("contiguous=", "contiguous"),
            ("contiguous=true&contiguous=true", "contiguous"),
            ("ids=no", "ids"),
            ("size=3", "size"),
            ("_=1", "_"),
        ] {
            let path = format!("/v1/sequences/{NAME}/next?{query}");
            let reply = target.send("POST", &path).await;
            refused(&reply, 400, "invalid_parameter", query);
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains(named), "{query}: {detail}");
        }
        let path = format!("/v1/sequences/{NAME}/next?period=2026");
        refused(
            &target.send("POST", &path).await,
            400,
            "invalid_period",
            &path,
        );
        let path = format!("/v1/sequences/{NAME}/blocks?size=1&count=1");
        refused(
            &target.send("POST", &path).await,
            400,
            "invalid_parameter",
            &path,
        );
        let path = format!("/v1/sequences/{NAME}/next");
        let reply = target
            .send_with("POST", &path, "Idempotency-Key: 1\r\n", b"")
            .await;
        refused(&reply, 400, "invalid_parameter", "Idempotency-Key");
        target.untouched().await;
    });
}

#[test]
fn a_body_that_says_anything_is_refused() {
    run(async {
        let target = Target::start().await;
        let json = "Content-Type: application/json\r\n";
        let text = "Content-Type: text/plain\r\n";
        for rest in ["next", "blocks?size=1"] {
            let path = format!("/v1/sequences/{NAME}/{rest}");
            for (headers, body, status, code) in [
                (json, "{\"count\":3}", 400, "invalid_body"),
                (json, "{\"count\":", 400, "invalid_body"),
                (json, "[]", 400, "invalid_body"),
                (json, "null", 400, "invalid_body"),
                (json, "3", 400, "invalid_body"),
                (json, "hello", 400, "invalid_body"),
                (json, "{}{}", 400, "invalid_body"),
                (json, "\u{ff}", 400, "invalid_body"),
                (text, "hello", 415, "unsupported_media_type"),
                (text, "{}", 415, "unsupported_media_type"),
            ] {
                let reply = target
                    .send_with("POST", &path, headers, body.as_bytes())
                    .await;
                refused(
                    &reply,
                    status,
                    code,
                    &format!("{rest} with {headers}{body}"),
                );
            }
        }
        target.untouched().await;
    });
}

#[test]
fn a_body_of_ten_megabytes_is_not_read() {
    run(async {
        let target = Target::start().await;
        let json = "Content-Type: application/json\r\n";
        let body = format!("{{\"description\":\"{}\"}}", "x".repeat(10 << 20));
        for (method, path) in [
            ("POST", "/v1/sequences/untouched/next"),
            ("POST", "/v1/sequences/untouched/blocks?size=1"),
            ("PUT", "/v1/sequences/untouched"),
        ] {
            let reply = target.send_with(method, path, json, body.as_bytes()).await;
            refused(&reply, 413, "body_too_large", &format!("{method} {path}"));
            // The same body is sent again without a length in the head.
            let mut chunked = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 {json}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
                body.len()
            )
            .into_bytes();
            chunked.extend_from_slice(body.as_bytes());
            chunked.extend_from_slice(b"\r\n0\r\n\r\n");
            let reply = raw::exchange(target.program.address(), &chunked).await;
            refused(
                &reply,
                413,
                "body_too_large",
                &format!("{method} {path}, chunked"),
            );
        }
        target.untouched().await;
    });
}

#[test]
fn a_definition_is_checked_before_anything_is_stored() {
    run(async {
        let target = Target::start().await;
        let path = format!("/v1/sequences/{NAME}");
        for (definition, named) in [
            (json!({"block": {"min": 10, "max": 5}}), "block"),
            (json!({"block": {"min": 0}}), "min"),
            (json!({"block": {"max": 4_294_967_297_u64}}), "max"),
            (json!({"block": {"hold": "soon"}}), "hold"),
            (json!({"block": {"size": 5}}), "size"),
            (json!({"block": 5}), "block"),
            (json!({"step": 0}), "step"),
            (json!({"step": -1}), "step"),
            (json!({"step": 1.5}), "step"),
            (json!({"start": "10", "max": "5"}), "max"),
            (json!({"start": -1}), "start"),
            (json!({"start": "one"}), "start"),
            (json!({"start": 1.5}), "start"),
            (json!({"max": "9223372036854775808"}), "max"),
            (json!({"max": "9223372036854775807"}), "max"),
            (json!({"max": 9.3e18}), "max"),
            (json!({"kind": "fancy"}), "kind"),
            (json!({"order": "random"}), "order"),
            (json!({"description": "x".repeat(2000)}), "description"),
            (json!({"description": "two\nlines"}), "description"),
            (json!({"descripton": "misspelt"}), "descripton"),
        ] {
            let reply = target
                .client
                .put(&path, &definition)
                .await
                .expect("a reply");
            refused(&reply, 400, "invalid_definition", &definition.to_string());
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains(named), "{definition}: {detail}");
        }
        let json = "Content-Type: application/json\r\n";
        for body in [
            "",
            "{",
            "[]",
            "null",
            "5",
            "{\"step\":1}x",
            "{\"step\":1,\"step\":2}",
        ] {
            let reply = target.send_with("PUT", &path, json, body.as_bytes()).await;
            refused(&reply, 400, "invalid_body", &format!("PUT {body}"));
        }
        for headers in [
            "Content-Type: text/plain\r\n",
            "Content-Type: text/xml\r\n",
            "",
        ] {
            let reply = target.send_with("PUT", &path, headers, b"{}").await;
            refused(&reply, 415, "unsupported_media_type", headers);
        }
        let reply = target.client.get(&path).await.expect("a reply");
        refused(&reply, 404, "sequence_not_found", "nothing was stored");
        target.untouched().await;
    });
}

for_each_backend!(a_refused_change_changes_nothing);

async fn a_refused_change_changes_nothing(backend: Backend) {
    let database = TestDatabase::prepared(backend).await;
    let program = Program::options()
        .database(&database.url)
        .start_ready()
        .await;
    let client = program.client();
    client.define("kept", &json!({"max": "1000"})).await;
    assert_eq!(client.next("kept").await, 1);
    let before = client.get("/v1/sequences/kept").await.expect("a reply");
    for definition in [
        json!({"step": 0}),
        json!({"max": "9223372036854775808"}),
        json!({"block": {"min": 9, "max": 1}}),
        json!({"description": "fine", "step": -1}),
    ] {
        let reply = client.put("/v1/sequences/kept", &definition).await;
        let reply = reply.expect("a reply");
        assert!(matches!(reply.status, 400 | 409), "{reply:?}");
    }
    let after = client.get("/v1/sequences/kept").await.expect("a reply");
    assert_eq!(before.header("etag"), after.header("etag"));
    assert_eq!(before.json()["definition"], after.json()["definition"]);
    assert_eq!(client.next("kept").await, 2);
}

#[test]
fn a_head_that_does_not_end_is_cut_off() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_HTTP__HEAD", "500ms")
            .start_ready()
            .await;
        let mut stream = TcpStream::connect(program.address())
            .await
            .expect("it listens");
        let half = b"POST /v1/sequences/slow/next HTTP/1.1\r\nHost: loc";
        stream.write_all(half).await.expect("it reads");
        let mut received = Vec::new();
        let ended = stream.read_to_end(&mut received);
        let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
        assert!(ended.is_ok(), "the connection is still open");
        assert_eq!(program.client().next("slow").await, 1);
    });
}
