//! Carries out TLS handshakes, a few at a time.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use actix_web::rt;
use actix_web::rt::net::TcpStream;
use rustls::server::Acceptor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::LazyConfigAcceptor;

use super::connection::{Connection, TlsConnection};
use super::progress::Cut;
use super::tls_socket::{MAX_CERTIFICATES, TlsSocket};
use super::watch::WatchedPlace;
use crate::access::certificates::ListenerTls;
use crate::access::shown_certificate::ShownCertificate;

/// How many steps of handshakes a worker computes before it looks after its other connections.
///
/// A step is all that follows from what came of a caller: an answer with its signature, a key
/// exchange, or the check of a certificate. It takes up to a few milliseconds, most of them less than
/// one. So callers who come together keep each step of others waiting for the time of 64 steps at most.
const MAX_AT_ONCE: usize = 64;

/// Bytes that TLS takes before the socket does. They are as many as one record of TLS has at most,
/// so a caller who takes a reply slowly is seen to take it.
const MAX_UNSENT: usize = 16 * 1024;

/// The first byte of a handshake by TLS (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The handshakes of one worker.
pub(crate) struct Handshakes {
    /// A step of a handshake needs a turn.
    turns: Arc<Semaphore>,
}

/// Why a connection ended before its handshake was done.
#[derive(Debug)]
pub(crate) enum HandshakeEnd {
    /// The caller sent nothing until it left or was cut, or the service needs the connection for
    /// others.
    Unused,
    /// What came is no handshake that the service can take part in, or it took too long.
    Failed(String),
}

impl Handshakes {
    pub(crate) fn new() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MAX_AT_ONCE)),
        }
    }

    /// Carries out the handshake of a new connection. `tls` returns what the listeners need now.
    ///
    /// A connection that waits for its caller holds no turn, so callers who say nothing keep nobody
    /// waiting.
    ///
    /// # Errors
    /// The handshake failed, or the place was cut before it was done.
    pub(crate) async fn carry_out(
        &self,
        io: TcpStream,
        tls: impl Fn() -> Option<Arc<ListenerTls>>,
        place: &WatchedPlace,
    ) -> Result<Connection, HandshakeEnd> {
        let has_come = Cell::new(false);
        let done = place.uncut(self.shake_hands(io, tls, &has_come)).await;
        match done {
            Ok(Ok(connection)) => {
                place.restart();
                Ok(connection)
            }
            Err(Cut::Crowded) => {
                place.count(Cut::Crowded);
                Err(HandshakeEnd::Unused)
            }
            Ok(Err(_)) | Err(_) if !has_come.get() => Err(HandshakeEnd::Unused),
            Ok(Err(error)) => Err(HandshakeEnd::Failed(error.to_string())),
            Err(Cut::Idle | Cut::Request | Cut::Reply) => {
                let why = "it was not done within http.head".to_owned();
                Err(HandshakeEnd::Failed(why))
            }
        }
    }

    async fn shake_hands(
        &self,
        io: TcpStream,
        tls: impl Fn() -> Option<Arc<ListenerTls>>,
        has_come: &Cell<bool>,
    ) -> io::Result<Connection> {
        let mut first = [0];
        has_come.set(io.peek(&mut first).await? > 0);
        if !has_come.get() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first != [HANDSHAKE] {
            return Err(io::Error::other("what came is not TLS"));
        }
        let turn = self.turn().await?;
        let acceptor = LazyConfigAcceptor::new(Acceptor::default(), TlsSocket::new(io));
        // What is made of the first message takes many times its bytes, and is needed for the answer
        // alone. So the step that makes it computes the answer as well.
        let (mut hello, turn) = self.in_turns(turn, Box::pin(acceptor)).await?;
        hello.io.note_hello();
        let tls = tls().ok_or_else(|| io::Error::other("there is no certificate"))?;
        let handshake = Box::pin(hello.into_stream(Arc::clone(tls.server())));
        let (mut stream, turn) = self.in_turns(turn, handshake).await?;
        give_back_later(turn);
        let (socket, session) = stream.get_mut();
        socket.note_record();
        session.set_buffer_limit(Some(MAX_UNSENT));
        let chain = session.peer_certificates().map(<[_]>::to_vec);
        // The connection keeps the chain for as long as it lasts.
        let n_bytes: usize = chain.iter().flatten().map(|one| one.len()).sum();
        if n_bytes > MAX_CERTIFICATES {
            return Err(io::Error::other(
                "the certificates of the caller are too large",
            ));
        }
        let shown = chain.map(|chain| ShownCertificate::new(chain, tls, Instant::now()));
        Ok(Connection::Tls(Box::new(TlsConnection {
            stream,
            certificate: shown.map(Rc::new),
        })))
    }

    async fn turn(&self) -> io::Result<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        turn.map_err(io::Error::other)
    }

    /// Runs a part of a handshake, which begins with the turn `turn`. Each further step waits for a
    /// turn of its own. Returns the result with the turn of the last step.
    async fn in_turns<T>(
        &self,
        mut turn: OwnedSemaphorePermit,
        part: impl Future<Output = io::Result<T>>,
    ) -> io::Result<(T, OwnedSemaphorePermit)> {
        let mut part = pin!(part);
        loop {
            let step = poll_fn(|context| Poll::Ready(part.as_mut().poll(context))).await;
            let error = match step {
                Poll::Ready(Ok(done)) => return Ok((done, turn)),
                Poll::Ready(Err(error)) => Some(error),
                Poll::Pending => None,
            };
            give_back_later(turn);
            if let Some(error) = error {
                return Err(error);
            }
            woken().await;
            turn = self.turn().await?;
        }
    }
}

