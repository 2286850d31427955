//! Wraps a socket: notes what moves on it, and ends it when its worker says so.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::heads::{HeadFinder, MAX_TOGETHER};
use super::progress::{ConnectionProgress, Cut};
use super::watch::Watch;

/// The most bytes of one read. The buffer is cleared for this many bytes each time.
const READ_AT_ONCE: usize = 2 * 1024;

/// Bytes that are read while nothing is handed out, to see whether the caller is still there.
const KEPT_WHILE_WAITING: usize = 256;

/// A stream of bytes under guard.
///
/// actix decodes all requests that it finds in what it reads. Requests behind one that waits cost
/// kilobytes each until their turn comes. So the guard hands out few heads together, and all
/// connections of a worker share a bound of heads that are ahead of their turn. Heads that come
/// together are mostly answered together, with one write. While a request is answered, the guard
/// hands out its body and nothing else.
pub(crate) struct Guarded<T> {
    io: T,
    /// Bytes that were read, and are for a later read of actix.
    kept: Vec<u8>,
    is_turn_over: bool,
    heads: HeadFinder,
    /// Heads that were handed out together with another one before them.
    n_ahead: usize,
    progress: Rc<ConnectionProgress>,
    watch: Rc<Watch>,
}

impl<T> Guarded<T> {
    pub(crate) fn new(io: T, progress: Rc<ConnectionProgress>, watch: Rc<Watch>) -> Self {
        Self {
            io,
            kept: Vec::new(),
            is_turn_over: false,
            heads: HeadFinder::default(),
            n_ahead: 0,
            progress,
            watch,
        }
    }

    /// Returns what moved on this connection.
    pub(crate) fn progress(&self) -> &Rc<ConnectionProgress> {
        &self.progress
    }

    /// Notes that the heads that were handed out together had their turn, unless one of them is
    /// still being answered.
    fn end_turns(&mut self) {
        if !self.progress.is_answering() {
            self.watch.note_turns(std::mem::take(&mut self.n_ahead));
        }
    }

    /// Refuses reads and writes on a connection that is cut, unless it was only idle.
    fn not_cut(&self) -> io::Result<()> {
        match self.progress.cut() {
            Some(cut) if !cut.is_of_idle() => Err(cut_off()),
            Some(_) | None => Ok(()),
        }
    }
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the connection stood still")
}

