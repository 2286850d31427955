//! Callers that hold a connection without end. The program cuts them off, and no other caller
//! waits.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use endless::{Closed, Endless, ROWS, hold_all};

use crate::support::{
    Backend, Client, Options, Program, Scrape, TestDatabase, raw::Connection, run, settled, wait,
};

mod by_tls;
mod endless;

const GUARD: &str = "no-connection-guard";

/// A time longer than the limits that these tests configure.
const CUT_OFF_LIMIT: Duration = Duration::from_secs(9);

/// The limit for work that takes as long as the machine needs.
const LIMIT: Duration = Duration::from_secs(60);

const NEXT: &str = "POST /v1/sequences/held/next HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// How many large replies may be on their way at once: 64 MiB, in parts of 22 bytes for each id.
const LARGE_REPLIES: u16 = 304;
/// How many calls come in addition.
const ABOVE: u16 = 20;
/// How many numbers are in memory, so that no reply waits for the database.
const MORE_THAN_ASKED_FOR: u32 = 10_000_000;
/// A request for ids of 19 digits, so that the kernel's buffers cannot hold a reply.
const LARGE: &str = "POST /v1/sequences/large/next?count=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn options() -> (TestDatabase, Options) {
    let database = TestDatabase::prepared(Backend::Sqlite).await;
    let options = Program::options()
        .database(&database.url)
        .env("ODOMETER_HTTP__HEAD", "2s")
        .env("ODOMETER_HTTP__BODY", "500ms")
        .env("ODOMETER_REFILL__DEADLINE", "1s")
        .env("ODOMETER_STORE__TIMEOUT", "1s")
        .env("ODOMETER_HTTP__WRITE", "1s");
    (database, options)
}

#[test]
fn nobody_holds_a_connection_without_end() {
    run(async {
        let (_database, options) = options().await;
        let program = options.start_ready().await;
        let (open, closed) = hold_all(&program, LIMIT).await;
        assert!(open.is_empty(), "still open: {open:?}");
        closed.iter().for_each(closed_in_order);
        assert_eq!(n_cut(&program.client()).await, (3.0, 2.0));
        wait::until("the others are gone", CUT_OFF_LIMIT, async || {
            // Each look uses a new client. A client that asks again before its connection is free
            // opens a second connection, and keeps both.
            let scrape = Scrape::of(&program.client()).await;
            (scrape.sum("odometer_http_connections", &[]) == 1.0).then_some(())
        })
        .await;
    });
}

/// Checks what a caller got before its connection was closed.
fn closed_in_order(closed: &Closed) {
    let Closed { row, answer, .. } = closed;
    match row {
        Endless::Chunks(_) | Endless::DrippedBody => {
            assert!(answer.starts_with("HTTP/1.1 400 "), "{row:?}: {answer}");
            assert!(answer.contains("\"invalid_body\""), "{row:?}: {answer}");
        }
        Endless::OneByte
        | Endless::DrippedHead
        | Endless::LargeHead
        | Endless::UnreadReplies
        | Endless::ManyHeads => assert_eq!(answer, "", "{row:?}"),
    }
}

/// Returns how many connections were cut because of a request, and how many because of a reply.
async fn n_cut(client: &Client) -> (f64, f64) {
    let scrape = Scrape::of(client).await;
    let n_cut = |cause| scrape.sum("odometer_http_connections_cut_total", &[("cause", cause)]);
    (n_cut("request"), n_cut("reply"))
}

/// Compares short limits with the defaults, because a busy machine delays both programs.
#[test]
fn connections_are_cut_off_as_early_as_the_limits_say() {
    run(async {
        let (_database, options) = options().await;
        let told = options.start_ready().await;
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let by_default = Program::options().database(&database.url);
        let by_default = by_default.start_ready().await;
        let ((_, early), (open, late)) =
            tokio::join!(hold_all(&told, LIMIT), hold_all(&by_default, LIMIT));
        assert!(open.is_empty(), "still open by default: {open:?}");
        for row in ROWS {
            let after = |closed: &[Closed]| {
                let found = closed.iter().find(|closed| closed.row == row);
                found.map(|closed| closed.after).expect("it was cut off")
            };
            let (early, late) = (after(&early), after(&late));
            assert!(early < late, "{row:?}: {early:?}, by default {late:?}");
        }
    });
}

