//! Opens the connections of a listener: puts each under guard, after its handshake if there is TLS.

use std::future::{Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use actix_http::error::DispatchError;
use actix_web::rt::net::TcpStream;
use actix_web::web::Data;
use futures_util::future::{Either, LocalBoxFuture};

use super::edge::{Connection, Guarded, HandshakeEnd, Handshakes, Watch};
use super::state::Http;
use crate::access::credentials::Credentials;

/// A connection under guard, and the address of its other end.
type Opened = Result<(Guarded<Connection>, Option<SocketAddr>), DispatchError>;

/// Returns a future that ends when the server stops.
pub(super) type Stopping = Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>;

/// What opens the connections of one worker.
#[derive(Clone)]
pub(super) struct Opening {
    watch: Rc<Watch>,
    /// `None` if the listener speaks no TLS.
    by_tls: Option<Rc<TlsOpening>>,
}

/// What opens connections by TLS.
struct TlsOpening {
    http: Data<Http>,
    handshakes: Handshakes,
    credentials: Arc<Credentials>,
    stopping: Stopping,
}

impl Opening {
    /// Makes what opens the connections that `watch` watches. `credentials` has the certificate, if
    /// the listener speaks TLS.
    pub(super) fn new(
        watch: Rc<Watch>,
        http: Data<Http>,
        credentials: Option<Arc<Credentials>>,
        stopping: Stopping,
    ) -> Self {
        let by_tls = credentials.map(|credentials| {
            Rc::new(TlsOpening {
                http,
                handshakes: Handshakes::new(),
                credentials,
                stopping,
            })
        });
        Self { watch, by_tls }
    }

    /// Opens a connection. If its handshake fails, this is counted, and the connection is closed.
    pub(super) fn open(
        &self,
        io: TcpStream,
    ) -> Either<Ready<Opened>, LocalBoxFuture<'static, Opened>> {
        // If either call fails, the connection is gone, and its first read says so.
        let _ = io.set_nodelay(true);
        let peer = io.peer_addr().ok();
        let Some(by_tls) = &self.by_tls else {
            let guarded = self.watch.guard(Connection::Plain(io));
            return Either::Left(ready(Ok((guarded, peer))));
        };
        let (by_tls, watch) = (Rc::clone(by_tls), Rc::clone(&self.watch));
        Either::Right(Box::pin(async move {
            let guarded = by_tls.open(io, peer, &watch).await?;
            Ok((guarded, peer))
        }))
    }
}

impl TlsOpening {
    async fn open(
        &self,
        io: TcpStream,
        peer: Option<SocketAddr>,
        watch: &Rc<Watch>,
    ) -> Result<Guarded<Connection>, DispatchError> {
        let place = watch.admit();
        let tls = || self.credentials.tls();
        let done = tokio::select! {
            done = self.handshakes.carry_out(io, tls, &place) => done,
            // Nothing was asked on this connection, so nothing is lost.
            () = (self.stopping)() => Err(HandshakeEnd::Unused),
        };
        match done {
            Ok(connection) => Ok(Guarded::new(connection, place)),
            Err(end) => {
                if let HandshakeEnd::Failed(error) = end {
                    watch.count_failed_handshake();
                    self.http.repeated_lines.note_handshake(peer, error);
                }
                let closed = io::Error::from(io::ErrorKind::ConnectionAborted);
                Err(DispatchError::Io(closed))
            }
        }
    }
}
