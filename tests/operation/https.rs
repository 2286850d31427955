//! TLS of the listener: calls by HTTPS, handshakes that fail, and certificates that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{
    Backend, HOST, Options, Program, RecordConnection, Scrape, SecureConnection, SignedCertificate,
    TestAuthority, TestDatabase, TlsCaller, TlsFiles, operations, run, wait,
};

const LIMIT: Duration = Duration::from_secs(20);
/// Longer than `http.head` in these tests, and a tick of the watch.
const CUT_OFF: Duration = Duration::from_secs(10);
const NEXT: &str = "/v1/sequences/orders/next";
const FAILED: &str = "odometer_tls_handshakes_failed_total";
const MALFORMED: &str = "odometer_http_malformed_total";

/// A program whose listener speaks TLS.
struct Https {
    _database: TestDatabase,
    files: TlsFiles,
    authority: TestAuthority,
    server: SignedCertificate,
    program: Program,
}

impl Https {
    async fn start(options: Options) -> Self {
        let authority = TestAuthority::new("of the listener");
        let server = authority.sign(&[HOST]);
        let database = TestDatabase::prepared(Backend::Sqlite).await;
        let files = TlsFiles::new(&server);
        let options = files.given_to(options.database(&database.url));
        Self {
            program: options.start_ready().await,
            _database: database,
            files,
            authority,
            server,
        }
    }

    async fn connection(&self) -> SecureConnection {
        let opened = SecureConnection::open(self.program.address(), &self.authority, None).await;
        opened.expect("the handshake is done")
    }

    /// Opens a connection, and sends nothing.
    async fn silent(&self) -> TcpStream {
        let opened = TcpStream::connect(self.program.address()).await;
        opened.expect("it listens")
    }

    async fn metric(&self, name: &str) -> f64 {
        let scrape = Scrape::of(&operations(&self.program)).await;
        assert!(scrape.has(name), "no {name}");
        scrape.sum(name, &[])
    }

    async fn metric_becomes(&self, name: &str, value: f64) {
        wait::until(&format!("{name} is {value}"), LIMIT, async || {
            (self.metric(name).await == value).then_some(())
        })
        .await;
    }
}

async fn takes_a_number(connection: &mut SecureConnection) {
    let reply = connection.call("POST", NEXT, "").await;
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// Reads to the end of a connection. Returns what came, or `None` if the end does not come.
async fn end_of(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut received = Vec::new();
    let read = tokio::time::timeout(CUT_OFF, stream.read_to_end(&mut received)).await;
    // A connection that is reset has ended, too.
    read.ok().map(|_| received)
}

#[test]
fn numbers_come_by_https_and_the_address_says_so() {
    run(async {
        let https = Https::start(Program::options()).await;
        assert!(https.program.url().starts_with("https://"));
        for versions in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let address = https.program.address();
            let caller = TlsCaller::by(&https.authority, None, &[versions]);
            let opened = caller.connect(address).await;
            let mut connection = opened.expect("the handshake is done");
            assert_eq!(connection.protocol(), Some(&b"http/1.1"[..]));
            assert!(connection.has_met(&https.server));
            for _ in 0..20 {
                takes_a_number(&mut connection).await;
            }
            // The reply is larger than what TLS and the kernel keep.
            let many = format!("{NEXT}?count=10000");
            let reply = connection.call("POST", &many, "").await.expect("a reply");
            assert_eq!(reply.values().len(), 10_000);
            takes_a_number(&mut connection).await;
        }
        let other = TestAuthority::new("another one");
        let opened = SecureConnection::open(https.program.address(), &other, None).await;
        assert!(opened.is_err(), "vacuous: any certificate is taken");
        let log = https.program.stop().await;
        assert!(log.contains("Listening on https://"), "{log}");
    });
}