/// The control of `nobody_holds_a_connection_without_end`.
#[test]
fn without_its_guard_a_connection_is_held_without_end() {
    run(async {
        let (_database, options) = options().await;
        let program = options.without_guards(GUARD).start_ready().await;
        let (open, _closed) = hold_all(&program, CUT_OFF_LIMIT).await;
        for row in [
            Endless::OneByte,
            Endless::DrippedHead,
            Endless::Chunks("GET /livez"),
            Endless::Chunks("POST /nowhere"),
            Endless::UnreadReplies,
        ] {
            assert!(open.contains(&row), "{row:?} was cut off: {open:?}");
        }
    });
}

/// Opens more silent connections than there are descriptors. Returns whether a probe is answered
/// within ten seconds, and the log.
async fn probe_beside_silence(options: &Options) -> (bool, String) {
    let program = options
        .clone()
        // With this limit no silent connection ends during the test.
        .env("ODOMETER_HTTP__HEAD", "60s")
        .open_files(1024)
        .start_ready()
        .await;
    let mut silent = Vec::new();
    for _ in 0..1100 {
        silent.push(TcpStream::connect(program.address()).await.expect("room"));
    }
    let client = program.client();
    let probe = tokio::time::timeout(Duration::from_secs(10), client.get("/livez"));
    let is_answered = match probe.await {
        Ok(reply) => reply.expect("a reply").status == 200,
        Err(_too_late) => false,
    };
    (is_answered, program.log())
}

#[test]
fn silent_connections_keep_no_probe_waiting() {
    run(async {
        let (_database, options) = options().await;
        let (is_answered, log) = probe_beside_silence(&options).await;
        assert!(is_answered && log.contains("RLIMIT_NOFILE"), "{log}");
    });
}

#[test]
fn without_its_guard_silent_connections_keep_a_probe_waiting() {
    run(async {
        let (_database, options) = options().await;
        let unguarded = options.without_guards(GUARD);
        let (is_answered, log) = probe_beside_silence(&unguarded).await;
        assert!(!is_answered, "the check finds nothing: {log}");
    });
}

/// Opens `n` connections, and writes `sent` on each of them until the program reads no more.
/// Returns the connections, and how many bytes were written.
async fn write_on_each(program: &Program, n: usize, sent: &[u8]) -> (Vec<TcpStream>, usize) {
    let mut streams = Vec::new();
    for _ in 0..n {
        let stream = TcpStream::connect(program.address()).await.expect("room");
        streams.push(stream);
    }
    let mut written = vec![0; n];
    // Unread bytes fill the buffers, and then no more bytes can be written.
    let mut n_quiet = 0;
    while n_quiet < 20 {
        let mut is_quiet = true;
        for (stream, written) in streams.iter().zip(&mut written) {
            let rest = sent.get(*written..).unwrap_or_default();
            if let Ok(n_bytes) = stream.try_write(rest) {
                *written += n_bytes;
                is_quiet &= n_bytes == 0;
            }
        }
        n_quiet = if is_quiet { n_quiet + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (streams, written.iter().sum())
}

#[test]
fn large_heads_on_many_connections_stay_within_the_memory() {
    const N: usize = 6000;
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            // With this limit all connections are there at the same time.
            .env("ODOMETER_HTTP__HEAD", "60s")
            .start_ready()
            .await;
        let before = program.peak_memory();
        let head = Endless::LargeHead.start();
        let (streams, n_bytes) = write_on_each(&program, N, &head).await;
        let peak = settled_memory(&program).await;
        let read = peak - before;
        assert!(n_bytes > N * 31 * 1024, "vacuous: {n_bytes} were written");
        assert!(read > 16 * 1024 * N as u64, "vacuous: {read} were read");
        assert!(peak < 512 << 20, "{} MiB", peak >> 20);
        drop(streams);
        assert_eq!(program.client().next("held").await, 1);
    });
}

