//! Wraps a socket: notes what moves on it, and ends it when its worker says so.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::input::Input;
use crate::edge::{ConnectionProgress, Cut, WatchedPlace};

/// Replies are held back up to this many bytes.
const HELD_BACK: usize = 8 * 1024;

/// A stream of bytes under guard.
///
/// actix decodes all requests that it finds in what it reads. Each request costs kilobytes, and
/// actix frames a reply by the head that it decoded last (`HEAD`, HTTP/1.0, `Connection: close`).
/// So the guard hands out one head at a time. While a request is answered, the guard hands out its
/// body and nothing else.
///
/// Replies to requests that came together go out in one write. The guard holds a reply back if it
/// has more requests and its task runs again at once. A request that has to wait does not delay the
/// replies before it: actix flushes after each look at it, and the second flush is not held back.
pub(crate) struct Guarded<T: AsyncWrite + Unpin> {
    io: T,
    input: Input,
    /// Replies that actix has written, and the socket has not.
    held: BytesMut,
    /// Whether this guard woke its own task since the last flush.
    runs_again: bool,
    place: WatchedPlace,
}

impl<T: AsyncWrite + Unpin> Guarded<T> {
    pub(crate) fn new(io: T, place: WatchedPlace) -> Self {
        Self {
            io,
            input: Input::default(),
            held: BytesMut::new(),
            runs_again: false,
            place,
        }
    }

    /// Returns what is under guard.
    pub(crate) fn io(&self) -> &T {
        &self.io
    }

    /// Returns what moved on this connection.
    pub(crate) fn progress(&self) -> &Rc<ConnectionProgress> {
        &self.place.progress
    }

    /// Runs the task of this connection again, at once.
    fn run_again(&mut self, context: &Context<'_>) {
        self.runs_again = true;
        context.waker().wake_by_ref();
    }

    /// Returns whether `n_bytes` more of replies may be held back if the task of this connection
    /// runs again at once.
    fn may_hold(&self, n_bytes: usize) -> bool {
        let is_one_of_many = self.input.is_kept() || !self.held.is_empty();
        let has_room = self.held.len() + n_bytes <= HELD_BACK;
        is_one_of_many && has_room && !self.place.progress.is_behind()
    }