/// Gives a turn back when the worker has looked after its other connections.
///
/// The handshake itself must not wait for that. It would miss what its caller sends meanwhile.
fn give_back_later(turn: OwnedSemaphorePermit) {
    rt::spawn(async move {
        tokio::task::yield_now().await;
        drop(turn);
    });
}

/// Waits until this task is woken, by whatever the last call of its work waits for.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_context| match std::mem::replace(&mut is_woken, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use futures_util::FutureExt;
    use odometer_process::metrics::Metrics;
    use odometer_tests::{HOST, TestAuthority, TlsCaller, TlsFiles};
    use rustls::ClientConnection;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::version::TLS13;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::tls_socket::MAX_HANDSHAKE;
    use super::super::{ConnectionBounds, Watch};
    use super::*;
    use crate::access::certificates::CertificateFiles;

    fn place() -> WatchedPlace {
        let bounds = ConnectionBounds {
            head: Duration::from_secs(60),
            request: Duration::from_secs(60),
            reply: Duration::from_secs(60),
            unread: 16 * 1024,
            connections: 100,
        };
        Rc::new(Watch::new(&bounds, Metrics::new().listener.clone())).admit()
    }

    /// Returns the state of a listener whose certificate is of `authority`, as those of callers are.
    fn listener_tls(authority: &TestAuthority) -> Arc<ListenerTls> {
        let files = TlsFiles::new(&authority.sign(&[HOST]));
        files.set("ca.pem", &authority.certificate());
        let files = CertificateFiles {
            certificate: files.path("server.pem"),
            key: files.path("server.key"),
            clients_ca: Some(files.path("ca.pem")),
            clients_crl: None,
        };
        Arc::new(ListenerTls::read(&files).unwrap())
    }

    /// Returns what a caller sends first.
    fn hello() -> Vec<u8> {
        odometer_tests::hello(&TLS13, Vec::new())
    }

    /// Returns a connection, and its other end.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await;
        (listener.accept().await.unwrap().0, far.unwrap())
    }

    /// Takes all turns.
    async fn all_turns(handshakes: &Handshakes) -> OwnedSemaphorePermit {
        let all = u32::try_from(MAX_AT_ONCE).unwrap();
        let turns = Arc::clone(&handshakes.turns);
        turns.acquire_many_owned(all).await.unwrap()
    }

    #[actix_web::test]
    async fn an_answer_is_computed_only_in_a_turn() {
        let (near, mut far) = connection().await;
        far.write_all(&hello()).await.unwrap();
        let (handshakes, place, tls) = (
            Handshakes::new(),
            place(),
            listener_tls(&TestAuthority::new("a")),
        );
        let all = all_turns(&handshakes).await;
        let tls = || Some(Arc::clone(&tls));
        let mut carried = Box::pin(handshakes.carry_out(near, tls, &place));
        let mut answer = [0];
        for _ in 0..1000 {
            assert!(carried.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        let come = far.try_read(&mut answer).map_err(|error| error.kind());
        assert_eq!(come.unwrap_err(), io::ErrorKind::WouldBlock);
        drop(all);
        let is_answered = tokio::select! {
            _ended = &mut carried => false,
            come = far.read(&mut answer) => come.unwrap() == 1,
        };
        assert!(is_answered, "vacuous: there is no answer with a turn");
    }

    /// What is made of the first message would take many times its bytes while it waits.
    #[actix_web::test]
    async fn nothing_of_the_first_message_is_read_without_a_turn() {
        let (near, mut far) = connection().await;
        let (handshakes, place, tls) = (
            Handshakes::new(),
            place(),
            listener_tls(&TestAuthority::new("a")),
        );
        far.write_all(&hello()).await.unwrap();
        near.readable().await.unwrap();
        let all = all_turns(&handshakes).await;
        let has_come = Cell::new(false);
        let tls = || Some(Arc::clone(&tls));
        {
            let mut shaking = Box::pin(handshakes.shake_hands(near, tls, &has_come));
            assert!(shaking.as_mut().now_or_never().is_none());
        }
        assert!(has_come.get(), "vacuous: it waits for its caller");
        drop((all, place));
        // The end of a socket with bytes that nobody has read is no end in order.
        let ended = far.read(&mut [0; 1]).await.map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::ConnectionReset));
    }

    /// Carries out the handshake of `caller` on `far`. Its end and a request of `n` bytes are sent
    /// at once.
    async fn ask_at_once(mut caller: ClientConnection, far: &mut TcpStream, n: usize) {
        let mut part = vec![0; 16 * 1024];
        while caller.is_handshaking() {
            send(&mut caller, far).await;
            let n_read = far.read(&mut part).await.unwrap();
            assert!(n_read > 0, "the connection has ended");
            caller.read_tls(&mut part.get(..n_read).unwrap()).unwrap();
            caller.process_new_packets().unwrap();
        }
        caller.writer().write_all(&vec![7; n]).unwrap();
        send(&mut caller, far).await;
    }

    async fn send(caller: &mut ClientConnection, far: &mut TcpStream) {
        let mut bytes = Vec::new();
        while caller.wants_write() {
            caller.write_tls(&mut bytes).unwrap();
        }
        far.write_all(&bytes).await.unwrap();
    }

    /// The certificates of the caller and the first record of its request are more bytes together
    /// than a handshake may have.
    #[actix_web::test]
    async fn what_follows_a_handshake_is_no_part_of_it() {
        const N: usize = 16 * 1024;
        let authority = TestAuthority::new("a");
        let tls = listener_tls(&authority);
        let names: Vec<String> = (0..50).map(|n| format!("spiffe://corp/{n:086}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let shown = authority.sign(&names);
        let n_shown = CertificateDer::from_pem_slice(shown.certificate.as_bytes()).unwrap();
        assert!(n_shown.len() + N > MAX_HANDSHAKE, "vacuous");
        let (near, mut far) = connection().await;
        let (handshakes, place) = (Handshakes::new(), place());
        let caller = TlsCaller::by(&authority, Some(&shown), &[&TLS13]).session();
        let carried = handshakes.carry_out(near, || Some(Arc::clone(&tls)), &place);
        let (done, ()) = tokio::join!(carried, ask_at_once(caller, &mut far, N));
        let mut request = vec![0; N];
        done.unwrap().read_exact(&mut request).await.unwrap();
        assert!(request.iter().all(|byte| *byte == 7));
    }

    #[actix_web::test]
    async fn each_further_step_is_computed_only_in_a_turn() {
        let handshakes = Handshakes::new();
        let n_steps = Cell::new(0);
        let work = poll_fn(|_context| {
            n_steps.set(n_steps.get() + 1);
            match n_steps.get() {
                1 | 2 => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        });
        let turn = handshakes.turn().await.unwrap();
        let mut running = Box::pin(handshakes.in_turns(turn, work));
        for n in 1..3 {
            assert!(running.as_mut().now_or_never().is_none());
            assert_eq!(n_steps.get(), n);
            // The worker looks after its other connections first, and the turn is given back then.
            assert_eq!(handshakes.turns.available_permits(), MAX_AT_ONCE - 1);
            let all = all_turns(&handshakes).await;
            assert!(running.as_mut().now_or_never().is_none());
            assert_eq!(n_steps.get(), n, "a step without a turn");
            drop(all);
        }
        let ((), _turn) = running.await.unwrap();
        assert_eq!(n_steps.get(), 3);
        assert_eq!(handshakes.turns.available_permits(), MAX_AT_ONCE - 1);
    }
}
