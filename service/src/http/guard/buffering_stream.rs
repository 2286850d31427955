//! Tests the guard with a stream that takes bytes before its socket does, as TLS does.

#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use odometer_process::metrics::Metrics;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf,
};

use super::Guarded;
use crate::edge::{ConnectionBounds, Cut, Watch};

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";

/// The bytes that the socket takes if its caller reads nothing.
const ROOM: usize = 4 * HEAD.len();

const LATE: &[u8] = b"goodbye";

/// A stream that takes [`ROOM`] bytes at once. They reach the socket when more are written, or when
/// the stream is flushed or shut down.
struct Buffering {
    socket: DuplexStream,
    taken: Vec<u8>,
    is_ending: bool,
}

impl Buffering {
    fn pass_on(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.taken.is_empty() {
            let written = Pin::new(&mut self.socket).poll_write(context, &self.taken);
            let n_bytes = ready!(written)?;
            self.taken.drain(..n_bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Buffering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Buffering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.pass_on(context))?;
        let taken = bytes.get(..ROOM).unwrap_or(bytes);
        self.taken.extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pass_on(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.taken.extend_from_slice(LATE);
        }
        ready!(self.pass_on(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// Returns what watches, a connection under guard on which a request was read, and its other end.
async fn asked() -> (Rc<Watch>, Guarded<Buffering>, DuplexStream) {
    let bounds = ConnectionBounds {
        head: Duration::from_secs(60),
        request: Duration::from_secs(60),
        reply: Duration::from_secs(2),
        unread: 31 * 1024,
        connections: 100,
    };
    let watch = Rc::new(Watch::new(&bounds, Metrics::new().listener.clone()));
    let (near, mut far) = tokio::io::duplex(ROOM);
    let buffering = Buffering {
        socket: near,
        taken: Vec::new(),
        is_ending: false,
    };
    let mut guarded = Guarded::new(buffering, watch.admit());
    far.write_all(HEAD).await.unwrap();
    let mut head = vec![0; 1024];
    assert_eq!(guarded.read(&mut head).await.unwrap(), HEAD.len());
    (watch, guarded, far)
}

#[tokio::test]
async fn a_reply_that_the_socket_does_not_take_is_cut_as_a_reply() {
    let (watch, mut guarded, _far) = asked().await;
    guarded.write_all(&[7; 2 * ROOM]).await.unwrap();
    let flushed = guarded.flush().now_or_never();
    assert!(flushed.is_none(), "more is written than there is room for");
    for _ in 0..2 {
        watch.tick(false);
    }
    assert_eq!(guarded.progress().cut(), None);
    watch.tick(false);
    assert_eq!(guarded.progress().cut(), Some(Cut::Reply));
    let flushed = guarded.flush().await.unwrap_err();
    assert_eq!(flushed.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_caller_who_reads_slowly_gets_the_whole_reply() {
    let (watch, mut guarded, mut far) = asked().await;
    let progress = Rc::clone(guarded.progress());
    let mut replying = Box::pin(async {
        guarded.write_all(&[7; 6 * ROOM]).await?;
        guarded.flush().await
    });
    let mut n_parts = 0;
    while replying.as_mut().now_or_never().is_none() {
        for _ in 0..2 {
            watch.tick(false);
        }
        assert_eq!(progress.cut(), None, "after {n_parts} parts");
        far.read_exact(&mut [0; ROOM]).await.unwrap();
        n_parts += 1;
    }
    // The last part is in the socket.
    assert_eq!(n_parts, 5);
    assert!(!progress.is_behind());
}

#[tokio::test]
async fn an_end_waits_for_no_caller() {
    let (_watch, mut guarded, mut far) = asked().await;
    guarded.write_all(&[7; ROOM]).await.unwrap();
    guarded.flush().await.unwrap();
    let ended = guarded.shutdown().now_or_never();
    assert!(ended.is_some_and(|ended| ended.is_ok()), "it waits");
    drop(guarded);
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, [7; ROOM], "the reply is whole");
}
