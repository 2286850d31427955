//! A reply's body that keeps something until it is written, or given up with its connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;

/// Bytes that are given out at once. The writer keeps a buffer of what it was given for the next
/// reply of the connection.
const PIECE: usize = 16 * 1024;

/// The bytes of a body, and what is dropped after them.
struct Keeping<T> {
    left: Bytes,
    n_bytes: u64,
    _kept: T,
}

/// The same reply, which keeps `kept` until its body is written.
pub(crate) fn keeping<T: Unpin + 'static>(response: HttpResponse, kept: T) -> HttpResponse {
    response.map_body(|_head, body| match body.try_into_bytes() {
        Ok(left) => BoxBody::new(Keeping {
            n_bytes: left.len() as u64,
            left,
            _kept: kept,
        }),
        Err(body) => body,
    })
}

impl<T: Unpin> MessageBody for Keeping<T> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.n_bytes)
    }

    fn poll_next(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let left = &mut self.get_mut().left;
        // More is asked for when what was given is nearly written, and not before.
        let piece = left.split_to(left.len().min(PIECE));
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}