/// Returns the peak memory of the program, after the program has read all that it reads.
///
/// A program that has just started takes some kilobytes a second by itself, for about 20 s.
async fn settled_memory(program: &Program) -> u64 {
    const BY_ITSELF: u64 = 64 * 1024;
    let (mut from, mut n_still) = (0, 0);
    wait::until("it has read what it wants", CUT_OFF_LIMIT, async || {
        let now = program.peak_memory();
        if now.abs_diff(from) > BY_ITSELF {
            (from, n_still) = (now, 0);
        }
        n_still += 1;
        (n_still > 25).then_some(now)
    })
    .await
}

/// Returns by how many bytes a program's memory grows for each of `n` connections with `sent`.
async fn grown_for_each(options: Options, n: u32, sent: &[u8]) -> u64 {
    let program = options
        .env("ODOMETER_HTTP__HEAD", "60s")
        .env("ODOMETER_HTTP__WRITE", "60s")
        .start_ready()
        .await;
    let before = program.peak_memory();
    let n_connections = usize::try_from(n).expect("few");
    let (_streams, _) = write_on_each(&program, n_connections, sent).await;
    (settled_memory(&program).await - before) / u64::from(n)
}

/// The control, at a size for every machine: each connection costs the length of its head.
#[test]
fn without_its_guard_a_large_head_is_held_in_memory() {
    run(async {
        let (_database, options) = options().await;
        let mut head = Endless::LargeHead.start();
        // The head is never complete.
        head.truncate(head.len() - 4);
        let guarded = grown_for_each(options.clone(), 500, &head).await;
        let unguarded = grown_for_each(options.without_guards(GUARD), 500, &head).await;
        assert!(guarded < 64 * 1024, "{guarded}");
        assert!(unguarded > 100 * 1024, "{unguarded}");
    });
}

/// actix keeps kilobytes for each request that it decodes, even for a short one.
#[test]
fn many_heads_that_come_together_cost_no_more_than_one() {
    run(async {
        let (_database, options) = options().await;
        let sent = Endless::ManyHeads.start();
        let guarded = grown_for_each(options.clone(), 20, &sent).await;
        let unguarded = grown_for_each(options.without_guards(GUARD), 20, &sent).await;
        assert!(guarded < 512 * 1024, "{guarded}");
        assert!(unguarded > 2 * 1024 * 1024, "nothing is found: {unguarded}");
    });
}

/// A caller that sends one byte and no more takes no connection away from others.
#[test]
fn dripped_heads_make_room_for_others() {
    run(async {
        let (_database, options) = options().await;
        let program = options
            .env("ODOMETER_HTTP__HEAD", "60s")
            .env("ODOMETER_HTTP__CONNECTIONS", 32)
            .env("ODOMETER_HTTP__WORKERS", 1)
            .start_ready()
            .await;
        let (_streams, _) = write_on_each(&program, 60, b"P").await;
        let client = program.client();
        let probe = tokio::time::timeout(Duration::from_secs(30), client.get("/livez"));
        let reply = probe.await.expect("a place within the limit");
        assert_eq!(reply.expect("a reply").status, 200);
    });
}

#[test]
fn a_reply_that_nobody_takes_does_not_hold_up_the_end() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let mut program = Program::options()
            .database(&database.url)
            .env("ODOMETER_HTTP__WRITE", "60s")
            .start_ready()
            .await;
        let client = program.client();
        let mut stream = TcpStream::connect(program.address()).await.expect("room");
        let requests = Endless::UnreadReplies.start();
        stream.write_all(&requests).await.expect("it reads");
        wait::until("a reply is written", CUT_OFF_LIMIT, async || {
            let scrape = Scrape::of(&client).await;
            let issued = scrape.sum("odometer_numbers_issued_total", &[("sequence", "held")]);
            (issued > 0.0).then_some(())
        })
        .await;
        let started = Instant::now();
        program.terminate();
        assert_eq!(program.end().await, Some(0), "{}", program.log());
        // The bound is below half of `shutdown.deadline`, which is the time that connections get.
        let took = started.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
}

