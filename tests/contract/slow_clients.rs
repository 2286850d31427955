//! Tests callers that send slowly, too much, or without end. The program cuts them off, and no
//! other caller waits for them.

use std::{pin::pin, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::support::{Backend, Program, TestDatabase, raw, run, wait};

/// Longer than the limits that these tests set, and shorter than the program's defaults, which are
/// 5 s.
const CUT_OFF_LIMIT: Duration = Duration::from_millis(4500);

/// Starts a program that cuts off slow callers after 2 s. A caller that a busy machine delays for a
/// moment is not cut off.
async fn program() -> (TestDatabase, Program) {
    program_with("2s", "2s").await
}

/// Starts a program with these time limits for a head and for a body.
async fn program_with(head: &str, body: &str) -> (TestDatabase, Program) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let program = Program::options()
        .database(&database.url)
        .env("ODOMETER_HTTP__HEAD", head)
        .env("ODOMETER_HTTP__BODY", body)
        .start_ready()
        .await;
    (database, program)
}

/// Sends `start`, then `drop_by_drop` again and again, until the connection is closed. Returns what
/// was received until then.
async fn until_cut_off(program: &Program, start: &[u8], drop_by_drop: &[u8]) -> String {
    let stream = TcpStream::connect(program.address())
        .await
        .expect("it listens");
    let (mut reader, mut writer) = stream.into_split();
    let mut received = Vec::new();
    let writing = async {
        // Writing fails as soon as the program has closed the connection.
        let mut open = writer.write_all(start).await.is_ok();
        while open {
            tokio::time::sleep(Duration::from_millis(20)).await;
            open = writer.write_all(drop_by_drop).await.is_ok();
        }
    };
    let mut reading = pin!(reader.read_to_end(&mut received));
    let ended = tokio::time::timeout(CUT_OFF_LIMIT, async {
        tokio::select! {
            _ended_or_reset = &mut reading => {}
            // The answer that came before the end can still be read.
            () = writing => drop(reading.as_mut().await),
        }
    });
    assert!(ended.await.is_ok(), "the connection is still open");
    String::from_utf8_lossy(&received).into_owned()
}

#[test]
fn a_head_that_arrives_slowly_is_cut_off() {
    run(async {
        let (_database, program) = program_with("1s", "2s").await;
        let start = b"POST /v1/sequences/slow/next HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
        let answer = until_cut_off(&program, start, b"a").await;
        assert!(!answer.contains(" 200 "), "{answer}");
        assert_eq!(program.client().next("slow").await, 1);
    });
}

/// How long the program stands still: longer than a head may take.
const PAUSE: Duration = Duration::from_millis(2500);

#[test]
fn a_call_that_comes_while_the_program_stands_still_is_answered() {
    run(async {
        let (_database, program) = program_with("1s", "2s").await;
        program.client().next("slow").await;
        program.freeze();
        let mut calls = JoinSet::new();
        for _ in 0..16 {
            let address = program.address().to_owned();
            let request = raw::request("POST", b"/v1/sequences/slow/next", "", b"");
            calls.spawn(async move { raw::exchange(&address, &request).await });
        }
        tokio::time::sleep(PAUSE).await;
        program.thaw();
        for reply in calls.join_all().await {
            assert_eq!(reply.status, 200, "{reply:?}");
        }
    });
}

#[test]
fn a_body_that_arrives_slowly_is_cut_off() {
    run(async {
        // The limit of the head is long, because a busy machine may need time to read the head.
        let (_database, program) = program_with("20s", "500ms").await;
        let head = |method: &str, path: &str| {
            format!(
                "{method} /v1/sequences/slow{path} HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n{{"
            )
        };
        for (method, path) in [
            ("PUT", ""),
            ("POST", "/next"),
            ("POST", "/blocks?size=1"),
            ("POST", "/advance"),
            ("POST", "/restore"),
            ("DELETE", ""),
        ] {
            let answer = until_cut_off(&program, head(method, path).as_bytes(), b" ").await;
            assert!(
                answer.starts_with("HTTP/1.1 400 "),
                "{method} {path}: {answer}"
            );
            assert!(
                answer.contains("\"invalid_body\""),
                "{method} {path}: {answer}"
            );
        }
        // A call that takes no body does not wait for a body.
        let get = "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
        let answer = until_cut_off(&program, get.as_bytes(), b" ").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(program.client().next("slow").await, 1);
    });
}

