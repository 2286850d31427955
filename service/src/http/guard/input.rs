//! Hands out what comes on a connection: one head at a time, and between two heads only the body of
//! the first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::web::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

use super::end_of_head::EndOfHead;
use crate::edge::ConnectionProgress;

/// The most bytes of a head. Above this size, actix doubles its buffer.
const MAX_HEAD: usize = 31 * 1024;

/// The most bytes of one read. The buffer is cleared for this many bytes each time.
const READ_AT_ONCE: usize = 2 * 1024;

/// Bytes that are read while nothing is handed out, to see whether the caller is still there.
const KEPT_WHILE_WAITING: usize = 256;

/// Returns the most bytes of a head, or of a chunked body with all that is around its chunks, if a
/// body has at most `body` bytes.
pub(crate) fn max_unread(body: usize) -> usize {
    // This is more than is read for a chunked body. So such a body is too large before it reaches
    // this bound.
    MAX_HEAD.max(body.saturating_add(body / 4))
}

/// What came on a connection, and was not handed out yet.
#[derive(Default)]
pub(crate) struct Input {
    /// Bytes that were read, and are for a later read of actix.
    kept: BytesMut,
    is_turn_over: bool,
    end_of_head: EndOfHead,
}

impl Input {
    /// Returns whether bytes are kept for a later read.
    pub(crate) fn is_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Returns whether the last read handed out the end of a head, and begins the next turn.
    pub(crate) fn begin_turn(&mut self) -> bool {
        std::mem::take(&mut self.is_turn_over)
    }

    /// Hands out at most `allowed` bytes, and of heads none beyond the end of the first. Bytes that
    /// were read beyond that end are kept for later.
    pub(crate) fn hand_out(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        progress: &ConnectionProgress,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        allowed: usize,
    ) -> Poll<io::Result<usize>> {
        let room = buffer.remaining().min(allowed).min(READ_AT_ONCE);
        let n_bytes = if self.kept.is_empty() {
            let before = buffer.filled().len();
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
            ready!(Pin::new(io).poll_read(context, &mut part))?;
            let n_bytes = self.end_of_turn(progress, part.filled());
            let later = part.filled().get(n_bytes..).unwrap_or_default();
            self.kept.extend_from_slice(later);
            buffer.set_filled(before + n_bytes);
            n_bytes
        } else {
            let mut now = std::mem::take(&mut self.kept);
            let n_bytes = self.end_of_turn(progress, now.get(..room).unwrap_or(&now));
            if n_bytes < now.len() {
                self.kept = now.split_off(n_bytes);
            }
            buffer.put_slice(&now);
            n_bytes
        };
        Poll::Ready(Ok(n_bytes))
    }

    /// Returns how many bytes of `part` may be handed out before the next request is answered, and
    /// ends the turn if that is a whole head.
    fn end_of_turn(&mut self, progress: &ConnectionProgress, part: &[u8]) -> usize {
        let end = match progress.is_reading_known_length() {
            true => None,
            false => self.end_of_head.find(part),
        };
        self.is_turn_over = end.is_some();
        end.unwrap_or(part.len())
    }

    /// Hands out nothing, and looks whether the caller is still there. Bytes that come are kept.
    pub(crate) fn wait(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.kept.is_empty() {
            let mut bytes = [0; KEPT_WHILE_WAITING];
            let mut part = ReadBuf::new(&mut bytes);
            ready!(Pin::new(io).poll_read(context, &mut part))?;
            if part.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.kept.extend_from_slice(part.filled());
        }
        Poll::Pending
    }
}