async fn issued_large(client: &Client) -> f64 {
    let scrape = Scrape::of(client).await;
    scrape.sum("odometer_numbers_issued_total", &[("sequence", "large")])
}

/// Opens a connection whose caller sends a request and does not read.
async fn ask_and_not_read(program: &Program, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let address = program.address().parse().expect("an address");
    let mut stream = socket.connect(address).await.expect("room");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    stream
}

/// Takes the first number of a sequence, which comes from the database.
async fn first_of(client: &Client, sequence: &str) {
    let path = format!("/v1/sequences/{sequence}/next");
    let first = settled(|| client.post(&path)).await;
    assert_eq!(first.status, 200, "{first:?}");
}

/// Asks for more large replies than may be on their way, and reads none. Waits until all calls have
/// an outcome. Returns how many calls got numbers, and how many were refused.
async fn ask_for_large_replies(program: &Program) -> (f64, f64, Vec<TcpStream>) {
    let client = program.client();
    let digits = json!({
        "start": "9000000000000000000",
        "max": "9200000000000000000",
        "block": {"min": MORE_THAN_ASKED_FOR, "max": MORE_THAN_ASKED_FOR},
    });
    client.define("large", &digits).await;
    // From here on the program knows the length of the ids, and no call waits for the database.
    first_of(&client, "large").await;
    let mut unread = Vec::new();
    for _ in 0..LARGE_REPLIES + ABOVE {
        unread.push(ask_and_not_read(program, LARGE).await);
    }
    let (given, refused) = wait::until("each is answered", LIMIT, async || {
        let given = (issued_large(&client).await / 10_000.0).floor();
        let scrape = Scrape::of(&client).await;
        let refused = scrape.sum("odometer_http_refused_requests_total", &[]);
        let is_all = given + refused == f64::from(LARGE_REPLIES + ABOVE);
        is_all.then_some((given, refused))
    })
    .await;
    (given, refused, unread)
}

#[test]
fn large_replies_that_nobody_takes_are_bounded() {
    run(async {
        let (_database, options) = options().await;
        let program = options
            .env("ODOMETER_HTTP__WRITE", "60s")
            .start_ready()
            .await;
        let (given, refused, unread) = ask_for_large_replies(&program).await;
        assert_eq!(
            (given, refused),
            (f64::from(LARGE_REPLIES), f64::from(ABOVE))
        );
        // The bound counts bytes, so a smaller batch takes the rest of it. A large reply to a `GET`
        // counts as well. A small reply does not count, and a scrape has a bound of its own. A
        // caller who hangs up frees its bytes.
        let client = program.client();
        let before = issued_large(&client).await;
        let _smaller = ask_and_not_read(&program, &LARGE.replace("10000", "8100")).await;
        wait::until("it is answered", LIMIT, async || {
            (issued_large(&client).await > before).then_some(())
        })
        .await;
        let description = client.get("/openapi.json").await.expect("a reply");
        assert_eq!(description.code().as_deref(), Some("overloaded"));
        client.next("large").await;
        drop(unread);
        wait::until("there is a place again", LIMIT, async || {
            let path = "/v1/sequences/large/next?count=10000";
            let reply = client.post(path).await.expect("a reply");
            (reply.status == 200).then_some(())
        })
        .await;
    });
}

#[test]
fn without_its_guard_large_replies_have_no_bound() {
    run(async {
        let (_database, options) = options().await;
        let program = options.without_guards(GUARD).start_ready().await;
        let (given, refused, _unread) = ask_for_large_replies(&program).await;
        assert_eq!((given, refused), (f64::from(LARGE_REPLIES + ABOVE), 0.0));
    });
}

