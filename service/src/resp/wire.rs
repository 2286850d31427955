//! Moves the bytes of one connection: reads commands, and writes replies, each within its time.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::reply::Replies;
use crate::edge::{Body, Connection, Cut, WatchedPlace};

/// The most bytes of one read.
const READ_AT_ONCE: usize = 4 * 1024;

/// The most bytes that are read while a command is answered.
const MAX_AHEAD: usize = 4 * 1024;

/// Memory for what comes grows by multiples of this many bytes.
const GROWTH: usize = 2 * 1024;

/// Bytes of memory that a connection keeps for replies while it is idle.
const KEPT_FOR_REPLIES: usize = 512;

/// The bytes of one connection, as they move.
pub(super) struct Wire {
    io: Connection,
    pub(super) place: WatchedPlace,
    /// What came while a command was answered.
    ahead: Vec<u8>,
}

impl Wire {
    /// Takes over a connection.
    pub(super) fn new(io: Connection, place: WatchedPlace) -> Self {
        Self {
            io,
            place,
            ahead: Vec::new(),
        }
    }

    /// Reads what comes next, and adds it to `input`. Returns how many bytes that were; 0 if the
    /// client is gone, or if the service needs the connection for others.
    ///
    /// # Errors
    /// The connection broke, or it was cut because a command did not end in time.
    pub(super) async fn read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let Self { io, place, ahead } = self;
        let progress = &place.progress;
        let came = std::mem::take(ahead);
        if !came.is_empty() {
            progress.note_read(came.len(), place.watch.now());
            let n_bytes = came.len();
            match input.is_empty() {
                true => *input = came,
                false => append(input, &came),
            }
            return Ok(n_bytes);
        }
        let n_bytes = poll_fn(|context| {
            not_cut(place)?;
            match poll_part(io, context, input) {
                Poll::Ready(read) => Poll::Ready(read),
                Poll::Pending => match progress.cut() {
                    Some(cut) => {
                        if cut == Cut::Crowded {
                            place.watch.count(cut);
                        }
                        Poll::Ready(Ok(0))
                    }
                    None => {
                        progress.park(context);
                        Poll::Pending
                    }
                },
            }
        })
        .await?;
        if n_bytes > 0 {
            progress.note_read(n_bytes, place.watch.now());
            progress.spare();
        }
        Ok(n_bytes)
    }

    /// Notes that all commands before the present one are answered. Of that, `n_bytes` have come.
    pub(super) fn note_answered(&self, n_bytes: usize) {
        let now = self.place.watch.now();
        self.place.progress.note_written(now);
        if n_bytes > 0 {
            self.place.progress.note_read(n_bytes, now);
        }
    }

    /// Writes the replies that wait.
    ///
    /// # Errors
    /// The connection broke, or it was cut because the client takes no replies.
    pub(super) async fn write(&mut self, replies: &mut Replies) -> io::Result<()> {
        if replies.bytes().is_empty() {
            return Ok(());
        }
        let Self { io, place, .. } = self;
        let (bytes, mut at) = (replies.bytes(), 0);
        poll_fn(|context| {
            not_cut(place)?;
            let before = at;
            let done = poll_write_all(io, context, bytes, &mut at);
            if done.is_pending() {
                let now = place.watch.now();
                if at > before {
                    place.progress.note_taken(now);
                }
                place.progress.note_not_written(now);
                place.progress.park(context);
            }
            done
        })
        .await?;
        let progress = &place.progress;
        progress.note_written(place.watch.now());
        // Nothing is read while replies are written, so no reading was paused for them.
        progress.note_flushed();
        replies.clear(KEPT_FOR_REPLIES);
        Ok(())
    }

    /// Waits until a command is answered. If the client hangs up meanwhile, the command is given
    /// up, so no number is used up for it.
    ///
    /// # Errors
    /// The client hung up, or the connection was cut.
    pub(super) async fn wait(&mut self, work: impl Future<Output = ()>) -> io::Result<()> {
        let Self { io, place, ahead } = self;
        let progress = &place.progress;
        progress.begin_request(place.watch.now());
        let _answering = progress.answer(Body::Announced(0));
        let mut work = pin!(work);
        poll_fn(|context| {
            not_cut(place)?;
            if work.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            while ahead.len() < MAX_AHEAD {
                match poll_part(io, context, ahead) {
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Ready(read) => read.map(drop)?,
                    Poll::Pending => break,
                }
            }
            progress.park(context);
            Poll::Pending
        })
        .await
    }

    /// Ends the connection in order, and waits for nothing.
    pub(super) async fn end(&mut self) {
        let io = &mut self.io;
        poll_fn(|context| {
            // If the socket takes nothing more, the client sees the end without a goodbye.
            let _ended = Pin::new(&mut *io).poll_shutdown(context);
            Poll::Ready(())
        })
        .await;
    }
}

/// Refuses to go on with a connection that is cut, unless it was only idle.
fn not_cut(place: &WatchedPlace) -> io::Result<()> {
    match place.progress.cut() {
        Some(cut) if !cut.is_of_idle() => Err(io::ErrorKind::TimedOut.into()),
        Some(_) | None => Ok(()),
    }
}

/// Reads once, and adds what came to `input`. Returns how many bytes that were.
fn poll_part(
    io: &mut Connection,
    context: &mut Context<'_>,
    input: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    let mut bytes = [MaybeUninit::<u8>::uninit(); READ_AT_ONCE];
    let mut part = ReadBuf::uninit(&mut bytes);
    ready!(Pin::new(io).poll_read(context, &mut part))?;
    let came = part.filled();
    append(input, came);
    Poll::Ready(Ok(came.len()))
}

/// Adds bytes of a client to others. Their memory does not double: they take little more than there
/// are.
pub(super) fn append(bytes: &mut Vec<u8>, more: &[u8]) {
    if bytes.capacity() - bytes.len() < more.len() {
        bytes.reserve_exact(more.len().next_multiple_of(GROWTH));
    }
    bytes.extend_from_slice(more);
}

/// Writes `bytes` from `at` on, and flushes them.
fn poll_write_all(
    io: &mut Connection,
    context: &mut Context<'_>,
    bytes: &[u8],
    at: &mut usize,
) -> Poll<io::Result<()>> {
    while let Some(rest) = bytes.get(*at..).filter(|rest| !rest.is_empty()) {
        match ready!(Pin::new(&mut *io).poll_write(context, rest))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            n_bytes => *at += n_bytes,
        }
    }
    Pin::new(io).poll_flush(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_long_command_is_little_more_than_its_bytes() {
        for n_bytes in [1, 30, READ_AT_ONCE] {
            let mut bytes = Vec::new();
            while bytes.len() < 64 * 1024 {
                append(&mut bytes, &vec![b'a'; n_bytes]);
                let spare = bytes.capacity() - bytes.len();
                assert!(spare < GROWTH, "{spare} of {}", bytes.capacity());
            }
        }
    }
}
