//! Callers by TLS that hold a connection without end, or more memory than it needs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::interval;

use super::endless::hold_each;
use super::{
    CUT_OFF_LIMIT, GUARD, LIMIT, NEXT, closed_in_order, grown_for_each, n_cut, options,
    settled_memory,
};
use crate::support::{
    HOST, Options, Program, RecordConnection, Scrape, SecureConnection, TestAuthority,
    TestDatabase, TlsCaller, TlsFiles, operations, part_of_hello, run, wait,
};

/// The bytes of a message that never ends. TLS itself would keep 64 KiB of it.
const PART: usize = 60_000;

/// The options of a program that speaks TLS.
struct Secured {
    _database: TestDatabase,
    _files: TlsFiles,
    authority: Arc<TestAuthority>,
    options: Options,
}

impl Secured {
    async fn new() -> Self {
        let authority = Arc::new(TestAuthority::new("of the listener"));
        let files = TlsFiles::new(&authority.sign(&[HOST]));
        let (database, options) = options().await;
        Self {
            options: files.given_to(options.without_speed_limit()),
            _database: database,
            _files: files,
            authority,
        }
    }

    /// Starts the program, and takes the first number of `held`.
    async fn start(&self) -> Program {
        let program = self.options.start_ready().await;
        wait::until("a number is given", LIMIT, async || {
            let opened = SecureConnection::open(program.address(), &self.authority, None).await;
            let reply = opened.ok()?.exchange(NEXT.as_bytes()).await?;
            (reply.status == 200).then_some(())
        })
        .await;
        program
    }
}

#[test]
fn nobody_holds_a_connection_by_tls_without_end() {
    run(async {
        let secured = Secured::new().await;
        let program = secured.start().await;
        let (open, closed) = hold_each(&program, Some(&secured.authority), LIMIT).await;
        assert!(open.is_empty(), "still open: {open:?}");
        closed.iter().for_each(closed_in_order);
        let client = operations(&program);
        assert_eq!(n_cut(&client).await, (3.0, 2.0));
        wait::until("all are gone", CUT_OFF_LIMIT, async || {
            let scrape = Scrape::of(&client).await;
            (scrape.sum("odometer_http_connections", &[]) == 0.0).then_some(())
        })
        .await;
    });
}

/// The replies together are more than TLS and the kernel keep, and take longer than `http.write`.
#[test]
fn a_caller_who_reads_slowly_by_tls_gets_its_replies() {
    const N: usize = 20;
    run(async {
        let secured = Secured::new().await;
        let program = secured.start().await;
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let address = program.address().parse().expect("an address");
        let stream = socket.connect(address).await.expect("room");
        let caller = TlsCaller::new(&secured.authority, None);
        let opened = caller.connect_over(stream).await;
        let mut stream = opened.expect("the handshake is done").into_stream();
        let request = NEXT.replace("/next", "/next?count=10000");
        let last = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let requests = request.repeat(N - 1) + &last;
        stream.write_all(requests.as_bytes()).await.expect("room");
        let (started, mut turns) = (Instant::now(), interval(Duration::from_millis(50)));
        let (mut received, mut part) = (Vec::new(), vec![0; 16 * 1024]);
        loop {
            turns.tick().await;
            let n_bytes = stream.read(&mut part).await.expect("replies, and an end");
            if n_bytes == 0 {
                break;
            }
            received.extend_from_slice(part.get(..n_bytes).unwrap_or_default());
        }
        let took = started.elapsed();
        assert!(took > Duration::from_secs(2), "vacuous: {took:?}");
        let received = String::from_utf8_lossy(&received);
        assert_eq!(received.matches("HTTP/1.1 200 OK").count(), N);
        assert_eq!(n_cut(&operations(&program)).await, (0.0, 0.0));
    });
}

/// Returns by how many bytes memory grows for each of `n` callers whose handshake is done, and who
/// begin a message that never ends.
async fn grown_by_parts(options: &Options, authority: &TestAuthority, n: u32) -> u64 {
    let program = options.start_ready().await;
    let before = program.peak_memory();
    let mut connections = Vec::new();
    for _ in 0..n {
        let mut connection = RecordConnection::open(program.address(), authority).await;
        // The program may have closed the connection.
        let _sent = connection.send_part_of_message(PART).await;
        connections.push(connection);
    }
    (settled_memory(&program).await - before) / u64::from(n)
}

#[test]
fn messages_of_tls_that_never_end_are_held_within_their_bounds() {
    run(async {
        let secured = Secured::new().await;
        let sent = part_of_hello(PART);
        let before_handshake = grown_for_each(secured.options.clone(), 500, &sent).await;
        assert!(before_handshake < 32 * 1024, "{before_handshake}");
        let after_it = grown_by_parts(&secured.options, &secured.authority, 200).await;
        assert!(after_it < 48 * 1024, "{after_it}");
    });
}

#[test]
fn without_its_guard_tls_holds_messages_that_never_end() {
    run(async {
        let secured = Secured::new().await;
        let options = secured.options.clone().without_guards(GUARD);
        let sent = part_of_hello(PART);
        let before_handshake = grown_for_each(options.clone(), 500, &sent).await;
        assert!(before_handshake > 56 * 1024, "{before_handshake}");
        let after_it = grown_by_parts(&options, &secured.authority, 200).await;
        assert!(after_it > 56 * 1024, "{after_it}");
    });
}