#[test]
fn two_thousand_requests_at_once_get_their_replies() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        let stream = TcpStream::connect(program.address()).await.expect("room");
        let (mut reader, mut writer) = stream.into_split();
        let writing = tokio::spawn(async move {
            let written = writer.write_all(NEXT.repeat(2000).as_bytes()).await;
            written.map(|()| writer)
        });
        let (mut received, mut n_replies) = (String::new(), 0);
        let mut buffer = vec![0; 64 * 1024];
        while n_replies < 2000 {
            let n_bytes = reader.read(&mut buffer).await.expect("replies");
            assert!(n_bytes > 0, "closed after {n_replies} and {received}");
            let text = std::str::from_utf8(buffer.get(..n_bytes).unwrap_or_default());
            received.push_str(text.expect("ASCII"));
            // A reply has no brace except those around its body.
            while let Some((reply, rest)) = received.split_once('}') {
                assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
                n_replies += 1;
                received = rest.to_owned();
            }
        }
        writing.await.expect("no panic").expect("all was read");
    });
}

#[test]
fn a_reply_does_not_wait_for_the_request_behind_it() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .env("ODOMETER_HTTP__BODY", "60s")
            .start_ready()
            .await;
        let mut connection = Connection::open(program.address()).await;
        // The body of the last request never comes.
        let waiting =
            "PUT /v1/sequences/held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n";
        let together = [NEXT, waiting].concat();
        let first = connection.exchange(together.as_bytes()).await;
        assert_eq!(first.status, 200, "{first:?}");
    });
}

#[test]
fn a_malformed_request_takes_no_reply_with_it() {
    run(async {
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let program = Program::options()
            .database(&database.url)
            .start_ready()
            .await;
        // Without `Host`, and with a byte behind the head.
        let malformed = "POST / HTTP/1.1\r\n\r\nX";
        let mut stream = TcpStream::connect(program.address()).await.expect("room");
        let together = [NEXT, malformed].concat();
        stream.write_all(together.as_bytes()).await.expect("room");
        let mut replies = String::new();
        let read = tokio::time::timeout(LIMIT, stream.read_to_string(&mut replies));
        let read = read.await.expect("the service closes");
        read.expect("in order");
        let statuses: Vec<_> = replies.match_indices("HTTP/1.1 ").collect();
        assert_eq!(statuses.len(), 2, "{replies}");
    });
}

#[test]
fn idle_connections_make_room_for_new_ones() {
    run(async {
        let (_database, options) = options().await;
        let program = options
            .env("ODOMETER_HTTP__CONNECTIONS", 32)
            .env("ODOMETER_HTTP__WORKERS", 1)
            .start_ready()
            .await;
        let mut idle = Vec::new();
        for _ in 0..60 {
            let connected = async {
                let mut stream = TcpStream::connect(program.address()).await.expect("room");
                stream.write_all(NEXT.as_bytes()).await.expect("it reads");
                let mut reply = vec![0; 4096];
                let n_bytes = stream.read(&mut reply).await.expect("a reply");
                assert!(
                    reply
                        .get(..n_bytes)
                        .is_some_and(|reply| reply.starts_with(b"HTTP/1.1 200"))
                );
                stream
            };
            // No connection is idle for so long that the program closes it for that reason.
            let connected = tokio::time::timeout(Duration::from_secs(20), connected);
            idle.push(connected.await.expect("a place within the limit"));
        }
        let client = program.client();
        let scrape = Scrape::of(&client).await;
        let cut = scrape.sum(
            "odometer_http_connections_cut_total",
            &[("cause", "crowded")],
        );
        let n_max = scrape.sum("odometer_http_connections_max", &[]);
        assert_eq!(n_max, 32.0);
        assert!(cut >= 1.0, "no place was made: {cut}");
    });
}
