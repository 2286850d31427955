//! Callers that never finish their request or never read a reply, and whether the program cuts them
//! off.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{NEXT, first_of};
use crate::support::{Program, SecureConnection, TestAuthority};

/// The behaviour of a caller that never ends. Each caller gets one reply before, as a client has
/// that keeps its connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Endless {
    OneByte,
    DrippedHead,
    DrippedBody,
    Chunks(&'static str),
    LargeHead,
    UnreadReplies,
    ManyHeads,
}

pub(super) const ROWS: [Endless; 10] = [
    Endless::OneByte,
    Endless::DrippedHead,
    Endless::DrippedBody,
    Endless::Chunks("GET /livez"),
    Endless::Chunks("POST /v1/sequences/held/next"),
    Endless::Chunks("PUT /v1/sequences/held"),
    Endless::Chunks("POST /nowhere"),
    Endless::LargeHead,
    Endless::UnreadReplies,
    Endless::ManyHeads,
];

impl Endless {
    pub(super) fn start(self) -> Vec<u8> {
        let request = match self {
            Self::OneByte | Self::DrippedHead => "P".to_owned(),
            Self::DrippedBody => "PUT /v1/sequences/held HTTP/1.1\r\nHost: localhost\r\n\
                 Content-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
                .to_owned(),
            Self::Chunks(line) => format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            ),
            Self::LargeHead => format!(
                "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n",
                "a".repeat(120_000)
            ),
            Self::UnreadReplies => NEXT.replace("/next", "/next?count=10000").repeat(100),
            // Replies that the caller does not read come before these heads.
            Self::ManyHeads => {
                let large = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
                large.repeat(40) + &"GET / HTTP/1.1\r\nHost:\r\n\r\n".repeat(1100)
            }
        };
        request.into_bytes()
    }

    pub(super) fn drip(self) -> Option<&'static [u8]> {
        match self {
            Self::OneByte | Self::LargeHead | Self::UnreadReplies | Self::ManyHeads => None,
            Self::DrippedHead => Some(b"O"),
            Self::DrippedBody => Some(b" "),
            Self::Chunks(_) => Some(b"1\r\n \r\n"),
        }
    }

    pub(super) fn reads_nothing(self) -> bool {
        matches!(self, Self::UnreadReplies | Self::ManyHeads)
    }

    /// Holds a connection in this way. Returns the program's answer if the connection was closed
    /// within `limit`, else `None`.
    async fn hold(
        self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        limit: Duration,
    ) -> Option<String> {
        let mut first = [0; 4096];
        stream
            .write_all(NEXT.as_bytes())
            .await
            .expect("it reads a request");
        let n_bytes = stream.read(&mut first).await.expect("a reply");
        let reply = first.get(..n_bytes).unwrap_or_default();
        assert!(reply.starts_with(b"HTTP/1.1 200"), "{self:?}");
        let mut answer = Vec::new();
        let held = tokio::time::timeout(limit, async {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let writing = async {
                let mut is_open = writer.write_all(&self.start()).await.is_ok();
                while is_open {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    is_open = match self.drip() {
                        Some(drip) => writer.write_all(drip).await.is_ok(),
                        // A caller that does not read finds out by a write that the connection is
                        // closed.
                        None if self.reads_nothing() => {
                            writer.write_all(NEXT.as_bytes()).await.is_ok()
                        }
                        None => true,
                    };
                }
            };
            let reading = async {
                if self.reads_nothing() {
                    std::future::pending::<()>().await;
                }
                let _ended_or_reset = reader.read_to_end(&mut answer).await;
            };
            let mut reading = pin!(reading);
            tokio::select! {
                () = &mut reading => {}
                // The answer that came before the end can still be read.
                () = writing => {
                    if !self.reads_nothing() {
                        reading.await;
                    }
                }
            }
        });
        let is_closed = held.await.is_ok();
        is_closed.then(|| String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A behaviour that was cut off.
pub(super) struct Closed {
    pub(super) row: Endless,
    pub(super) answer: String,
    pub(super) after: Duration,
}

/// Returns the behaviours that were not cut off within the limit, and those that were.
pub(super) async fn hold_all(program: &Program, limit: Duration) -> (Vec<Endless>, Vec<Closed>) {
    first_of(&program.client(), "held").await;
    hold_each(program, None, limit).await
}

/// Does the same by TLS if there is an authority to trust. `held` has numbers already.
pub(super) async fn hold_each(
    program: &Program,
    authority: Option<&Arc<TestAuthority>>,
    limit: Duration,
) -> (Vec<Endless>, Vec<Closed>) {
    let mut held = JoinSet::new();
    for row in ROWS {
        let (address, authority) = (program.address().to_owned(), authority.cloned());
        held.spawn(async move {
            let started = Instant::now();
            let answer = match authority {
                None => {
                    let stream = TcpStream::connect(&address).await.expect("it listens");
                    row.hold(stream, limit).await
                }
                Some(authority) => {
                    let opened = SecureConnection::open(&address, &authority, None).await;
                    let opened = opened.expect("the handshake is done");
                    row.hold(opened.into_stream(), limit).await
                }
            };
            (row, answer, started.elapsed())
        });
    }
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    for (row, answer, after) in held.join_all().await {
        match answer {
            Some(answer) => closed.push(Closed { row, answer, after }),
            None => open.push(row),
        }
    }
    (open, closed)
}
