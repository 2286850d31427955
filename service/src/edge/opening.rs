//! Opens the connections of a listener: gives each its place, and shakes hands if there is TLS.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::rt::net::TcpStream;
use futures_util::future::LocalBoxFuture;

use super::connection::Connection;
use super::handshake::{HandshakeEnd, Handshakes};
use super::watch::{Watch, WatchedPlace};
use crate::access::credentials::Credentials;

/// A connection that is open.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    /// Its place among those of its worker.
    pub(crate) place: WatchedPlace,
    /// The address of its other end.
    pub(crate) peer: Option<SocketAddr>,
}

/// Returns a future that ends when the server stops.
pub(crate) type Stopping = Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>;

/// Notes a handshake that failed: the other end of its connection, and why.
type NoteFailure = Rc<dyn Fn(Option<SocketAddr>, String)>;

/// What opens the connections of one worker.
#[derive(Clone)]
pub(crate) struct Opening {
    watch: Rc<Watch>,
    /// `None` if the listener speaks no TLS.
    by_tls: Option<Rc<TlsOpening>>,
}

/// What opens connections by TLS.
struct TlsOpening {
    handshakes: Handshakes,
    credentials: Arc<Credentials>,
    stopping: Stopping,
    note_failure: NoteFailure,
}

impl Opening {
    /// Makes what opens the connections that `watch` watches. `credentials` has the certificate, if
    /// the listener speaks TLS. `note_failure` gets the other end and the reason of each handshake
    /// that failed.
    pub(crate) fn new(
        watch: Rc<Watch>,
        credentials: Option<Arc<Credentials>>,
        stopping: Stopping,
        note_failure: impl Fn(Option<SocketAddr>, String) + 'static,
    ) -> Self {
        let by_tls = credentials.map(|credentials| {
            Rc::new(TlsOpening {
                handshakes: Handshakes::new(),
                credentials,
                stopping,
                note_failure: Rc::new(note_failure),
            })
        });
        Self { watch, by_tls }
    }

    /// Opens a connection. If its handshake fails, this is counted.
    ///
    /// # Errors
    /// The connection is to be closed.
    pub(crate) async fn open(self, io: TcpStream) -> io::Result<Opened> {
        // If either call fails, the connection is gone, and its first read says so.
        let _ = io.set_nodelay(true);
        let peer = io.peer_addr().ok();
        let place = self.watch.admit();
        let connection = match &self.by_tls {
            None => Connection::Plain(io),
            // In a box, because few connections need so much memory, and only for a short time.
            Some(by_tls) => Box::pin(by_tls.open(io, peer, &place)).await?,
        };
        Ok(Opened {
            connection,
            place,
            peer,
        })
    }
}

impl TlsOpening {
    async fn open(
        &self,
        io: TcpStream,
        peer: Option<SocketAddr>,
        place: &WatchedPlace,
    ) -> io::Result<Connection> {
        let tls = || self.credentials.tls();
        let done = tokio::select! {
            done = self.handshakes.carry_out(io, tls, place) => done,
            // Nothing was asked on this connection, so nothing is lost.
            () = (self.stopping)() => Err(HandshakeEnd::Unused),
        };
        done.map_err(|end| {
            if let HandshakeEnd::Failed(error) = end {
                place.watch.count_failed_handshake();
                (self.note_failure)(peer, error);
            }
            io::Error::from(io::ErrorKind::ConnectionAborted)
        })
    }
}