#[test]
fn requests_that_come_together_are_answered_by_tls_too() {
    run(async {
        let https = Https::start(Program::options()).await;
        let mut connection = https.connection().await;
        let request = format!("POST {NEXT} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        let last = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let requests = format!("{}{last}", request.repeat(199));
        let received = connection.exchange_all(requests.as_bytes()).await;
        assert_eq!(
            received.matches("HTTP/1.1 200 OK").count(),
            200,
            "{received}"
        );
    });
}

#[test]
fn plain_http_at_a_listener_with_tls_is_closed_and_counted() {
    run(async {
        let https = Https::start(Program::options()).await;
        assert_eq!(https.metric(FAILED).await, 0.0);
        // A connection that ends unused is none, as of a balancer that looks whether somebody
        // listens.
        drop(https.silent().await);
        let mut plain = https.silent().await;
        let request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
        plain.write_all(request).await.expect("it is connected");
        let received = end_of(&mut plain).await.expect("the end");
        assert!(!received.starts_with(b"HTTP"), "{received:?}");
        https.metric_becomes(FAILED, 1.0).await;
        let mut broken = https.silent().await;
        broken.write_all(&[22; 100]).await.expect("it is connected");
        assert!(end_of(&mut broken).await.is_some());
        https.metric_becomes(FAILED, 2.0).await;
        takes_a_number(&mut https.connection().await).await;
        assert_eq!(https.metric(FAILED).await, 2.0);
        let log = https.program.stop().await;
        assert!(log.contains("its TLS handshake failed"), "{log}");
        assert!(
            log.contains("from 127.0.0.1:") && log.contains("what came is not TLS"),
            "{log}"
        );
    });
}

#[test]
fn a_connection_that_sends_more_than_tls_needs_is_closed_and_counted() {
    run(async {
        let https = Https::start(Program::options()).await;
        // A connection that ends without a word is none.
        takes_a_number(&mut https.connection().await).await;
        assert_eq!(https.metric(MALFORMED).await, 0.0);
        let address = https.program.address();
        let mut connection = RecordConnection::open(address, &https.authority).await;
        // The program may have closed the connection before all was sent.
        let _sent = connection.send_part_of_message(60_000).await;
        https.metric_becomes(MALFORMED, 1.0).await;
        takes_a_number(&mut https.connection().await).await;
        assert_eq!(https.metric(MALFORMED).await, 1.0);
        assert_eq!(https.metric(FAILED).await, 0.0);
        let log = https.program.stop().await;
        assert!(log.contains("what came is not HTTP"), "{log}");
        assert!(log.contains("more bytes came than TLS needs"), "{log}");
    });
}

#[test]
fn a_caller_agrees_on_http_1_1_or_on_nothing() {
    run(async {
        let https = Https::start(Program::options()).await;
        for (offered, agreed) in [
            (&["http/1.1"][..], Some(&b"http/1.1"[..])),
            (&["h2", "http/1.1"], Some(&b"http/1.1"[..])),
            (&[], None),
        ] {
            let caller = TlsCaller::new(&https.authority, None).offering(offered);
            let opened = caller.connect(https.program.address()).await;
            let mut connection = opened.expect("the handshake is done");
            assert_eq!(connection.protocol(), agreed, "{offered:?}");
            takes_a_number(&mut connection).await;
        }
        let caller = TlsCaller::new(&https.authority, None).offering(&["h2"]);
        let opened = caller.connect(https.program.address()).await;
        assert!(opened.is_err(), "it agrees on what it does not speak");
        https.metric_becomes(FAILED, 1.0).await;
    });
}

/// The listener asks for no certificates, so a connection may resume an earlier one. This is the
/// control of `a_connection_that_may_show_a_certificate_resumes_none`.
#[test]
fn without_certificates_of_callers_a_connection_resumes_an_earlier_one() {
    run(async {
        let https = Https::start(Program::options()).await;
        for versions in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let caller = TlsCaller::by(&https.authority, None, &[versions]);
            for is_full in [true, false] {
                let opened = caller.connect(https.program.address()).await;
                let mut connection = opened.expect("the handshake is done");
                takes_a_number(&mut connection).await;
                assert_eq!(connection.is_full(), is_full, "{versions:?}");
            }
        }
    });
}