    /// Refuses reads and writes on a connection that is cut, unless it was only idle.
    fn not_cut(&self) -> io::Result<()> {
        match self.place.progress.cut() {
            Some(cut) if !cut.is_of_idle() => Err(cut_off()),
            Some(_) | None => Ok(()),
        }
    }
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the connection stood still")
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.not_cut()?;
        if this.place.watch.is_off {
            return Pin::new(&mut this.io).poll_read(context, buffer);
        }
        let is_turn_over = this.input.begin_turn();
        let allowed = this.place.progress.allowed(this.place.watch.unread());
        let (io, input) = (&mut this.io, &mut this.input);
        let read = if allowed > 0 && !is_turn_over {
            input.hand_out(io, &this.place.progress, context, buffer, allowed)
        } else {
            input.wait(io, context).map_ok(|()| 0)
        };
        if allowed == 0 {
            this.place.progress.pause();
        } else if is_turn_over && this.input.is_kept() {
            // actix decodes first what was handed out, and then reads again.
            this.run_again(context);
        }
        match read {
            Poll::Ready(Ok(n_bytes)) => {
                if n_bytes > 0 {
                    this.place
                        .progress
                        .note_read(n_bytes, this.place.watch.now());
                    this.place.progress.spare();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => match this.place.progress.cut() {
                // actix sees this as the caller's own end, and closes the connection in order.
                Some(cut) => {
                    if cut == Cut::Crowded {
                        this.place.watch.count(cut);
                    }
                    Poll::Ready(Ok(()))
                }
                None => {
                    this.place.progress.park(context);
                    Poll::Pending
                }
            },
        }
    }
}

impl<T: AsyncWrite + Unpin> Guarded<T> {
    /// Writes all that was held back.
    fn write_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = Pin::new(&mut self.io).poll_write(context, &self.held);
            if written.is_pending() {
                self.note_not_written(context);
            }
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n_bytes => drop(self.held.split_to(n_bytes)),
            }
            // What came since the reply was held back stays unread.
            self.place.progress.note_taken(self.place.watch.now());
        }
        self.held = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    fn note_not_written(&self, context: &Context<'_>) {
        self.place.progress.note_not_written(self.place.watch.now());
        self.place.progress.park(context);
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
        let written = if this.may_hold(bytes.len()) {
            this.held.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        } else {
            ready!(this.write_held(context))?;
            Pin::new(&mut this.io).poll_write(context, bytes)
        };
        match &written {
            Poll::Ready(_) => {
                this.place.progress.note_written(this.place.watch.now());
                if this.place.progress.resume() {
                    this.run_again(context);
                }
            }
            Poll::Pending => this.note_not_written(context),
        }
        written
    }

    /// Notes that a whole reply was written, and flushes the socket. actix calls this only then.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.not_cut()?;
        let runs_again = std::mem::take(&mut this.runs_again);
        if runs_again && this.may_hold(0) {
            return Poll::Ready(Ok(()));
        }
        ready!(this.write_held(context))?;
        let flushed = Pin::new(&mut this.io).poll_flush(context);
        if flushed.is_pending() {
            // TLS takes bytes before the socket does, so this is where a caller who does not read is
            // noticed.
            this.note_not_written(context);
            return Poll::Pending;
        }
        if this.place.progress.is_behind() {
            this.place.progress.note_taken(this.place.watch.now());
        }
        if this.place.progress.note_flushed() {
            this.run_again(context);
        }
        flushed
    }

    /// Ends the connection in order. actix has no time limit for this, so only replies are waited
    /// for.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.not_cut()?;
        ready!(this.write_held(context))?;
        let ended = Pin::new(&mut this.io).poll_shutdown(context);
        if ended.is_pending() {
            // TLS would say goodbye (`close_notify`), and the socket takes nothing more. The caller
            // sees the end without that.
            return Poll::Ready(Ok(()));
        }
        ended
    }
}