#[test]
fn a_head_without_end_is_not_read() {
    run(async {
        let (_database, program) = program().await;
        let start = b"POST /v1/sequences/slow/next HTTP/1.1\r\nHost: localhost\r\n";
        let header = format!("X-More: {}\r\n", "a".repeat(100_000));
        let answer = until_cut_off(&program, start, header.as_bytes()).await;
        assert!(!answer.contains(" 200 "), "{answer}");
        // Many small headers are refused like one large header.
        let many: String = (0..500).map(|n| format!("X-{n}: a\r\n")).collect();
        let request = raw::request("POST", b"/v1/sequences/slow/next", &many, b"");
        let reply = raw::exchange(program.address(), &request).await;
        assert!(matches!(reply.status, 400 | 431), "{reply:?}");
        assert_eq!(program.client().next("slow").await, 1);
    });
}

#[test]
fn an_url_without_end_is_not_read() {
    run(async {
        let (_database, program) = program().await;
        let mut start = b"POST /v1/sequences/".to_vec();
        let answer = until_cut_off(&program, &start, &[b'a'; 100_000]).await;
        assert!(!answer.contains(" 200 "), "{answer}");
        start.extend_from_slice(&[b'a'; 70_000]);
        let request = raw::request("POST", &start[5..], "", b"");
        let answer = until_cut_off(&program, &request, b"").await;
        assert!(!answer.contains(" 200 "), "{answer}");
        assert_eq!(program.client().next("slow").await, 1);
    });
}

/// Begins `n` calls and ends none of them: half stop in the head, half in the body.
async fn begin_calls(program: &Program, n: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for n in 0..n {
        let mut stream = TcpStream::connect(program.address())
            .await
            .expect("it listens");
        let start: &[u8] = if n % 2 == 0 {
            b"POST /v1/sequences/slow/next HTTP/1.1\r\nHost: loc"
        } else {
            b"PUT /v1/sequences/slow HTTP/1.1\r\nHost: localhost\r\n\
              Content-Type: application/json\r\nContent-Length: 9000\r\n\r\n{"
        };
        stream.write_all(start).await.expect("it reads");
        open.push(stream);
    }
    open
}

#[test]
fn slow_callers_keep_nobody_waiting() {
    run(async {
        // The limits are so long that no slow caller is cut off before the other callers are
        // answered.
        let (_database, program) = program_with("120s", "120s").await;
        let client = program.client();
        assert_eq!(client.next("slow").await, 1);
        let open = begin_calls(&program, 200).await;
        let number = tokio::time::timeout(Duration::from_secs(30), client.next("slow"));
        assert_eq!(number.await.expect("it waits for slow callers"), 2);
        drop(open);
    });
}

#[test]
fn slow_callers_are_cut_off_together() {
    run(async {
        let (_database, program) = program().await;
        let client = program.client();
        for mut stream in begin_calls(&program, 200).await {
            let mut received = Vec::new();
            let ended = tokio::time::timeout(CUT_OFF_LIMIT, stream.read_to_end(&mut received));
            assert!(ended.await.is_ok(), "a connection is still open");
        }
        wait::until("no call is under way", CUT_OFF_LIMIT, async || {
            let scrape = client.get("/metrics").await.expect("a reply").body;
            scrape
                .contains("odometer_http_in_flight_requests 0\n")
                .then_some(())
        })
        .await;
        assert_eq!(client.next("slow").await, 1);
    });
}

#[test]
fn what_stands_around_chunks_counts_as_body() {
    run(async {
        let (_database, program) = program_with("20s", "500ms").await;
        let extensions = format!("1;e={}\r\n \r\n", "a".repeat(1000)).repeat(24);
        let trailers = format!("0\r\nX-Trailer: {}\r\n", "a".repeat(24_000));
        let data = format!("5dc0\r\n{}\r\n", " ".repeat(24_000));
        for (what, body) in [
            ("extensions", extensions),
            ("trailers", trailers),
            ("data", data),
        ] {
            for path in ["POST /v1/sequences/slow/next", "GET /livez", "PUT /nowhere"] {
                let request = format!(
                    "{path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
                );
                let reply = raw::exchange(program.address(), request.as_bytes()).await;
                assert_eq!(reply.status, 413, "{what} {path}: {reply:?}");
                assert!(reply.body.contains("\"body_too_large\""), "{reply:?}");
            }
        }
        let small = "POST /v1/sequences/slow/next HTTP/1.1\r\nHost: localhost\r\n\
             Transfer-Encoding: chunked\r\n\r\n2;e=1\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n";
        let reply = raw::exchange(program.address(), small.as_bytes()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.body.contains("\"value\":\"1\""), "{reply:?}");
    });
}