#[test]
fn a_stop_waits_for_calls_by_tls_and_for_no_handshake() {
    const BODY: &str = "{\"description\": \"half of it comes after the stop\"}";
    run(async {
        let options = Program::options()
            .env("ODOMETER_HTTP__HEAD", "1m")
            .env("ODOMETER_HTTP__BODY", "1m")
            .env("ODOMETER_HTTP__WORKERS", 1)
            .env("ODOMETER_SHUTDOWN__READY_WAIT", "1s");
        let mut https = Https::start(options).await;
        let (silent, mut slow) = (https.silent().await, https.silent().await);
        slow.write_all(&[22]).await.expect("it is connected");
        let mut idle = https.connection().await;
        takes_a_number(&mut idle).await;
        let (first, rest) = BODY.split_at(BODY.len() / 2);
        let begun = format!(
            "PUT /v1/sequences/begun HTTP/1.1\r\nHost: {HOST}\r\nExpect: 100-continue\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{first}",
            BODY.len()
        );
        let mut connection = https.connection().await;
        let reply = connection.exchange(begun.as_bytes()).await;
        // So the call is being answered.
        assert_eq!(reply.expect("it goes on").status, 100);
        let started = Instant::now();
        https.program.terminate();
        wait::until("no more connections are accepted", LIMIT, async || {
            let log = https.program.log();
            log.contains("Accepting no more connections").then_some(())
        })
        .await;
        // The worker has been told to stop when it ends a connection that is idle.
        let mut idle = idle.into_stream();
        let ended = tokio::time::timeout(LIMIT, idle.read(&mut [0])).await;
        assert_eq!(ended.expect("the end comes").unwrap_or(0), 0);
        let reply = connection.exchange(rest.as_bytes()).await;
        let reply = reply.expect("the stop waits for it");
        assert_eq!(reply.status, 201, "{reply:?}");
        assert_eq!(reply.header("connection"), Some("close"));
        assert_eq!(
            https.program.end().await,
            Some(0),
            "{}",
            https.program.log()
        );
        // The bound is below half of `shutdown.deadline`, which is the time that connections get.
        let took = started.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?}");
        drop((silent, slow));
    });
}

/// Returns how many of two connections are cut whose handshake is never done. One of them says
/// nothing, and so it does not count as a failed handshake.
async fn n_cut(options: Options) -> usize {
    let https = Https::start(options.env("ODOMETER_HTTP__HEAD", "1s")).await;
    let (mut silent, mut slow) = (https.silent().await, https.silent().await);
    slow.write_all(&[22]).await.expect("it is connected");
    let ends = tokio::join!(end_of(&mut silent), end_of(&mut slow));
    let n_cut = [ends.0, ends.1].iter().flatten().count();
    if n_cut > 0 {
        https.metric_becomes(FAILED, 1.0).await;
        https.metric_becomes("odometer_http_connections", 0.0).await;
        assert_eq!(https.metric(FAILED).await, 1.0);
    }
    n_cut
}

#[test]
fn a_handshake_that_is_not_done_in_time_is_cut() {
    run(async {
        assert_eq!(n_cut(Program::options()).await, 2);
    });
}

#[test]
fn a_handshake_that_nobody_watches_is_found_out() {
    run(async {
        let options = Program::options().without_guards("no-connection-guard");
        assert_eq!(n_cut(options).await, 0);
    });
}

#[test]
fn callers_that_say_nothing_keep_no_handshake_waiting() {
    run(async {
        let options = Program::options()
            .env("ODOMETER_HTTP__WORKERS", 1)
            .env("ODOMETER_HTTP__HEAD", "1m");
        let https = Https::start(options).await;
        let mut held = Vec::new();
        for n in 0..300 {
            let mut connection = https.silent().await;
            if n % 2 == 0 {
                // A handshake message of 4 KiB is announced, and does not come.
                let begun = [22, 3, 1, 16, 0, 1, 0, 15, 252];
                connection.write_all(&begun).await.expect("it is connected");
            }
            held.push(connection);
        }
        https
            .metric_becomes("odometer_http_connections", 300.0)
            .await;
        takes_a_number(&mut https.connection().await).await;
        drop(held);
    });
}