impl<T: AsyncWrite + Unpin> Drop for Guarded<T> {
    /// Writes what was held back, as far as the socket takes it. actix has written it already, and
    /// ends a connection without a flush if a request is malformed.
    fn drop(&mut self) {
        if self.not_cut().is_ok() {
            let _ = self.write_held(&mut Context::from_waker(Waker::noop()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use odometer_process::metrics::Metrics;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::edge::{Body, ConnectionBounds, Watch};

    const MAX_UNREAD: usize = 31 * 1024;

    fn watched(connections: usize) -> Rc<Watch> {
        let bounds = ConnectionBounds {
            head: Duration::from_secs(2),
            request: Duration::from_secs(2),
            reply: Duration::from_secs(1),
            unread: MAX_UNREAD,
            connections,
        };
        Rc::new(Watch::new(&bounds, Metrics::new().listener.clone()))
    }

    /// Returns a connection under guard, and its other end.
    fn connection(watch: &Rc<Watch>) -> (Guarded<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(1 << 20);
        (Guarded::new(near, watch.admit()), far)
    }

    /// Returns a connection under guard on which `sent` came, and its other end.
    async fn connection_with(sent: &[u8]) -> (Guarded<DuplexStream>, DuplexStream) {
        let (guarded, mut far) = connection(&watched(100));
        far.write_all(sent).await.unwrap();
        (guarded, far)
    }

    #[tokio::test]
    async fn no_more_is_read_than_the_bound_until_something_is_written() {
        let (mut guarded, _far) = connection_with(&vec![7; 100_000]).await;
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
    async fn heads_that_come_together_are_handed_out_one_at_a_time() {
        let (mut guarded, _far) = connection_with(&HEAD.repeat(300)).await;
        let mut buffer = vec![0; 32 * 1024];
        for _ in 0..300 {
            // A head that a read cut in two comes in two parts.
            let mut n_read = 0;
            while n_read < HEAD.len() {
                n_read += guarded.read(&mut buffer).await.unwrap();
            }
            assert_eq!(n_read, HEAD.len());
            guarded.write_all(b"a reply").await.unwrap();
        }
    }

    /// Reads what is handed out now, and returns how many bytes that is.
    fn read_now(guarded: &mut Guarded<DuplexStream>) -> usize {
        let mut buffer = vec![0; 32 * 1024];
        let read = guarded.read(&mut buffer).now_or_never();
        read.map_or(0, Result::unwrap)
    }

    /// Returns how many bytes arrive now at the other end.
    fn arrived(far: &mut DuplexStream) -> usize {
        let mut buffer = vec![0; 256 * 1024];
        let read = far.read(&mut buffer).now_or_never();
        read.map_or(0, Result::unwrap)
    }

    /// Does what actix does in one run of the task of a connection. Each request gets `reply`.
    async fn run_once(guarded: &mut Guarded<DuplexStream>, reply: &[u8]) -> usize {
        let mut n_read = 0;
        loop {
            match read_now(guarded) {
                0 => break,
                n_bytes => n_read += n_bytes,
            }
        }
        if n_read > 0 {
            guarded.write_all(reply).await.unwrap();
        }
        guarded.flush().await.unwrap();
        n_read
    }

    #[tokio::test]
    async fn replies_to_heads_that_came_together_go_out_in_one_write() {
        let (mut guarded, mut far) = connection_with(&HEAD.repeat(16)).await;
        for _ in 0..15 {
            assert_eq!(run_once(&mut guarded, b"a reply").await, HEAD.len());
            assert_eq!(arrived(&mut far), 0, "a write for a single reply");
        }
        assert_eq!(run_once(&mut guarded, b"a reply").await, HEAD.len());
        assert_eq!(arrived(&mut far), 16 * b"a reply".len());
        assert_eq!(run_once(&mut guarded, b"a reply").await, 0);
    }

    #[tokio::test]
    async fn a_reply_does_not_wait_for_a_request_that_waits() {
        let (mut guarded, mut far) = connection_with(&HEAD.repeat(3)).await;
        let progress = Rc::clone(guarded.progress());
        assert_eq!(run_once(&mut guarded, b"the first").await, HEAD.len());
        assert_eq!(arrived(&mut far), 0);
        let answering = read_now(&mut guarded);
        assert_eq!(answering, HEAD.len());
        let answering = progress.answer(Body::Announced(0));
        assert_eq!(read_now(&mut guarded), 0);
        guarded.flush().await.unwrap();
        // The task may run once more before it waits.
        assert_eq!(read_now(&mut guarded), 0);
        guarded.flush().await.unwrap();
        assert_eq!(arrived(&mut far), b"the first".len());
        drop(answering);
    }

    #[tokio::test]
    async fn a_reply_that_took_long_goes_out_at_once() {
        let (mut guarded, mut far) = connection_with(HEAD).await;
        let progress = Rc::clone(guarded.progress());
        assert_eq!(read_now(&mut guarded), HEAD.len());
        let answering = progress.answer(Body::Announced(0));
        assert_eq!(read_now(&mut guarded), 0);
        guarded.flush().await.unwrap();
        drop(answering);
        guarded.write_all(b"a reply").await.unwrap();
        guarded.flush().await.unwrap();
        assert_eq!(arrived(&mut far), b"a reply".len());
    }

    #[tokio::test]
    async fn a_reply_does_not_wait_for_a_head_that_is_not_whole() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        let (part, _) = HEAD.split_at(HEAD.len() - 2);
        far.write_all(&[HEAD, part].concat()).await.unwrap();
        assert_eq!(run_once(&mut guarded, b"a reply").await, HEAD.len());
        assert_eq!(read_now(&mut guarded), part.len());
        guarded.flush().await.unwrap();
        assert_eq!(arrived(&mut far), b"a reply".len());
    }

    #[tokio::test]
    async fn no_more_is_held_back_than_its_bound() {
        let (mut guarded, mut far) = connection_with(&HEAD.repeat(16)).await;
        let reply = [7; HELD_BACK + 1];
        assert_eq!(run_once(&mut guarded, &reply).await, HEAD.len());
        assert_eq!(arrived(&mut far), reply.len());
    }

    #[tokio::test]
    async fn what_was_held_back_goes_out_before_what_is_not() {
        let (mut guarded, mut far) = connection_with(&HEAD.repeat(2)).await;
        assert_eq!(read_now(&mut guarded), HEAD.len());
        guarded.write_all(&[1; HELD_BACK]).await.unwrap();
        guarded.write_all(&[2]).await.unwrap();
        guarded.flush().await.unwrap();
        let mut written = vec![0; HELD_BACK + 1];
        far.read_exact(&mut written).await.unwrap();
        assert_eq!(written, [vec![1; HELD_BACK], vec![2]].concat());
    }

    #[tokio::test]
    async fn what_was_held_back_goes_out_if_the_connection_is_dropped() {
        let (mut guarded, mut far) = connection_with(&HEAD.repeat(2)).await;
        assert_eq!(run_once(&mut guarded, b"a reply").await, HEAD.len());
        drop(guarded);
        assert_eq!(arrived(&mut far), b"a reply".len());
    }

    #[tokio::test]
    async fn a_head_has_no_more_time_and_room_for_replies_that_were_held_back() {
        let (mut guarded, mut far) = connection_with(&[HEAD, &[7; MAX_UNREAD + 1]].concat()).await;
        assert_eq!(run_once(&mut guarded, b"a reply").await, HEAD.len());
        let mut n_read = 0;
        for _ in 0..2 {
            n_read += run_once(&mut guarded, b"").await;
        }
        assert_eq!(n_read, MAX_UNREAD);
        assert_eq!(arrived(&mut far), b"a reply".len());
        assert!(guarded.progress().asking_since().is_some());
    }

    #[tokio::test]
    async fn what_was_held_back_goes_out_before_the_end() {
        let (mut guarded, mut far) = connection_with(&HEAD.repeat(2)).await;
        assert_eq!(run_once(&mut guarded, b"a reply").await, HEAD.len());
        guarded.shutdown().await.unwrap();
        assert_eq!(arrived(&mut far), b"a reply".len());
    }

    #[tokio::test]
    async fn a_caller_who_does_not_read_what_was_held_back_is_not_read_from() {
        let watch = watched(100);
        let (near, mut far) = tokio::io::duplex(4 * HEAD.len());
        let mut guarded = Guarded::new(near, watch.admit());
        far.write_all(&HEAD.repeat(4)).await.unwrap();
        let reply = [7; 2 * HEAD.len()];
        for _ in 0..3 {
            assert_eq!(run_once(&mut guarded, &reply).await, HEAD.len());
        }
        assert_eq!(read_now(&mut guarded), HEAD.len());
        assert_eq!(read_now(&mut guarded), 0);
        guarded.write_all(&reply).await.unwrap();
        let flushed = guarded.flush().now_or_never();
        assert!(flushed.is_none(), "more is written than there is room for");
        let written = guarded.write(&reply).now_or_never();
        assert!(written.is_none(), "more is taken for who does not read");
        far.write_all(HEAD).await.unwrap();
        assert_eq!(read_now(&mut guarded), 0);
        far.read_exact(&mut [0; 4 * HEAD.len()]).await.unwrap();
        guarded.flush().await.unwrap();
        far.read_exact(&mut [0; 4 * HEAD.len()]).await.unwrap();
        assert_eq!(read_now(&mut guarded), HEAD.len());
    }

    #[tokio::test]
    async fn while_a_request_is_answered_its_body_is_read_and_nothing_else() {
        let watch = watched(100);
        let (mut guarded, mut far) = connection(&watch);
        let progress = Rc::clone(guarded.progress());
        let sent = [HEAD, b"1\n\n45", HEAD].concat();
        far.write_all(&sent).await.unwrap();
        let mut buffer = vec![0; 32 * 1024];
        assert_eq!(guarded.read(&mut buffer).await.unwrap(), HEAD.len());
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
        let (mut guarded, far) = connection_with(HEAD).await;
        let progress = Rc::clone(guarded.progress());
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
        let mut guarded = Guarded::new(near, watch.admit());
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
