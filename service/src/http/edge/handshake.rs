//! Carries out TLS handshakes, a few at a time.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use actix_web::rt::net::TcpStream;
use rustls::server::Acceptor;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;

use super::connection::{Connection, TlsConnection};
use super::progress::Cut;
use super::watch::WatchedPlace;
use crate::access::certificates::ListenerTls;
use crate::access::shown_certificate::ShownCertificate;

/// How many handshakes a worker computes before it looks after its other connections.
///
/// The first answer of a handshake takes up to a millisecond, for its signature. So callers who
/// come together keep others waiting for 64 ms at most.
const MAX_AT_ONCE: usize = 64;

/// Bytes that TLS takes before the socket does. They are as many as one record of TLS has at most,
/// so a caller who takes a reply slowly is seen to take it.
const MAX_UNSENT: usize = 16 * 1024;

/// The first byte of a handshake by TLS (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// The handshakes of one worker.
pub(crate) struct Handshakes {
    turns: Semaphore,
}

/// Why a connection ended before its handshake was done.
#[derive(Debug)]
pub(crate) enum HandshakeEnd {
    /// The caller left before it sent anything, or the service needs the connection for others.
    Unused,
    /// What came is no handshake that the service can take part in, or it took too long.
    Failed(String),
}

impl Handshakes {
    pub(crate) fn new() -> Self {
        Self {
            turns: Semaphore::new(MAX_AT_ONCE),
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
        let done = uncut(place, self.shake_hands(io, tls, &has_come)).await;
        match done {
            Ok(Ok(connection)) => {
                place.restart();
                Ok(connection)
            }
            Ok(Err(_)) if !has_come.get() => Err(HandshakeEnd::Unused),
            Ok(Err(error)) => Err(HandshakeEnd::Failed(error.to_string())),
            Err(Cut::Crowded) => {
                place.count(Cut::Crowded);
                Err(HandshakeEnd::Unused)
            }
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
        let hello = Box::pin(LazyConfigAcceptor::new(Acceptor::default(), io)).await?;
        let turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let tls = tls().ok_or_else(|| io::Error::other("there is no certificate"))?;
        // Here the first answer is computed.
        let handshake = Box::pin(hello.into_stream(Arc::clone(tls.server())));
        tokio::task::yield_now().await;
        drop(turn);
        let mut stream = handshake.await?;
        let (_, session) = stream.get_mut();
        session.set_buffer_limit(Some(MAX_UNSENT));
        let chain = session.peer_certificates().map(<[_]>::to_vec);
        let shown = chain.map(|chain| ShownCertificate::new(chain, tls, Instant::now()));
        Ok(Connection::Tls(Box::new(TlsConnection {
            stream,
            certificate: shown.map(Rc::new),
        })))
    }
}

/// Runs `work` until it is done, or until the place is cut.
async fn uncut<T>(place: &WatchedPlace, work: impl Future<Output = T>) -> Result<T, Cut> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Some(cut) = place.progress.cut() {
            return Poll::Ready(Err(cut));
        }
        let done = work.as_mut().poll(context);
        if done.is_pending() {
            place.progress.park(context);
        }
        done.map(Ok)
    })
    .await
}
