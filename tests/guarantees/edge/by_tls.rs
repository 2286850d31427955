//! Callers by TLS that hold a connection without end, or more memory than it needs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::interval;

use super::endless::hold_each;
use super::{
    CUT_OFF_LIMIT, GUARD, LIMIT, NEXT, closed_in_order, grown_for_each, n_cut, options,
    settled_memory, write_on_each,
};
use crate::support::{
    HOST, Options, Program, RecordConnection, Scrape, SecureConnection, TestAuthority,
    TestDatabase, TlsCaller, TlsFiles, hello, operations, part_of_certificates, part_of_hello, run,
    wait,
};

/// The bytes of a message that never ends. TLS itself would keep 64 KiB of it.
const PART: usize = 60_000;

/// The most bytes that TLS may hold of a connection whose caller shows no certificate, as the
/// documents say.
const MAX_HELD: u64 = 72 * 1024;

/// The options of a program that speaks TLS.
struct Secured {
    _database: TestDatabase,
    files: TlsFiles,
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
            files,
            authority,
        }
    }

    /// Returns options of a program that asks its callers for certificates.
    fn asking_for_certificates(&self) -> Options {
        let caller = "[a]\nrole = \"a\"\ncertificate = \"a.example\"\n";
        self.files.set("ca.pem", &self.authority.certificate());
        self.files.set("callers.toml", caller);
        let path = |name: &str| self.files.path(name).display().to_string();
        self.options
            .clone()
            .env("ODOMETER_TLS__CLIENTS_CA_FILE", path("ca.pem"))
            .env("ODOMETER_ACCESS__CALLERS_FILE", path("callers.toml"))
            .env("ODOMETER_ACCESS__ROLES__A__TAKE", "*")
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
        let mut secured = Secured::new().await;
        // The test itself may stand still for a few seconds, and is no slow caller then.
        secured.options = secured.options.env("ODOMETER_HTTP__WRITE", "5s");
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
        let (started, mut turns) = (Instant::now(), interval(Duration::from_millis(150)));
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
        assert!(took > Duration::from_secs(6), "vacuous: {took:?}");
        let received = String::from_utf8_lossy(&received);
        assert_eq!(received.matches("HTTP/1.1 200 OK").count(), N);
        assert_eq!(n_cut(&operations(&program)).await, (0.0, 0.0));
    });
}

/// Returns by how many bytes memory grows for each of `n` callers whose handshake is done, and who
/// begin a message that never ends.
async fn grown_by_parts(secured: &Secured, options: &Options, part: usize, n: u32) -> u64 {
    let program = options.start_ready().await;
    // What the first connection needs once is not counted.
    drop(RecordConnection::open(program.address(), &secured.authority).await);
    let before = settled_memory(&program).await;
    let mut connections = Vec::new();
    for _ in 0..n {
        let mut connection = RecordConnection::open(program.address(), &secured.authority).await;
        // The program may have closed the connection.
        let _sent = connection.send_part_of_message(part).await;
        connections.push(connection);
    }
    (settled_memory(&program).await - before) / u64::from(n)
}

/// Callers who send as much as TLS takes. Those of TLS 1.2 may show certificates.
#[test]
fn messages_of_tls_that_never_end_are_held_within_their_bounds() {
    run(async {
        let secured = Secured::new().await;
        let with_certificates = secured.asking_for_certificates();
        let certificates = [hello(&TLS12, Vec::new()), part_of_certificates(17 * 1024)].concat();
        for (options, n, sent, least) in [
            (&secured.options, 500, part_of_hello(7 * 1024), 7 * 1024),
            (&secured.options, 500, part_of_hello(PART), 0),
            (&with_certificates, 200, certificates, 16 * 1024),
        ] {
            let grown = grown_for_each(options.clone(), n, &sent).await;
            assert!((least..MAX_HELD).contains(&grown), "{grown}, {least} sent");
        }
        for part in [15 * 1024, PART] {
            let grown = grown_by_parts(&secured, &secured.options, part, 200).await;
            assert!(grown < MAX_HELD, "{grown}, {part} sent");
        }
    });
}

/// Returns by how many bytes memory grows for each of `n` callers whose first messages become whole
/// at once. Each offers as many protocols as it can, which take many times their bytes.
async fn grown_by_protocols(options: &Options, n: u32) -> u64 {
    let protocols = (0..2300_u16).map(|n| n.to_be_bytes().to_vec());
    let sent = hello(&TLS13, protocols.collect());
    let (last, first) = sent.split_last().expect("bytes");
    let program = options
        .clone()
        .env("ODOMETER_HTTP__HEAD", "60s")
        .start_ready()
        .await;
    let n_connections = usize::try_from(n).expect("few");
    let (streams, n_bytes) = write_on_each(&program, n_connections, first).await;
    assert_eq!(n_bytes, n_connections * first.len(), "vacuous");
    let before = settled_memory(&program).await;
    for stream in &streams {
        let written = stream.try_write(&[*last]);
        assert_eq!(written.expect("room"), 1);
    }
    (settled_memory(&program).await - before) / u64::from(n)
}

#[test]
fn first_messages_that_become_whole_at_once_are_held_within_their_bounds() {
    run(async {
        let secured = Secured::new().await;
        let grown = grown_by_protocols(&secured.options, 500).await;
        assert!(grown < MAX_HELD / 2, "{grown}");
    });
}

#[test]
fn without_its_guard_tls_holds_messages_that_never_end() {
    run(async {
        let secured = Secured::new().await;
        let options = secured.options.clone().without_guards(GUARD);
        let before_handshake = grown_for_each(options.clone(), 500, &part_of_hello(PART)).await;
        assert!(before_handshake > 56 * 1024, "{before_handshake}");
        let after_it = grown_by_parts(&secured, &options, PART, 200).await;
        assert!(after_it > 56 * 1024, "{after_it}");
    });
}
