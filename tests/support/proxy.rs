//! A TCP proxy between the program and its database that cuts where it is told to.

use std::sync::Arc;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// What becomes of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// Both ways are open.
    Whole,
    /// Statements reach the database, replies do not come back; nobody is told.
    RepliesLost,
    /// Every connection is closed, new ones at once.
    Cut,
}

/// The proxy, gone when dropped.
pub(crate) struct Proxy {
    port: u16,
    link: Arc<watch::Sender<Link>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of loopback and forwards to `port` of it.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own_port = listener.local_addr().expect("it is bound").port();
        let link = Arc::new(watch::Sender::new(Link::Whole));
        let shared = Arc::clone(&link);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, port, shared.subscribe()));
            }
        });
        Self {
            port: own_port,
            link,
            accepting,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Link::Cut);
    }
}

async fn forward(client: TcpStream, port: u16, mut link: watch::Receiver<Link>) {
    if *link.borrow() == Link::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let replies = link.clone();
    tokio::select! {
        () = copy(from_client, to_server, || true) => {}
        () = copy(from_server, to_client, || *replies.borrow() == Link::Whole) => {}
        _ = link.wait_for(|link| *link == Link::Cut) => {}
    }
}

/// Copies what comes while `open` says so, and throws the rest away.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    open: impl Fn() -> bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let read = buffer.get(..n).unwrap_or_default();
        if open() && to.write_all(read).await.is_err() {
            return;
        }
    }
}