#[test]
fn a_certificate_is_replaced_under_load_without_a_refused_call() {
    run(async {
        let https = Arc::new(Https::start(Program::options()).await);
        let mut old = https.connection().await;
        assert!(old.has_met(&https.server));
        let is_over = Arc::new(AtomicBool::new(false));
        let n_calls = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (https, is_over) = (Arc::clone(&https), Arc::clone(&is_over));
                let n_calls = Arc::clone(&n_calls);
                tokio::spawn(async move {
                    while !is_over.load(Ordering::Relaxed) {
                        let mut connection = https.connection().await;
                        for _ in 0..3 {
                            takes_a_number(&mut connection).await;
                            n_calls.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            let renewed = https.authority.sign(&[HOST]);
            https.files.set_server(&renewed);
            let n_before = n_calls.load(Ordering::Relaxed);
            wait::until("new connections meet the new one", LIMIT, async || {
                let connection = https.connection().await;
                connection.has_met(&renewed).then_some(())
            })
            .await;
            wait::until("calls go on", LIMIT, async || {
                (n_calls.load(Ordering::Relaxed) > n_before + 20).then_some(())
            })
            .await;
            // A connection from before goes on.
            takes_a_number(&mut old).await;
        }
        is_over.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.expect("no call was refused");
        }
        assert_eq!(https.metric(FAILED).await, 0.0);
        https.metric_becomes("odometer_access_stale", 0.0).await;
    });
}

#[test]
fn a_broken_certificate_changes_nothing_and_is_told() {
    run(async {
        let https = Https::start(Program::options()).await;
        let another = https.authority.sign(&[HOST]);
        for (name, text) in [
            ("server.pem", "nonsense"),
            ("server.pem", ""),
            ("server.pem", another.certificate.as_str()),
            ("server.key", "nonsense"),
            ("server.key", another.key.as_str()),
        ] {
            https.files.set(name, text);
            https.metric_becomes("odometer_access_stale", 1.0).await;
            let mut connection = https.connection().await;
            assert!(connection.has_met(&https.server), "{name}");
            takes_a_number(&mut connection).await;
            https.files.set_server(&https.server);
            https.metric_becomes("odometer_access_stale", 0.0).await;
        }
        let secret = https.server.key.lines().nth(1).expect("a line").to_owned();
        let log = https.program.stop().await;
        assert!(log.contains("tls.certificate_file: "), "{log}");
        assert!(log.contains("tls.key_file: "), "{log}");
        assert!(!log.contains(&secret), "a key in the log");
    });
}

#[test]
fn a_certificate_that_cannot_be_used_ends_the_start() {
    run(async {
        let authority = TestAuthority::new("of the listener");
        let (server, another) = (authority.sign(&[HOST]), authority.sign(&[HOST]));
        let secret = another.key.lines().nth(1).expect("a line");
        for (name, text, said) in [
            ("server.pem", "nonsense", "no certificate in PEM"),
            ("server.key", "nonsense", "no private key in PEM"),
            ("server.key", another.key.as_str(), "not the private key"),
        ] {
            let files = TlsFiles::new(&server);
            files.set(name, text);
            for command in ["serve", "check"] {
                let options = files.given_to(Program::options());
                let finished = options.run(&[command]);
                assert_eq!(finished.code, Some(78), "{finished}");
                let path = files.path(name).display().to_string();
                let is_told = finished.errors.contains(said) && finished.errors.contains(&path);
                assert!(is_told, "{said}: {finished}");
                assert!(!finished.to_string().contains(secret), "a key: {finished}");
            }
        }
    });
}

#[test]
fn the_end_of_the_certificate_is_seen() {
    run(async {
        const LEFT: &str = "odometer_tls_certificate_expires_seconds";
        const DAY: f64 = 86_400.0;
        let https = Https::start(Program::options()).await;
        for (days, bounds) in [(20, 18.0..=21.0), (3, 1.0..=4.0)] {
            let server = https.authority.sign_for_days(&[HOST], days);
            https.files.set_server(&server);
            wait::until("the metric says so", LIMIT, async || {
                let left = https.metric(LEFT).await / DAY;
                bounds.contains(&left).then_some(())
            })
            .await;
        }
    });
}

#[test]
fn tokens_that_travel_in_clear_are_warned_of() {
    run(async {
        const SAID: &str = "tokens travel in clear text to `listen`";
        let public = Program::options().env("ODOMETER_LISTEN", "0.0.0.0:0");
        let with_token = public
            .clone()
            .env("ODOMETER_ADMIN_TOKEN", "a-token-of-the-administrator");
        let https = Https::start(with_token.clone()).await;
        let log = https.program.stop().await;
        assert!(!log.contains(SAID), "{log}");
        for (options, is_warned_of) in [(with_token, true), (public, false)] {
            let database = TestDatabase::prepared(Backend::Sqlite).await;
            let program = options.database(&database.url).start_ready().await;
            let log = program.stop().await;
            assert_eq!(log.contains(SAID), is_warned_of, "{log}");
        }
    });
}

#[test]
fn operators_can_have_tls_too() {
    run(async {
        let https = Https::start(Program::options()).await;
        assert_eq!(https.metric("odometer_ready").await, 1.0);
        let options = https.files.given_to(Program::options());
        let program = options.env("ODOMETER_TLS__OPERATIONS", true).start().await;
        let url = program.operations_url();
        let address = url.strip_prefix("https://").expect("it says so");
        let opened = SecureConnection::open(address, &https.authority, None).await;
        let mut connection = opened.expect("the handshake is done");
        let reply = connection.call("GET", "/livez", "").await.expect("a reply");
        assert_eq!(reply.status, 200, "{reply:?}");
        // A failed handshake of operators does not count for the listener of callers.
        let mut plain = TcpStream::connect(address).await.expect("it listens");
        plain.write_all(b"GET").await.expect("it is connected");
        assert!(end_of(&mut plain).await.is_some());
        let scrape = connection.call("GET", "/metrics", "").await;
        let scrape = scrape.expect("a reply").body;
        assert!(scrape.contains(&format!("\n{FAILED} 0\n")), "{scrape}");
    });
}

#[test]
fn a_certificate_that_is_not_good_now_replaces_no_good_one() {
    run(async {
        let https = Https::start(Program::options()).await;
        let expired = https.authority.sign_for_days(&[HOST], -2);
        let early = https.authority.sign_for_later(&[HOST]);
        for (wrong, said) in [(expired, "expired at "), (early, "is not valid before ")] {
            https.files.set_server(&wrong);
            let told = format!(": the certificate {said}");
            wait::until("the log says why", LIMIT, async || {
                https.program.log().contains(&told).then_some(())
            })
            .await;
            https.metric_becomes("odometer_access_stale", 1.0).await;
            let mut connection = https.connection().await;
            assert!(connection.has_met(&https.server));
            takes_a_number(&mut connection).await;
            https.files.set_server(&https.server);
            https.metric_becomes("odometer_access_stale", 0.0).await;
        }
        let renewed = https.authority.sign(&[HOST]);
        https.files.set_server(&renewed);
        wait::until("new connections meet the new one", LIMIT, async || {
            let connection = https.connection().await;
            connection.has_met(&renewed).then_some(())
        })
        .await;
    });
}

#[test]
fn a_certificate_that_is_not_good_now_is_told_at_the_start() {
    run(async {
        let authority = TestAuthority::new("of the listener");
        for (server, said) in [
            (authority.sign_for_days(&[HOST], -2), "expired at "),
            (authority.sign_for_later(&[HOST]), "is not valid before "),
        ] {
            let database = TestDatabase::prepared(Backend::Sqlite).await;
            let files = TlsFiles::new(&server);
            let options = files.given_to(Program::options().database(&database.url));
            let path = files.path("server.pem").display().to_string();
            let told = format!("tls.certificate_file: {path}: the certificate {said}");
            let finished = options.run(&["check"]);
            assert_eq!(finished.code, Some(0), "{finished}");
            let warning = format!("warning: {told}");
            assert!(finished.to_string().contains(&warning), "{finished}");
            let log = options.start_ready().await.stop().await;
            assert!(log.contains(&told), "{log}");
        }
    });
}