impl<T: AsyncRead + Unpin> Guarded<T> {
    /// Hands out at most `allowed` bytes, and of heads those that are handed out together. Bytes
    /// that were read beyond their end are kept for later.
    fn hand_out(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        allowed: usize,
    ) -> Poll<io::Result<usize>> {
        let room = buffer.remaining().min(allowed).min(READ_AT_ONCE);
        let before = buffer.filled().len();
        if self.kept.is_empty() {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
            ready!(Pin::new(&mut self.io).poll_read(context, &mut part))?;
            let n_bytes = part.filled().len();
            buffer.advance(n_bytes);
        } else {
            let n_bytes = self.kept.len().min(room);
            let (now, later) = self.kept.split_at(n_bytes);
            buffer.put_slice(now);
            self.kept = later.to_vec();
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        let n_more = match self.progress.is_answering() {
            true => 0,
            false => self.watch.heads_left().min(MAX_TOGETHER - 1),
        };
        let heads = match self.progress.is_reading_known_length() {
            true => None,
            false => self.heads.find(read, 1 + n_more),
        };
        let n_bytes = heads.map_or(read.len(), |heads| heads.n_bytes);
        if let Some(later) = read.get(n_bytes..).filter(|later| !later.is_empty()) {
            self.kept.splice(..0, later.iter().copied());
            buffer.set_filled(before + n_bytes);
        }
        if let Some(heads) = heads {
            self.is_turn_over = true;
            self.n_ahead = heads.count - 1;
            self.watch.note_ahead(self.n_ahead);
        }
        Poll::Ready(Ok(n_bytes))
    }

    /// Hands out nothing, and looks whether the caller is still there. Bytes that come are kept.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.kept.is_empty() {
            let mut bytes = [0; KEPT_WHILE_WAITING];
            let mut part = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.io).poll_read(context, &mut part))?;
            if part.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.kept = part.filled().to_vec();
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.not_cut()?;
        if this.watch.is_off() {
            return Pin::new(&mut this.io).poll_read(context, buffer);
        }
        this.end_turns();
        let is_turn_over = std::mem::take(&mut this.is_turn_over);
        let allowed = this.progress.allowed(this.watch.unread());
        let read = if allowed > 0 && !is_turn_over {
            this.hand_out(context, buffer, allowed)
        } else {
            this.wait(context).map_ok(|()| 0)
        };
        if allowed == 0 {
            this.progress.pause();
        } else if is_turn_over && !this.kept.is_empty() {
            // actix decodes first what was handed out, and then reads again.
            context.waker().wake_by_ref();
        }
        match read {
            Poll::Ready(Ok(n_bytes)) => {
                if n_bytes > 0 {
                    this.progress.note_read(n_bytes, this.watch.now());
                    this.progress.spare();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => match this.progress.cut() {
                // actix sees this as the caller's own end, and closes the connection in order.
                Some(cut) => {
                    if cut == Cut::Crowded {
                        this.watch.count(cut);
                    }
                    Poll::Ready(Ok(()))
                }
                None => {
                    this.progress.park(context);
                    Poll::Pending
                }
            },
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.not_cut()?;
        let written = Pin::new(&mut this.io).poll_write(context, bytes);
        match &written {
            Poll::Ready(_) => {
                this.progress.note_written(this.watch.now());
                if this.progress.resume() {
                    context.waker().wake_by_ref();
                }
            }
            Poll::Pending => {
                this.progress.note_not_written(this.watch.now());
                this.progress.park(context);
            }
        }
        written
    }

    /// Notes that a whole reply was written, and flushes the socket. actix calls this only then.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.not_cut()?;
        if this.progress.note_flushed() {
            context.waker().wake_by_ref();
        }
        Pin::new(&mut this.io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.not_cut()?;
        Pin::new(&mut this.io).poll_shutdown(context)
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        self.progress.close();
        self.watch.note_turns(self.n_ahead);
        self.watch.note_closed();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::time::Duration;

    use odometer_process::metrics::Metrics;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::super::Body;
    use super::*;
    use crate::http::edge::bounds::ConnectionBounds;
    use crate::http::edge::watch::MAX_AHEAD;

    const BODY: usize = 16 * 1024;
    const MAX_UNREAD: usize = 31 * 1024;

    fn watched(connections: usize) -> Rc<Watch> {
        let bounds = ConnectionBounds {
            head: Duration::from_secs(2),
            request: Duration::from_secs(2),
            reply: Duration::from_secs(1),
            body: BODY,
            connections,
        };
        Rc::new(Watch::new(&bounds, Metrics::new().connections))
    }

    /// Returns a connection under guard, and its other end.
    fn connection(watch: &Rc<Watch>) -> (Guarded<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1 << 20);
        (watch.guard(near), far)
    }

    #[tokio::test]
    async fn no_more_is_read_than_the_bound_until_something_is_written() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        far.write_all(&vec![7; 100_000]).await.unwrap();
        let mut n_read = 0;
        let mut buffer = vec![0; 10_000];
        let mut read_all = async || {
            while let Ok(read) =
                tokio::time::timeout(Duration::ZERO, guarded.read(&mut buffer)).await
            {
                n_read += read.unwrap();
            }
        };
        read_all().await;
        assert_eq!(n_read, MAX_UNREAD);
        guarded.write_all(b"a reply").await.unwrap();
        let read = guarded.read(&mut [0; 64]).await.unwrap();
        assert_eq!(read, 64);
    }

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost:\r\n\r\n";

    #[tokio::test]
    async fn of_heads_that_come_together_few_are_handed_out_together() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        far.write_all(&HEAD.repeat(300)).await.unwrap();
        let mut buffer = vec![0; 32 * 1024];
        let mut n_read = 0;
        while n_read < 300 * HEAD.len() {
            let n_now = guarded.read(&mut buffer).await.unwrap();
            assert!(n_now <= MAX_TOGETHER * HEAD.len());
            n_read += n_now;
            guarded.write_all(b"replies").await.unwrap();
        }
        drop(guarded);
        assert_eq!(watch.heads_left(), MAX_AHEAD);
    }

    #[tokio::test]
    async fn heads_behind_one_that_waits_are_bounded_over_all_connections() {
        let watch = watched(1000);
        let mut buffer = vec![0; 32 * 1024];
        let mut waiting = Vec::new();
        for _ in 0..=MAX_AHEAD / (MAX_TOGETHER - 1) {
            let (mut guarded, mut far) = connection(&watch);
            far.write_all(&HEAD.repeat(MAX_TOGETHER)).await.unwrap();
            let n_read = guarded.read(&mut buffer).await.unwrap();
            let answering = guarded.progress().answer(Body::Announced(0));
            waiting.push((n_read / HEAD.len(), answering, guarded, far));
        }
        let n_waiting: usize = waiting.iter().map(|(n_heads, ..)| n_heads).sum();
        assert_eq!(n_waiting, waiting.len() + MAX_AHEAD);
        let (mut guarded, mut far) = connection(&watch);
        far.write_all(&HEAD.repeat(2)).await.unwrap();
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), HEAD.len());
        drop(waiting);
        assert_eq!(watch.heads_left(), MAX_AHEAD);
    }

    #[tokio::test]
    async fn while_a_request_is_answered_its_body_is_read_and_nothing_else() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        let progress = Rc::clone(guarded.progress());
        let announcing = b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n";
        let sent = [announcing, &b"1\n\n45"[..], HEAD].concat();
        far.write_all(&sent).await.unwrap();
        let mut buffer = vec![0; 32 * 1024];
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), announcing.len());
        let answering = progress.answer(Body::Announced(5));
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), 5);
        let more = tokio::time::timeout(Duration::ZERO, guarded.read(&mut buffer)).await;
        assert!(more.is_err(), "read while a request is answered");
        drop(answering);
        guarded.write_all(b"a reply").await.unwrap();
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), HEAD.len());
    }

    #[tokio::test]
    async fn a_caller_who_leaves_while_answered_is_noticed() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        let progress = Rc::clone(guarded.progress());
        far.write_all(HEAD).await.unwrap();
        let mut buffer = vec![0; 1024];
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), HEAD.len());
        let _answering = progress.answer(Body::Announced(0));
        drop(far);
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn nothing_is_read_of_who_does_not_read() {
        let watch = watched(100);
        let (near, mut far) = tokio::io::duplex(64);
        let mut guarded = watch.guard(near);
        let written = guarded.write_all(&[7; 100]);
        assert!(
            tokio::time::timeout(Duration::ZERO, written).await.is_err(),
            "more is written than there is room for"
        );
        far.write_all(HEAD).await.unwrap();
        let mut buffer = vec![0; 1024];
        let read = tokio::time::timeout(Duration::ZERO, guarded.read(&mut buffer)).await;
        assert!(read.is_err(), "read beside a reply that is not taken");
        far.read_exact(&mut [0; 64]).await.unwrap();
        guarded.flush().await.unwrap();
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), HEAD.len());
    }

    #[tokio::test]
    async fn a_request_that_never_ends_is_cut() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        for _ in 0..3 {
            far.write_all(b"x").await.unwrap();
            assert_eq!(guarded.read(&mut [0; 8]).await.unwrap(), 1);
            watch.tick(false);
        }
        far.write_all(b"x").await.unwrap();
        let error = guarded.read(&mut [0; 8]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(guarded.write_all(b"late").await.is_err());
    }

    #[tokio::test]
    async fn an_idle_connection_ends_in_order_unless_something_came() {
        let watch = watched(1);
        let (mut idle, _far) = connection(&watch);
        let (mut asking, mut far) = connection(&watch);
        watch.tick(false);
        far.write_all(b"x").await.unwrap();
        assert_eq!(idle.read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!(asking.read(&mut [0; 8]).await.unwrap(), 1);
        asking.write_all(b"a reply").await.unwrap();
    }
}
